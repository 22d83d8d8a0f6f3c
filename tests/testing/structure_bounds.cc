#include "tests/testing/structure_bounds.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <string_view>

#include "common/ir/graph_builder.h"
#include "common/ir/op_table.h"
#include "common/status/error.h"
#include "common/status/status_macros.h"
#include "common/status/str_cat.h"
#include "server/reference/reference_interpreter.h"

namespace fuseline::testing {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

using Tensors = std::vector<Tensor>;

double At(const Tensor& tensor, int64_t i) {
  return IsFloat(tensor.dtype()) ? tensor.GetDouble(i) : static_cast<double>(tensor.GetInt(i));
}

std::string StringOf(const Node& node, const char* name) {
  const auto it = node.attrs.find(name);
  const auto* text = it == node.attrs.end() ? nullptr : std::get_if<std::string>(&it->second);
  return text == nullptr ? "" : *text;
}

class Structure {
 public:
  Structure(const Node& node, const std::vector<TensorType>& results, const std::vector<Shadow>& operands)
      : node_(node), results_(results), operands_(operands) {}

  absl::StatusOr<std::vector<Shadow>> Run() {
    FUSELINE_ASSIGN_OR_RETURN(centers_, Evaluate(Values(), node_.op, {}));
    if (node_.op == "one_hot") return Discrete();
    if (OnlyMoves(node_)) return Moved();
    if (!IsFloat(results_[0].dtype)) return Discrete();
    if (node_.op == "resize") return Resized();
    switch (node_.def->kind) {
      case OpKind::kIndexing:
        return Scattered();
      case OpKind::kOrdered:
        return Ordered();
      case OpKind::kContraction:
        return Contracted();
      case OpKind::kWindow:
        return Pooled();
      default:
        return Internal(StrCat("error bounds: no rule for the op '", node_.op, "'"));
    }
  }

 private:
  // An operand that holds positions takes part in no arithmetic.
  bool IsIndex(size_t k) const { return node_.def->kind == OpKind::kIndexing && k == 1; }

  // The op on these operands, whose floats are f64; literals are operands of their own, as they stand.
  absl::StatusOr<Tensors> Evaluate(const Tensors& operands, std::string_view op, const AttrMap& other) const {
    GraphBuilder builder("one");
    std::vector<Operand> given;
    Tensors inputs;
    for (size_t k = 0; k < operands.size(); ++k) {
      if (node_.operands[k].is_literal()) {
        given.push_back(node_.operands[k]);
        continue;
      }
      FUSELINE_ASSIGN_OR_RETURN(
          const ValueId id,
          builder.AddInput(StrCat("x", k), TensorType::Make(operands[k].dtype(), operands[k].shape())));
      given.push_back(GraphBuilder::Value(id));
      inputs.push_back(operands[k]);
    }
    AttrMap attrs = node_.attrs;
    if (const auto it = attrs.find("dtype"); it != attrs.end()) {
      if (const auto* dtype = std::get_if<DType>(&it->second); dtype != nullptr && IsFloat(*dtype))
        it->second = DType::kF64;
    }
    for (const auto& [name, value] : other) attrs[name] = value;
    FUSELINE_ASSIGN_OR_RETURN(const std::vector<ValueId> results, builder.AddNode(op, given, attrs));
    for (size_t r = 0; r < results.size(); ++r) FUSELINE_RETURN_IF_ERROR(builder.AddOutput(StrCat("y", r), results[r]));
    return reference::Interpret(builder.Build(), inputs);
  }

