// Losses: composites that compare predictions with targets. All are computed in f32 (f64 for f64) and rounded once, at
// the end. Formulas: docs/ir.md.
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/ir/ops/decomposition_emitter.h"
#include "common/ir/ops/op_rows.h"
#include "common/ir/ops/type_rules.h"
#include "common/status/status_macros.h"

namespace fuseline::ops {
namespace {

using Types = absl::StatusOr<std::vector<TensorType>>;
using Values = absl::StatusOr<std::vector<ValueId>>;

Operand V(ValueId id) { return Emitter::V(id); }
Operand N(double number) { return Emitter::N(number); }

double NumberAttr(const AttrMap& attrs, const char* name) {
  const auto it = attrs.find(std::string_view(name));
  if (it == attrs.end()) return 0;
  if (const auto* i = std::get_if<int64_t>(&it->second)) return static_cast<double>(*i);
  const auto* f = std::get_if<double>(&it->second);
  return f != nullptr ? *f : 0;
}

absl::Status CheckReduction(const std::string& reduction, bool has_batch_mean) {
  if (reduction == "mean" || reduction == "sum" || reduction == "none") return absl::OkStatus();
  if (has_batch_mean && reduction == "batchmean") return absl::OkStatus();
  return TypeError(absl::StrCat("attribute 'reduction' must be \"mean\", ", has_batch_mean ? "\"batchmean\", " : "",
                                "\"sum\" or \"none\", not \"", reduction, "\""));
}

std::vector<int64_t> AllDims(const Shape& shape) {
  std::vector<int64_t> dims;
  for (size_t d = 0; d < shape.size(); ++d) dims.push_back(static_cast<int64_t>(d));
  return dims;
}

// --- Losses of each element. ---

Types ElementLossRule(const InferArgs& args, bool has_batch_mean) {
  const std::string reduction = StringAttr(args.attrs, "reduction");
  FUSELINE_RETURN_IF_ERROR(CheckReduction(reduction, has_batch_mean));
  FUSELINE_ASSIGN_OR_RETURN(std::vector<TensorType> types, SameTypeRule(args, DTypeSet::kFloats));
  if (reduction != "none") types[0] = TensorType::Make(types[0].dtype, {});
  return types;
}

Types KlDivRule(const InferArgs& args) { return ElementLossRule(args, true); }

Types SmoothL1Rule(const InferArgs& args) {
  if (!(args.Number("beta") >= 0)) return TypeError("attribute 'beta' must not be negative");
  return ElementLossRule(args, false);
}

Types HuberRule(const InferArgs& args) {
  if (!(args.Number("delta") > 0)) return TypeError("attribute 'delta' must be positive");
  return ElementLossRule(args, false);
}

// "mean", "batchmean" (the sum over the size of dim 0), "sum" or "none".
ValueId Reduced(Emitter& e, ValueId loss, const std::string& reduction) {
  if (!e.ok() || reduction == "none") return loss;
  const Shape shape = e.shape(loss);
  if (reduction == "mean") return e.Mean(loss, AllDims(shape), false);
  const ValueId sum = e.Reduce("sum", loss, AllDims(shape), false);
  if (reduction == "sum" || shape.empty()) return sum;
  return e.Op("div", {V(sum), N(static_cast<double>(shape[0]))});
}

Values DecomposeKlDiv(GraphBuilder& builder, const Node& node, absl::Span<const ValueId> operands) {
  Emitter e(builder, node);
  const ValueId x = e.Widen(operands[0]);
  const ValueId target = e.Widen(operands[1]);
  const auto it = node.attrs.find(std::string_view("log_target"));
  ValueId loss;
  if (it != node.attrs.end() && std::get<bool>(it->second)) {
    loss = e.Mul(e.Unary("exp", target), e.Sub(target, x));
  } else {
    // t log t is 0 at 0.
    const ValueId entropy =
        e.Op("where", {V(e.Op("eq", {V(target), N(0)})), N(0), V(e.Mul(target, e.Unary("log", target)))});
    loss = e.Sub(entropy, e.Mul(target, x));
  }
  return e.Done({e.Narrow(Reduced(e, loss, StringAttr(node.attrs, "reduction")), e.dtype(operands[0]))});
}

Values DecomposeSmoothL1(GraphBuilder& builder, const Node& node, absl::Span<const ValueId> operands) {
  Emitter e(builder, node);
  const double beta = e.Number("beta");
  const ValueId distance = e.Unary("abs", e.Sub(e.Widen(operands[0]), e.Widen(operands[1])));
  ValueId loss = distance;
  if (beta > 0) {
    const ValueId near = e.Op("div", {V(e.Op("mul", {V(e.Unary("square", distance)), N(0.5)})), N(beta)});
    const ValueId far = e.Op("sub", {V(distance), N(0.5 * beta)});
    loss = e.Op("where", {V(e.Op("lt", {V(distance), N(beta)})), V(near), V(far)});
  }
  return e.Done({e.Narrow(Reduced(e, loss, StringAttr(node.attrs, "reduction")), e.dtype(operands[0]))});
}

Values DecomposeHuber(GraphBuilder& builder, const Node& node, absl::Span<const ValueId> operands) {
  Emitter e(builder, node);
  const double delta = e.Number("delta");
  const ValueId distance = e.Unary("abs", e.Sub(e.Widen(operands[0]), e.Widen(operands[1])));
  const ValueId near = e.Op("mul", {V(e.Unary("square", distance)), N(0.5)});
  const ValueId far = e.Op("mul", {V(e.Op("sub", {V(distance), N(0.5 * delta)})), N(delta)});
  const ValueId loss = e.Op("where", {V(e.Op("le", {V(distance), N(delta)})), V(near), V(far)});
  return e.Done({e.Narrow(Reduced(e, loss, StringAttr(node.attrs, "reduction")), e.dtype(operands[0]))});
}

// --- Losses of a class. ---

// Logits or log-probabilities [C] or [N, C, …], the classes' numbers without that dim, and the classes' weights [C].
Types ClassLossRule(const InferArgs& args) {
  const TensorType& x = args.operands[0];
  const std::string reduction = StringAttr(args.attrs, "reduction");
  FUSELINE_RETURN_IF_ERROR(CheckReduction(reduction, false));
  FUSELINE_RETURN_IF_ERROR(CheckDType(x.dtype, DTypeSet::kFloats));
  if (x.rank() == 0) return TypeError("the predictions must have a dim for the classes");
  const size_t class_dim = x.rank() == 1 ? 0 : 1;
  Shape want = x.shape();
  const int64_t classes = want[class_dim];
  if (classes == 0) return TypeError("there are no classes");
  want.erase(want.begin() + static_cast<int64_t>(class_dim));
  const TensorType& target = args.operands[1];
  if (!IsInteger(target.dtype)) {
    return TypeError(absl::StrCat("the target must be of an integer dtype, not ", NameOf(target.dtype)));
  }
  if (target.shape() != want) {
    return TypeError(absl::StrCat("the target has shape [", absl::StrJoin(target.shape(), ", "), "], not [",
                                  absl::StrJoin(want, ", "), "]"));
  }
  if (args.operands.size() > 2) {
    if (args.operands[2].dtype != x.dtype || args.operands[2].shape() != Shape{classes}) {
      return TypeError(absl::StrCat("the weight is ", args.operands[2].ToString(), ", not ",
                                    TensorType::Make(x.dtype, {classes}).ToString()));
    }
  }
  return std::vector<TensorType>{TensorType::Make(x.dtype, reduction == "none" ? want : Shape{})};
}

Types CrossEntropyRule(const InferArgs& args) {
  const double smoothing = args.Number("label_smoothing");
  if (!(smoothing >= 0 && smoothing <= 1)) return TypeError("attribute 'label_smoothing' must be within [0, 1]");
  return ClassLossRule(args);
}

class ClassLoss {
 public:
  ClassLoss(GraphBuilder& builder, const Node& node, absl::Span<const ValueId> operands)
      : e_(builder, node), node_(node), operands_(operands), x_(e_.Widen(operands[0])) {
    if (e_.ok()) dim_ = e_.shape(x_).size() == 1 ? 0 : 1;
  }

