#include "server/lowering/lower_graph.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/ir/op_table.h"
#include "common/status/error.h"
#include "common/status/status_macros.h"
#include "server/lowering/decompose_composites.h"
#include "server/lowering/lower_op_kinds.h"
#include "server/lowering/lowering_context.h"
#include "server/lowering/view_rules.h"

namespace fuseline::lowering {
namespace {

class Lowering : public LoweringContext {
 public:
  using LoweringContext::LoweringContext;

  absl::StatusOr<LoopProgram> Run() {
    for (size_t i = 0; i < graph_.inputs.size(); ++i) AddInput(static_cast<int32_t>(i));
    for (size_t n = 0; n < graph_.nodes.size(); ++n) {
      FUSELINE_RETURN_IF_ERROR(LowerNode(static_cast<NodeId>(n)));
    }
    for (size_t o = 0; o < graph_.outputs.size(); ++o) AddOutput(static_cast<int32_t>(o));
    return std::move(program_);
  }

 private:
  void AddInput(int32_t position) {
    const ValueId id = graph_.inputs[static_cast<size_t>(position)];
    const TensorType& type = graph_.type(id);
    LoopTensor t;
    t.kind = LoopTensor::Kind::kInput;
    t.name = graph_.value(id).name;
    t.dtype = type.dtype;
    t.shape = type.shape();
    t.strides = type.strides ? *type.strides : DenseStrides(t.shape);
    t.input = position;
    view(id) = {AddTensor(std::move(t)), IdentityIndex(shape(id))};
  }

  absl::Status LowerNode(NodeId id) {
    const Node& node = graph_.nodes[static_cast<size_t>(id)];
    switch (node.def->kind) {
      case OpKind::kPointwise:
        return LowerPointwise(id);
      case OpKind::kCreation:
        return LowerCreation(id);
      case OpKind::kView:
        return LowerView(id);
      case OpKind::kReduction:
        return LowerReduction(id);
      case OpKind::kLayout:
        return LowerLayout(*this, id);
      case OpKind::kIndexing:
        return LowerIndexing(*this, id);
      case OpKind::kOrdered:
        return LowerOrdered(*this, id);
      case OpKind::kContraction:
        return LowerContraction(*this, id);
      case OpKind::kWindow:
        return LowerWindow(*this, id);
      case OpKind::kComposite:  // decomposed before
        break;
    }
    return Internal(absl::StrCat("node '", graph_.NodeName(id), "': op '", node.op, "' has no lowering"));
  }

  absl::Status LowerPointwise(NodeId id) {
    const Node& node = graph_.nodes[static_cast<size_t>(id)];
    const ValueId result = node.results[0];
    LoopNode n = StartNode(id, shape(result));
    ScalarBuilder builder;
    ScalarArgs args;
    args.builder = &builder;
    args.attrs = &node.attrs;
    args.result_storage = graph_.type(result).dtype;
    const bool sees_storage = node.op == "cast" || node.op == "bitcast";
    for (size_t k = 0; k < node.operands.size(); ++k) {
      const Operand& o = node.operands[k];
      if (o.is_literal()) {
        const DType literal_dtype = LiteralDType(graph_, node, k);
        args.operands.push_back(LiteralScalar(builder, o.literal, literal_dtype));
        args.operand_storage.push_back(literal_dtype);
        continue;
      }
      const DType storage = graph_.type(o.value).dtype;
      Scalar s = builder.Input(static_cast<int>(n.inputs.size()), ComputeDType(storage));
      n.inputs.push_back(ReadBroadcast(o.value, n.domain));
      // A cast sees its operand rounded to the operand's dtype.
      if (sees_storage && IsHalf(storage)) s = Round(builder, s, storage);
      args.operands.push_back(s);
      args.operand_storage.push_back(storage);
    }
    Scalar out = node.def->scalar(args);
    if (options_.numerics == Numerics::kEager && IsHalf(args.result_storage))
      out = Round(builder, out, args.result_storage);
    n.body = builder.instrs();
    n.result = out.id;
    const TensorId tensor = AddComputed(std::move(n), args.result_storage, shape(result), graph_.value(result).name);
    view(result) = {tensor, IdentityIndex(shape(result))};
    return absl::OkStatus();
  }

