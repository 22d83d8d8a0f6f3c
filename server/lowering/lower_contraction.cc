// Each contraction is one reduction of products: the kept loops in the order of the result's dims, the reduced ones
// after them; what convolutions read outside their operand is guarded. A bias is a pointwise node of its own, which the
// fuser joins at the rows. Tested by tests/unit/lowering/lower_contraction_test.cc
#include <algorithm>
#include <functional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/ir/ops/einsum_equation.h"
#include "common/ir/ops/window_geometry.h"
#include "common/status/error.h"
#include "common/status/status_macros.h"
#include "server/lowering/lower_op_kinds.h"

namespace fuseline::lowering {
namespace {

using ops::WindowDim;

// A loop variable; a loop of one step is always at 0.
IndexExpr LoopVar(const Shape& domain, size_t v) {
  return domain[v] == 1 ? IndexExpr() : IndexExpr::Var(static_cast<int32_t>(v));
}

// One factor of the products: how it is read at the loops of the node, and where in the operand.
struct Factor {
  std::function<Scalar(LoopNode& node, ScalarBuilder& builder)> read;
  std::vector<IndexExpr> at;
  bool Uses(size_t loop) const {
    return std::any_of(at.begin(), at.end(), [&](const IndexExpr& e) { return e.Uses(static_cast<int32_t>(loop)); });
  }
};

// Under numerics = eager, sums that are at least this large on every side are chained. Smaller ones gain nothing from
// tiles, and are ordered by their shape as other reductions are.
constexpr int64_t kLeastChainedSide = 4;
constexpr int64_t kLeastChainedProducts = 2048;

class ContractionLowering {
 public:
  ContractionLowering(LoweringContext& context, NodeId id)
      : context_(context),
        id_(id),
        node_(context.node(id)),
        result_(node_.results[0]),
        to_(context.dtype(result_)),
        accumulate_(to_) {
    if (IsFloat(to_)) {
      const bool wide = to_ == DType::kF64 || OperandDType() == DType::kF64;
      accumulate_ = wide ? DType::kF64 : DType::kF32;
    }
  }

  absl::Status Run() {
    if (node_.op == "matmul") return Matmul();
    if (node_.op == "linear") return Linear();
    if (node_.op == "einsum") return Einsum();
    if (node_.op == "conv") return Conv();
    if (node_.op == "conv_transpose") return ConvTranspose();
    return Unimplemented(context_.graph().NodeName(id_), absl::StrCat("op '", node_.op, "' has no lowering"));
  }

 private:
  DType OperandDType() const {
    for (const Operand& o : node_.operands) {
      if (!o.is_literal()) return context_.dtype(o.value);
    }
    return DType::kF32;
  }
  Shape OperandShape(size_t k) const {
    const Operand& o = node_.operands[k];
    return o.is_literal() ? Shape() : context_.shape(o.value);
  }

  // Operand k at `at`, rounded to its dtype and then taken to the dtype of the sum.
  Factor Read(size_t k, std::vector<IndexExpr> at) const { return ReadGuarded(k, std::move(at), {}); }
  // The same, with 0 where a guard does not hold.
  Factor ReadGuarded(size_t k, std::vector<IndexExpr> at, std::vector<IndexBound> guards) const {
    const auto read = [this, k, at, guards = std::move(guards)](LoopNode& n, ScalarBuilder& builder) {
      const Scalar value = Widened(builder, context_.ReadOperand(n, builder, id_, k, at, guards));
      if (guards.empty()) return value;
      const Scalar holds = LoweringContext::ReadGuard(n, builder, guards);
      const Scalar zero = IsFloat(accumulate_) ? builder.Const(0.0, accumulate_) : builder.ConstInt(0, accumulate_);
      return Select(holds, value, zero);
    };
    return {read, std::move(at)};
  }
  Factor ReadTensor(TensorId tensor, std::vector<IndexExpr> at) const {
    const auto read = [this, tensor, at](LoopNode& n, ScalarBuilder& builder) {
      const Scalar value = builder.Input(static_cast<int>(n.inputs.size()), accumulate_);
      LoopInput in;
      in.tensor = tensor;
      in.index = at;
      n.inputs.push_back(std::move(in));
      return value;
    };
    return {read, std::move(at)};
  }
  Scalar Widened(ScalarBuilder& builder, Scalar value) const {
    if (IsHalf(OperandDType())) value = LoweringContext::Round(builder, value, OperandDType());
    return value.type() == accumulate_ ? value : CastTo(value, accumulate_);
  }

  bool HasBias() const { return node_.op != "einsum" && node_.operands.size() > 2; }
  bool EagerHalf() const { return context_.options().numerics == Numerics::kEager && IsHalf(to_); }

