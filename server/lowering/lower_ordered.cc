// Tested by tests/unit/lowering/lower_indexing_test.cc
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/status/error.h"
#include "server/lowering/lower_op_kinds.h"

namespace fuseline::lowering {
namespace {

class OrderedLowering {
 public:
  OrderedLowering(LoweringContext& context, NodeId id)
      : context_(context), id_(id), node_(context.node(id)), operand_(node_.operands[0].value) {
    if (operand_ == kNoValue) return;
    shape_ = context.shape(operand_);
    const int64_t dim = std::get<int64_t>(node_.attrs.find("dim")->second);
    dim_ = static_cast<size_t>(dim < 0 ? dim + static_cast<int64_t>(shape_.size()) : dim);
  }

  absl::Status Run() {
    const std::string& op = node_.op;
    if (op == "cumsum" || op == "cumprod") {
      Scan(op == "cumprod");
    } else if (op == "cummax") {
      ValuesAt(Positions(LoopNode::Kind::kScan, false));
    } else if (op == "sort") {
      ValuesAt(Positions(LoopNode::Kind::kSort, Flag("descending")));
    } else if (op == "topk") {
      ValuesAt(Positions(LoopNode::Kind::kSort, Flag("largest")));
    } else {
      return Unimplemented(context_.graph().NodeName(id_), absl::StrCat("op '", op, "' has no lowering"));
    }
    return absl::OkStatus();
  }

 private:
  bool Flag(const char* name) const { return std::get<bool>(node_.attrs.find(std::string_view(name))->second); }
  const std::string& Name(size_t result) const { return context_.graph().value(node_.results[result]).name; }

  LoopNode Start(LoopNode::Kind kind) {
    LoopNode n = context_.StartNode(id_, shape_);
    n.kind = kind;
    n.reduced.assign(shape_.size(), false);
    n.reduced[dim_] = true;
    return n;
  }

  void Scan(bool product) {
    const bool exclusive = Flag("exclusive"), reverse = Flag("reverse");
    const int64_t size = shape_[dim_];
    const DType dtype = context_.dtype(node_.results[0]);
    LoopNode n = Start(LoopNode::Kind::kScan);
    n.reduction = product ? ReductionKind::kProd : ReductionKind::kSum;
    ScalarBuilder builder;
    const std::vector<IndexExpr> vars = IdentityIndex(shape_);
    const auto from_end = [&](const IndexExpr& e) { return e * -1 + IndexExpr::Const(size - 1); };
    std::vector<IndexExpr> at = vars;
    const IndexExpr step = exclusive ? vars[dim_] + IndexExpr::Const(-1) : vars[dim_];
    at[dim_] = reverse ? from_end(step) : step;
    const auto identity = [&] {
      const DType compute = ComputeDType(dtype);
      return IsFloat(compute) ? builder.Const(product ? 1 : 0, compute) : builder.ConstInt(product ? 1 : 0, compute);
    };
    Scalar value;
    if (exclusive && size <= 1) {
      value = identity();
    } else if (exclusive) {
      const std::vector<IndexBound> inside = {{step, 0, size}};
      const Scalar read = context_.ReadOperand(n, builder, id_, 0, at, inside);
      const Scalar holds = LoweringContext::ReadGuard(n, builder, inside);
      value = Select(holds, CastTo(read, ComputeDType(dtype)), identity());
    } else {
      value = CastTo(context_.ReadOperand(n, builder, id_, 0, at), ComputeDType(dtype));
    }
    if (reverse) {
      n.position = vars;
      n.position[dim_] = from_end(vars[dim_]);
    }
    n.body = builder.instrs();
    n.result = value.id;
    context_.SetResult(node_.results[0], context_.AddComputed(std::move(n), dtype, shape_, Name(0)));
  }

  // Where the values come from, along the dim.
  TensorId Positions(LoopNode::Kind kind, bool descending) {
    LoopNode n = Start(kind);
    n.descending = descending;
    if (kind == LoopNode::Kind::kScan) {
      n.reduction = ReductionKind::kArgmax;
      n.arg_index = IdentityIndex(shape_)[dim_];
    }
    ScalarBuilder builder;
    const Scalar value = context_.ReadOperand(n, builder, id_, 0, IdentityIndex(shape_));
    n.body = builder.instrs();
    n.result = value.id;
    return context_.AddComputed(std::move(n), DType::kI64, shape_, Name(1));
  }

  void ValuesAt(TensorId positions) {
    const Shape shape = context_.shape(node_.results[0]);
    LoopNode n = context_.StartNode(id_, shape);
    ScalarBuilder builder;
    std::vector<IndexExpr> at = IdentityIndex(shape);
    LoopInput in;
    in.tensor = positions;
    in.index = at;
    n.inputs.push_back(std::move(in));
    n.values.push_back(builder.Input(0, DType::kI64).id);
    at[dim_] = IndexExpr::Value(0, std::max<int64_t>(shape_[dim_], 1));
    n.result = context_.ReadOperand(n, builder, id_, 0, at).id;
    n.body = builder.instrs();
    const TensorId values = context_.AddComputed(std::move(n), context_.dtype(node_.results[0]), shape, Name(0));
    context_.SetResult(node_.results[0], values);
    context_.view(node_.results[1]) = {positions, IdentityIndex(shape)};  // topk: the first of them
  }

  LoweringContext& context_;
  const NodeId id_;
  const Node& node_;
  const ValueId operand_;
  Shape shape_;
  size_t dim_ = 0;
};

}  // namespace

absl::Status LowerOrdered(LoweringContext& context, NodeId id) { return OrderedLowering(context, id).Run(); }

}  // namespace fuseline::lowering
