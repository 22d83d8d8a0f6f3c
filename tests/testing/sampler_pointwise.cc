// Pointwise ops: operands in the op's domain, attributes, and the interval of the result.
#include <algorithm>
#include <cmath>
#include <limits>
#include <string_view>

#include "common/ir/attr_values.h"
#include "common/status/status_macros.h"
#include "common/status/str_cat.h"
#include "tests/testing/graph_sampler.h"

namespace fuseline::testing {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

struct Domain {
  const char* op;
  Interval operands[3];
};

// Where an op is defined and neither overflows nor loses all digits. Ops not listed take what the dtype's limit allows.
constexpr Interval kWide = {-1024, 1024};
constexpr Interval kPositive = {0.0625, 1024};
constexpr Domain kDomains[] = {
    {"exp", {{-8, 8}}},
    {"exp2", {{-12, 12}}},
    {"expm1", {{-8, 8}}},
    {"sinh", {{-8, 8}}},
    {"cosh", {{-8, 8}}},
    {"log", {kPositive}},
    {"log2", {kPositive}},
    {"log10", {kPositive}},
    {"log1p", {{-0.5, 1024}}},
    {"lgamma", {kPositive}},
    {"sqrt", {{0, 1024}}},
    {"rsqrt", {kPositive}},
    {"reciprocal", {kPositive}},
    {"square", {{-64, 64}}},
    {"tan", {{-1.25, 1.25}}},
    {"asin", {{-1, 1}}},
    {"acos", {{-1, 1}}},
    {"acosh", {{1, 1024}}},
    {"atanh", {{-0.75, 0.75}}},
    {"mul", {{-64, 64}, {-64, 64}}},
    {"div", {kWide, kPositive}},
    {"floor_divide", {kWide, {0.25, 1024}}},
    {"trunc_divide", {kWide, {0.25, 1024}}},
    {"remainder", {kWide, {0.25, 1024}}},
    {"fmod", {kWide, {0.25, 1024}}},
    {"pow", {{0.25, 8}, {-3, 3}}},
    {"atan2", {kWide, kPositive}},
    {"addcmul", {kWide, {-32, 32}, {-32, 32}}},
    {"addcdiv", {kWide, kWide, kPositive}},
    {"lerp", {kWide, kWide, {-2, 2}}},
};

Interval OperandDomain(std::string_view op, size_t k, double limit) {
  Interval domain = {-limit, limit};
  for (const Domain& row : kDomains) {
    if (op == row.op) domain = row.operands[k];
  }
  return {std::max(domain.low, -limit), std::min(domain.high, limit)};
}

AttrMap WithDefaults(const OpDef& def, AttrMap attrs) {
  for (const AttrSpec& spec : def.attrs) {
    if (spec.default_value.has_value() && attrs.find(spec.name) == attrs.end())
      attrs[spec.name] = DefaultAttrValue(spec);
  }
  return attrs;
}

// Whether the op takes operands of this dtype.
bool Takes(const OpDef& def, DType dtype, const AttrMap& attrs) {
  const AttrMap full = WithDefaults(def, attrs);
  const GraphLimits limits;
  std::vector<TensorType> operands(static_cast<size_t>(def.max_operands), TensorType::Make(dtype, {}));
  if (def.name == std::string_view("where")) operands[0].dtype = DType::kBool;
  return def.infer(InferArgs{operands, full, limits}).ok();
}

// To the next power of two outwards, so that the last bit of a math library does not steer the generator.
double Outwards(double bound) {
  if (bound == 0 || !std::isfinite(bound)) return bound;
  int exponent = 0;
  std::frexp(bound * 1.01, &exponent);
  return std::copysign(std::ldexp(1.0, exponent), bound);
}

// Points of an interval, ends included.
std::vector<double> SamplePoints(const Interval& interval) {
  const double low = std::max(interval.low, -1e9), high = std::min(interval.high, 1e9);
  std::vector<double> points = {interval.low, interval.high};
  for (int k = 0; k <= 4; ++k) points.push_back(low + (high - low) * k / 4);
  if (low < 0 && high > 0) points.push_back(0);
  return points;
}

Interval ResultInterval(const OpDef& def, DType operand_dtype, DType result_dtype,
                        const std::vector<Interval>& operands, const AttrMap& given) {
  if (def.name == std::string_view("bitcast")) return {-kInf, kInf};
  if (def.name == std::string_view("cast")) return operands[0];
  if (!IsFloat(operand_dtype) || !IsFloat(result_dtype) || def.reference_float == nullptr)
    return WholeRange(result_dtype);
  const AttrMap attrs = WithDefaults(def, given);
  std::vector<std::vector<double>> points;
  for (const Interval& operand : operands) points.push_back(SamplePoints(operand));
  points.resize(3, {0.0});
  double f[3];
  const int64_t i[3] = {0, 0, 0};
  ReferenceArgs args{f, i, operand_dtype, result_dtype, &attrs};
  Interval result = {kInf, -kInf};
  for (double a : points[0]) {
    for (double b : points[1]) {
      for (double c : points[2]) {
        f[0] = a, f[1] = b, f[2] = c;
        const double y = def.reference_float(args);
        if (std::isnan(y)) continue;
        result.low = std::min(result.low, y);
        result.high = std::max(result.high, y);
      }
    }
  }
  if (result.low > result.high) return {0, 0};  // NaN everywhere
  // Outwards must not take a positive low end across zero, nor shrink it.
  if (result.low > 0) {
    result.low = 1 / Outwards(1 / result.low);
  } else {
    result.low = Outwards(result.low);
  }
  result.high = result.high > 0 ? Outwards(result.high) : 0;
  return result;
}

}  // namespace