  Tensors Values() const {
    Tensors values;
    for (const Shadow& operand : operands_) values.push_back(operand.values());
    return values;
  }
  // Each element that is no position, as f(value, bound) in f64.
  template <typename F>
  Tensors Mapped(const F& f) const {
    Tensors mapped;
    for (size_t k = 0; k < operands_.size(); ++k) {
      if (IsIndex(k)) {
        mapped.push_back(operands_[k].values());
        continue;
      }
      Tensor tensor = Tensor::Allocate(DType::kF64, operands_[k].shape());
      for (int64_t i = 0; i < tensor.element_count(); ++i)
        tensor.SetDouble(i, node_.operands[k].is_literal() ? 0 : f(operands_[k].f(i), operands_[k].bound(i)));
      mapped.push_back(std::move(tensor));
    }
    return mapped;
  }
  Tensors Bounds() const {
    return Mapped([](double, double bound) { return bound; });
  }
  Tensors Magnitudes() const {
    return Mapped([](double value, double) { return std::fabs(value); });
  }
  Tensors Largest() const {
    return Mapped([](double value, double bound) { return std::fabs(value) + bound; });
  }
  Tensors Ones() const {
    return Mapped([](double, double) { return 1.0; });
  }

  double MostBound(bool of_index) const {
    double most = 0;
    for (size_t k = 0; k < operands_.size(); ++k) {
      if (IsIndex(k) != of_index || node_.operands[k].is_literal()) continue;
      for (int64_t i = 0; i < operands_[k].size(); ++i) most = std::max(most, operands_[k].bound(i));
    }
    return most;
  }

  std::vector<Shadow> Centers() const {
    std::vector<Shadow> shadows;
    for (size_t r = 0; r < centers_.size(); ++r) shadows.push_back(Shadow::Of(results_[r].dtype, Widened(centers_[r])));
    return shadows;
  }
  static void SetAll(Shadow& shadow, double bound) {
    for (int64_t i = 0; i < shadow.size(); ++i) shadow.set_bound(i, bound);
  }
  // All results in doubt, where any operand is.
  std::vector<Shadow> Discrete() const {
    std::vector<Shadow> shadows = Centers();
    if (MostBound(false) > 0 || MostBound(true) > 0) {
      for (Shadow& shadow : shadows) SetAll(shadow, kInf);
    }
    return shadows;
  }

  absl::StatusOr<std::vector<Shadow>> Moved() const {
    std::vector<Shadow> shadows = Centers();
    if (MostBound(true) > 0) {
      SetAll(shadows[0], kInf);
      return shadows;
    }
    if (MostBound(false) == 0) return shadows;
    AttrMap other;
    if (node_.attrs.find("value") != node_.attrs.end()) other["value"] = 0.0;  // pad's is exact
    FUSELINE_ASSIGN_OR_RETURN(const Tensors bounds, Evaluate(Bounds(), node_.op, other));
    for (int64_t i = 0; i < shadows[0].size(); ++i) shadows[0].set_bound(i, At(bounds[0], i));
    return shadows;
  }

  double Roundoff() const { return results_[0].dtype == DType::kF64 ? 0x1p-53 : 0x1p-24; }
  double LargestNumber() const {
    return results_[0].dtype == DType::kF64 ? std::numeric_limits<double>::max() : 3.4e38;
  }

  // Sums of `n` terms whose magnitudes come to `magnitude`, given the terms' own bounds.
  void BoundSum(Shadow& shadow, int64_t i, double operand_bound, double n, double magnitude) const {
    double bound = operand_bound + (n + 2) * Roundoff() * magnitude;
    // Only some orders of summing overflow.
    if (std::isfinite(shadow.f(i)) ? magnitude > LargestNumber() : operand_bound > 0) bound = kInf;
    if (!std::isfinite(shadow.f(i)) && operand_bound == 0) bound = 0;
    shadow.set_bound(i, std::isnan(bound) ? kInf : bound);
  }

