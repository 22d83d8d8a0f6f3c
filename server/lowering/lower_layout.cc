// Tested by tests/unit/lowering/lower_layout_test.cc
#include <algorithm>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/ir/op_table.h"
#include "common/status/error.h"
#include "server/lowering/lower_op_kinds.h"

namespace fuseline::lowering {
namespace {

// Pieces that one loop nest of a concat chooses from: a kernel holds some dozens of tensors, and its neighbours want
// some too. More pieces are first joined in groups.
constexpr size_t kMaxPieces = 32;

int64_t IntAttr(const Node& node, const char* name) { return std::get<int64_t>(node.attrs.find(name)->second); }
const std::vector<int64_t>& IntsAttr(const Node& node, const char* name) {
  return std::get<std::vector<int64_t>>(node.attrs.find(name)->second);
}

Scalar Constant(ScalarBuilder& builder, const AttrMap& attrs, const char* name, DType dtype) {
  Literal literal;
  if (const auto it = attrs.find(name); it != attrs.end()) {
    if (const double* number = std::get_if<double>(&it->second)) {
      literal.kind = Literal::Kind::kFloat;
      literal.f = *number;
    } else if (const bool* truth = std::get_if<bool>(&it->second)) {
      literal.kind = Literal::Kind::kBool;
      literal.i = *truth ? 1 : 0;
    } else {
      literal.i = std::get<int64_t>(it->second);
    }
  }
  if (!IsF8(dtype)) return LoweringContext::LiteralScalar(builder, literal, dtype);
  return LoweringContext::Round(builder, builder.Const(literal.AsDouble(), DType::kF32), dtype);
}

void Finish(LoweringContext& context, NodeId id, LoopNode n, ScalarBuilder& builder, Scalar out) {
  const ValueId result = context.node(id).results[0];
  n.body = builder.instrs();
  n.result = out.id;
  context.SetResult(result, context.AddComputed(std::move(n), context.dtype(result), context.shape(result),
                                                context.graph().value(result).name));
}

// The result's elements are those of `from` at `map`.
void FinishAsView(LoweringContext& context, NodeId id, ValueId from, const std::vector<IndexExpr>& map) {
  const ValueId result = context.node(id).results[0];
  ValueView v;
  v.tensor = context.view(from).tensor;
  v.index = SubstituteAll(context.view(from).index, map, context.shape(result));
  if (NodeCount(v.index) > kMaxIndexNodes) v = context.Materialise(id, result, std::move(v));
  context.view(result) = std::move(v);
}

// Every element is the constant.
void FinishAsConstant(LoweringContext& context, NodeId id, const char* value_attr) {
  const ValueId result = context.node(id).results[0];
  LoopNode n = context.StartNode(id, context.shape(result));
  ScalarBuilder builder;
  const Scalar out = Constant(builder, context.node(id).attrs, value_attr, context.dtype(result));
  Finish(context, id, std::move(n), builder, out);
}

// The operand at `at` where all bounds hold, the constant elsewhere.
void FinishGuarded(LoweringContext& context, NodeId id, const std::vector<IndexExpr>& at,
                   const std::vector<IndexBound>& bounds, const char* value_attr) {
  const ValueId result = context.node(id).results[0];
  LoopNode n = context.StartNode(id, context.shape(result));
  ScalarBuilder builder;
  const Scalar inside = LoweringContext::ReadGuard(n, builder, bounds);
  const Scalar read = context.ReadOperand(n, builder, id, 0, at, bounds);
  const Scalar out = Select(inside, read, Constant(builder, context.node(id).attrs, value_attr, context.dtype(result)));
  Finish(context, id, std::move(n), builder, out);
}

// --- pad ---

// A position of a padded dim as one of the operand's dim of `size`, computed at run time: `edge` takes the nearest
// element, `reflect` mirrors at the first and the last.
IndexExpr FoldedPosition(LoopNode& n, ScalarBuilder& builder, const IndexExpr& position, int64_t size, bool edge) {
  const Scalar p = builder.Input(static_cast<int>(n.inputs.size()), DType::kI64);
  LoopInput in;
  in.value = position;
  n.inputs.push_back(std::move(in));
  const Scalar last = builder.ConstInt(size - 1, DType::kI64);
  const Scalar zero = builder.ConstInt(0, DType::kI64);
  Scalar folded;
  if (edge) {
    folded = Binary(ScalarOp::kMinimum, Binary(ScalarOp::kMaximum, p, zero), last);
  } else {
    folded = last - Unary(ScalarOp::kAbs, last - Unary(ScalarOp::kAbs, p));
  }
  n.values.push_back(folded.id);
  return IndexExpr::Value(static_cast<int32_t>(n.values.size() - 1), size);
}

void LowerPad(LoweringContext& context, NodeId id) {
  const Node& node = context.node(id);
  const ValueId from = node.operands[0].value;
  const ValueId result = node.results[0];
  const Shape size = context.shape(from);
  const Shape domain = context.shape(result);
  const std::vector<int64_t>& low = IntsAttr(node, "low");
  const std::string& mode = std::get<std::string>(node.attrs.find("mode")->second);
  std::vector<IndexExpr> at = IdentityIndex(domain);
  const bool empty = ElementCount(domain) == 0;
  LoopNode n = context.StartNode(id, domain);
  ScalarBuilder builder;
  std::vector<IndexBound> bounds;
  for (size_t d = 0; d < domain.size(); ++d) {
    if (empty) continue;
    at[d] = at[d] + IndexExpr::Const(-low[d]);
    const IndexRange range = RangeOf(at[d], domain);
    if (range.low >= 0 && range.high < size[d]) continue;
    if (mode == "wrap") {
      at[d] = Mod(at[d] + IndexExpr::Const(size[d]), size[d], domain);
    } else if (mode != "constant") {
      at[d] = FoldedPosition(n, builder, at[d], size[d], mode == "edge");
    } else if (range.high < 0 || range.low >= size[d]) {
      return FinishAsConstant(context, id, "value");
    } else {
      bounds.push_back({at[d], 0, size[d]});
    }
  }
  if (!n.values.empty()) {
    const Scalar out = context.ReadOperand(n, builder, id, 0, at);
    return Finish(context, id, std::move(n), builder, out);
  }
  if (!bounds.empty()) return FinishGuarded(context, id, at, bounds, "value");
  FinishAsView(context, id, from, at);
}

// --- concat, stack ---

// A part of the result along the dim: an operand, or parts that have been joined.
struct Piece {
  int64_t start = 0;
  int64_t size = 0;
  size_t operand = 0;
  TensorId joined = -1;  // where it is not -1: a tensor of the result's shape but for the dim
};

class Joining {
 public:
  Joining(LoweringContext& context, NodeId id)
      : context_(context), node_(context.node(id)), id_(id), shape_(context.shape(node_.results[0])) {
    const int64_t dim = IntAttr(node_, "dim");
    dim_ = static_cast<size_t>(dim < 0 ? dim + static_cast<int64_t>(shape_.size()) : dim);
    stacked_ = node_.op == "stack";
  }