AttrMap GraphSampler::PointwiseAttrs(const OpDef& def, DType dtype) {
  const std::string_view name = def.name;
  const bool is_float = IsFloat(dtype);
  // A bound that every number dtype holds, and fractions for floats.
  const auto bound = [&](int64_t low, int64_t high) -> AttrValue {
    const int64_t whole = random_.Between(low, high);
    if (is_float && random_.Chance(50)) return static_cast<double>(whole) + 0.25;
    return whole;
  };
  if (name == "cast") {
    return {{"dtype", random_.Pick({DType::kF32, DType::kF32, DType::kF64, DType::kF16, DType::kBF16, DType::kF8E4M3,
                                    DType::kF8E5M2, DType::kI64, DType::kI32, DType::kI16, DType::kI8, DType::kU8,
                                    DType::kBool})}};
  }
  if (name == "gelu") return {{"approximate", std::string(random_.Pick({"none", "tanh"}))}};
  if (name == "clamp") {
    AttrMap attrs;
    const bool both = random_.Chance(60);
    if (both || random_.Chance(50)) attrs["min"] = bound(0, 3);
    if (both || attrs.empty()) attrs["max"] = bound(3, 40);
    return attrs;
  }
  if (name == "hardtanh" && (dtype == DType::kU8 || random_.Chance(60)))
    return {{"min", bound(0, 2)}, {"max", bound(3, 20)}};
  if (name == "threshold") return {{"threshold", bound(0, 4)}, {"value", bound(0, 9)}};
  if (name == "addcmul" && random_.Chance(60)) return {{"value", bound(2, 5)}};
  if (name == "addcdiv" && random_.Chance(60)) return {{"value", random_.Pick({2.0, -0.5, 3.25})}};
  if (name == "elu" || name == "celu")
    return random_.Chance(50) ? AttrMap{} : AttrMap{{"alpha", random_.Pick({0.5, 1.75})}};
  if (name == "leaky_relu" && random_.Chance(50)) return {{"slope", random_.Pick({0.25, 0.1})}};
  if (name == "hardsigmoid" && random_.Chance(50)) return {{"alpha", 0.25}, {"beta", 0.25}};
  if (name == "softplus" && random_.Chance(50))
    return {{"beta", random_.Pick({0.5, 2.0})}, {"threshold", random_.Pick({8.0, 20.0})}};
  return {};
}

Operand GraphSampler::RandomLiteral(DType dtype, Interval domain, Interval* range) {
  Operand operand;
  if (IsBool(dtype)) {
    operand.literal.kind = Literal::Kind::kBool;
    operand.literal.i = random_.Below(2);
    *range = {0, 1};
    return operand;
  }
  if (IsInteger(dtype)) {
    const int64_t value = random_.Between(dtype == DType::kU8 ? 1 : -5, 9);
    *range = {static_cast<double>(value), static_cast<double>(value)};
    return GraphBuilder::Integer(value == 0 ? 3 : value);
  }
  const int64_t low = static_cast<int64_t>(std::ceil(std::max(domain.low, -4.0) * 4));
  const int64_t high = static_cast<int64_t>(std::floor(std::min(domain.high, 4.0) * 4));
  double value = low <= high ? static_cast<double>(random_.Between(low, high)) * 0.25 : domain.low;
  if (random_.Chance(10) && domain.low <= 0.1 && domain.high >= 0.1) value = 0.1;  // exact in no format
  *range = {value, value};
  return GraphBuilder::Number(value);
}

absl::StatusOr<Operand> GraphSampler::OtherOperand(DType dtype, Interval domain, bool is_integer_divisor, Shape* shape,
                                                   Interval* range) {
  const ValueId partner = random_.Chance(18) ? kNoValue : Partner(dtype, *shape);
  if (partner == kNoValue) return RandomLiteral(dtype, domain, range);
  ValueId value = partner;
  if (is_integer_divisor) {  // dividing by zero gives an unspecified result
    FUSELINE_ASSIGN_OR_RETURN(value, Emit("bitwise_or", {V(value), GraphBuilder::Integer(1)}, {}, {}));
  } else {
    FUSELINE_ASSIGN_OR_RETURN(value, MostlyInto(value, domain));
  }
  FUSELINE_ASSIGN_OR_RETURN(*shape, BroadcastShapes({*shape, type(value).shape()}));
  *range = interval(value);
  return V(value);
}

