#include "common/ir/types.h"

#include "common/status/str_cat.h"

namespace fuseline {
namespace {

struct DTypeRow {
  std::string_view name;
  int size_bytes;
  DTypeKind kind;
};

// By the enum's numbers.
constexpr DTypeRow kDTypes[kDTypeCount] = {
    {"invalid", 0, DTypeKind::kInvalid}, {"f64", 8, DTypeKind::kFloat},   {"f32", 4, DTypeKind::kFloat},
    {"f16", 2, DTypeKind::kFloat},       {"bf16", 2, DTypeKind::kFloat},  {"f8e4m3", 1, DTypeKind::kFloat},
    {"f8e5m2", 1, DTypeKind::kFloat},    {"i64", 8, DTypeKind::kInteger}, {"i32", 4, DTypeKind::kInteger},
    {"i16", 2, DTypeKind::kInteger},     {"i8", 1, DTypeKind::kInteger},  {"u8", 1, DTypeKind::kInteger},
    {"bool", 1, DTypeKind::kBool},
};

// A number outside the enum (from a message of another version, say) is treated as invalid.
const DTypeRow& Row(DType dtype) {
  const int index = static_cast<int>(dtype);
  return kDTypes[index < kDTypeCount ? index : 0];
}

}  // namespace

std::string_view DTypeName(DType dtype) { return Row(dtype).name; }

std::optional<DType> ParseDType(std::string_view name) {
  for (int i = 1; i < kDTypeCount; ++i) {
    if (kDTypes[i].name == name) return static_cast<DType>(i);
  }
  return std::nullopt;
}

int DTypeSizeBytes(DType dtype) { return Row(dtype).size_bytes; }
DTypeKind GetDTypeKind(DType dtype) { return Row(dtype).kind; }

DType ComputeDType(DType d) { return IsHalf(d) || IsF8(d) ? DType::kF32 : d; }

TensorType TensorType::Make(DType dtype, const Shape& shape) {
  TensorType type;
  type.dtype = dtype;
  type.dims.assign(shape.begin(), shape.end());
  return type;
}

bool TensorType::is_static() const {
  for (const Dim& dim : dims) {
    if (dim.is_symbolic()) return false;
  }
  return true;
}

Shape TensorType::shape() const {
  Shape shape;
  shape.reserve(dims.size());
  for (const Dim& dim : dims) shape.push_back(dim.size);
  return shape;
}

int64_t TensorType::element_count() const {
  int64_t count = 1;
  for (const Dim& dim : dims) count *= dim.size;
  return count;
}

std::string TensorType::ToString() const {
  std::string text(DTypeName(dtype));
  text += '[';
  for (size_t i = 0; i < dims.size(); ++i) {
    if (i > 0) text += ", ";
    if (dims[i].is_symbolic()) {
      text += dims[i].symbol;
    } else {
      StrAppend(&text, dims[i].size);
    }
  }
  text += ']';
  if (strides.has_value()) {
    text += '{';
    for (size_t i = 0; i < strides->size(); ++i) StrAppend(&text, i > 0 ? ", " : "", (*strides)[i]);
    text += '}';
  }
  return text;
}

int64_t ElementCount(const Shape& shape) {
  int64_t count = 1;
  for (int64_t size : shape) count *= size;
  return count;
}

Shape DenseStrides(const Shape& shape) {
  Shape strides(shape.size());
  int64_t stride = 1;
  for (size_t i = shape.size(); i-- > 0;) {
    strides[i] = stride;
    stride *= shape[i];
  }
  return strides;
}

}  // namespace fuseline