  absl::Status LowerCreation(NodeId id) {
    const Node& node = graph_.nodes[static_cast<size_t>(id)];
    const ValueId result = node.results[0];
    const DType dtype = graph_.type(result).dtype;
    if (node.constant_bytes != nullptr) {
      LoopTensor t;
      t.kind = LoopTensor::Kind::kConstant;
      t.name = graph_.value(result).name;
      t.dtype = dtype;
      t.shape = shape(result);
      t.constant_bytes = node.constant_bytes;
      view(result) = {AddTensor(std::move(t)), IdentityIndex(shape(result))};
      return absl::OkStatus();
    }
    LoopNode n = StartNode(id, shape(result));
    ScalarBuilder builder;
    Scalar out;
    if (node.op == "full") {
      const AttrValue& v = node.attrs.find("value")->second;
      Literal literal;
      if (const double* f = std::get_if<double>(&v)) {
        literal.kind = Literal::Kind::kFloat;
        literal.f = *f;
      } else if (const bool* b = std::get_if<bool>(&v)) {
        literal.kind = Literal::Kind::kBool;
        literal.i = *b ? 1 : 0;
      } else {
        literal.i = std::get<int64_t>(v);
      }
      if (IsF8(dtype)) {
        out = Round(builder, builder.Const(literal.AsDouble(), DType::kF32), dtype);
      } else {
        out = LiteralScalar(builder, literal, dtype);
      }
    } else if (node.op == "iota") {
      LoopInput in;
      const int64_t dim = std::get<int64_t>(node.attrs.find("dim")->second);
      const size_t d = static_cast<size_t>(dim < 0 ? dim + static_cast<int64_t>(n.domain.size()) : dim);
      in.value = IdentityIndex(n.domain)[d];
      n.inputs.push_back(std::move(in));
      out = CastTo(builder.Input(0, DType::kI64), ComputeDType(dtype));
      if (IsF8(dtype) || (IsHalf(dtype) && options_.numerics == Numerics::kEager)) out = Round(builder, out, dtype);
    } else {
      return Unimplemented(graph_.NodeName(id), absl::StrCat("op '", node.op, "' has no lowering"));
    }
    n.body = builder.instrs();
    n.result = out.id;
    view(result) = {AddComputed(std::move(n), dtype, shape(result), graph_.value(result).name),
                    IdentityIndex(shape(result))};
    return absl::OkStatus();
  }

  absl::Status LowerView(NodeId id) {
    const Node& node = graph_.nodes[static_cast<size_t>(id)];
    const ValueId from = node.operands[0].value;
    const ValueId to = node.results[0];
    if (from == kNoValue)
      return Unimplemented(graph_.NodeName(id), absl::StrCat(node.op, ": a literal operand of a view"));
    FUSELINE_ASSIGN_OR_RETURN(std::vector<IndexExpr> map, ViewIndexMap(node, shape(from), shape(to)));
    ValueView v;
    v.tensor = view(from).tensor;
    v.index = SubstituteAll(view(from).index, map, shape(to));
    if (NodeCount(v.index) > kMaxIndexNodes) v = Materialise(id, to, std::move(v));
    view(to) = std::move(v);
    return absl::OkStatus();
  }

  absl::Status LowerReduction(NodeId id) {
    const Node& node = graph_.nodes[static_cast<size_t>(id)];
    const ValueId operand = node.operands[0].value;
    if (operand == kNoValue)
      return Unimplemented(graph_.NodeName(id), absl::StrCat(node.op, ": a literal operand of a reduction"));
    FUSELINE_ASSIGN_OR_RETURN(std::vector<int64_t> dims, ReducedDims(node, static_cast<int>(shape(operand).size())));
    if (node.def->reduction == ReductionKind::kVarMean) return LowerVarMean(id, dims);
    const DType storage = graph_.type(operand).dtype;
    const DType result_dtype = graph_.type(node.results[0]).dtype;
    LoopNode n = StartNode(id, shape(operand));
    MarkReduced(n, dims);
    n.reduction = node.def->reduction;
    n.inputs.push_back({view(operand).tensor, view(operand).index, {}});
    ScalarBuilder builder;
    Scalar value = builder.Input(0, ComputeDType(storage));
    switch (n.reduction) {
      case ReductionKind::kSum:
      case ReductionKind::kProd:
        value = CastTo(value, ComputeDType(result_dtype));
        break;
      case ReductionKind::kAny:
      case ReductionKind::kAll:
        value = ToBool(value);
        break;
      case ReductionKind::kArgmax:
      case ReductionKind::kArgmin:
        n.arg_index = node.attrs.count("dim") != 0 ? IdentityIndex(n.domain)[static_cast<size_t>(dims[0])]
                                                   : Flatten(IdentityIndex(n.domain), n.domain);
        break;
      default:
        break;
    }
    n.body = builder.instrs();
    n.result = value.id;
    if (options_.numerics == Numerics::kEager && IsHalf(result_dtype)) n.round_result = result_dtype;
    FinishReduction(std::move(n), node.results[0], result_dtype);
    return absl::OkStatus();
  }