  void Run() {
    std::vector<Piece> pieces = OperandPieces();
    if (ElementCount(shape_) == 0) return FinishAsConstant(context_, id_, "");
    if (pieces.size() == 1 && !node_.operands[pieces[0].operand].is_literal()) {
      return FinishAsView(context_, id_, node_.operands[pieces[0].operand].value,
                          PieceIndex(pieces[0], IdentityIndex(shape_)));
    }
    int group = 0;
    while (pieces.size() > kMaxPieces) {
      std::vector<Piece> joined;
      for (size_t first = 0; first < pieces.size(); first += kMaxPieces) {
        const size_t count = std::min(kMaxPieces, pieces.size() - first);
        joined.push_back(count == 1 ? pieces[first] : JoinGroup(absl::MakeSpan(pieces).subspan(first, count), group++));
      }
      pieces = std::move(joined);
    }
    LoopNode n = context_.StartNode(id_, shape_);
    ScalarBuilder builder;
    const Scalar out = Choose(n, builder, pieces, 0);
    Finish(context_, id_, std::move(n), builder, out);
  }

 private:
  // Those with elements.
  std::vector<Piece> OperandPieces() const {
    std::vector<Piece> pieces;
    int64_t start = 0;
    for (size_t k = 0; k < node_.operands.size(); ++k) {
      const int64_t size = stacked_ ? 1 : context_.shape(node_.operands[k].value)[dim_];
      if (size > 0) pieces.push_back({start, size, k, -1});
      start += size;
    }
    return pieces;
  }

  Piece JoinGroup(absl::Span<const Piece> pieces, int group) {
    Piece joined = pieces.front();
    joined.size = pieces.back().start + pieces.back().size - joined.start;
    Shape shape = shape_;
    shape[dim_] = joined.size;
    LoopNode n = context_.StartNode(id_, shape);
    ScalarBuilder builder;
    const Scalar out = Choose(n, builder, pieces, joined.start);
    n.body = builder.instrs();
    n.result = out.id;
    const ValueId result = node_.results[0];
    joined.joined = context_.AddComputed(std::move(n), context_.dtype(result), shape,
                                         absl::StrCat(context_.graph().value(result).name, ".part", group));
    return joined;
  }

