// Activations: pointwise functions of one operand with constants or attributes, made of the primitives.
// Each is accurate over the whole line and takes its limit at the infinities, where the textbook form would give inf *
// 0 or inf / inf.
#include <algorithm>
#include <cmath>
#include <limits>

#include "absl/strings/str_cat.h"
#include "common/ir/ops/op_rows.h"
#include "common/ir/ops/type_rules.h"
#include "common/status/status_macros.h"

namespace fuseline::ops {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kSqrtHalf = 0.70710678118654752440;
constexpr double kSqrtTwoOverPi = 0.79788456080286535588;
constexpr double kGeluCubic = 0.044715;
constexpr double kSeluAlpha = 1.6732632423543772848170429916717;
constexpr double kSeluScale = 1.0507009873554804934193349852946;

// --- Pieces of scalar rules. ---

Scalar Max(Scalar a, Scalar b) { return Binary(ScalarOp::kMaximum, a, b); }
Scalar Min(Scalar a, Scalar b) { return Binary(ScalarOp::kMinimum, a, b); }
Scalar Max(Scalar a, double b) { return Max(a, a.builder->Const(b, a.type())); }
Scalar Min(Scalar a, double b) { return Min(a, a.builder->Const(b, a.type())); }
Scalar Exp(Scalar a) { return Unary(ScalarOp::kExp, a); }
Scalar Expm1(Scalar a) { return Unary(ScalarOp::kExpm1, a); }
Scalar Log1p(Scalar a) { return Unary(ScalarOp::kLog1p, a); }
Scalar Abs(Scalar a) { return Unary(ScalarOp::kAbs, a); }
Scalar Quotient(Scalar a, Scalar b) { return Binary(ScalarOp::kQuotient, a, b); }
Scalar Negative(Scalar a) { return Compare(ScalarOp::kLt, a, 0.0); }

// `value`, but 0 at x = -inf.
Scalar ZeroAtMinusInf(Scalar x, Scalar value) { return Select(Compare(ScalarOp::kEq, x, -kInf), 0.0, value); }

// x * sigmoid(t), without overflow on either side: exp of a negative number only, and one division.
Scalar TimesSigmoid(Scalar x, Scalar t) {
  const Scalar e = Exp(-Abs(t));
  return x * Quotient(Select(Negative(t), e, 1.0), 1.0 + e);
}

Scalar Softplus(Scalar t) { return Max(t, 0.0) + Log1p(Exp(-Abs(t))); }

// --- Pieces of references. ---

double PlainSigmoid(double x) { return x < 0 ? std::exp(x) / (1 + std::exp(x)) : 1 / (1 + std::exp(-x)); }
double PlainSoftplus(double x) { return x > 40 ? x : std::log1p(std::exp(x)); }
double PlainMax(double a, double b) {
  return std::isnan(a) || std::isnan(b) ? kNan : a == b ? (std::signbit(a) ? b : a) : std::fmax(a, b);
}
double PlainMin(double a, double b) {
  return std::isnan(a) || std::isnan(b) ? kNan : a == b ? (std::signbit(a) ? a : b) : std::fmin(a, b);
}
int64_t IntNumber(const ReferenceArgs& r, const char* name) {
  const AttrValue& value = r.attrs->find(name)->second;
  const int64_t* whole = std::get_if<int64_t>(&value);
  return whole != nullptr ? *whole : static_cast<int64_t>(r.Number(name));
}
double ClampReference(const ReferenceArgs& r) {
  double x = r.f[0];
  if (r.Has("min")) x = PlainMax(x, r.Number("min"));
  if (r.Has("max")) x = PlainMin(x, r.Number("max"));
  return x;
}
int64_t ClampIntReference(const ReferenceArgs& r) {
  int64_t x = r.i[0];
  if (r.Has("min")) x = std::max(x, IntNumber(r, "min"));
  if (r.Has("max")) x = std::min(x, IntNumber(r, "max"));
  return x;
}
Scalar ClampScalar(ScalarArgs& a) {
  Scalar x = a[0];
  if (a.Has("min")) x = Max(x, a.Attr("min"));
  if (a.Has("max")) x = Min(x, a.Attr("max"));
  return x;
}

// --- Type rules. ---

absl::StatusOr<std::vector<TensorType>> ClampRule(const InferArgs& args) {
  FUSELINE_RETURN_IF_ERROR(CheckDType(args.operands[0].dtype, DTypeSet::kNumbers));
  FUSELINE_RETURN_IF_ERROR(CheckAttrHolds(args, "min", args.operands[0].dtype));
  FUSELINE_RETURN_IF_ERROR(CheckAttrHolds(args, "max", args.operands[0].dtype));
  return SameTypeRule(args, DTypeSet::kNumbers);
}

absl::StatusOr<std::vector<TensorType>> ThresholdRule(const InferArgs& args) {
  FUSELINE_RETURN_IF_ERROR(CheckDType(args.operands[0].dtype, DTypeSet::kNumbers));
  FUSELINE_RETURN_IF_ERROR(CheckAttrHolds(args, "threshold", args.operands[0].dtype));
  FUSELINE_RETURN_IF_ERROR(CheckAttrHolds(args, "value", args.operands[0].dtype));
  return SameTypeRule(args, DTypeSet::kNumbers);
}

absl::StatusOr<std::vector<TensorType>> GeluRule(const InferArgs& args) {
  const std::string approximate = StringAttr(args.attrs, "approximate");
  if (approximate != "none" && approximate != "tanh") {
    return TypeError(absl::StrCat("attribute 'approximate' must be \"none\" or \"tanh\", not \"", approximate, "\""));
  }
  return SameTypeRule(args, DTypeSet::kFloats);
}

absl::StatusOr<std::vector<TensorType>> CeluRule(const InferArgs& args) {
  if (args.Number("alpha") == 0) return TypeError("attribute 'alpha' must not be 0");
  return SameTypeRule(args, DTypeSet::kFloats);
}

Scalar GeluScalar(ScalarArgs& a) {
  const Scalar x = a[0];
  if (a.String("approximate") == "tanh") {
    // 0.5 (1 + tanh(u)) = sigmoid(2 u), which does not cancel.
    return ZeroAtMinusInf(x, TimesSigmoid(x, (2 * kSqrtTwoOverPi) * (x + kGeluCubic * (x * x * x))));
  }
  // 0.5 (1 + erf(z)) = 0.5 erfc(-z), which does not cancel.
  return ZeroAtMinusInf(x, x * (0.5 * Unary(ScalarOp::kErfc, x * -kSqrtHalf)));
}

double GeluReference(const ReferenceArgs& r) {
  const double x = r.f[0];
  if (x == -kInf) return 0;
  if (r.String("approximate") == "tanh") return x * PlainSigmoid(2 * kSqrtTwoOverPi * (x + kGeluCubic * x * x * x));
  return 0.5 * x * std::erfc(-x * kSqrtHalf);
}

// mish = x tanh(log(1 + e^x)); tanh(log(y)) = (y^2 - 1) / (y^2 + 1), scaled by e^-2x for positive x.
Scalar MishScalar(ScalarArgs& a) {
  const Scalar x = a[0];
  const Scalar e = Exp(-Abs(x));
  const Scalar negative = Negative(x);
  const Scalar numerator = Select(negative, e * (e + 2.0), 1.0 + 2.0 * e);
  const Scalar denominator = numerator + Select(negative, 2.0, 2.0 * (e * e));
  return ZeroAtMinusInf(x, x * Quotient(numerator, denominator));
}

using R = const ReferenceArgs&;

void AddSigmoids(std::vector<OpDef>& rows) {
  rows.push_back(PointwiseRow(
      "sigmoid", 1, Same<DTypeSet::kFloats>,
      [](ScalarArgs& a) {
        const Scalar e = Exp(-Abs(a[0]));
        return Quotient(Select(Negative(a[0]), e, 1.0), 1.0 + e);
      },
      [](R r) { return PlainSigmoid(r.f[0]); }, nullptr));
  rows.push_back(PointwiseRow(
      "log_sigmoid", 1, Same<DTypeSet::kFloats>, [](ScalarArgs& a) { return Min(a[0], 0.0) - Log1p(Exp(-Abs(a[0]))); },
      [](R r) { return r.f[0] < 0 ? r.f[0] - std::log1p(std::exp(r.f[0])) : -std::log1p(std::exp(-r.f[0])); },
      nullptr));
  rows.push_back(PointwiseRow(
      "silu", 1, Same<DTypeSet::kFloats>, [](ScalarArgs& a) { return ZeroAtMinusInf(a[0], TimesSigmoid(a[0], a[0])); },
      [](R r) { return r.f[0] == -kInf ? 0.0 : r.f[0] * PlainSigmoid(r.f[0]); }, nullptr));
  rows.push_back(PointwiseRow(
      "mish", 1, Same<DTypeSet::kFloats>, MishScalar,
      [](R r) { return r.f[0] == -kInf ? 0.0 : r.f[0] * std::tanh(PlainSoftplus(r.f[0])); }, nullptr));
  rows.push_back(PointwiseRow("gelu", 1, GeluRule, GeluScalar, GeluReference, nullptr,
                              {{"approximate", AttrType::kString, false, AttrValue(std::string("none"))}}));
  rows.push_back(PointwiseRow(
      "softplus", 1, Same<DTypeSet::kFloats>,
      [](ScalarArgs& a) {
        const bool unscaled = a.Number("beta") == 1;
        const Scalar t = unscaled ? a[0] : a[0] * a.Attr("beta");
        const Scalar soft = unscaled ? Softplus(t) : Softplus(t) / a.Attr("beta");
        return Select(Compare(ScalarOp::kGt, t, a.Attr("threshold")), a[0], soft);
      },
      [](R r) {
        const double beta = r.Number("beta"), t = r.f[0] * beta;
        return t > r.Number("threshold") ? r.f[0]
                                         : (t > 0 ? t + std::log1p(std::exp(-t)) : std::log1p(std::exp(t))) / beta;
      },
      nullptr,
      {{"beta", AttrType::kFloat, false, AttrValue(1.0)}, {"threshold", AttrType::kFloat, false, AttrValue(20.0)}}));
  rows.push_back(PointwiseRow(
      "softsign", 1, Same<DTypeSet::kFloats>,
      [](ScalarArgs& a) {
        const Scalar infinite = a.builder->Emit(ScalarOp::kIsInf, DType::kBool, a[0]);
        const Scalar one = a.builder->Const(1.0, a[0].type());
        return Select(infinite, Binary(ScalarOp::kCopysign, one, a[0]), a[0] / (1.0 + Abs(a[0])));
      },
      [](R r) { return std::isinf(r.f[0]) ? std::copysign(1.0, r.f[0]) : r.f[0] / (1 + std::fabs(r.f[0])); }, nullptr));
}

void AddLinearUnits(std::vector<OpDef>& rows) {
  rows.push_back(PointwiseRow(
      "relu", 1, Same<DTypeSet::kNumbers>, [](ScalarArgs& a) { return Max(a[0], 0.0); },
      [](R r) { return PlainMax(r.f[0], 0.0); }, [](R r) { return std::max<int64_t>(r.i[0], 0); }));
  rows.push_back(PointwiseRow(
      "relu6", 1, Same<DTypeSet::kNumbers>, [](ScalarArgs& a) { return Min(Max(a[0], 0.0), 6.0); },
      [](R r) { return PlainMin(PlainMax(r.f[0], 0.0), 6.0); },
      [](R r) { return std::min<int64_t>(std::max<int64_t>(r.i[0], 0), 6); }));
  rows.push_back(PointwiseRow(
      "elu", 1, Same<DTypeSet::kFloats>,
      [](ScalarArgs& a) { return Select(Compare(ScalarOp::kGt, a[0], 0.0), a[0], a.Attr("alpha") * Expm1(a[0])); },
      [](R r) { return r.f[0] > 0 ? r.f[0] : r.Number("alpha") * std::expm1(r.f[0]); }, nullptr,
      {{"alpha", AttrType::kFloat, false, AttrValue(1.0)}}));
  rows.push_back(PointwiseRow(
      "celu", 1, CeluRule,
      [](ScalarArgs& a) {
        return Select(Compare(ScalarOp::kGt, a[0], 0.0), a[0], a.Attr("alpha") * Expm1(a[0] / a.Attr("alpha")));
      },
      [](R r) { return r.f[0] > 0 ? r.f[0] : r.Number("alpha") * std::expm1(r.f[0] / r.Number("alpha")); }, nullptr,
      {{"alpha", AttrType::kFloat, false, AttrValue(1.0)}}));
  rows.push_back(PointwiseRow(
      "selu", 1, Same<DTypeSet::kFloats>,
      [](ScalarArgs& a) {
        return Select(Compare(ScalarOp::kGt, a[0], 0.0), kSeluScale * a[0], (kSeluScale * kSeluAlpha) * Expm1(a[0]));
      },
      [](R r) { return kSeluScale * (r.f[0] > 0 ? r.f[0] : kSeluAlpha * std::expm1(r.f[0])); }, nullptr));
  rows.push_back(PointwiseRow(
      "leaky_relu", 1, Same<DTypeSet::kFloats>,
      [](ScalarArgs& a) { return Select(Negative(a[0]), a[0] * a.Attr("slope"), a[0]); },
      [](R r) { return r.f[0] < 0 ? r.f[0] * r.Number("slope") : r.f[0]; }, nullptr,
      {{"slope", AttrType::kFloat, false, AttrValue(0.01)}}));
  rows.push_back(PointwiseRow(
      "threshold", 1, ThresholdRule,
      [](ScalarArgs& a) { return Select(Compare(ScalarOp::kLe, a[0], a.Attr("threshold")), a.Attr("value"), a[0]); },
      [](R r) { return r.f[0] <= r.Number("threshold") ? r.Number("value") : r.f[0]; },
      [](R r) { return r.i[0] <= IntNumber(r, "threshold") ? IntNumber(r, "value") : r.i[0]; },
      {{"threshold", AttrType::kScalar, true}, {"value", AttrType::kScalar, true}}));
}

void AddClamps(std::vector<OpDef>& rows) {
  rows.push_back(PointwiseRow("clamp", 1, ClampRule, ClampScalar, ClampReference, ClampIntReference,
                              {{"min", AttrType::kScalar}, {"max", AttrType::kScalar}}));
  rows.push_back(PointwiseRow("hardtanh", 1, ClampRule, ClampScalar, ClampReference, ClampIntReference,
                              {{"min", AttrType::kScalar, false, AttrValue(int64_t{-1})},
                               {"max", AttrType::kScalar, false, AttrValue(int64_t{1})}}));
  rows.push_back(PointwiseRow(
      "hardsigmoid", 1, Same<DTypeSet::kFloats>,
      [](ScalarArgs& a) { return Min(Max(a.Attr("alpha") * a[0] + a.Attr("beta"), 0.0), 1.0); },
      [](R r) { return PlainMin(PlainMax(r.Number("alpha") * r.f[0] + r.Number("beta"), 0.0), 1.0); }, nullptr,
      {{"alpha", AttrType::kFloat, false, AttrValue(1.0 / 6.0)}, {"beta", AttrType::kFloat, false, AttrValue(0.5)}}));
  // x relu6(x + 3) / 6, with the division before the product: x * 6 would overflow. Left of -3 that is x * 0, a
  // negative zero.
  rows.push_back(PointwiseRow(
      "hardswish", 1, Same<DTypeSet::kFloats>,
      [](ScalarArgs& a) {
        return Select(Compare(ScalarOp::kLe, a[0], -3.0), -0.0, a[0] * (Min(a[0] + 3.0, 6.0) / 6.0));
      },
      [](R r) { return r.f[0] <= -3  ? -0.0
                       : r.f[0] >= 3 ? r.f[0]
                                     : r.f[0] * (r.f[0] + 3) / 6; }, nullptr));
}

}  // namespace

void AddActivationRows(std::vector<OpDef>& rows) {
  AddSigmoids(rows);
  AddLinearUnits(rows);
  AddClamps(rows);
}

}  // namespace fuseline::ops