  // minus the log-probability of the target.
  Values Nll() {
    ReadTarget();
    return Finish(e_.Unary("neg", Picked(x_)), 0, kNoValue);
  }

  Values CrossEntropy() {
    // log_softmax, but only where it is asked for: the rest of it is not computed.
    const ValueId max = e_.Reduce("amax", x_, {dim_}, true);
    const ValueId shifted = e_.Sub(x_, max);
    const ValueId log_sum = e_.Unary("log", e_.Reduce("sum", e_.Unary("exp", shifted), {dim_}, true));
    ReadTarget();  // after the reductions, whose kernel it then joins
    const ValueId nll = e_.Sub(DropDim(log_sum), e_.Sub(Picked(x_), DropDim(max)));
    const double smoothing = NumberAttr(node_.attrs, "label_smoothing");
    if (smoothing == 0 || !e_.ok()) return Finish(nll, 0, kNoValue);
    ValueId each = e_.Sub(log_sum, shifted);
    if (has_weight()) each = e_.Mul(each, SpreadWeight());
    return Finish(nll, smoothing, e_.Reduce("sum", each, {dim_}, false));
  }

 private:
  bool has_weight() const { return operands_.size() > 2; }
  ValueId SpreadWeight() { return e_.Spread(e_.Widen(operands_[2]), x_, {dim_}); }
  ValueId DropDim(ValueId a) { return e_.Op("squeeze", {V(a)}, {{"dims", std::vector<int64_t>{dim_}}}); }

