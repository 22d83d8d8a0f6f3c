#include "tests/testing/reduction_bounds.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>

#include "common/ir/graph_builder.h"
#include "common/ir/op_table.h"
#include "common/status/error.h"
#include "common/status/status_macros.h"
#include "common/status/str_cat.h"
#include "server/reference/reference_interpreter.h"

namespace fuseline::testing {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

// The bound is computed with the reference's own reductions, in f64, over tensors derived from the operand.
class Reducer {
 public:
  Reducer(const Node& node, const Shadow& operand) : operand_(operand) {
    for (const char* name : {"dims", "dim", "keepdim"}) {
      if (const auto it = node.attrs.find(name); it != node.attrs.end()) attrs_[name] = it->second;
    }
  }

  absl::StatusOr<std::vector<Tensor>> RunAll(std::string_view op, const Tensor& tensor, AttrMap extra = {}) const {
    GraphBuilder builder("reduction");
    FUSELINE_ASSIGN_OR_RETURN(const ValueId x, builder.AddInput("x", TensorType::Make(tensor.dtype(), tensor.shape())));
    AttrMap attrs = attrs_;
    for (auto& [name, value] : extra) attrs[name] = value;
    FUSELINE_ASSIGN_OR_RETURN(const std::vector<ValueId> results, builder.AddNode(op, {GraphBuilder::Value(x)}, attrs));
    for (size_t r = 0; r < results.size(); ++r) FUSELINE_RETURN_IF_ERROR(builder.AddOutput(StrCat("y", r), results[r]));
    return reference::Interpret(builder.Build(), {tensor});
  }
  absl::StatusOr<Tensor> Run(std::string_view op, const Tensor& tensor, AttrMap extra = {}) const {
    FUSELINE_ASSIGN_OR_RETURN(const std::vector<Tensor> results, RunAll(op, tensor, std::move(extra)));
    return results[0];
  }
  // The reduction of the dims with ones in their place, broadcast back to the operand's shape.
  absl::StatusOr<Tensor> Spread(std::string_view op, const Tensor& tensor) const {
    FUSELINE_ASSIGN_OR_RETURN(const Tensor reduced, Run(op, tensor, {{"keepdim", true}}));
    GraphBuilder builder("spread");
    Shape shape = reduced.shape();
    if (shape.empty()) shape.assign(tensor.shape().size(), 1);
    FUSELINE_ASSIGN_OR_RETURN(const ValueId x,
                              builder.AddInput("x", TensorType::Make(reduced.dtype(), reduced.shape())));
    FUSELINE_ASSIGN_OR_RETURN(const ValueId y,
                              builder.Add("broadcast_to", {GraphBuilder::Value(x)}, {{"shape", tensor.shape()}}));
    FUSELINE_RETURN_IF_ERROR(builder.AddOutput("y", y));
    FUSELINE_ASSIGN_OR_RETURN(const std::vector<Tensor> outputs, reference::Interpret(builder.Build(), {reduced}));
    return outputs[0];
  }
  // An f64 tensor made of each element and its bound.
  Tensor Map(const std::function<double(double value, double bound)>& f) const {
    Tensor result = Tensor::Allocate(DType::kF64, operand_.shape());
    double* out = static_cast<double*>(result.data());
    for (int64_t i = 0; i < operand_.size(); ++i) out[i] = f(operand_.f(i), operand_.bound(i));
    return result;
  }
  // Elements that each result is made of.
  double Count(const Tensor& result) const {
    const int64_t n = result.element_count();
    return n == 0 ? 0 : static_cast<double>(operand_.size()) / static_cast<double>(n);
  }
  const AttrMap& attrs() const { return attrs_; }

