#include "tests/testing/shadow.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace fuseline::testing {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

struct Format {
  int fraction_bits;
  int least_exponent;  // of the smallest normal number
};

Format FormatOf(DType dtype) {
  switch (dtype) {
    case DType::kF64:
      return {52, -1022};
    case DType::kF16:
      return {10, -14};
    case DType::kBF16:
      return {7, -126};
    case DType::kF8E4M3:
      return {3, -6};
    case DType::kF8E5M2:
      return {2, -14};
    default:
      return {23, -126};
  }
}

Tensor Copy(const Tensor& tensor) {
  Tensor copy = Tensor::Allocate(tensor.dtype(), tensor.shape());
  std::copy_n(static_cast<const char*>(tensor.data()), tensor.size_bytes(), static_cast<char*>(copy.data()));
  return copy;
}

Tensor Stored(DType dtype, const Tensor& widened) {
  if (widened.dtype() == dtype) return widened;
  Tensor stored = Tensor::Allocate(dtype, widened.shape());
  for (int64_t i = 0; i < stored.element_count(); ++i) stored.SetDouble(i, widened.GetDouble(i));
  return stored;
}

// Keeps a moved integer within its dtype; SetInt would wrap.
int64_t ClampTo(DType dtype, double v) {
  const int bits = DTypeSizeBytes(dtype) * 8;
  if (dtype == DType::kU8) return static_cast<int64_t>(std::clamp(v, 0.0, 255.0));
  const double high = std::ldexp(1.0, bits - 1);
  if (v >= high) return std::numeric_limits<int64_t>::max() >> (64 - bits);
  if (v < -high) return std::numeric_limits<int64_t>::min() >> (64 - bits);
  return static_cast<int64_t>(v);
}

}  // namespace

double Ulp(DType dtype, double v) {
  if (!std::isfinite(v)) return 0;
  const Format format = FormatOf(dtype);
  int exponent = format.least_exponent;
  if (v != 0) exponent = std::max(exponent, std::ilogb(v));
  return std::ldexp(1.0, exponent - format.fraction_bits);
}

Tensor Widened(const Tensor& tensor) {
  if (!IsFloat(tensor.dtype()) || tensor.dtype() == DType::kF64) return tensor;
  Tensor widened = Tensor::Allocate(DType::kF64, tensor.shape());
  double* out = static_cast<double*>(widened.data());
  for (int64_t i = 0; i < tensor.element_count(); ++i) out[i] = LoadElement(tensor.dtype(), tensor.data(), i);
  return widened;
}

Shadow Shadow::Of(DType dtype, const Tensor& values) {
  Tensor bounds = Tensor::Allocate(DType::kF64, values.shape());
  std::fill_n(static_cast<double*>(bounds.data()), bounds.element_count(), 0.0);
  return Of(dtype, values, bounds);
}

Shadow Shadow::Of(DType dtype, const Tensor& values, const Tensor& bounds) {
  Shadow shadow;
  shadow.dtype_ = dtype;
  shadow.values_ = Copy(values);
  shadow.bounds_ = Copy(bounds);
  return shadow;
}

Tensor Shadow::AsStored() const { return Stored(dtype_, values_); }

Tensor Shadow::Moved(int side, double ulps, DType computed, bool as_stored, bool* moved) const {
  Tensor result = Copy(values_);
  *moved = false;
  for (int64_t i = 0; i < size(); ++i) {
    const double distance = bound(i) + (ulps > 0 ? ulps * Ulp(computed, f(i)) : 0);
    if (!(distance > 0) || (side == 0 && distance < kInf)) continue;
    *moved = true;
    if (is_float() && side == 0) {
      static_cast<double*>(result.data())[i] = std::numeric_limits<double>::quiet_NaN();
    } else if (is_float()) {
      static_cast<double*>(result.data())[i] = f(i) + side * distance;
    } else if (IsBool(dtype_)) {
      result.SetInt(i, values_.GetInt(i) == 0 ? 1 : 0);
    } else {
      result.SetInt(i, ClampTo(dtype_, f(i) + side * distance));
    }
  }
  return as_stored && is_float() ? Stored(dtype_, result) : result;
}

Tensor Shadow::WithZerosNegated(bool as_stored, bool* moved) const {
  Tensor result = Copy(values_);
  *moved = false;
  double* out = static_cast<double*>(result.data());
  for (int64_t i = 0; i < size(); ++i) {
    if (out[i] != 0) continue;
    *moved = true;
    out[i] = -out[i];
  }
  return as_stored ? Stored(dtype_, result) : result;
}

void Shadow::Widen(const Tensor& end) {
  for (int64_t i = 0; i < size(); ++i) {
    const double from = f(i);
    const double to = is_float() ? static_cast<const double*>(end.data())[i] : static_cast<double>(end.GetInt(i));
    if (from == to || (std::isnan(from) && std::isnan(to))) continue;
    const double distance = std::fabs(to - from);
    set_bound(i, std::isnan(distance) ? kInf : bound(i) + distance);
  }
}

}  // namespace fuseline::testing