  // By the op's own operands, whatever views of tensors they are.
  static bool IsLarge(const Shape& domain, size_t kept, const std::vector<Factor>& factors) {
    if (factors.size() != 2) return false;
    double m = 1, n = 1, k = 1;  // as doubles: they may exceed 64 bits together
    for (size_t d = 0; d < domain.size(); ++d) {
      const bool in_a = factors[0].Uses(d), in_b = factors[1].Uses(d);
      double& side = d >= kept ? k : in_a ? m : n;
      if (d >= kept || in_a != in_b) side *= static_cast<double>(domain[d]);
    }
    return std::min({m, n, k}) >= kLeastChainedSide && m * n * k >= kLeastChainedProducts;
  }

  // Sums the product of `factors` over the loops after the first `kept`. `last`: the op's own result, if it has no
  // bias.
  TensorId Sum(Shape domain, size_t kept, const std::vector<Factor>& factors, bool last, const std::string& name) {
    LoopNode n = context_.StartNode(id_, std::move(domain));
    ScalarBuilder builder;
    Scalar product;
    for (const Factor& factor : factors) {
      const Scalar value = factor.read(n, builder);
      product = product.builder == nullptr ? value : product * value;
    }
    if (kept < n.domain.size()) {
      n.kind = LoopNode::Kind::kReduction;
      n.reduction = ReductionKind::kSum;
      n.reduced.assign(n.domain.size(), false);
      for (size_t d = kept; d < n.domain.size(); ++d) n.reduced[d] = true;
      if (context_.options().numerics == Numerics::kEager && IsFloat(accumulate_) && IsLarge(n.domain, kept, factors))
        n.accumulation = Accumulation::kChained;
    }
    const bool stores_result = last && accumulate_ == ComputeDType(to_);
    if (stores_result && EagerHalf()) {
      if (n.is_reduction()) {
        n.round_result = to_;
      } else {
        product = LoweringContext::Round(builder, product, to_);
      }
    }
    n.body = builder.instrs();
    n.result = product.id;
    const Shape shape(n.domain.begin(), n.domain.begin() + static_cast<int64_t>(kept));
    return context_.AddComputed(std::move(n), stores_result ? to_ : accumulate_, shape, name);
  }

  const std::string& Name() const { return context_.graph().value(result_).name; }

  // The sum as the op's result, with what is left to do: a bias along dim `channel_dim` of the result, a narrower
  // dtype. `view`: where in `sum` an element of the result is.
  absl::Status Finish(TensorId sum, std::vector<IndexExpr> view, size_t channel_dim) {
    const bool narrower = accumulate_ != ComputeDType(to_);
    if (!HasBias() && !narrower) {
      context_.view(result_) = {sum, std::move(view)};
      return absl::OkStatus();
    }
    LoopNode n = context_.StartNode(id_, context_.shape(result_));
    ScalarBuilder builder;
    LoopInput in;
    in.tensor = sum;
    in.index = std::move(view);
    n.inputs.push_back(std::move(in));
    Scalar value = builder.Input(0, accumulate_);
    if (HasBias()) {
      // A bias is not a factor: it has the result's dtype and is not rounded.
      const Scalar bias = context_.ReadOperand(n, builder, id_, 2, {LoopVar(n.domain, channel_dim)});
      value = value + (bias.type() == accumulate_ ? bias : CastTo(bias, accumulate_));
    }
    if (IsHalf(to_) && (EagerHalf() || narrower)) {
      value = LoweringContext::Round(builder, value, to_);
    } else if (narrower) {
      value = CastTo(value, ComputeDType(to_));
    }
    n.body = builder.instrs();
    n.result = value.id;
    context_.SetResult(result_, context_.AddComputed(std::move(n), to_, context_.shape(result_), Name()));
    return absl::OkStatus();
  }
  // Whether Sum's tensor is the op's result.
  bool SumIsResult() const { return !HasBias(); }
  std::string SumName() const { return HasBias() ? Name() + "_sum" : Name(); }

  // Dims of `shape` from the loops that end at loop `last`, aligned at the right; a dim of 1 is read at 0.
  static std::vector<IndexExpr> Aligned(const Shape& shape, size_t count, const Shape& domain, size_t end) {
    std::vector<IndexExpr> at;
    for (size_t d = 0; d < count; ++d) {
      at.push_back(shape[d] == 1 ? IndexExpr() : LoopVar(domain, end - count + d));
    }
    return at;
  }

