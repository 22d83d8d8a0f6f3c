// Tested by tests/unit/lowering/lower_indexing_test.cc
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/status/error.h"
#include "server/lowering/lower_op_kinds.h"

namespace fuseline::lowering {
namespace {

class IndexingLowering {
 public:
  IndexingLowering(LoweringContext& context, NodeId id) : context_(context), id_(id), node_(context.node(id)) {}

  absl::Status Run() {
    const std::string& op = node_.op;
    if (op == "gather" || op == "take_along_dim") {
      GatherAlongDim();
    } else if (op == "index_select") {
      IndexSelect();
    } else if (op == "embedding") {
      Embedding();
    } else if (op == "gather_nd") {
      GatherNd();
    } else if (op == "scatter" || op == "scatter_add") {
      Scatter(op == "scatter_add" ? "add" : Reduction());
    } else if (op == "index_add") {
      IndexAdd();
    } else if (op == "scatter_nd") {
      ScatterNd();
    } else {
      return Unimplemented(context_.graph().NodeName(id_), absl::StrCat("op '", op, "' has no lowering"));
    }
    return absl::OkStatus();
  }

 private:
  Shape OperandShape(size_t k) const {
    const Operand& o = node_.operands[k];
    return o.is_literal() ? Shape{} : context_.shape(o.value);
  }
  ValueId result() const { return node_.results[0]; }
  std::string Reduction() const { return std::get<std::string>(node_.attrs.find("reduction")->second); }
  size_t Dim() const {
    const int64_t dim = std::get<int64_t>(node_.attrs.find("dim")->second);
    return static_cast<size_t>(dim < 0 ? dim + static_cast<int64_t>(OperandShape(0).size()) : dim);
  }

  // The index's element `at` as a position within a dim of size `extent`, checked at run time.
  IndexExpr Position(LoopNode& n, ScalarBuilder& builder, const std::vector<IndexExpr>& at, int64_t extent) {
    if (extent < 1) extent = 1;  // the index is empty: nothing runs
    Scalar index = context_.ReadOperand(n, builder, id_, 1, at);
    if (index.type() != DType::kI64) index = CastTo(index, DType::kI64);
    ScalarInstr check;
    check.op = ScalarOp::kCheckIndex;
    check.type = DType::kI64;
    check.args[0] = index.id;
    check.constant.i = extent;
    check.index = static_cast<int32_t>(context_.program().checks.size());
    IndexCheck noted;
    noted.extent = extent;
    noted.source = n.source;
    context_.program().checks.push_back(std::move(noted));
    n.values.push_back(builder.EmitInstr(check).id);
    return IndexExpr::Value(static_cast<int32_t>(n.values.size()) - 1, extent);
  }

  // The result: x's elements `at`.
  void Read(LoopNode n, ScalarBuilder& builder, const std::vector<IndexExpr>& at) {
    const DType dtype = context_.dtype(result());
    n.result = context_.ReadOperand(n, builder, id_, 0, at).id;
    n.body = builder.instrs();
    context_.SetResult(result(), context_.AddComputed(std::move(n), dtype, context_.shape(result()),
                                                      context_.graph().value(result()).name));
  }

  void GatherAlongDim() {
    const size_t dim = Dim();
    const Shape x = OperandShape(0);
    const Shape index = OperandShape(1);
    LoopNode n = context_.StartNode(id_, context_.shape(result()));
    ScalarBuilder builder;
    const std::vector<IndexExpr> vars = IdentityIndex(n.domain);
    std::vector<IndexExpr> where = vars, at = vars;
    for (size_t d = 0; d < vars.size(); ++d) {
      if (index[d] == 1) where[d] = IndexExpr();
      if (x[d] == 1) at[d] = IndexExpr();
    }
    at[dim] = Position(n, builder, where, x[dim]);
    Read(std::move(n), builder, at);
  }

  void IndexSelect() {
    const size_t dim = Dim();
    LoopNode n = context_.StartNode(id_, context_.shape(result()));
    ScalarBuilder builder;
    std::vector<IndexExpr> at = IdentityIndex(n.domain);
    at[dim] = Position(n, builder, {at[dim]}, OperandShape(0)[dim]);
    Read(std::move(n), builder, at);
  }

  void Embedding() {
    LoopNode n = context_.StartNode(id_, context_.shape(result()));
    ScalarBuilder builder;
    std::vector<IndexExpr> where = IdentityIndex(n.domain);
    const IndexExpr column = where.back();
    where.pop_back();
    const IndexExpr row = Position(n, builder, where, OperandShape(0)[0]);
    Read(std::move(n), builder, {row, column});
  }

  // The positions that the index's last dim holds, in the dims of `x` from `first` on.
  std::vector<IndexExpr> Tuple(LoopNode& n, ScalarBuilder& builder, std::vector<IndexExpr> where, const Shape& x,
                               size_t first) {
    std::vector<IndexExpr> positions;
    const int64_t count = OperandShape(1).back();
    where.emplace_back();
    for (int64_t k = 0; k < count; ++k) {
      where.back() = IndexExpr::Const(k);
      positions.push_back(Position(n, builder, where, x[first + static_cast<size_t>(k)]));
    }
    return positions;
  }