 private:
  const Shadow& operand_;
  AttrMap attrs_;
};

double At(const Tensor& tensor, int64_t i) { return static_cast<const double*>(tensor.data())[i]; }

double SumRoundings(double n) { return n <= 1 ? 0 : std::min(n - 1, 64 + std::sqrt(n)); }

double UnitRoundoff(DType dtype) { return 0.5 * Ulp(ComputeDType(dtype), 1.0); }

// NaN and infinities are results like others: with finite bounds of the operand, they must come out.
void SetBound(Shadow& shadow, int64_t i, double bound, double operand_bound) {
  if (!std::isfinite(shadow.f(i))) bound = std::isfinite(operand_bound) ? 0 : kInf;
  shadow.set_bound(i, std::isnan(bound) ? kInf : bound);
}

absl::StatusOr<Shadow> SumShadow(const Reducer& r, DType to, const Shadow& operand) {
  FUSELINE_ASSIGN_OR_RETURN(const Tensor center, r.Run("sum", r.Map([](double v, double) { return v; })));
  FUSELINE_ASSIGN_OR_RETURN(const Tensor bounds, r.Run("sum", operand.bounds()));
  FUSELINE_ASSIGN_OR_RETURN(const Tensor magnitudes,
                            r.Run("sum", r.Map([](double v, double) { return std::fabs(v); })));
  const double roundings = SumRoundings(r.Count(center)) * UnitRoundoff(to);
  Shadow result = Shadow::Of(to, center);
  for (int64_t i = 0; i < result.size(); ++i) {
    double bound = At(bounds, i) + roundings * At(magnitudes, i);
    // A partial sum may overflow where the whole does not.
    if (to == DType::kF32 && At(magnitudes, i) > 1e38 && std::isfinite(result.f(i))) bound = kInf;
    SetBound(result, i, bound, At(bounds, i));
  }
  return result;
}

absl::StatusOr<Shadow> ProdShadow(const Reducer& r, DType to, const Shadow& operand) {
  FUSELINE_ASSIGN_OR_RETURN(const Tensor center, r.Run("prod", r.Map([](double v, double) { return v; })));
  FUSELINE_ASSIGN_OR_RETURN(const Tensor plain, r.Run("prod", r.Map([](double v, double) { return std::fabs(v); })));
  FUSELINE_ASSIGN_OR_RETURN(const Tensor most,
                            r.Run("prod", r.Map([](double v, double b) { return std::fabs(v) + b; })));
  FUSELINE_ASSIGN_OR_RETURN(const Tensor high,
                            r.Run("prod", r.Map([](double v, double b) { return std::max(1.0, std::fabs(v) + b); })));
  FUSELINE_ASSIGN_OR_RETURN(
      const Tensor low,
      r.Run("prod", r.Map([](double v, double b) { return v == 0 ? 1.0 : std::min(1.0, std::fabs(v)); })));
  FUSELINE_ASSIGN_OR_RETURN(const Tensor bounds, r.Run("sum", operand.bounds()));
  const double n = r.Count(center);
  const bool wide = to == DType::kF64;
  Shadow result = Shadow::Of(to, center);
  for (int64_t i = 0; i < result.size(); ++i) {
    double bound = At(most, i) - At(plain, i) + (n > 1 ? 2 * n * UnitRoundoff(to) * std::fabs(result.f(i)) : 0);
    // Partial products over- and underflow in an order that is nobody's.
    if (At(high, i) > (wide ? 1e300 : 1e38) || At(low, i) < (wide ? 1e-300 : 1e-37)) bound = kInf;
    result.set_bound(i, bound);
    if (bound < kInf || std::isnan(result.f(i))) SetBound(result, i, bound, At(bounds, i));
  }
  return result;
}

// 1 where the two bool tensors differ.
void DoubtWhereDifferent(Shadow& result, const Tensor& a, const Tensor& b) {
  for (int64_t i = 0; i < result.size(); ++i) {
    if (a.GetInt(i) != b.GetInt(i)) result.set_bound(i, 1);
  }
}

absl::StatusOr<Shadow> TruthShadow(const Reducer& r, std::string_view op, const Shadow& operand) {
  Tensor possible = Tensor::Allocate(DType::kBool, operand.shape()),
         certain = Tensor::Allocate(DType::kBool, operand.shape());
  for (int64_t i = 0; i < operand.size(); ++i) {
    const double v = operand.f(i), bound = operand.bound(i);
    possible.SetInt(i, v != 0 || bound > 0 ? 1 : 0);
    certain.SetInt(i, std::isnan(v) || (IsBool(operand.dtype()) ? v != 0 && bound == 0 : std::fabs(v) > bound) ? 1 : 0);
  }
  FUSELINE_ASSIGN_OR_RETURN(const Tensor center, r.Run(op, operand.values()));
  FUSELINE_ASSIGN_OR_RETURN(const Tensor most, r.Run(op, possible));
  FUSELINE_ASSIGN_OR_RETURN(const Tensor least, r.Run(op, certain));
  Shadow result = Shadow::Of(DType::kBool, center);
  DoubtWhereDifferent(result, most, least);
  return result;
}

absl::StatusOr<Shadow> ArgShadow(const Reducer& r, std::string_view op, const Shadow& operand) {
  FUSELINE_ASSIGN_OR_RETURN(const Tensor center, r.Run(op, operand.values()));
  Shadow result = Shadow::Of(DType::kI64, center);
  if (std::all_of(static_cast<const double*>(operand.bounds().data()),
                  static_cast<const double*>(operand.bounds().data()) + operand.size(),
                  [](double b) { return b == 0; })) {
    return result;
  }
  // In doubt where some other element's upper end reaches the highest lower end.
  const double sign = op == "argmax" ? 1 : -1;
  const Tensor lower = r.Map([&](double v, double b) { return sign * v - b; });
  AttrMap dims;
  if (const auto it = r.attrs().find("dim"); it != r.attrs().end())
    dims["dims"] = std::vector<int64_t>{std::get<int64_t>(it->second)};
  if (const auto it = r.attrs().find("keepdim"); it != r.attrs().end()) dims["keepdim"] = it->second;
  Node folded;
  folded.attrs = dims;
  const Reducer fold(folded, operand);
  FUSELINE_ASSIGN_OR_RETURN(const Tensor highest, fold.Spread("amax", lower));
  Tensor rivals = Tensor::Allocate(DType::kF64, operand.shape());
  for (int64_t i = 0; i < operand.size(); ++i) {
    const double upper = sign * operand.f(i) + operand.bound(i);
    static_cast<double*>(rivals.data())[i] = upper >= At(highest, i) ? 1 : 0;
  }
  FUSELINE_ASSIGN_OR_RETURN(const Tensor count, fold.Run("sum", rivals));
  FUSELINE_ASSIGN_OR_RETURN(const Tensor bounds, fold.Run("amax", operand.bounds()));
  FUSELINE_ASSIGN_OR_RETURN(const Tensor extreme, fold.Run("amax", r.Map([](double v, double) { return v; })));
  for (int64_t i = 0; i < result.size(); ++i) {
    if (At(bounds, i) == kInf || (At(bounds, i) > 0 && At(count, i) > 1 && !std::isnan(At(extreme, i))))
      result.set_bound(i, kInf);
  }
  return result;
}

absl::StatusOr<std::vector<Shadow>> VarMeanShadows(const Reducer& r, const Node& node, DType to,
                                                   const Shadow& operand) {
  const int64_t correction = std::get<int64_t>(node.attrs.find("correction")->second);
  FUSELINE_ASSIGN_OR_RETURN(const std::vector<Tensor> centers,
                            r.RunAll("var_mean", operand.values(), {{"correction", correction}}));
  FUSELINE_ASSIGN_OR_RETURN(const Shadow sum, SumShadow(r, to, operand));
  const double n = r.Count(centers[0]);
  const double u = UnitRoundoff(to);
  FUSELINE_ASSIGN_OR_RETURN(const Tensor total_bounds, r.Run("sum", operand.bounds()));
  Shadow var = Shadow::Of(to, centers[0]), mean = Shadow::Of(to, centers[1]);
  for (int64_t i = 0; i < mean.size(); ++i) {
    const double of_sum = !std::isfinite(mean.f(i)) ? 0 : sum.bound(i) / n + (n > 1 ? 2 * u * std::fabs(mean.f(i)) : 0);
    SetBound(mean, i, of_sum, At(total_bounds, i));
  }
  // Each deviation is wrong by its operand's bound, the mean's, and its rounding.
  FUSELINE_ASSIGN_OR_RETURN(const Tensor mean_spread, r.Spread("sum", r.Map([](double v, double) { return v; })));
  FUSELINE_ASSIGN_OR_RETURN(const Tensor magnitude_spread,
                            r.Spread("sum", r.Map([](double v, double) { return std::fabs(v); })));
  FUSELINE_ASSIGN_OR_RETURN(const Tensor bound_spread, r.Spread("sum", operand.bounds()));
  Tensor first = Tensor::Allocate(DType::kF64, operand.shape()),
         second = Tensor::Allocate(DType::kF64, operand.shape());
  for (int64_t i = 0; i < operand.size(); ++i) {
    const double deviation = std::fabs(operand.f(i) - At(mean_spread, i) / n);
    const double mean_bound = (At(bound_spread, i) + SumRoundings(n) * u * At(magnitude_spread, i)) / n;
    const double wrong = n <= 1 ? 0 : operand.bound(i) + mean_bound + 2 * u * std::fabs(operand.f(i));
    static_cast<double*>(first.data())[i] = 2 * deviation * wrong;
    static_cast<double*>(second.data())[i] = wrong * wrong;
  }
  FUSELINE_ASSIGN_OR_RETURN(const Tensor linear, r.Run("sum", first));
  FUSELINE_ASSIGN_OR_RETURN(const Tensor square, r.Run("sum", second));
  const double divisor = std::max(0.0, n - static_cast<double>(correction));
  for (int64_t i = 0; i < var.size(); ++i) {
    const double bound = (At(linear, i) + At(square, i)) / divisor + (SumRoundings(n) + 8) * u * std::fabs(var.f(i));
    // 0 / 0 or x / 0: which of both hangs on the rounding.
    if (divisor == 0 && n > 1) {
      var.set_bound(i, kInf);
    } else {
      SetBound(var, i, bound, At(total_bounds, i));
    }
  }
  return std::vector<Shadow>{std::move(var), std::move(mean)};
}

absl::StatusOr<Shadow> IntegerShadow(const Reducer& r, const Node& node, DType to, const Shadow& operand) {
  AttrMap extra;
  if (node.attrs.find("dtype") != node.attrs.end()) extra["dtype"] = to;
  FUSELINE_ASSIGN_OR_RETURN(const Tensor center, r.Run(node.op, operand.values(), extra));
  FUSELINE_ASSIGN_OR_RETURN(const Tensor bounds, r.Run("sum", operand.bounds()));
  Shadow result = Shadow::Of(to, center);
  for (int64_t i = 0; i < result.size(); ++i) {
    if (At(bounds, i) > 0) result.set_bound(i, kInf);
  }
  return result;
}

}  // namespace

