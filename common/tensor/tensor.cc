// Tested by tests/unit/reference/tensor_test.cc
#include "common/tensor/tensor.h"

#include <sys/mman.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <new>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status/error.h"
#include "common/tensor/float_formats.h"

namespace fuseline {
namespace {

constexpr std::align_val_t kAlignment{64};
// Storage of at least two huge pages is aligned to them: the first touch then costs one fault for 2 MiB instead of 512,
// and that is most of what filling a fresh tensor costs.
constexpr size_t kHugePage = 2 << 20;
constexpr std::align_val_t kHugeAlignment{kHugePage};

template <typename T>
T Read(const void* data, int64_t i) {
  T value;
  std::memcpy(&value, static_cast<const char*>(data) + i * static_cast<int64_t>(sizeof(T)), sizeof(T));
  return value;
}

template <typename T>
void Write(void* data, int64_t i, T value) {
  std::memcpy(static_cast<char*>(data) + i * static_cast<int64_t>(sizeof(T)), &value, sizeof(T));
}

// Truncates; saturates; NaN gives 0.
template <typename T>
T Saturate(double v) {
  if (std::isnan(v)) return 0;
  const double low = static_cast<double>(std::numeric_limits<T>::min());
  // 2^63 is the first double above every i64; for the narrower types max + 1 is exact as well.
  const double above = std::ldexp(1.0, std::numeric_limits<T>::digits);
  if (v >= above) return std::numeric_limits<T>::max();
  if (v <= low) return std::numeric_limits<T>::min();
  return static_cast<T>(v);
}

}  // namespace

Tensor Tensor::Allocate(DType dtype, Shape shape) {
  Tensor tensor;
  tensor.dtype_ = dtype;
  tensor.shape_ = std::move(shape);
  const size_t size = static_cast<size_t>(std::max<int64_t>(tensor.size_bytes(), 1));
  if (size >= 2 * kHugePage) {
    void* const data = ::operator new(size, kHugeAlignment);
    madvise(data, size / kHugePage * kHugePage, MADV_HUGEPAGE);  // a hint
    tensor.data_ = std::shared_ptr<void>(data, [](void* p) { ::operator delete(p, kHugeAlignment); });
    return tensor;
  }
  tensor.data_ =
      std::shared_ptr<void>(::operator new(size, kAlignment), [](void* p) { ::operator delete(p, kAlignment); });
  return tensor;
}

absl::StatusOr<Tensor> Tensor::FromBytes(DType dtype, Shape shape, std::string_view bytes) {
  const int64_t want = ElementCount(shape) * DTypeSizeBytes(dtype);
  if (static_cast<int64_t>(bytes.size()) != want) {
    return InvalidArgument(ErrorReason::kTensorMismatch, "",
                           absl::StrCat("a tensor of type ", TensorType::Make(dtype, shape).ToString(), " has ", want,
                                        " bytes, not ", bytes.size()));
  }
  Tensor tensor = Allocate(dtype, std::move(shape));
  if (!bytes.empty()) std::memcpy(tensor.data(), bytes.data(), bytes.size());
  return tensor;
}

Tensor Tensor::Borrow(DType dtype, Shape shape, void* data, std::shared_ptr<void> owner) {
  Tensor tensor;
  tensor.dtype_ = dtype;
  tensor.shape_ = std::move(shape);
  tensor.data_ = std::shared_ptr<void>(std::move(owner), data);
  return tensor;
}

double Tensor::GetDouble(int64_t i) const { return LoadElement(dtype_, data(), i); }

int64_t Tensor::GetInt(int64_t i) const {
  switch (dtype_) {
    case DType::kI64:
      return Read<int64_t>(data(), i);
    case DType::kI32:
      return Read<int32_t>(data(), i);
    case DType::kI16:
      return Read<int16_t>(data(), i);
    case DType::kI8:
      return Read<int8_t>(data(), i);
    case DType::kU8:
      return Read<uint8_t>(data(), i);
    case DType::kBool:
      return Read<uint8_t>(data(), i) != 0 ? 1 : 0;
    default:
      return Saturate<int64_t>(GetDouble(i));
  }
}

void Tensor::SetDouble(int64_t i, double v) { StoreElement(dtype_, data(), i, v); }

void Tensor::SetInt(int64_t i, int64_t v) {
  switch (dtype_) {
    case DType::kI64:
      return Write<int64_t>(data(), i, v);
    case DType::kI32:
      return Write<int32_t>(data(), i, static_cast<int32_t>(v));
    case DType::kI16:
      return Write<int16_t>(data(), i, static_cast<int16_t>(v));
    case DType::kI8:
      return Write<int8_t>(data(), i, static_cast<int8_t>(v));
    case DType::kU8:
      return Write<uint8_t>(data(), i, static_cast<uint8_t>(v));
    case DType::kBool:
      return Write<uint8_t>(data(), i, v != 0 ? 1 : 0);
    case DType::kF32:
      return Write<float>(data(), i, static_cast<float>(v));  // not by way of double: one rounding
    default:
      return StoreElement(dtype_, data(), i, static_cast<double>(v));
  }
}

double LoadElement(DType dtype, const void* data, int64_t i) {
  switch (dtype) {
    case DType::kF64:
      return Read<double>(data, i);
    case DType::kF32:
      return static_cast<double>(Read<float>(data, i));
    case DType::kF16:
    case DType::kBF16:
      return DecodeSmallFloat(dtype, Read<uint16_t>(data, i));
    case DType::kF8E4M3:
    case DType::kF8E5M2:
      return DecodeSmallFloat(dtype, Read<uint8_t>(data, i));
    case DType::kI64:
      return static_cast<double>(Read<int64_t>(data, i));
    case DType::kI32:
      return Read<int32_t>(data, i);
    case DType::kI16:
      return Read<int16_t>(data, i);
    case DType::kI8:
      return Read<int8_t>(data, i);
    case DType::kU8:
      return Read<uint8_t>(data, i);
    case DType::kBool:
      return Read<uint8_t>(data, i) != 0 ? 1 : 0;
    case DType::kInvalid:
      break;
  }
  return 0;
}

void StoreElement(DType dtype, void* data, int64_t i, double v) {
  switch (dtype) {
    case DType::kF64:
      return Write<double>(data, i, v);
    case DType::kF32:
      return Write<float>(data, i, static_cast<float>(v));
    case DType::kF16:
    case DType::kBF16:
      return Write<uint16_t>(data, i, EncodeSmallFloat(dtype, v));
    case DType::kF8E4M3:
    case DType::kF8E5M2:
      return Write<uint8_t>(data, i, static_cast<uint8_t>(EncodeSmallFloat(dtype, v)));
    case DType::kI64:
      return Write<int64_t>(data, i, Saturate<int64_t>(v));
    case DType::kI32:
      return Write<int32_t>(data, i, Saturate<int32_t>(v));
    case DType::kI16:
      return Write<int16_t>(data, i, Saturate<int16_t>(v));
    case DType::kI8:
      return Write<int8_t>(data, i, Saturate<int8_t>(v));
    case DType::kU8:
      return Write<uint8_t>(data, i, Saturate<uint8_t>(v));
    case DType::kBool:
      return Write<uint8_t>(data, i, v != 0 ? 1 : 0);  // NaN is true
    case DType::kInvalid:
      break;
  }
}

double RoundToDType(DType dtype, double v) {
  switch (dtype) {
    case DType::kF32:
      return static_cast<double>(static_cast<float>(v));
    case DType::kF16:
    case DType::kBF16:
    case DType::kF8E4M3:
    case DType::kF8E5M2:
      return RoundToSmallFloat(dtype, v);
    default:
      return v;
  }
}

}  // namespace fuseline
