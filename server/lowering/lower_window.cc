// Pooling: a guarded reduction over the taps of a window, then what each element of the result still needs.
// Tested by tests/unit/lowering/lower_contraction_test.cc
#include <cmath>
#include <limits>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/ir/ops/window_geometry.h"
#include "common/status/error.h"
#include "common/status/status_macros.h"
#include "server/lowering/lower_op_kinds.h"

namespace fuseline::lowering {
namespace {

using ops::WindowDim;

IndexExpr LoopVar(const Shape& domain, size_t v) {
  return domain[v] == 1 ? IndexExpr() : IndexExpr::Var(static_cast<int32_t>(v));
}

int64_t LeastInteger(DType dtype) {
  return dtype == DType::kU8 ? 0 : std::numeric_limits<int64_t>::min() >> (64 - 8 * DTypeSizeBytes(dtype));
}

class WindowLowering {
 public:
  WindowLowering(LoweringContext& context, NodeId id)
      : context_(context),
        id_(id),
        node_(context.node(id)),
        result_(node_.results[0]),
        to_(context.dtype(result_)),
        compute_(ComputeDType(to_)),
        kept_(context.shape(result_)) {}

  absl::Status Run() {
    if (node_.operands[0].is_literal()) {
      return Unimplemented(context_.graph().NodeName(id_), absl::StrCat(node_.op, ": a literal operand of a window"));
    }
    const Shape shape = context_.shape(node_.operands[0].value);
    if (node_.op == "adaptive_avg_pool") return Adaptive(shape);
    const auto& kernel = std::get<std::vector<int64_t>>(node_.attrs.find("kernel")->second);
    spatial_ = shape.size() - kernel.size();
    FUSELINE_ASSIGN_OR_RETURN(
        window_, ops::SlidingWindow(node_.attrs, Shape(shape.begin() + static_cast<int64_t>(spatial_), shape.end()),
                                    kernel, kernel));
    domain_ = kept_;
    std::vector<IndexBound> guards;
    std::vector<IndexExpr> at = Batch();
    for (const WindowDim& d : window_) domain_.push_back(d.kernel);
    for (size_t i = 0; i < window_.size(); ++i) {
      const WindowDim& d = window_[i];
      at.push_back(LoopVar(domain_, spatial_ + i) * d.stride + LoopVar(domain_, kept_.size() + i) * d.dilation +
                   IndexExpr::Const(-d.low));
      const IndexRange range = RangeOf(at.back(), domain_);
      if (range.low < 0 || range.high >= d.input) guards.push_back({at.back(), 0, d.input});
    }
    if (node_.op == "max_pool") return Max(at, guards);
    if (node_.op == "avg_pool") return Average(at, guards);
    if (node_.op == "lp_pool") return Norm(at, guards);
    return Unimplemented(context_.graph().NodeName(id_), absl::StrCat("op '", node_.op, "' has no lowering"));
  }

 private:
  std::vector<IndexExpr> Batch() const {
    std::vector<IndexExpr> at;
    for (size_t d = 0; d < spatial_; ++d) at.push_back(LoopVar(kept_, d));
    return at;
  }
  bool EagerHalf() const { return context_.options().numerics == Numerics::kEager && IsHalf(to_); }
  const std::string& Name() const { return context_.graph().value(result_).name; }

  LoopNode StartReduction(ReductionKind kind) const {
    LoopNode n = context_.StartNode(id_, domain_);
    n.kind = LoopNode::Kind::kReduction;
    n.reduction = kind;
    n.reduced.assign(domain_.size(), false);
    for (size_t d = kept_.size(); d < domain_.size(); ++d) n.reduced[d] = true;
    return n;
  }

  // The operand's element, or `padding` where the guards do not hold.
  Scalar ReadElement(LoopNode& n, ScalarBuilder& builder, const std::vector<IndexExpr>& at,
                     const std::vector<IndexBound>& guards, Scalar padding) const {
    const Scalar value = context_.ReadOperand(n, builder, id_, 0, at, guards);
    return guards.empty() ? value : Select(LoweringContext::ReadGuard(n, builder, guards), value, padding);
  }