  // The element of the piece that the position along the dim, counted from `origin`, lies in.
  Scalar Choose(LoopNode& n, ScalarBuilder& builder, absl::Span<const Piece> pieces, int64_t origin) {
    Scalar out;
    for (size_t k = pieces.size(); k-- > 0;) {
      const Piece& piece = pieces[k];
      std::vector<IndexExpr> at = IdentityIndex(n.domain);
      const int64_t start = piece.start - origin;
      std::vector<IndexBound> bounds;
      if (pieces.size() > 1) bounds.push_back({at[dim_], start, start + piece.size});
      at[dim_] = at[dim_] + IndexExpr::Const(-start);
      const Scalar read = Read(n, builder, piece, at, bounds);
      out = k + 1 == pieces.size() ? read : Select(LoweringContext::ReadGuard(n, builder, bounds), read, out);
    }
    return out;
  }

  Scalar Read(LoopNode& n, ScalarBuilder& builder, const Piece& piece, const std::vector<IndexExpr>& at,
              const std::vector<IndexBound>& bounds) {
    if (piece.joined < 0) return context_.ReadOperand(n, builder, id_, piece.operand, PieceIndex(piece, at), bounds);
    const Scalar s =
        builder.Input(static_cast<int>(n.inputs.size()), ComputeDType(context_.program().tensor(piece.joined).dtype));
    LoopInput in;
    in.tensor = piece.joined;
    in.index = at;
    in.guards = bounds;
    n.inputs.push_back(std::move(in));
    return s;
  }

  // `at` counts within the piece along the dim. A size of 1 is at 0.
  std::vector<IndexExpr> PieceIndex(const Piece& piece, std::vector<IndexExpr> at) const {
    if (stacked_) {
      at.erase(at.begin() + static_cast<int64_t>(dim_));
    } else if (piece.size == 1) {
      at[dim_] = IndexExpr();
    }
    return at;
  }

  LoweringContext& context_;
  const Node& node_;
  NodeId id_;
  Shape shape_;
  size_t dim_ = 0;
  bool stacked_ = false;
};

// --- tril, triu ---

void LowerTriangle(LoweringContext& context, NodeId id) {
  const Node& node = context.node(id);
  const Shape shape = context.shape(node.results[0]);
  const std::vector<IndexExpr> at = IdentityIndex(shape);
  const int64_t rows = shape[shape.size() - 2];
  const int64_t columns = shape[shape.size() - 1];
  const IndexExpr above = at[shape.size() - 1] + at[shape.size() - 2] * -1;
  const int64_t diagonal = std::clamp(IntAttr(node, "diagonal"), -rows - 1, columns + 1);
  IndexBound bound{above, -rows, columns};
  if (node.op == "tril") {
    bound.high = diagonal + 1;
  } else {
    bound.low = diagonal;
  }
  const IndexRange range = RangeOf(above, shape);
  if (ElementCount(shape) == 0 || (range.low >= bound.low && range.high < bound.high)) {
    return FinishAsView(context, id, node.operands[0].value, at);
  }
  if (range.high < bound.low || range.low >= bound.high) return FinishAsConstant(context, id, "");
  FinishGuarded(context, id, at, {bound}, "");
}

// --- one_hot ---

void LowerOneHot(LoweringContext& context, NodeId id) {
  const Node& node = context.node(id);
  const ValueId result = node.results[0];
  const int64_t classes = IntAttr(node, "classes");
  LoopNode n = context.StartNode(id, context.shape(result));
  ScalarBuilder builder;
  std::vector<IndexExpr> at = IdentityIndex(n.domain);
  LoopInput position;
  position.value = at.back();
  at.pop_back();
  ScalarInstr check;
  check.op = ScalarOp::kCheckIndex;
  check.type = DType::kI64;
  check.args[0] = CastTo(context.ReadOperand(n, builder, id, 0, at), DType::kI64).id;
  check.constant.i = classes;
  check.index = static_cast<int32_t>(context.program().checks.size());
  IndexCheck noted;
  noted.extent = classes;
  noted.source = n.source;
  context.program().checks.push_back(std::move(noted));
  const Scalar index = builder.EmitInstr(check);
  const Scalar own = builder.Input(static_cast<int>(n.inputs.size()), DType::kI64);
  n.inputs.push_back(std::move(position));
  const DType dtype = context.dtype(result);
  const Scalar out = CastTo(Compare(ScalarOp::kEq, index, own), ComputeDType(dtype));
  Finish(context, id, std::move(n), builder, out);
}

}  // namespace

absl::Status LowerLayout(LoweringContext& context, NodeId id) {
  const std::string& op = context.node(id).op;
  if (op == "pad") {
    LowerPad(context, id);
  } else if (op == "concat" || op == "stack") {
    Joining(context, id).Run();
  } else if (op == "tril" || op == "triu") {
    LowerTriangle(context, id);
  } else if (op == "resize") {
    return LowerResize(context, id);
  } else if (op == "one_hot") {
    LowerOneHot(context, id);
  } else {
    return Unimplemented(context.graph().NodeName(id), absl::StrCat("op '", op, "' has no lowering"));
  }
  return absl::OkStatus();
}

}  // namespace fuseline::lowering