  absl::StatusOr<std::vector<Shadow>> Scattered() const {
    std::vector<Shadow> shadows = Centers();
    if (MostBound(true) > 0) {
      SetAll(shadows[0], kInf);
      return shadows;
    }
    const std::string reduction = StringOf(node_, "reduction");
    if (reduction == "max" || reduction == "min") {
      FUSELINE_ASSIGN_OR_RETURN(const Tensors bounds,
                                Evaluate(Bounds(), node_.op, {{"reduction", std::string("max")}}));
      for (int64_t i = 0; i < shadows[0].size(); ++i) shadows[0].set_bound(i, At(bounds[0], i));
      return shadows;
    }
    const double n = static_cast<double>(operands_[1].size()) + 1;
    if (reduction == "mul") {
      for (int64_t i = 0; i < shadows[0].size(); ++i) {
        const double center = shadows[0].f(i);
        shadows[0].set_bound(i, MostBound(false) > 0 || !std::isfinite(center) || std::fabs(center) < 1e-30
                                    ? kInf
                                    : 2 * n * Roundoff() * std::fabs(center));
      }
      return shadows;
    }
    FUSELINE_ASSIGN_OR_RETURN(const Tensors bounds, Evaluate(Bounds(), node_.op, {}));
    FUSELINE_ASSIGN_OR_RETURN(const Tensors magnitudes, Evaluate(Magnitudes(), node_.op, {}));
    FUSELINE_ASSIGN_OR_RETURN(const Tensors counts, Evaluate(Ones(), node_.op, {}));
    for (int64_t i = 0; i < shadows[0].size(); ++i)
      BoundSum(shadows[0], i, At(bounds[0], i), At(counts[0], i), At(magnitudes[0], i));
    return shadows;
  }

  absl::StatusOr<std::vector<Shadow>> Ordered() const {
    std::vector<Shadow> shadows = Centers();
    const double most = MostBound(false);
    if (node_.op == "cumsum") {
      FUSELINE_ASSIGN_OR_RETURN(const Tensors bounds, Evaluate(Bounds(), node_.op, {}));
      FUSELINE_ASSIGN_OR_RETURN(const Tensors magnitudes, Evaluate(Magnitudes(), node_.op, {}));
      FUSELINE_ASSIGN_OR_RETURN(const Tensors counts, Evaluate(Ones(), node_.op, {}));
      for (int64_t i = 0; i < shadows[0].size(); ++i)
        BoundSum(shadows[0], i, At(bounds[0], i), At(counts[0], i), At(magnitudes[0], i));
      return shadows;
    }
    if (node_.op == "cumprod") {
      // Products of what is over 1, and of what is under it: no order of multiplying goes beyond these.
      const Tensors over = Mapped([](double v, double b) { return std::max(1.0, std::fabs(v) + b); });
      const Tensors under = Mapped([](double v, double b) { return std::min(1.0, std::max(0.0, std::fabs(v) - b)); });
      FUSELINE_ASSIGN_OR_RETURN(const Tensors high, Evaluate(over, node_.op, {}));
      FUSELINE_ASSIGN_OR_RETURN(const Tensors low, Evaluate(under, node_.op, {}));
      FUSELINE_ASSIGN_OR_RETURN(const Tensors counts, Evaluate(Ones(), "cumsum", {}));
      const double least = results_[0].dtype == DType::kF64 ? 1e-300 : 1e-37;
      for (int64_t i = 0; i < shadows[0].size(); ++i) {
        double bound = 2 * (At(counts[0], i) + 1) * Roundoff() * std::fabs(shadows[0].f(i));
        if (At(low[0], i) < least) bound += At(high[0], i) * least;
        const bool doubtful = most > 0 || !(At(high[0], i) < LargestNumber()) || !std::isfinite(shadows[0].f(i));
        shadows[0].set_bound(i, doubtful ? kInf : bound);
      }
      return shadows;
    }
    // cummax, sort, topk: a value is at most as wrong as any operand; where it comes from is in doubt.
    if (most > 0) {
      SetAll(shadows[0], most);
      for (size_t r = 1; r < shadows.size(); ++r) SetAll(shadows[r], kInf);
    }
    return shadows;
  }

