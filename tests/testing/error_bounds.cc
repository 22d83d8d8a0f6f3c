#include "tests/testing/error_bounds.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <string_view>

#include "common/ir/graph_builder.h"
#include "common/ir/op_table.h"
#include "common/status/error.h"
#include "common/status/status_macros.h"
#include "common/status/str_cat.h"
#include "server/reference/reference_interpreter.h"
#include "tests/testing/reduction_bounds.h"
#include "tests/testing/shadow.h"
#include "tests/testing/structure_bounds.h"

namespace fuseline::testing {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

// Results that are correctly rounded, or computed without rounding, whatever the operands.
bool IsExact(std::string_view op) {
  static constexpr std::string_view kExact[] = {
      "abs",        "neg",          "sign",    "ceil",      "floor",    "round",    "trunc",        "sqrt",
      "reciprocal", "square",       "add",     "sub",       "mul",      "div",      "floor_divide", "trunc_divide",
      "remainder",  "fmod",         "maximum", "minimum",   "fmax",     "fmin",     "copysign",     "nextafter",
      "where",      "clamp_tensor", "clamp",   "threshold", "hardtanh", "relu",     "relu6",        "cast",
      "bitcast",    "widen",        "narrow",  "isnan",     "isinf",    "isfinite", "logical_not",  "logical_and",
      "logical_or", "logical_xor",  "eq",      "ne",        "lt",       "le",       "gt",           "ge"};
  return std::find(std::begin(kExact), std::end(kExact), op) != std::end(kExact);
}

// One elementary function; the rest is made of several steps.
bool IsElementary(std::string_view op) {
  static constexpr std::string_view kElementary[] = {
      "rsqrt", "exp",  "exp2", "expm1", "log",   "log2",  "log10", "log1p", "sin",  "cos",   "tan",   "asin", "acos",
      "atan",  "sinh", "cosh", "tanh",  "asinh", "acosh", "atanh", "erf",   "erfc", "atan2", "hypot", "pow"};
  return std::find(std::begin(kElementary), std::end(kElementary), op) != std::end(kElementary);
}

// Where the sign of a zero operand, which is mostly not fixed, decides the result.
bool MindsZeroSign(std::string_view op) {
  return op == "div" || op == "reciprocal" || op == "copysign" || op == "atan2" || op == "pow" || op == "bitcast" ||
         op == "rsqrt" || op == "addcdiv" || op == "nextafter" || op == "floor_divide" || op == "trunc_divide";
}

// The result of one node on operands with f64 in place of every float dtype; literals as they stand.
absl::StatusOr<Tensor> Evaluate(const Node& node, const std::vector<Tensor>& operands) {
  GraphBuilder builder("one");
  std::vector<Operand> given;
  std::vector<Tensor> inputs;
  for (size_t k = 0; k < node.operands.size(); ++k) {
    if (node.operands[k].is_literal()) {
      given.push_back(node.operands[k]);
      continue;
    }
    FUSELINE_ASSIGN_OR_RETURN(
        const ValueId id, builder.AddInput(StrCat("x", k), TensorType::Make(operands[k].dtype(), operands[k].shape())));
    given.push_back(GraphBuilder::Value(id));
    inputs.push_back(operands[k]);
  }
  FUSELINE_ASSIGN_OR_RETURN(const std::vector<ValueId> results, builder.AddNode(node.op, given, node.attrs));
  FUSELINE_RETURN_IF_ERROR(builder.AddOutput("y", results[0]));
  FUSELINE_ASSIGN_OR_RETURN(std::vector<Tensor> outputs, reference::Interpret(builder.Build(), inputs));
  return outputs[0];
}

struct Context {
  const Node& node;
  std::vector<TensorType> results;
  std::vector<bool> is_output;  // one for each result
  Numerics numerics;
  DType literal_dtype = DType::kF32;
};

// The value and bound of a result as the rest of the graph sees it: rounded to the dtype it is computed in, or stored.
// `bound`: before rounding; `is_rounded_once`: whether equal operands give equal bits.
void Round(Shadow& shadow, DType dtype, bool is_stored, bool half_may_round) {
  const DType computed = ComputeDType(dtype);
  const int64_t n = shadow.size();
  for (int64_t i = 0; i < n; ++i) {
    double v = RoundToDType(computed, shadow.f(i));
    double bound = shadow.bound(i);
    if (bound > 0) bound += Ulp(computed, v);
    if (IsHalf(dtype)) {
      const double stored = RoundToDType(dtype, v);
      if (is_stored) {
        if (bound > 0) bound += Ulp(dtype, v);
        v = stored;
      } else if (half_may_round) {
        bound += bound > 0 ? Ulp(dtype, v) : std::fabs(v - stored);
      }
      // An overflow that only one of both sees.
      if (std::isinf(stored) != std::isinf(v) && !is_stored) bound = kInf;
    }
    shadow.set(i, v, std::isnan(bound) ? kInf : bound);
  }
}

absl::StatusOr<Shadow> PointwiseShadow(const Context& context, const std::vector<Shadow>& operands) {
  const Node& node = context.node;
  const DType to = context.results[0].dtype;
  const bool exact_bits = node.op == "bitcast" || node.op == "nextafter";  // what depends on the storage format
  std::vector<Tensor> base;
  for (const Shadow& operand : operands) base.push_back(exact_bits ? operand.AsStored() : operand.values());
  Node evaluated = node;
  const bool is_float_cast =
      (node.op == "cast" || node.op == "narrow" || node.op == "widen") && IsFloat(to) && operands[0].is_float();
  const auto evaluate = [&](const std::vector<Tensor>& given) -> absl::StatusOr<Tensor> {
    if (is_float_cast) return given[0];
    if (node.op == "cast" && IsFloat(to)) {  // from an integer: rounded once, in the dtype itself
      FUSELINE_ASSIGN_OR_RETURN(const Tensor stored, Evaluate(node, given));
      return Widened(stored);
    }
    FUSELINE_ASSIGN_OR_RETURN(Tensor result, Evaluate(evaluated, given));
    return exact_bits ? Widened(result) : result;
  };
  FUSELINE_ASSIGN_OR_RETURN(const Tensor center, evaluate(base));
  Shadow result = Shadow::Of(to, center);

  const bool is_float_op = std::any_of(operands.begin(), operands.end(), [](const Shadow& s) { return s.is_float(); });
  const DType computed = ComputeDType(is_float_op ? operands[node.op == "where" ? 1 : 0].dtype() : to);
  const bool exact = IsExact(node.op) || !IsFloat(to);
  const bool composed = is_float_op && !IsExact(node.op) && !IsElementary(node.op);
  const double wiggle_ulps = composed ? 4 : 0;
  // Both ends of each operand's range, one operand at a time. Where that is infinite, the operand may also be NaN (a
  // partial product that overflows, times zero), which a bounded function does not show at the ends.
  for (size_t k = 0; k < operands.size(); ++k) {
    if (node.operands[k].is_literal()) continue;
    for (const int side : {-1, 0, 1}) {
      bool moved = false;
      std::vector<Tensor> ends = base;
      ends[k] = operands[k].Moved(side, operands[k].is_float() ? wiggle_ulps : 0, computed, exact_bits, &moved);
      if (!moved) continue;
      FUSELINE_ASSIGN_OR_RETURN(const Tensor end, evaluate(ends));
      result.Widen(end);
    }
    bool moved = false;
    if (operands[k].is_float() && MindsZeroSign(node.op)) {
      std::vector<Tensor> flipped = base;
      flipped[k] = operands[k].WithZerosNegated(exact_bits, &moved);
      if (moved) {
        FUSELINE_ASSIGN_OR_RETURN(const Tensor end, evaluate(flipped));
        result.Widen(end);
      }
    }
  }
  // An integer or a bit pattern that may be another may be any: int operations are not continuous.
  const bool from_doubtful_bits =
      exact_bits || (!is_float_op && !IsBool(to) && node.op != "where" && node.op != "cast");
  if (from_doubtful_bits) {
    for (int64_t i = 0; i < result.size(); ++i) {
      if (result.bound(i) > 0 && node.op != "nextafter") result.set_bound(i, kInf);
    }
  }
  // Which NaN an operation gives is its own choice (a GPU's maximum gives another than the CPU's), and a bitcast shows
  // it.
  if (node.op == "bitcast" && operands[0].is_float()) {
    for (int64_t i = 0; i < result.size(); ++i) {
      if (std::isnan(operands[0].f(i))) result.set_bound(i, kInf);
    }
  }
  if (IsFloat(to)) {
    if (!exact) {
      double ulps = computed == DType::kF64 ? 8.5 : composed || node.op == "pow" ? 8.5 : 4.5;
      if (node.op == "lgamma") ulps = 16;
      for (int64_t i = 0; i < result.size(); ++i) {
        const double v = result.f(i);
        // Correctly rounded everywhere: the limits.
        if (std::isnan(v) || std::isinf(v)) continue;
        double extra = ulps * Ulp(computed, v);
        if (node.op == "lgamma") extra += 8 * Ulp(computed, 1.0);  // near its zeros
        if (composed) extra += 64 * Ulp(computed, 0.0);            // a step that underflows
        result.set_bound(i, result.bound(i) + extra);
      }
    }
    const bool is_cast = node.op == "cast";
    const bool narrow_f8 = IsF8(to);
    if (narrow_f8) {
      for (int64_t i = 0; i < result.size(); ++i) {
        const double v = result.f(i), stored = RoundToDType(to, v);
        result.set(i, stored, result.bound(i) > 0 ? result.bound(i) + Ulp(to, v) : 0);
      }
    } else {
      Round(result, to, is_cast || context.is_output[0] || context.numerics == Numerics::kEager, true);
    }
  }
  return result;
}

absl::StatusOr<Shadow> ViewShadow(const Context& context, const Shadow& operand) {
  FUSELINE_ASSIGN_OR_RETURN(const Tensor values, Evaluate(context.node, {operand.values()}));
  FUSELINE_ASSIGN_OR_RETURN(const Tensor bounds, Evaluate(context.node, {operand.bounds()}));
  Shadow result = Shadow::Of(operand.dtype(), values, bounds);
  // A view of a 16-bit value that is an output is rounded, its operand need not be.
  if (IsHalf(operand.dtype()) && context.is_output[0]) Round(result, operand.dtype(), true, true);
  return result;
}

absl::StatusOr<std::vector<Shadow>> NodeShadows(const Context& context, const std::vector<Shadow>& operands);

absl::StatusOr<std::vector<Shadow>> GraphShadows(const Graph& graph, const std::vector<Shadow>& inputs,
                                                 const CompileOptions& options, bool outputs_are_stored) {
  std::vector<bool> is_output(graph.values.size(), false);
  for (const GraphOutput& output : graph.outputs) is_output[static_cast<size_t>(output.value)] = outputs_are_stored;
  std::vector<int> readers(graph.values.size(), 0);
  for (const Node& node : graph.nodes) {
    for (const Operand& operand : node.operands) {
      if (!operand.is_literal()) ++readers[static_cast<size_t>(operand.value)];
    }
  }
  std::vector<Shadow> shadows(graph.values.size());
  for (size_t i = 0; i < inputs.size(); ++i) shadows[static_cast<size_t>(graph.inputs[i])] = inputs[i];
  for (const Node& node : graph.nodes) {
    Context context{node, {}, {}, options.numerics, DType::kF32};
    for (const ValueId id : node.results) {
      context.results.push_back(graph.type(id));
      context.is_output.push_back(is_output[static_cast<size_t>(id)]);
    }
    std::vector<Shadow> operands;
    for (const Operand& operand : node.operands)
      operands.push_back(operand.is_literal() ? Shadow() : shadows[static_cast<size_t>(operand.value)]);
    FUSELINE_ASSIGN_OR_RETURN(std::vector<Shadow> results, NodeShadows(context, operands));
    for (size_t r = 0; r < node.results.size(); ++r)
      shadows[static_cast<size_t>(node.results[r])] = std::move(results[r]);
  }
  std::vector<Shadow> outputs;
  for (const GraphOutput& output : graph.outputs) outputs.push_back(shadows[static_cast<size_t>(output.value)]);
  return outputs;
}

// The composite as the primitive ops that it is made of.
absl::StatusOr<std::vector<Shadow>> CompositeShadows(const Context& context, const std::vector<Shadow>& operands) {
  GraphBuilder builder("composite");
  std::vector<ValueId> ids;
  std::vector<Shadow> inputs;
  for (size_t k = 0; k < operands.size(); ++k) {
    if (context.node.operands[k].is_literal()) {
      const DType dtype = context.results[0].dtype;
      FUSELINE_ASSIGN_OR_RETURN(
          const ValueId id,
          builder.Add("full", {},
                      {{"shape", Shape{}}, {"value", context.node.operands[k].literal.AsDouble()}, {"dtype", dtype}}));
      ids.push_back(id);
      continue;
    }
    FUSELINE_ASSIGN_OR_RETURN(
        const ValueId id, builder.AddInput(StrCat("x", k), TensorType::Make(operands[k].dtype(), operands[k].shape())));
    ids.push_back(id);
    inputs.push_back(operands[k]);
  }
  FUSELINE_ASSIGN_OR_RETURN(const std::vector<ValueId> results,
                            context.node.def->decompose(builder, context.node, ids));
  for (size_t r = 0; r < results.size(); ++r) FUSELINE_RETURN_IF_ERROR(builder.AddOutput(StrCat("y", r), results[r]));
  CompileOptions options;
  options.numerics = context.numerics;
  FUSELINE_ASSIGN_OR_RETURN(std::vector<Shadow> shadows, GraphShadows(builder.Build(), inputs, options, false));
  for (size_t r = 0; r < shadows.size(); ++r) {
    if (!shadows[r].is_float()) continue;
    // The reference computes the composite in one go, without the steps' rounding.
    for (int64_t i = 0; i < shadows[r].size(); ++i) {
      if (std::isfinite(shadows[r].f(i)))
        shadows[r].set_bound(i, shadows[r].bound(i) + 2 * Ulp(ComputeDType(shadows[r].dtype()), shadows[r].f(i)));
    }
    Round(shadows[r], shadows[r].dtype(), context.is_output[r] || context.numerics == Numerics::kEager, true);
  }
  return shadows;
}

absl::StatusOr<std::vector<Shadow>> NodeShadows(const Context& context, const std::vector<Shadow>& operands) {
  switch (context.node.def->kind) {
    case OpKind::kPointwise: {
      FUSELINE_ASSIGN_OR_RETURN(Shadow result, PointwiseShadow(context, operands));
      return std::vector<Shadow>{std::move(result)};
    }
    case OpKind::kCreation: {
      // The reference has one rounding, and so must have everything else.
      GraphBuilder builder("one");
      std::vector<ValueId> made;
      if (context.node.constant_bytes != nullptr) {
        FUSELINE_ASSIGN_OR_RETURN(const ValueId id,
                                  builder.AddConstant(context.results[0], *context.node.constant_bytes));
        made = {id};
      } else {
        FUSELINE_ASSIGN_OR_RETURN(made, builder.AddNode(context.node.op, {}, context.node.attrs));
      }
      FUSELINE_RETURN_IF_ERROR(builder.AddOutput("y", made[0]));
      FUSELINE_ASSIGN_OR_RETURN(const std::vector<Tensor> outputs, reference::Interpret(builder.Build(), {}));
      return std::vector<Shadow>{Shadow::Of(context.results[0].dtype, Widened(outputs[0]))};
    }
    case OpKind::kView: {
      FUSELINE_ASSIGN_OR_RETURN(Shadow result, ViewShadow(context, operands[0]));
      return std::vector<Shadow>{std::move(result)};
    }
    case OpKind::kReduction: {
      FUSELINE_ASSIGN_OR_RETURN(std::vector<Shadow> results,
                                ReductionShadows(context.node, context.results, operands[0]));
      for (size_t r = 0; r < results.size(); ++r) {
        if (!results[r].is_float()) continue;
        Round(results[r], results[r].dtype(), context.is_output[r] || context.numerics == Numerics::kEager, true);
      }
      return results;
    }
    case OpKind::kComposite:
      return CompositeShadows(context, operands);
    case OpKind::kLayout:
    case OpKind::kIndexing:
    case OpKind::kOrdered:
    case OpKind::kContraction:
    case OpKind::kWindow: {
      FUSELINE_ASSIGN_OR_RETURN(std::vector<Shadow> results, StructureShadows(context.node, context.results, operands));
      const bool eager = context.numerics == Numerics::kEager && !OnlyMoves(context.node);
      for (size_t r = 0; r < results.size(); ++r) {
        if (results[r].is_float() && (!OnlyMoves(context.node) || context.is_output[r]))
          Round(results[r], results[r].dtype(), context.is_output[r] || eager, true);
      }
      return results;
    }
  }
  return Internal(StrCat("error bounds: no rule for the op '", context.node.op, "'"));
}

}  // namespace