  absl::Status Matmul() {
    const Shape a = OperandShape(0), b = OperandShape(1);
    Shape domain = context_.shape(result_);
    const size_t kept = domain.size();
    domain.push_back(a.back());
    const size_t columns = b.size() > 1 ? 1 : 0;
    const size_t batch_end = kept - columns - (a.size() > 1 ? 1 : 0);
    const IndexExpr k = LoopVar(domain, kept);
    std::vector<IndexExpr> at_a, at_b;
    if (a.size() > 1) {
      at_a = Aligned(a, a.size() - 2, domain, batch_end);
      at_a.push_back(LoopVar(domain, batch_end));
    }
    at_a.push_back(k);
    if (b.size() > 1) at_b = Aligned(b, b.size() - 2, domain, batch_end);
    at_b.push_back(k);
    if (b.size() > 1) at_b.push_back(LoopVar(domain, kept - 1));
    const TensorId sum = Sum(domain, kept, {Read(0, at_a), Read(1, at_b)}, SumIsResult(), SumName());
    return Finish(sum, IdentityIndex(context_.shape(result_)), 0);
  }

  absl::Status Linear() {
    Shape domain = context_.shape(result_);
    const size_t kept = domain.size();
    domain.push_back(OperandShape(1)[1]);
    std::vector<IndexExpr> at_x;
    for (size_t d = 0; d + 1 < kept; ++d) at_x.push_back(LoopVar(domain, d));
    const IndexExpr k = LoopVar(domain, kept);
    at_x.push_back(k);
    const TensorId sum =
        Sum(domain, kept, {Read(0, at_x), Read(1, {LoopVar(domain, kept - 1), k})}, SumIsResult(), SumName());
    return Finish(sum, IdentityIndex(context_.shape(result_)), kept - 1);
  }

  // From left to right, two factors at a time.
  absl::Status Einsum() {
    std::vector<Shape> shapes;
    for (size_t k = 0; k < node_.operands.size(); ++k) shapes.push_back(OperandShape(k));
    const std::string& equation = std::get<std::string>(node_.attrs.find("equation")->second);
    FUSELINE_ASSIGN_OR_RETURN(const ops::EinsumPlan plan, ops::ParseEinsum(equation, shapes));
    TensorId partial = -1;
    std::vector<int32_t> partial_labels;
    for (size_t k = std::min<size_t>(1, shapes.size() - 1); k < shapes.size(); ++k) {
      const std::vector<int32_t> kept = ops::PartialLabels(plan, k);
      std::vector<int32_t> loops = kept;
      const auto add = [&](const std::vector<int32_t>& labels) {
        for (int32_t label : labels) {
          if (std::find(loops.begin(), loops.end(), label) == loops.end()) loops.push_back(label);
        }
      };
      const size_t first = k == 1 ? 0 : k;
      for (size_t o = first; o <= k; ++o) add(plan.operands[o]);
      if (partial >= 0) add(partial_labels);
      Shape domain;
      for (int32_t label : loops) domain.push_back(plan.sizes[static_cast<size_t>(label)]);
      const auto at = [&](const std::vector<int32_t>& labels, const Shape* shape) {
        std::vector<IndexExpr> index;
        for (size_t d = 0; d < labels.size(); ++d) {
          const size_t loop = static_cast<size_t>(std::find(loops.begin(), loops.end(), labels[d]) - loops.begin());
          index.push_back(shape != nullptr && (*shape)[d] == 1 ? IndexExpr() : LoopVar(domain, loop));
        }
        return index;
      };
      std::vector<Factor> factors;
      if (partial >= 0) factors.push_back(ReadTensor(partial, at(partial_labels, nullptr)));
      for (size_t o = first; o <= k; ++o) factors.push_back(Read(o, at(plan.operands[o], &shapes[o])));
      const bool last = k + 1 == shapes.size();
      partial = Sum(domain, kept.size(), factors, last, last ? Name() : absl::StrCat(Name(), "_of", k));
      partial_labels = kept;
    }
    return Finish(partial, IdentityIndex(context_.shape(result_)), 0);
  }

  static Shape SpatialOf(const Shape& shape) { return Shape(shape.begin() + 2, shape.end()); }

  // The result's channels as [group, channel of the group]: where in the sum's tensor [n, group, channel, …] an element
  // of the result is. With one group there is no such dim.
  std::vector<IndexExpr> GroupedView(int64_t groups, int64_t channels_of_group) const {
    const Shape shape = context_.shape(result_);
    std::vector<IndexExpr> view = IdentityIndex(shape);
    if (groups == 1) return view;
    const IndexExpr channel = view[1];
    view[1] = FloorDiv(channel, channels_of_group, shape);
    view.insert(view.begin() + 2, Mod(channel, channels_of_group, shape));
    return view;
  }