absl::Status GraphSampler::AddPointwise(const OpDef& def) {
  const std::string_view name = def.name;
  const auto n = static_cast<size_t>(def.max_operands);
  // The operand that sets the dtype.
  ValueId first = kNoValue;
  AttrMap attrs;
  if (name == "bitcast") {
    first = FindValue([&](ValueId id) { return !IsBool(type(id).dtype); });
    if (first == kNoValue) {
      FUSELINE_ASSIGN_OR_RETURN(first, ValueOf(DType::kF32));
    }
    std::vector<DType> same_size;
    for (int d = 1; d < kDTypeCount; ++d) {
      const DType to = static_cast<DType>(d);
      if (!IsBool(to) && !IsF8(to) && DTypeSizeBytes(to) == DTypeSizeBytes(type(first).dtype)) same_size.push_back(to);
    }
    attrs["dtype"] = random_.Pick(same_size);
  } else if (name == "cast") {
    first = AnyValue();
    attrs = PointwiseAttrs(def, type(first).dtype);
  } else {
    // Attributes that suit every dtype are enough to ask whether the op takes it.
    const AttrMap probe = name == "threshold"  ? AttrMap{{"threshold", int64_t{1}}, {"value", int64_t{1}}}
                          : name == "hardtanh" ? AttrMap{{"min", int64_t{0}}, {"max", int64_t{1}}}
                                               : AttrMap{};
    const auto takes = [&](DType dtype) { return Takes(def, dtype, probe); };
    first = FindValue([&](ValueId id) { return takes(type(id).dtype); });
    if (first == kNoValue || random_.Chance(5)) {
      DType dtype = RandomDType();
      for (int tries = 0; tries < 50 && !takes(dtype); ++tries) dtype = RandomDType();
      if (!takes(dtype)) dtype = takes(DType::kF32) ? DType::kF32 : DType::kI32;
      FUSELINE_ASSIGN_OR_RETURN(first, ValueOf(dtype));
    }
    attrs = PointwiseAttrs(def, type(first).dtype);
  }
  const DType dtype = type(first).dtype;
  const double limit = MagnitudeLimit(dtype);
  const bool is_division = name == "floor_divide" || name == "trunc_divide" || name == "remainder" || name == "fmod";
  const bool is_sensitive =
      name != "cast" && name != "bitcast" && name != "where" && !(name.size() > 2 && name.substr(0, 2) == "is");

  std::vector<Operand> operands;
  std::vector<Interval> ranges(n);
  size_t position = 0;
  if (name == "where") {
    FUSELINE_ASSIGN_OR_RETURN(ValueId condition, ValueOf(DType::kBool));
    absl::StatusOr<Shape> joint = BroadcastShapes({type(first).shape(), type(condition).shape()});
    if (!joint.ok() || !Fits(*joint)) {
      FUSELINE_ASSIGN_OR_RETURN(condition, Emit("ne", {V(first), V(first)}, {}, {0, 1}));
    }
    operands.push_back(V(condition));
    position = 1;
  }
  if (is_sensitive) {
    FUSELINE_ASSIGN_OR_RETURN(first, MostlyInto(first, OperandDomain(name, 0, limit)));
  }
  operands.push_back(V(first));
  ranges[position] = interval(first);
  Shape shape = type(first).shape();
  if (name == "where") {
    FUSELINE_ASSIGN_OR_RETURN(shape, BroadcastShapes({shape, type(operands[0].value).shape()}));
  }
  for (size_t k = operands.size(); k < n; ++k) {
    const Interval domain = is_sensitive ? OperandDomain(name, k, limit) : Interval{-limit, limit};
    FUSELINE_ASSIGN_OR_RETURN(const Operand other,
                              OtherOperand(dtype, domain, is_division && IsInteger(dtype), &shape, &ranges[k]));
    operands.push_back(other);
  }
  // A literal before the value.
  if (n == 2 && !operands[1].is_literal() && random_.Chance(8)) {
    operands[0] = RandomLiteral(dtype, OperandDomain(name, 0, limit), &ranges[0]);
  }
  if (n == 3 && !operands[2].is_literal() && random_.Chance(8)) {
    operands[1] = RandomLiteral(dtype, OperandDomain(name, 1, limit), &ranges[1]);
  }
  if (name == "where") ranges[0] = {0, 1};
  const AttrMap* const chosen = &attrs;
  const DType result = name == "cast" || name == "bitcast" ? std::get<DType>(chosen->at("dtype")) : dtype;
  const Interval interval = ResultInterval(def, dtype, result, ranges, attrs);
  return Emit(name, operands, attrs, interval).status();
}

}  // namespace fuseline::testing