absl::StatusOr<std::vector<Tensor>> BoundErrors(const Graph& graph, const std::vector<Tensor>& inputs,
                                                const CompileOptions& options) {
  std::vector<Shadow> given;
  for (const Tensor& input : inputs) given.push_back(Shadow::Of(input.dtype(), Widened(input)));
  FUSELINE_ASSIGN_OR_RETURN(const std::vector<Shadow> shadows, GraphShadows(graph, given, options, true));
  std::vector<Tensor> bounds;
  for (const Shadow& shadow : shadows) bounds.push_back(shadow.bounds());
  return bounds;
}

OutputComparison CompareWithin(const std::string& name, const Tensor& got, const Tensor& want, const Tensor& bounds,
                               double scale) {
  OutputComparison comparison;
  comparison.name = name;
  comparison.elements = want.element_count();
  if (got.dtype() != want.dtype() || got.shape() != want.shape()) return CompareTensors(name, got, want, {});
  const double* limit = static_cast<const double*>(bounds.data());
  const bool is_float = IsFloat(want.dtype());
  for (int64_t i = 0; i < comparison.elements; ++i) {
    bool equal = true;
    double error = 0;
    if (is_float) {
      const double g = got.GetDouble(i), w = want.GetDouble(i);
      equal = g == w || (std::isnan(g) && std::isnan(w));
      error = equal ? 0 : std::fabs(g - w);
      if (std::isnan(error)) error = kInf;
    } else {
      equal = got.GetInt(i) == want.GetInt(i);
      error = equal ? 0 : std::fabs(static_cast<double>(got.GetInt(i)) - static_cast<double>(want.GetInt(i)));
    }
    if (equal || limit[i] == kInf || error <= scale * limit[i]) continue;
    comparison.max_abs_error = std::max(comparison.max_abs_error, error);
    if (++comparison.mismatches == 1) {
      comparison.first_mismatch = StrCat("at ", ElementPosition(want.shape(), i), ": got ", ElementText(got, i),
                                         ", want ", ElementText(want, i), " within ", limit[i] * scale);
    }
  }
  return comparison;
}

double CheckedShare(const Tensor& want, const Tensor& bounds) {
  const int64_t n = want.element_count();
  const double* limit = static_cast<const double*>(bounds.data());
  int64_t checked = 0;
  for (int64_t i = 0; i < n; ++i) {
    const double w = std::fabs(IsFloat(want.dtype()) ? want.GetDouble(i) : static_cast<double>(want.GetInt(i)));
    if (limit[i] == 0 || limit[i] <= 0.01 * w) ++checked;
  }
  return n == 0 ? 1 : static_cast<double>(checked) / static_cast<double>(n);
}

}  // namespace fuseline::testing