  absl::Status Conv() {
    const Shape x = OperandShape(0), w = OperandShape(1);
    const int64_t groups = std::get<int64_t>(node_.attrs.find("groups")->second);
    const int64_t channels = groups == 0 ? 0 : x[1] / groups;
    FUSELINE_ASSIGN_OR_RETURN(
        const std::vector<WindowDim> window,
        ops::SlidingWindow(node_.attrs, SpatialOf(x), SpatialOf(w), std::vector<int64_t>(x.size() - 2, 1)));
    // n, (group,) out, spatial…; channel, kernel…
    Shape domain = {x[0]};
    if (groups > 1) domain.push_back(groups);
    const size_t out = domain.size();
    domain.push_back(w[0] / groups);
    for (const WindowDim& d : window) domain.push_back(d.output);
    const size_t kept = domain.size();
    domain.push_back(channels);
    for (const WindowDim& d : window) domain.push_back(d.kernel);
    const IndexExpr group = groups > 1 ? LoopVar(domain, 1) : IndexExpr();
    std::vector<IndexExpr> at_x = {LoopVar(domain, 0), group * channels + LoopVar(domain, kept)};
    std::vector<IndexExpr> at_w = {group * (w[0] / groups) + LoopVar(domain, out), LoopVar(domain, kept)};
    std::vector<IndexBound> guards;
    for (size_t i = 0; i < window.size(); ++i) {
      const WindowDim& d = window[i];
      const IndexExpr tap = LoopVar(domain, kept + 1 + i);
      const IndexExpr position = LoopVar(domain, out + 1 + i) * d.stride + tap * d.dilation + IndexExpr::Const(-d.low);
      AddGuard(guards, position, d.input, domain);
      at_x.push_back(position);
      at_w.push_back(tap);
    }
    const TensorId sum = Sum(domain, kept, {ReadGuarded(0, at_x, guards), Read(1, at_w)}, SumIsResult(), SumName());
    return Finish(sum, GroupedView(groups, w[0] / groups), 1);
  }

  // `position` lies in [0, size), where the loops' ranges do not show it.
  static void AddGuard(std::vector<IndexBound>& guards, const IndexExpr& position, int64_t size, const Shape& domain) {
    const IndexRange range = RangeOf(position, domain);
    if (range.low >= 0 && range.high < size) return;
    IndexBound bound;
    bound.value = position;
    bound.high = size;
    guards.push_back(std::move(bound));
  }

  // Each element of the result gathers what gives to it: input i with tap k where i stride - low + k dilation = o.
  absl::Status ConvTranspose() {
    const Shape x = OperandShape(0), w = OperandShape(1);
    const int64_t groups = std::get<int64_t>(node_.attrs.find("groups")->second);
    const int64_t channels = x[1] / groups;
    FUSELINE_ASSIGN_OR_RETURN(const std::vector<WindowDim> window,
                              ops::TransposedWindow(node_.attrs, SpatialOf(x), SpatialOf(w)));
    Shape domain = {x[0]};
    if (groups > 1) domain.push_back(groups);
    const size_t out = domain.size();
    domain.push_back(w[1]);
    for (const WindowDim& d : window) domain.push_back(d.output);
    const size_t kept = domain.size();
    domain.push_back(channels);
    for (const WindowDim& d : window) domain.push_back(d.kernel);
    const IndexExpr channel = (groups > 1 ? LoopVar(domain, 1) : IndexExpr()) * channels + LoopVar(domain, kept);
    std::vector<IndexExpr> at_x = {LoopVar(domain, 0), channel};
    std::vector<IndexExpr> at_w = {channel, LoopVar(domain, out)};
    std::vector<IndexBound> guards;
    for (size_t i = 0; i < window.size(); ++i) {
      const WindowDim& d = window[i];
      const IndexExpr tap = LoopVar(domain, kept + 1 + i);
      // Shifted by whole strides so that nothing negative is divided.
      const int64_t shift = (d.dilation * (d.kernel - 1) + d.stride - 1) / d.stride;
      const IndexExpr distance =
          LoopVar(domain, out + 1 + i) + tap * -d.dilation + IndexExpr::Const(d.low + shift * d.stride);
      const IndexExpr position = FloorDiv(distance, d.stride, domain) + IndexExpr::Const(-shift);
      if (d.stride > 1) AddGuard(guards, Mod(distance, d.stride, domain), 1, domain);
      AddGuard(guards, position, d.input, domain);
      at_x.push_back(position);
      at_w.push_back(tap);
    }
    const TensorId sum = Sum(domain, kept, {ReadGuarded(0, at_x, guards), Read(1, at_w)}, SumIsResult(), SumName());
    return Finish(sum, GroupedView(groups, w[1]), 1);
  }

  LoweringContext& context_;
  const NodeId id_;
  const Node& node_;
  const ValueId result_;
  const DType to_;    // of the result
  DType accumulate_;  // of products and their sum
};

}  // namespace

absl::Status LowerContraction(LoweringContext& context, NodeId id) { return ContractionLowering(context, id).Run(); }

}  // namespace fuseline::lowering
