#include "server/lowering/lowering_context.h"

#include <utility>

#include "server/lowering/decompose_composites.h"

namespace fuseline::lowering {

LoopNode LoweringContext::StartNode(NodeId id, Shape domain) const {
  LoopNode n;
  n.domain = std::move(domain);
  n.source = source_[static_cast<size_t>(id)];
  n.label = graph_.nodes[static_cast<size_t>(id)].op;
  return n;
}

TensorId LoweringContext::AddTensor(LoopTensor t) {
  if (t.strides.empty()) t.strides = DenseStrides(t.shape);
  program_.tensors.push_back(std::move(t));
  return static_cast<TensorId>(program_.tensors.size() - 1);
}

TensorId LoweringContext::AddComputed(LoopNode node, DType dtype, Shape shape, const std::string& name) {
  LoopTensor t;
  t.name = name;
  t.dtype = dtype;
  t.shape = std::move(shape);
  t.producer = static_cast<LoopNodeId>(program_.nodes.size());
  node.tensor = AddTensor(std::move(t));
  const bool order_shows = node.reduction == ReductionKind::kSum || node.reduction == ReductionKind::kProd;
  if (options_.numerics == Numerics::kEager && node.is_reduction() && order_shows &&
      node.accumulation == Accumulation::kFree && IsFloat(node.body[static_cast<size_t>(node.result)].type)) {
    node.accumulation = Accumulation::kByShape;
  }
  const TensorId id = node.tensor;
  program_.nodes.push_back(std::move(node));
  return id;
}

void LoweringContext::SetResult(ValueId result, TensorId tensor) {
  view(result) = {tensor, IdentityIndex(shape(result))};
}

LoopInput LoweringContext::ReadAt(ValueId id, absl::Span<const IndexExpr> at, const Shape& domain,
                                  std::vector<IndexBound> guards) {
  LoopInput in;
  in.tensor = view(id).tensor;
  in.index = SubstituteAll(view(id).index, at, domain);
  in.guards = std::move(guards);
  return in;
}

LoopInput LoweringContext::ReadBroadcast(ValueId id, const Shape& domain) {
  const Shape s = shape(id);
  std::vector<IndexExpr> vars(s.size());
  const size_t shift = domain.size() - s.size();
  for (size_t i = 0; i < s.size(); ++i) {
    if (s[i] != 1) vars[i] = IndexExpr::Var(static_cast<int32_t>(i + shift));
  }
  return ReadAt(id, vars, domain);
}

Scalar LoweringContext::ReadOperand(LoopNode& n, ScalarBuilder& builder, NodeId id, size_t k,
                                    absl::Span<const IndexExpr> at, std::vector<IndexBound> guards) {
  const Operand& o = node(id).operands[k];
  if (o.is_literal()) return LiteralScalar(builder, o.literal, LiteralDType(graph_, node(id), k));
  const Scalar s = builder.Input(static_cast<int>(n.inputs.size()), ComputeDType(dtype(o.value)));
  n.inputs.push_back(ReadAt(o.value, at, n.domain, std::move(guards)));
  return s;
}

Scalar LoweringContext::ReadGuard(LoopNode& n, ScalarBuilder& builder, std::vector<IndexBound> guards) {
  const Scalar s = builder.Input(static_cast<int>(n.inputs.size()), DType::kBool);
  LoopInput in;
  in.tensor = kGuardValue;
  in.guards = std::move(guards);
  n.inputs.push_back(std::move(in));
  return s;
}

ValueView LoweringContext::Materialise(NodeId id, ValueId value, ValueView v) {
  const DType dtype = program_.tensor(v.tensor).dtype;
  LoopNode n;
  n.domain = shape(value);
  n.source = id == kNoNode ? kNoNode : source_[static_cast<size_t>(id)];
  n.label = id == kNoNode ? "copy" : graph_.nodes[static_cast<size_t>(id)].op;
  ScalarBuilder builder;
  n.result = builder.Input(0, ComputeDType(dtype)).id;
  n.inputs.push_back({v.tensor, std::move(v.index), {}});
  n.body = builder.instrs();
  return {AddComputed(std::move(n), dtype, shape(value), graph_.value(value).name), IdentityIndex(shape(value))};
}

Scalar LoweringContext::Round(ScalarBuilder& builder, Scalar s, DType storage) {
  ScalarInstr r;
  r.op = ScalarOp::kRound16;
  r.type = DType::kF32;
  r.args[0] = s.id;
  r.storage = storage;
  return builder.EmitInstr(r);
}

Scalar LoweringContext::LiteralScalar(ScalarBuilder& builder, const Literal& literal, DType dtype) {
  if (IsBool(dtype)) return builder.ConstBool(literal.i != 0);
  if (IsInteger(dtype)) {
    return builder.ConstInt(literal.kind == Literal::Kind::kFloat ? static_cast<int64_t>(literal.f) : literal.i, dtype);
  }
  const Scalar s = builder.Const(literal.AsDouble(), ComputeDType(dtype));
  return IsHalf(dtype) ? Round(builder, s, dtype) : s;  // it is a scalar of that dtype
}

}  // namespace fuseline::lowering