  absl::Status Max(const std::vector<IndexExpr>& at, const std::vector<IndexBound>& guards) {
    LoopNode n = StartReduction(ReductionKind::kAmax);
    ScalarBuilder builder;
    const Scalar least = IsFloat(compute_) ? builder.Const(-std::numeric_limits<double>::infinity(), compute_)
                                           : builder.ConstInt(LeastInteger(compute_), compute_);
    const Scalar value = ReadElement(n, builder, at, guards, least);
    n.body = builder.instrs();
    n.result = value.id;
    if (EagerHalf()) n.round_result = to_;
    context_.SetResult(result_, context_.AddComputed(std::move(n), to_, kept_, Name()));
    return absl::OkStatus();
  }

  // The sum over the window of `value`, which `make` gives from an element.
  template <typename Make>
  TensorId Sum(const std::vector<IndexExpr>& at, const std::vector<IndexBound>& guards, const Make& make) {
    LoopNode n = StartReduction(ReductionKind::kSum);
    ScalarBuilder builder;
    const Scalar zero = builder.Const(0.0, compute_);
    const Scalar value = make(ReadElement(n, builder, at, guards, zero));
    n.body = builder.instrs();
    n.result = value.id;
    return context_.AddComputed(std::move(n), compute_, kept_, Name() + "_sum");
  }

  // The result from the sum: `make(node, builder, sum)`.
  template <typename Make>
  absl::Status Finish(TensorId sum, const Make& make) {
    LoopNode n = context_.StartNode(id_, kept_);
    ScalarBuilder builder;
    LoopInput in;
    in.tensor = sum;
    in.index = IdentityIndex(kept_);
    n.inputs.push_back(std::move(in));
    Scalar value = make(n, builder, builder.Input(0, compute_));
    if (EagerHalf()) value = LoweringContext::Round(builder, value, to_);
    n.body = builder.instrs();
    n.result = value.id;
    context_.SetResult(result_, context_.AddComputed(std::move(n), to_, kept_, Name()));
    return absl::OkStatus();
  }

  static Scalar ReadIndex(LoopNode& n, ScalarBuilder& builder, IndexExpr value) {
    LoopInput in;
    in.value = std::move(value);
    n.inputs.push_back(std::move(in));
    return builder.Input(static_cast<int>(n.inputs.size()) - 1, DType::kI64);
  }

  absl::Status Average(const std::vector<IndexExpr>& at, const std::vector<IndexBound>& guards) {
    const bool with_padding = std::get<bool>(node_.attrs.find("count_include_pad")->second);
    const TensorId sum = Sum(at, guards, [](Scalar element) { return element; });
    return Finish(sum, [&](LoopNode& n, ScalarBuilder& builder, Scalar total) {
      int64_t constant = 1;
      Scalar count;
      for (size_t i = 0; i < window_.size(); ++i) {
        const Scalar taps = CountTaps(n, builder, i, with_padding);
        if (taps.builder == nullptr) {
          constant *= window_[i].kernel;
        } else {
          count = count.builder == nullptr ? taps : count * taps;
        }
      }
      const double whole = static_cast<double>(constant);
      if (count.builder == nullptr) return total / whole;
      return total / (CastTo(count, compute_) * whole);
    });
  }

  // How many taps of spatial dim i lie in the input, or in the input and its padding. No value: all of them, always.
  Scalar CountTaps(LoopNode& n, ScalarBuilder& builder, size_t i, bool with_padding) const {
    const WindowDim& d = window_[i];
    const int64_t first = with_padding ? -d.low : 0;
    const int64_t end = with_padding ? d.input + d.high : d.input;
    const IndexExpr start = LoopVar(kept_, spatial_ + i) * d.stride + IndexExpr::Const(-d.low);
    const IndexRange range = RangeOf(start, kept_);
    const int64_t reach = d.dilation * (d.kernel - 1);
    if (range.low >= first && range.high + reach < end) return {};
    // Taps [ceil((first - start) / dilation), ceil((end - start) / dilation)) within [0, kernel).
    const Scalar at = ReadIndex(n, builder, start);
    const Scalar dilation = builder.ConstInt(d.dilation, DType::kI64);
    const auto tap_from = [&](int64_t position) {
      const Scalar distance = builder.ConstInt(position + d.dilation - 1, DType::kI64) - at;
      const Scalar tap = d.dilation == 1 ? distance : Binary(ScalarOp::kFloorDiv, distance, dilation);
      const Scalar zero = builder.ConstInt(0, DType::kI64);
      const Scalar kernel = builder.ConstInt(d.kernel, DType::kI64);
      return Binary(ScalarOp::kMinimum, Binary(ScalarOp::kMaximum, tap, zero), kernel);
    };
    return tap_from(end) - tap_from(first);
  }