  absl::StatusOr<std::vector<Shadow>> Contracted() const {
    std::vector<Shadow> shadows = Centers();
    FUSELINE_ASSIGN_OR_RETURN(const Tensors magnitudes, Evaluate(Magnitudes(), node_.op, {}));
    FUSELINE_ASSIGN_OR_RETURN(const Tensors largest, Evaluate(Largest(), node_.op, {}));
    FUSELINE_ASSIGN_OR_RETURN(const Tensors counts, Evaluate(Ones(), node_.op, {}));
    const bool exact = MostBound(false) == 0;
    // Several operands: each partial product is rounded too.
    const double factors = static_cast<double>(operands_.size());
    for (int64_t i = 0; i < shadows[0].size(); ++i) {
      const double from_operands = exact ? 0 : At(largest[0], i) - At(magnitudes[0], i);
      BoundSum(shadows[0], i, from_operands, At(counts[0], i) * factors, At(magnitudes[0], i));
    }
    return shadows;
  }

  // Weights come from positions, which are rounded too.
  absl::StatusOr<std::vector<Shadow>> Resized() const {
    std::vector<Shadow> shadows = Centers();
    double largest = 0, size = 1;
    for (int64_t i = 0; i < operands_[0].size(); ++i) {
      const double v = std::fabs(operands_[0].f(i));
      largest = std::max(largest, std::isfinite(v) ? v : kInf);
    }
    for (const int64_t s : operands_[0].shape()) size = std::max(size, static_cast<double>(s));
    const double bound = 4 * MostBound(false) + (256 + 16 * size) * Roundoff() * largest;
    SetAll(shadows[0], std::isfinite(bound) ? bound : kInf);
    return shadows;
  }

  absl::StatusOr<std::vector<Shadow>> Pooled() const {
    std::vector<Shadow> shadows = Centers();
    const bool exact = MostBound(false) == 0;
    if (node_.op == "max_pool") {
      if (exact) return shadows;
      FUSELINE_ASSIGN_OR_RETURN(const Tensors bounds, Evaluate(Bounds(), node_.op, {}));
      for (int64_t i = 0; i < shadows[0].size(); ++i) shadows[0].set_bound(i, std::max(0.0, At(bounds[0], i)));
      return shadows;
    }
    FUSELINE_ASSIGN_OR_RETURN(const Tensors magnitudes, Evaluate(Magnitudes(), node_.op, {}));
    FUSELINE_ASSIGN_OR_RETURN(const Tensors largest, Evaluate(Largest(), node_.op, {}));
    const double n = static_cast<double>(std::min<int64_t>(operands_[0].size(), 4096));
    for (int64_t i = 0; i < shadows[0].size(); ++i)
      BoundSum(shadows[0], i, exact ? 0 : At(largest[0], i) - At(magnitudes[0], i), n + 16, At(magnitudes[0], i));
    if (node_.op == "lp_pool") {
      // Powers of small elements underflow: sums are off by up to `n` of the least number, and the root of x + e is at
      // most the root of x and the root of e.
      const AttrValue& p = node_.attrs.find("p")->second;
      const double exponent =
          std::holds_alternative<int64_t>(p) ? static_cast<double>(std::get<int64_t>(p)) : std::get<double>(p);
      const double least = results_[0].dtype == DType::kF64 ? 0x1p-1074 : 0x1p-149;
      const double underflow = exponent > 1 ? std::pow(n * least, 1 / exponent) : 0;
      for (int64_t i = 0; i < shadows[0].size(); ++i) shadows[0].set_bound(i, shadows[0].bound(i) + underflow);
    }
    return shadows;
  }

  const Node& node_;
  const std::vector<TensorType>& results_;
  const std::vector<Shadow>& operands_;
  Tensors centers_;
};

}  // namespace

bool OnlyMoves(const Node& node) {
  const OpKind kind = node.def->kind;
  if (node.op == "resize") return StringOf(node, "mode") == "nearest";
  if (kind == OpKind::kLayout) return node.op != "one_hot";
  if (kind != OpKind::kIndexing) return false;
  const std::string_view op = node.op;
  if (op == "scatter_add" || op == "index_add") return false;
  const std::string reduction = StringOf(node, "reduction");
  return reduction.empty() || reduction == "none";
}

absl::StatusOr<std::vector<Shadow>> StructureShadows(const Node& node, const std::vector<TensorType>& results,
                                                     const std::vector<Shadow>& operands) {
  return Structure(node, results, operands).Run();
}

}  // namespace fuseline::testing
