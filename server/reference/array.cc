// Tested by tests/unit/reference/reference_interpreter_test.cc
#include "server/reference/array.h"

#include <cmath>
#include <limits>
#include <utility>

namespace fuseline::reference {

Array Array::Make(DType dtype, Shape shape) {
  Array array;
  array.dtype = dtype;
  array.shape = std::move(shape);
  array.strides = DenseStrides(array.shape);
  const size_t count = static_cast<size_t>(array.size());
  if (IsFloat(dtype)) {
    array.f = std::make_shared<std::vector<double>>(count);
  } else {
    array.i = std::make_shared<std::vector<int64_t>>(count);
  }
  return array;
}

bool Array::is_dense() const {
  if (offset != 0 || size() != static_cast<int64_t>(is_float() ? f->size() : i->size())) return false;
  const Shape dense = DenseStrides(shape);
  for (size_t d = 0; d < shape.size(); ++d) {
    if (shape[d] > 1 && strides[d] != dense[d]) return false;
  }
  return true;
}

namespace {

template <typename T>
void Gather(const Array& view, const std::vector<T>& from, std::vector<T>& to) {
  std::vector<int64_t> position(view.shape.size(), 0);
  int64_t at = view.offset;
  for (T& element : to) {
    element = from[static_cast<size_t>(at)];
    for (size_t d = view.shape.size(); d-- > 0;) {
      at += view.strides[d];
      if (++position[d] < view.shape[d]) break;
      at -= view.strides[d] * view.shape[d];
      position[d] = 0;
    }
  }
}

}  // namespace

Array Dense(const Array& array) {
  if (array.is_dense()) return array;
  Array dense = Array::Make(array.dtype, array.shape);
  if (array.is_float()) {
    Gather(array, *array.f, *dense.f);
  } else {
    Gather(array, *array.i, *dense.i);
  }
  return dense;
}

Array FromTensor(const Tensor& tensor) {
  Array array = Array::Make(tensor.dtype(), tensor.shape());
  const int64_t count = array.size();
  if (array.is_float()) {
    double* out = array.f->data();
    const void* data = tensor.data();
    const DType dtype = tensor.dtype();
    for (int64_t k = 0; k < count; ++k) out[k] = LoadElement(dtype, data, k);
  } else {
    int64_t* out = array.i->data();
    for (int64_t k = 0; k < count; ++k) out[k] = tensor.GetInt(k);
  }
  return array;
}

Tensor ToTensor(const Array& given) {
  const Array array = Dense(given);
  Tensor tensor = Tensor::Allocate(array.dtype, array.shape);
  const int64_t count = array.size();
  for (int64_t k = 0; k < count; ++k) {
    if (array.is_float()) {
      StoreElement(array.dtype, tensor.data(), k, (*array.f)[static_cast<size_t>(k)]);
    } else {
      tensor.SetInt(k, (*array.i)[static_cast<size_t>(k)]);
    }
  }
  return tensor;
}

Array Stored(const Array& given) {
  if (!IsHalf(given.dtype)) return given;
  const Array array = Dense(given);
  Array stored = Array::Make(array.dtype, array.shape);
  for (size_t k = 0; k < array.f->size(); ++k) (*stored.f)[k] = RoundToDType(array.dtype, (*array.f)[k]);
  return stored;
}

double RoundResult(DType dtype, Numerics numerics, double value) {
  if (dtype == DType::kF64) return value;
  const double computed = RoundToDType(DType::kF32, value);
  // First to f32, as a kernel does, which computes in f32 and rounds what it stores.
  return IsHalf(dtype) && numerics == Numerics::kFused ? computed : RoundToDType(dtype, computed);
}

int64_t WrapInteger(DType dtype, int64_t value) {
  switch (dtype) {
    case DType::kI32:
      return static_cast<int32_t>(value);
    case DType::kI16:
      return static_cast<int16_t>(value);
    case DType::kI8:
      return static_cast<int8_t>(value);
    case DType::kU8:
      return static_cast<uint8_t>(value);
    case DType::kBool:
      return value != 0 ? 1 : 0;
    default:
      return value;
  }
}

int64_t CastToInteger(DType dtype, double value) {
  if (IsBool(dtype)) return value != 0 ? 1 : 0;
  if (std::isnan(value)) return 0;
  int64_t low = std::numeric_limits<int64_t>::min(), high = std::numeric_limits<int64_t>::max();
  switch (dtype) {
    case DType::kI32:
      low = std::numeric_limits<int32_t>::min(), high = std::numeric_limits<int32_t>::max();
      break;
    case DType::kI16:
      low = -32768, high = 32767;
      break;
    case DType::kI8:
      low = -128, high = 127;
      break;
    case DType::kU8:
      low = 0, high = 255;
      break;
    default:
      break;
  }
  if (value <= static_cast<double>(low)) return low;
  if (value >= static_cast<double>(high)) return high;
  return static_cast<int64_t>(value);
}

Array LiteralArray(const Literal& literal, DType dtype) {
  Array array = Array::Make(dtype, {});
  if (array.is_float()) {
    (*array.f)[0] = RoundToDType(dtype, literal.AsDouble());
  } else {
    (*array.i)[0] =
        literal.kind == Literal::Kind::kFloat ? CastToInteger(dtype, literal.f) : WrapInteger(dtype, literal.i);
  }
  return array;
}

}  // namespace fuseline::reference