  // What is ignored, and an index that is within the range there too.
  void ReadTarget() {
    if (!e_.ok()) return;
    const ValueId target = operands_[1];
    Literal ignored;
    ignored.kind = Literal::Kind::kInt;
    ignored.i = std::get<int64_t>(node_.attrs.find(std::string_view("ignore_index"))->second);
    ValueId index = target;
    if (CheckLiteral(ignored, e_.dtype(target)).ok()) {  // else no target can be it
      ignored_ = e_.Op("eq", {V(target), GraphBuilder::Integer(ignored.i)});
      index = e_.Op("where", {V(ignored_), GraphBuilder::Integer(0), V(target)});
    }
    index_ = e_.Op("unsqueeze", {V(index)}, {{"dim", dim_}});
  }

  // a's element of the target's class.
  ValueId Picked(ValueId a) { return DropDim(e_.Op("take_along_dim", {V(a), V(index_)}, {{"dim", dim_}})); }
  ValueId ZeroWhereIgnored(ValueId a) { return ignored_ == kNoValue ? a : e_.Op("where", {V(ignored_), N(0), V(a)}); }

  // `each`: what smoothing takes from all classes.
  Values Finish(ValueId loss, double smoothing, ValueId each) {
    const std::string reduction = StringAttr(node_.attrs, "reduction");
    if (!e_.ok()) return e_.status();
    const DType compute = e_.dtype(x_);
    const Shape shape = e_.shape(loss);
    ValueId weight = has_weight() ? ZeroWhereIgnored(Picked(SpreadWeight())) : kNoValue;
    if (has_weight()) loss = e_.Mul(loss, weight);
    if (smoothing != 0) {
      const double classes = static_cast<double>(e_.shape(x_)[static_cast<size_t>(dim_)]);
      loss = e_.Add(e_.Op("mul", {V(loss), N(1 - smoothing)}), e_.Op("mul", {V(each), N(smoothing / classes)}));
    }
    loss = ZeroWhereIgnored(loss);
    if (reduction != "none" && e_.ok()) {
      ValueId sum = e_.Reduce("sum", loss, AllDims(shape), false);
      if (reduction == "mean") {
        if (!has_weight()) weight = ZeroWhereIgnored(e_.Full(shape, 1, compute));
        sum = e_.Div(sum, e_.Reduce("sum", weight, AllDims(shape), false));
      }
      loss = sum;
    }
    return e_.Done({e_.Narrow(loss, e_.dtype(operands_[0]))});
  }

  Emitter e_;
  const Node& node_;
  const absl::Span<const ValueId> operands_;
  const ValueId x_;
  int64_t dim_ = 0;
  ValueId ignored_ = kNoValue;
  ValueId index_ = kNoValue;
};

Values DecomposeCrossEntropy(GraphBuilder& builder, const Node& node, absl::Span<const ValueId> operands) {
  return ClassLoss(builder, node, operands).CrossEntropy();
}
Values DecomposeNllLoss(GraphBuilder& builder, const Node& node, absl::Span<const ValueId> operands) {
  return ClassLoss(builder, node, operands).Nll();
}

void AddRow(std::vector<OpDef>& rows, const char* name, int max_operands, TypeRule infer, Decomposition decompose,
            std::vector<AttrSpec> attrs) {
  OpDef row;
  row.name = name;
  row.kind = OpKind::kComposite;
  row.min_operands = 2;
  row.max_operands = max_operands;
  row.infer = infer;
  row.decompose = decompose;
  row.attrs = std::move(attrs);
  rows.push_back(std::move(row));
}

}  // namespace

void AddLossRows(std::vector<OpDef>& rows) {
  const AttrSpec reduction = {"reduction", AttrType::kString, false, AttrValue(std::string("mean"))};
  const AttrSpec ignore_index = {"ignore_index", AttrType::kInt, false, AttrValue(int64_t{-100})};
  AddRow(rows, "cross_entropy", 3, CrossEntropyRule, DecomposeCrossEntropy,
         {reduction, ignore_index, {"label_smoothing", AttrType::kFloat, false, AttrValue(0.0)}});
  AddRow(rows, "nll_loss", 3, ClassLossRule, DecomposeNllLoss, {reduction, ignore_index});
  AddRow(rows, "kl_div", 2, KlDivRule, DecomposeKlDiv,
         {reduction, {"log_target", AttrType::kBool, false, AttrValue(false)}});
  AddRow(rows, "smooth_l1_loss", 2, SmoothL1Rule, DecomposeSmoothL1,
         {reduction, {"beta", AttrType::kFloat, false, AttrValue(1.0)}});
  AddRow(rows, "huber_loss", 2, HuberRule, DecomposeHuber,
         {reduction, {"delta", AttrType::kFloat, false, AttrValue(1.0)}});
}

}  // namespace fuseline::ops