absl::StatusOr<std::vector<Shadow>> ReductionShadows(const Node& node, const std::vector<TensorType>& results,
                                                     const Shadow& operand) {
  const Reducer r(node, operand);
  const DType to = results[0].dtype;
  absl::StatusOr<Shadow> one;
  switch (node.def->reduction) {
    case ReductionKind::kSum:
      one = IsFloat(to) ? SumShadow(r, to, operand) : IntegerShadow(r, node, to, operand);
      break;
    case ReductionKind::kProd:
      one = IsFloat(to) ? ProdShadow(r, to, operand) : IntegerShadow(r, node, to, operand);
      break;
    case ReductionKind::kAmax:
    case ReductionKind::kAmin: {
      if (!IsFloat(to)) {
        one = IntegerShadow(r, node, to, operand);
        break;
      }
      FUSELINE_ASSIGN_OR_RETURN(const Tensor center, r.Run(node.op, operand.values()));
      FUSELINE_ASSIGN_OR_RETURN(const Tensor bounds, r.Run("amax", operand.bounds()));
      one = Shadow::Of(to, center, bounds);
      break;
    }
    case ReductionKind::kAny:
    case ReductionKind::kAll:
      one = TruthShadow(r, node.op, operand);
      break;
    case ReductionKind::kArgmax:
    case ReductionKind::kArgmin:
      one = ArgShadow(r, node.op, operand);
      break;
    case ReductionKind::kVarMean:
      return VarMeanShadows(r, node, to, operand);
    case ReductionKind::kNone:
      one = Internal(StrCat("error bounds: no rule for the reduction '", node.op, "'"));
  }
  if (!one.ok()) return one.status();
  return std::vector<Shadow>{*std::move(one)};
}

}  // namespace fuseline::testing