  static void MarkReduced(LoopNode& n, const std::vector<int64_t>& dims) {
    n.kind = LoopNode::Kind::kReduction;
    n.reduced.assign(n.domain.size(), false);
    for (int64_t d : dims) n.reduced[static_cast<size_t>(d)] = true;
  }

  static absl::StatusOr<std::vector<int64_t>> ReducedDims(const Node& node, int rank) {
    if (const auto dim = node.attrs.find("dim"); dim != node.attrs.end()) {
      FUSELINE_ASSIGN_OR_RETURN(const int64_t d, NormalizeDim(std::get<int64_t>(dim->second), rank));
      return std::vector<int64_t>{d};
    }
    const auto dims = node.attrs.find("dims");
    return NormalizeDims(dims == node.attrs.end() ? nullptr : &std::get<std::vector<int64_t>>(dims->second), rank);
  }

  // The tensor holds the kept dims only; with keepdim the value is a view of it.
  ValueView FinishReduction(LoopNode n, ValueId result, DType dtype) {
    const std::vector<bool> reduced = n.reduced;
    const Shape kept = n.kept_shape();
    const Shape out = shape(result);
    const bool keepdim = out.size() != kept.size();
    const TensorId tensor = AddComputed(std::move(n), dtype, kept, graph_.value(result).name);
    ValueView v;
    v.tensor = tensor;
    if (!keepdim) {
      v.index = IdentityIndex(kept);
    } else {
      const std::vector<IndexExpr> id = IdentityIndex(out);
      for (size_t i = 0; i < reduced.size(); ++i) {
        if (!reduced[i]) v.index.push_back(id[i]);
      }
    }
    view(result) = v;
    return v;
  }

  // Two passes, so that nothing cancels: mean = sum(x) / n; var = sum((x - mean)^2) / max(0, n - correction).
  absl::Status LowerVarMean(NodeId id, const std::vector<int64_t>& dims) {
    const Node& node = graph_.nodes[static_cast<size_t>(id)];
    const ValueId operand = node.operands[0].value;
    const DType storage = graph_.type(operand).dtype;
    const DType compute = ComputeDType(storage);
    const Shape domain = shape(operand);
    double count = 1;
    for (int64_t d : dims) count *= static_cast<double>(domain[static_cast<size_t>(d)]);
    const AttrValue& c = node.attrs.find("correction")->second;
    const double correction =
        std::holds_alternative<double>(c) ? std::get<double>(c) : static_cast<double>(std::get<int64_t>(c));
    const std::string base = graph_.value(node.results[0]).name;
    const bool eager_half = options_.numerics == Numerics::kEager && IsHalf(storage);

    const auto reduce = [&](std::vector<LoopInput> inputs, ScalarBuilder& builder, Scalar value,
                            const std::string& name) {
      LoopNode n = StartNode(id, domain);
      MarkReduced(n, dims);
      n.reduction = ReductionKind::kSum;
      n.inputs = std::move(inputs);
      n.body = builder.instrs();
      n.result = value.id;
      const Shape kept = n.kept_shape();
      return AddComputed(std::move(n), compute, kept, name);
    };
    // sum / divisor over the kept dims, stored as the graph's dtype.
    const auto divide = [&](TensorId sum, double divisor, DType dtype, const std::string& name) {
      LoopNode n = StartNode(id, program_.tensor(sum).shape);
      ScalarBuilder builder;
      Scalar q = builder.Input(0, compute) / divisor;
      if (eager_half && IsHalf(dtype)) q = Round(builder, q, dtype);
      n.inputs.push_back({sum, IdentityIndex(n.domain), {}});
      n.body = builder.instrs();
      n.result = q.id;
      Shape s = n.domain;
      return AddComputed(std::move(n), dtype, std::move(s), name);
    };
    ScalarBuilder b0;
    const TensorId sum =
        reduce({{view(operand).tensor, view(operand).index, {}}}, b0, b0.Input(0, compute), base + "_sum");
    const TensorId mean = divide(sum, count, compute, base + "_mean");
    std::vector<IndexExpr> kept_vars;
    const std::vector<IndexExpr> vars = IdentityIndex(domain);
    for (size_t i = 0; i < domain.size(); ++i) {
      if (std::find(dims.begin(), dims.end(), static_cast<int64_t>(i)) == dims.end()) kept_vars.push_back(vars[i]);
    }
    ScalarBuilder b1;
    const Scalar centred = b1.Input(0, compute) - b1.Input(1, compute);
    const Scalar squared = centred * centred;
    const TensorId squares = reduce({{view(operand).tensor, view(operand).index, {}}, {mean, kept_vars, {}}}, b1,
                                    squared, base + "_squares");
    const TensorId var = divide(squares, std::max(0.0, count - correction), storage, base);
    const TensorId mean_out =
        storage == compute ? mean : divide(sum, count, storage, graph_.value(node.results[1]).name);
    FinishVarMean(node.results[0], var, dims);
    FinishVarMean(node.results[1], mean_out, dims);
    return absl::OkStatus();
  }