  absl::Status Norm(const std::vector<IndexExpr>& at, const std::vector<IndexBound>& guards) {
    const AttrValue& attr = node_.attrs.find("p")->second;
    const double p =
        std::holds_alternative<double>(attr) ? std::get<double>(attr) : static_cast<double>(std::get<int64_t>(attr));
    const TensorId sum = Sum(at, guards, [&](Scalar element) {
      if (p == 2) return element * element;
      const Scalar magnitude = Unary(ScalarOp::kAbs, element);
      return p == 1 ? magnitude : Binary(ScalarOp::kPow, magnitude, element.builder->Const(p, compute_));
    });
    return Finish(sum, [&](LoopNode&, ScalarBuilder& builder, Scalar total) {
      if (p == 1) return total;
      if (p == 2) return Unary(ScalarOp::kSqrt, total);
      return Binary(ScalarOp::kPow, total, builder.Const(1.0 / p, compute_));
    });
  }

  // Output o averages the elements [floor(o in / out), ceil((o + 1) in / out)).
  absl::Status Adaptive(const Shape& shape) {
    const auto& sizes = std::get<std::vector<int64_t>>(node_.attrs.find("output_size")->second);
    spatial_ = shape.size() - sizes.size();
    domain_ = kept_;
    for (size_t i = 0; i < sizes.size(); ++i) {
      const int64_t in = shape[spatial_ + i], out = sizes[i];
      // in / out rounded up, and one more where windows do not begin at whole positions.
      domain_.push_back(out == 0 ? 1 : in % out == 0 ? in / out : in / out + 2);
    }
    std::vector<IndexExpr> at = Batch();
    std::vector<IndexBound> guards;
    std::vector<std::pair<IndexExpr, IndexExpr>> windows;  // begin, end
    for (size_t i = 0; i < sizes.size(); ++i) {
      const int64_t in = shape[spatial_ + i], out = sizes[i];
      const IndexExpr o = LoopVar(domain_, spatial_ + i);
      const IndexExpr tap = LoopVar(domain_, kept_.size() + i);
      if (out == 0 || in % out == 0) {
        at.push_back(o * (out == 0 ? 1 : in / out) + tap);
        windows.emplace_back(IndexExpr(), IndexExpr::Const(domain_[kept_.size() + i]));
        continue;
      }
      const IndexExpr begin = FloorDiv(o * in, out, domain_);
      const IndexExpr end = FloorDiv(o * in + IndexExpr::Const(in + out - 1), out, domain_);
      at.push_back(begin + tap);
      // Before the end: end - begin - tap is at least 1.
      guards.push_back({end + begin * -1 + tap * -1, 1, in + 1});
      windows.emplace_back(begin, end);
    }
    const TensorId sum = Sum(at, guards, [](Scalar element) { return element; });
    return Finish(sum, [&](LoopNode& n, ScalarBuilder& builder, Scalar total) {
      Scalar count;
      for (const auto& [begin, end] : windows) {
        const IndexExpr taps = end + begin * -1;
        const Scalar value =
            taps.is_const() ? builder.ConstInt(taps.constant(), DType::kI64) : ReadIndex(n, builder, taps);
        count = count.builder == nullptr ? value : count * value;
      }
      return total / CastTo(count, compute_);
    });
  }

  LoweringContext& context_;
  const NodeId id_;
  const Node& node_;
  const ValueId result_;
  const DType to_;
  const DType compute_;
  const Shape kept_;
  Shape domain_;        // the result's dims, then the taps
  size_t spatial_ = 0;  // the first spatial dim
  std::vector<WindowDim> window_;
};

}  // namespace

absl::Status LowerWindow(LoweringContext& context, NodeId id) { return WindowLowering(context, id).Run(); }

}  // namespace fuseline::lowering
