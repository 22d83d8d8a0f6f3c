#include "common/case_file/compare_tensors.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"

namespace fuseline {
namespace {

// The error of one float element, and whether it is within tolerance.
struct ElementError {
  bool passed = false;
  double abs_error = 0;
};

ElementError CompareFloat(double got, double want, const Tolerance& tolerance) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  if (std::isnan(want) || std::isnan(got)) {
    const bool same = std::isnan(want) && std::isnan(got);
    return {same, same ? 0 : kInfinity};
  }
  if (std::isinf(want) || std::isinf(got)) return {got == want, got == want ? 0 : kInfinity};
  const double error = std::fabs(got - want);
  if (tolerance.negative_zero_matters && want == 0 && std::signbit(want)) return {got == 0 && std::signbit(got), error};
  return {error <= tolerance.atol + tolerance.rtol * std::fabs(want), error};
}

std::string TypeText(const Tensor& tensor) {
  return absl::StrCat(std::string(DTypeName(tensor.dtype())), "[", absl::StrJoin(tensor.shape(), ", "), "]");
}

}  // namespace

std::string ElementPosition(const Shape& shape, int64_t flat) {
  Shape index(shape.size());
  for (size_t d = shape.size(); d-- > 0;) {
    index[d] = flat % shape[d];
    flat /= shape[d];
  }
  return absl::StrCat("[", absl::StrJoin(index, ", "), "]");
}

std::string ElementText(const Tensor& tensor, int64_t flat) {
  const DType dtype = tensor.dtype();
  if (IsBool(dtype)) return tensor.GetInt(flat) != 0 ? "true" : "false";
  if (IsInteger(dtype)) return absl::StrCat(tensor.GetInt(flat));
  const double v = tensor.GetDouble(flat);
  if (std::isnan(v)) return "nan";
  if (std::isinf(v)) return v < 0 ? "-inf" : "inf";
  if (v == 0) return std::signbit(v) ? "-0.0" : "0";
  if (dtype == DType::kF64) return absl::StrFormat("%.17g", v);
  return absl::StrFormat("%.*g", dtype == DType::kF32 ? 9 : 6, v);
}

OutputComparison CompareTensors(const std::string& name, const Tensor& got, const Tensor& want,
                                const Tolerance& tolerance) {
  OutputComparison result;
  result.name = name;
  result.elements = want.element_count();
  if (got.dtype() != want.dtype() || got.shape() != want.shape()) {
    result.mismatches = std::max<int64_t>(1, result.elements);
    result.max_abs_error = std::numeric_limits<double>::infinity();
    result.first_mismatch = absl::StrCat("got a tensor of type ", TypeText(got), ", want ", TypeText(want));
    return result;
  }
  const bool is_float = IsFloat(want.dtype());
  for (int64_t i = 0; i < result.elements; ++i) {
    ElementError element;
    if (is_float) {
      element = CompareFloat(got.GetDouble(i), want.GetDouble(i), tolerance);
    } else {
      const int64_t g = got.GetInt(i);
      const int64_t w = want.GetInt(i);
      element = {g == w, g == w ? 0 : std::fabs(static_cast<double>(g) - static_cast<double>(w))};
    }
    if (element.abs_error > 0) {
      result.max_abs_error = std::max(result.max_abs_error, element.abs_error);
      const double magnitude = std::fabs(want.GetDouble(i));
      if (magnitude > 0 && std::isfinite(magnitude)) {
        result.max_rel_error = std::max(result.max_rel_error, element.abs_error / magnitude);
      }
    }
    if (element.passed) continue;
    if (++result.mismatches == 1) {
      result.first_mismatch = absl::StrCat("at ", ElementPosition(want.shape(), i), ": got ", ElementText(got, i),
                                           ", want ", ElementText(want, i));
    }
  }
  return result;
}

}  // namespace fuseline
