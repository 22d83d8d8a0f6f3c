#include "server/lowering/decompose_composites.h"

#include <algorithm>
#include <utility>

#include "common/ir/graph_builder.h"
#include "common/ir/op_table.h"
#include "common/status/error.h"
#include "common/status/status_macros.h"

namespace fuseline::lowering {
namespace {

// Decompositions take values only: a literal becomes a 0-d tensor.
absl::StatusOr<ValueId> AddLiteral(GraphBuilder& builder, const Literal& literal, DType dtype) {
  AttrMap attrs;
  attrs["shape"] = std::vector<int64_t>{};
  attrs["dtype"] = dtype;
  switch (literal.kind) {
    case Literal::Kind::kInt:
      attrs["value"] = literal.i;
      break;
    case Literal::Kind::kFloat:
      attrs["value"] = literal.f;
      break;
    case Literal::Kind::kBool:
      attrs["value"] = literal.i != 0;
      break;
  }
  return builder.Add("full", {}, std::move(attrs));
}

}  // namespace

DType LiteralDType(const Graph& graph, const Node& node, size_t operand) {
  const bool has_condition = node.op == "where";
  if (has_condition && operand == 0) return DType::kBool;
  for (size_t i = has_condition ? 1 : 0; i < node.operands.size(); ++i) {
    if (!node.operands[i].is_literal()) return graph.type(node.operands[i].value).dtype;
  }
  return DType::kF32;  // the verifier refuses a node of literals alone
}

absl::StatusOr<DecomposedGraph> DecomposeComposites(const Graph& graph) {
  DecomposedGraph out;
  const bool any = std::any_of(graph.nodes.begin(), graph.nodes.end(),
                               [](const Node& n) { return n.def->kind == OpKind::kComposite; });
  if (!any) {
    out.graph = graph;
    out.source.resize(graph.nodes.size());
    for (size_t i = 0; i < graph.nodes.size(); ++i) out.source[i] = static_cast<NodeId>(i);
    return out;
  }
  GraphLimits limits;
  limits.max_nodes = graph.nodes.size() * 64ll + 1024;  // a decomposition adds a few dozen nodes at most
  GraphBuilder builder(graph.name, limits);
  std::vector<ValueId> renamed(graph.values.size(), kNoValue);
  for (ValueId in : graph.inputs) {
    FUSELINE_ASSIGN_OR_RETURN(renamed[static_cast<size_t>(in)], builder.AddInput(graph.value(in).name, graph.type(in)));
  }
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    const Node& node = graph.nodes[i];
    std::vector<ValueId> results;
    if (node.def->kind == OpKind::kComposite) {
      std::vector<ValueId> operands;
      for (size_t k = 0; k < node.operands.size(); ++k) {
        const Operand& o = node.operands[k];
        if (o.is_literal()) {
          FUSELINE_ASSIGN_OR_RETURN(const ValueId literal,
                                    AddLiteral(builder, o.literal, LiteralDType(graph, node, k)));
          operands.push_back(literal);
        } else {
          operands.push_back(renamed[static_cast<size_t>(o.value)]);
        }
      }
      FUSELINE_ASSIGN_OR_RETURN(results, node.def->decompose(builder, node, operands));
    } else if (node.constant_bytes != nullptr) {
      FUSELINE_ASSIGN_OR_RETURN(ValueId v, builder.AddConstant(graph.type(node.results[0]), *node.constant_bytes));
      results = {v};
    } else {
      std::vector<Operand> operands = node.operands;
      for (Operand& o : operands) {
        if (!o.is_literal()) o.value = renamed[static_cast<size_t>(o.value)];
      }
      FUSELINE_ASSIGN_OR_RETURN(results, builder.AddNode(node.op, operands, node.attrs));
    }
    if (results.size() != node.results.size())
      return Internal(node.op + ": decomposition gives the wrong number of results");
    for (size_t r = 0; r < results.size(); ++r) {
      if (builder.type(results[r]).dims != graph.type(node.results[r]).dims ||
          builder.type(results[r]).dtype != graph.type(node.results[r]).dtype) {
        return Internal(node.op + ": decomposition gives type " + builder.type(results[r]).ToString() + ", not " +
                        graph.type(node.results[r]).ToString());
      }
      renamed[static_cast<size_t>(node.results[r])] = results[r];
    }
    out.source.resize(builder.graph().nodes.size(), static_cast<NodeId>(i));
  }
  for (const GraphOutput& o : graph.outputs) {
    FUSELINE_RETURN_IF_ERROR(builder.AddOutput(o.name, renamed[static_cast<size_t>(o.value)]));
  }
  out.graph = builder.Build();
  return out;
}

}  // namespace fuseline::lowering
