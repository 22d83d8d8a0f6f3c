// quantize and dequantize by their definitions. Tested by tests/unit/reference/quantization_test.cc
#include <algorithm>
#include <cmath>
#include <limits>

#include "server/reference/reference_ops.h"

namespace fuseline::reference {
namespace {

// The element of scale or zero point that belongs to element k of `x`.
struct ParameterIndex {
  int64_t inner = 1;  // elements of x from one index of the axis to the next
  int64_t size = 1;   // of the axis; 1 for one parameter for the whole tensor
  size_t operator()(int64_t k) const { return static_cast<size_t>(k / inner % size); }
};

ParameterIndex IndexOf(const OpContext& context, const Array& x, const Array& scale) {
  ParameterIndex index;
  if (scale.shape.empty()) return index;
  const auto rank = static_cast<int64_t>(x.shape.size());
  const int64_t axis = context.Int("axis") < 0 ? context.Int("axis") + rank : context.Int("axis");
  for (int64_t d = axis + 1; d < rank; ++d) index.inner *= x.shape[static_cast<size_t>(d)];
  index.size = x.shape[static_cast<size_t>(axis)];
  return index;
}

// Rounded to what an op on the dtype computes in: f32, or f64 for f64.
double Computed(DType dtype, double value) { return dtype == DType::kF64 ? value : static_cast<float>(value); }

double LeastOf(DType dtype) {
  if (dtype == DType::kU8) return 0;
  return dtype == DType::kI8 ? -128 : dtype == DType::kI16 ? -32768 : std::numeric_limits<int32_t>::min();
}

double LargestOf(DType dtype) {
  if (dtype == DType::kU8) return 255;
  return dtype == DType::kI8 ? 127 : dtype == DType::kI16 ? 32767 : std::numeric_limits<int32_t>::max();
}

double ToNearestEven(double value) {
  const double down = std::floor(value);
  const double rest = value - down;
  if (rest != 0.5) return rest < 0.5 ? down : down + 1;
  return std::fmod(down, 2) == 0 ? down : down + 1;
}

}  // namespace

Array EvaluateQuantize(const OpContext& context, const std::vector<Array>& operands) {
  const Array& x = operands[0];
  const Array& scale = operands[1];
  const DType dtype = context.result_types[0].dtype;
  const ParameterIndex parameter = IndexOf(context, x, scale);
  Array result = Array::Make(dtype, x.shape);
  for (int64_t k = 0; k < x.size(); ++k) {
    const double ratio =
        Computed(x.dtype, (*x.f)[static_cast<size_t>(k)] / (*scale.f)[parameter(k)]);  // one rounding: see RoundResult
    if (IsF8(dtype)) {
      (*result.f)[static_cast<size_t>(k)] = context.Round(ratio);
      continue;
    }
    const double zero_point =
        operands.size() > 2 ? static_cast<double>((*operands[2].i)[parameter(k)]) : 0;  // exact: 32 bits at most
    const double sum = std::isfinite(ratio) ? ToNearestEven(ratio) + zero_point : ratio;
    (*result.i)[static_cast<size_t>(k)] =
        std::isnan(sum) ? 0 : static_cast<int64_t>(std::clamp(sum, LeastOf(dtype), LargestOf(dtype)));
  }
  return result;
}

Array EvaluateDequantize(const OpContext& context, const std::vector<Array>& operands) {
  const Array& q = operands[0];
  const Array& scale = operands[1];
  const ParameterIndex parameter = IndexOf(context, q, scale);
  Array result = Array::Make(context.result_types[0].dtype, q.shape);
  for (int64_t k = 0; k < q.size(); ++k) {
    const auto at = static_cast<size_t>(k);
    const int64_t zero_point = operands.size() > 2 ? (*operands[2].i)[parameter(k)] : 0;
    const double value = q.is_float() ? (*q.f)[at] : static_cast<double>((*q.i)[at] - zero_point);
    const double product = Computed(scale.dtype, value) * (*scale.f)[parameter(k)];
    (*result.f)[at] = context.Round(Computed(scale.dtype, product));
  }
  return result;
}

}  // namespace fuseline::reference
