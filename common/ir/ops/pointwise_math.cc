// Elementary functions of floats.
#include <cmath>
#include <limits>

#include "common/ir/ops/op_rows.h"
#include "common/ir/ops/type_rules.h"

namespace fuseline::ops {
namespace {

template <ScalarOp kOp>
Scalar OneOperand(ScalarArgs& a) {
  return Unary(kOp, a[0]);
}
template <ScalarOp kOp>
Scalar TwoOperands(ScalarArgs& a) {
  return Binary(kOp, a[0], a[1]);
}
template <ScalarOp kOp>
Scalar Test(ScalarArgs& a) {
  return a.builder->Emit(kOp, DType::kBool, a[0]);
}

void AddFunction(std::vector<OpDef>& rows, const char* name, ScalarRule scalar, FloatReference reference) {
  rows.push_back(PointwiseRow(name, 1, Same<DTypeSet::kFloats>, scalar, reference, nullptr));
}

}  // namespace

void AddPointwiseMathRows(std::vector<OpDef>& rows) {
  using R = const ReferenceArgs&;
  AddFunction(rows, "ceil", OneOperand<ScalarOp::kCeil>, [](R r) { return std::ceil(r.f[0]); });
  AddFunction(rows, "floor", OneOperand<ScalarOp::kFloor>, [](R r) { return std::floor(r.f[0]); });
  AddFunction(rows, "round", OneOperand<ScalarOp::kRound>, [](R r) { return std::nearbyint(r.f[0]); });
  AddFunction(rows, "trunc", OneOperand<ScalarOp::kTrunc>, [](R r) { return std::trunc(r.f[0]); });
  AddFunction(rows, "sqrt", OneOperand<ScalarOp::kSqrt>, [](R r) { return std::sqrt(r.f[0]); });
  AddFunction(rows, "rsqrt", OneOperand<ScalarOp::kRsqrt>,
              [](R r) { return static_cast<double>(1.0L / std::sqrt(static_cast<long double>(r.f[0]))); });
  AddFunction(
      rows, "reciprocal", [](ScalarArgs& a) { return 1.0 / a[0]; }, [](R r) { return 1.0 / r.f[0]; });
  AddFunction(rows, "exp", OneOperand<ScalarOp::kExp>, [](R r) { return std::exp(r.f[0]); });
  AddFunction(rows, "exp2", OneOperand<ScalarOp::kExp2>, [](R r) { return std::exp2(r.f[0]); });
  AddFunction(rows, "expm1", OneOperand<ScalarOp::kExpm1>, [](R r) { return std::expm1(r.f[0]); });
  AddFunction(rows, "log", OneOperand<ScalarOp::kLog>, [](R r) { return std::log(r.f[0]); });
  AddFunction(rows, "log2", OneOperand<ScalarOp::kLog2>, [](R r) { return std::log2(r.f[0]); });
  AddFunction(rows, "log10", OneOperand<ScalarOp::kLog10>, [](R r) { return std::log10(r.f[0]); });
  AddFunction(rows, "log1p", OneOperand<ScalarOp::kLog1p>, [](R r) { return std::log1p(r.f[0]); });
  AddFunction(rows, "sin", OneOperand<ScalarOp::kSin>, [](R r) { return std::sin(r.f[0]); });
  AddFunction(rows, "cos", OneOperand<ScalarOp::kCos>, [](R r) { return std::cos(r.f[0]); });
  AddFunction(rows, "tan", OneOperand<ScalarOp::kTan>, [](R r) { return std::tan(r.f[0]); });
  AddFunction(rows, "asin", OneOperand<ScalarOp::kAsin>, [](R r) { return std::asin(r.f[0]); });
  AddFunction(rows, "acos", OneOperand<ScalarOp::kAcos>, [](R r) { return std::acos(r.f[0]); });
  AddFunction(rows, "atan", OneOperand<ScalarOp::kAtan>, [](R r) { return std::atan(r.f[0]); });
  AddFunction(rows, "sinh", OneOperand<ScalarOp::kSinh>, [](R r) { return std::sinh(r.f[0]); });
  AddFunction(rows, "cosh", OneOperand<ScalarOp::kCosh>, [](R r) { return std::cosh(r.f[0]); });
  AddFunction(rows, "tanh", OneOperand<ScalarOp::kTanh>, [](R r) { return std::tanh(r.f[0]); });
  AddFunction(rows, "asinh", OneOperand<ScalarOp::kAsinh>, [](R r) { return std::asinh(r.f[0]); });
  AddFunction(rows, "acosh", OneOperand<ScalarOp::kAcosh>, [](R r) { return std::acosh(r.f[0]); });
  AddFunction(rows, "atanh", OneOperand<ScalarOp::kAtanh>, [](R r) { return std::atanh(r.f[0]); });
  AddFunction(rows, "erf", OneOperand<ScalarOp::kErf>, [](R r) { return std::erf(r.f[0]); });
  AddFunction(rows, "erfc", OneOperand<ScalarOp::kErfc>, [](R r) { return std::erfc(r.f[0]); });
  // lgamma_r, since std::lgamma writes the global signgam.
  AddFunction(rows, "lgamma", OneOperand<ScalarOp::kLgamma>, [](R r) {
    int sign = 0;
    return ::lgamma_r(r.f[0], &sign);
  });
  rows.push_back(PointwiseRow(
      "isnan", 1, ToBoolResult<DTypeSet::kFloats>, Test<ScalarOp::kIsNan>,
      [](R r) { return std::isnan(r.f[0]) ? 1.0 : 0.0; }, nullptr));
  rows.push_back(PointwiseRow(
      "isinf", 1, ToBoolResult<DTypeSet::kFloats>, Test<ScalarOp::kIsInf>,
      [](R r) { return std::isinf(r.f[0]) ? 1.0 : 0.0; }, nullptr));
  rows.push_back(PointwiseRow(
      "isfinite", 1, ToBoolResult<DTypeSet::kFloats>, Test<ScalarOp::kIsFinite>,
      [](R r) { return std::isfinite(r.f[0]) ? 1.0 : 0.0; }, nullptr));
  rows.push_back(PointwiseRow(
      "atan2", 2, Same<DTypeSet::kFloats>, TwoOperands<ScalarOp::kAtan2>,
      [](R r) { return std::atan2(r.f[0], r.f[1]); }, nullptr));
  rows.push_back(PointwiseRow(
      "hypot", 2, Same<DTypeSet::kFloats>, TwoOperands<ScalarOp::kHypot>,
      [](R r) { return std::hypot(r.f[0], r.f[1]); }, nullptr));
}

}  // namespace fuseline::ops