  void GatherNd() {
    const int64_t batch = std::get<int64_t>(node_.attrs.find("batch_dims")->second);
    const int64_t leading = static_cast<int64_t>(OperandShape(1).size()) - 1;
    LoopNode n = context_.StartNode(id_, context_.shape(result()));
    ScalarBuilder builder;
    const std::vector<IndexExpr> vars = IdentityIndex(n.domain);
    std::vector<IndexExpr> at(vars.begin(), vars.begin() + batch);
    const std::vector<IndexExpr> tuple = Tuple(n, builder, std::vector<IndexExpr>(vars.begin(), vars.begin() + leading),
                                               OperandShape(0), static_cast<size_t>(batch));
    at.insert(at.end(), tuple.begin(), tuple.end());
    at.insert(at.end(), vars.begin() + leading, vars.end());
    Read(std::move(n), builder, at);
  }

  // x's elements in a tensor of their own.
  TensorId Copy(DType dtype, const std::string& name) {
    LoopNode n = context_.StartNode(id_, context_.shape(result()));
    ScalarBuilder builder;
    Scalar value = context_.ReadOperand(n, builder, id_, 0, IdentityIndex(n.domain));
    n.result = value.id;
    n.body = builder.instrs();
    Shape shape = n.domain;
    return context_.AddComputed(std::move(n), dtype, std::move(shape), name);
  }

  // A scatter over `domain`, in order along the dims marked in `ordered`. `where`: the source's element; `locate` gives
  // the position written to.
  template <typename Locate>
  void ScatterOver(Shape domain, std::vector<bool> ordered, const std::string& how, const Locate& locate) {
    const DType dtype = context_.dtype(result());
    const std::string name = context_.graph().value(result()).name;
    if (ElementCount(domain) == 0) {
      context_.SetResult(result(), Copy(dtype, name));
      return;
    }
    // Sums and products of 16-bit floats are kept in f32 until all is done.
    const bool widens = IsHalf(dtype) && (how == "add" || how == "mul");
    const DType kept = widens ? ComputeDType(dtype) : dtype;
    const TensorId into = Copy(kept, name + "_into");
    LoopNode n = context_.StartNode(id_, std::move(domain));
    n.kind = LoopNode::Kind::kScatter;
    n.reduced = std::move(ordered);
    n.into = into;
    n.reduction = how == "add"   ? ReductionKind::kSum
                  : how == "mul" ? ReductionKind::kProd
                  : how == "max" ? ReductionKind::kAmax
                  : how == "min" ? ReductionKind::kAmin
                                 : ReductionKind::kNone;
    ScalarBuilder builder;
    n.position = locate(n, builder);
    std::vector<IndexExpr> from;
    if (!OperandShape(2).empty()) from = IdentityIndex(n.domain);
    n.result = context_.ReadOperand(n, builder, id_, 2, from).id;
    n.body = builder.instrs();
    const TensorId scattered =
        context_.AddComputed(std::move(n), kept, context_.shape(result()), widens ? name + "_wide" : name);
    context_.SetResult(result(), widens ? Narrow(scattered, dtype, name) : scattered);
  }

  TensorId Narrow(TensorId wide, DType dtype, const std::string& name) {
    LoopNode n = context_.StartNode(id_, context_.shape(result()));
    ScalarBuilder builder;
    Scalar value = builder.Input(0, ComputeDType(dtype));
    LoopInput in;
    in.tensor = wide;
    in.index = IdentityIndex(n.domain);
    n.inputs.push_back(std::move(in));
    if (context_.options().numerics == Numerics::kEager) value = LoweringContext::Round(builder, value, dtype);
    n.result = value.id;
    n.body = builder.instrs();
    Shape shape = n.domain;
    return context_.AddComputed(std::move(n), dtype, std::move(shape), name);
  }

  void Scatter(const std::string& how) {
    const size_t dim = Dim();
    const Shape index = OperandShape(1);
    std::vector<bool> ordered(index.size(), false);
    ordered[dim] = true;
    const int64_t extent = OperandShape(0)[dim];
    ScatterOver(index, std::move(ordered), how, [&](LoopNode& n, ScalarBuilder& builder) {
      std::vector<IndexExpr> at = IdentityIndex(n.domain);
      at[dim] = Position(n, builder, at, extent);
      return at;
    });
  }

  void IndexAdd() {
    const size_t dim = Dim();
    Shape domain = OperandShape(0);
    const int64_t extent = domain[dim];
    domain[dim] = OperandShape(1)[0];
    std::vector<bool> ordered(domain.size(), false);
    ordered[dim] = true;
    ScatterOver(std::move(domain), std::move(ordered), "add", [&](LoopNode& n, ScalarBuilder& builder) {
      std::vector<IndexExpr> at = IdentityIndex(n.domain);
      at[dim] = Position(n, builder, {at[dim]}, extent);
      return at;
    });
  }

  void ScatterNd() {
    const Shape x = OperandShape(0);
    Shape domain = OperandShape(1);
    const int64_t tuple = domain.back();
    domain.pop_back();
    const int64_t leading = static_cast<int64_t>(domain.size());
    std::vector<bool> ordered(domain.size(), true);
    domain.insert(domain.end(), x.begin() + tuple, x.end());
    ordered.resize(domain.size(), false);
    ScatterOver(std::move(domain), std::move(ordered), Reduction(), [&](LoopNode& n, ScalarBuilder& builder) {
      const std::vector<IndexExpr> vars = IdentityIndex(n.domain);
      std::vector<IndexExpr> at = Tuple(n, builder, std::vector<IndexExpr>(vars.begin(), vars.begin() + leading), x, 0);
      at.insert(at.end(), vars.begin() + leading, vars.end());
      return at;
    });
  }

  LoweringContext& context_;
  const NodeId id_;
  const Node& node_;
};

}  // namespace

absl::Status LowerIndexing(LoweringContext& context, NodeId id) { return IndexingLowering(context, id).Run(); }

}  // namespace fuseline::lowering