  void FinishVarMean(ValueId result, TensorId tensor, const std::vector<int64_t>& dims) {
    const Shape out = shape(result);
    const std::vector<IndexExpr> id = IdentityIndex(out);
    ValueView v;
    v.tensor = tensor;
    const bool keepdim = out.size() != program_.tensor(tensor).shape.size();
    for (size_t i = 0; i < out.size(); ++i) {
      if (!keepdim || std::find(dims.begin(), dims.end(), static_cast<int64_t>(i)) == dims.end())
        v.index.push_back(id[i]);
    }
    view(result) = std::move(v);
  }

  void AddOutput(int32_t position) {
    const ValueId value = graph_.outputs[static_cast<size_t>(position)].value;
    ValueView v = view(value);
    LoopTensor& t = program_.tensors[static_cast<size_t>(v.tensor)];
    const Shape s = shape(value);
    // A value whose elements lie in the tensor in the same order needs no copy. A 16-bit value is kept apart from other
    // views of the same tensor, since returning it rounds it for its readers.
    const bool same_order = t.kind == LoopTensor::Kind::kComputed && t.output < 0 &&
                            t.element_count() == ElementCount(s) &&
                            Flatten(v.index, t.shape) == Flatten(IdentityIndex(s), s) &&
                            (!IsHalf(t.dtype) || t.name == graph_.value(value).name);
    if (!same_order) v = Materialise(kNoNode, value, std::move(v));
    program_.tensors[static_cast<size_t>(v.tensor)].output = position;
    program_.outputs.push_back(v.tensor);
  }
};

// What each op of the client's graph would move if it ran alone.
std::vector<SourceOp> DescribeSources(const Graph& graph) {
  std::vector<bool> returned(graph.values.size(), false);
  for (const GraphOutput& o : graph.outputs) returned[static_cast<size_t>(o.value)] = true;
  std::vector<SourceOp> out;
  out.reserve(graph.nodes.size());
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    const Node& node = graph.nodes[i];
    SourceOp s;
    s.op = node.op;
    s.name = graph.NodeName(static_cast<NodeId>(i));
    s.is_view = node.def->kind == OpKind::kView || node.constant_bytes != nullptr;
    if (!s.is_view) {
      std::vector<ValueId> seen;
      for (const Operand& o : node.operands) {
        if (o.is_literal() || std::find(seen.begin(), seen.end(), o.value) != seen.end()) continue;
        seen.push_back(o.value);
      }
      for (ValueId r : node.results) {
        seen.push_back(r);
        if (!returned[static_cast<size_t>(r)]) s.makes_intermediate = true;
      }
      for (ValueId v : seen) s.bytes += graph.type(v).size_bytes();
      s.transfers = static_cast<int64_t>(seen.size());
    }
    out.push_back(std::move(s));
  }
  return out;
}

}  // namespace

absl::StatusOr<LoopProgram> LowerGraph(const Graph& graph, const CompileOptions& options) {
  FUSELINE_ASSIGN_OR_RETURN(DecomposedGraph decomposed, DecomposeComposites(graph));
  FUSELINE_ASSIGN_OR_RETURN(LoopProgram program, Lowering(decomposed.graph, decomposed.source, options).Run());
  program.sources = DescribeSources(graph);
  for (IndexCheck& check : program.checks) {
    if (check.source != kNoNode) check.node = graph.NodeName(check.source);
  }
  FUSELINE_RETURN_IF_ERROR(VerifyLoopProgram(program));
  return program;
}

}  // namespace fuseline::lowering
