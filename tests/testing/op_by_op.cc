#include "tests/testing/op_by_op.h"

#include <map>
#include <optional>
#include <utility>

#include "common/ir/graph_builder.h"
#include "common/status/status_macros.h"
#include "common/status/str_cat.h"

namespace fuseline::testing {
namespace {

struct OpGraph {
  Graph graph;
  std::vector<ValueId> inputs;  // of the whole graph
};

absl::StatusOr<OpGraph> GraphOf(const Graph& whole, const Node& node) {
  OpGraph out;
  GraphBuilder builder("op");
  std::map<ValueId, ValueId> renamed;
  std::vector<Operand> operands = node.operands;
  for (Operand& o : operands) {
    if (o.is_literal()) continue;
    const auto [it, is_new] = renamed.emplace(o.value, kNoValue);
    if (is_new) {
      TensorType type = whole.type(o.value);
      type.strides.reset();
      FUSELINE_ASSIGN_OR_RETURN(it->second, builder.AddInput(StrCat("x", out.inputs.size()), type));
      out.inputs.push_back(o.value);
    }
    o.value = it->second;
  }
  std::vector<ValueId> results;
  if (node.constant_bytes != nullptr) {
    FUSELINE_ASSIGN_OR_RETURN(const ValueId constant,
                              builder.AddConstant(whole.type(node.results[0]), *node.constant_bytes));
    results = {constant};
  } else {
    FUSELINE_ASSIGN_OR_RETURN(results, builder.AddNode(node.op, operands, node.attrs));
  }
  for (size_t r = 0; r < results.size(); ++r) {
    FUSELINE_RETURN_IF_ERROR(builder.AddOutput(StrCat("y", r), results[r]));
  }
  out.graph = builder.Build();
  return out;
}

}  // namespace

absl::StatusOr<std::vector<Tensor>> RunOpByOp(EngineSet& engines, EngineKind kind, const Graph& graph,
                                              const std::vector<Tensor>& inputs, const CompileOptions& options) {
  std::vector<std::optional<Tensor>> values(graph.values.size());
  for (size_t i = 0; i < inputs.size(); ++i) values[static_cast<size_t>(graph.inputs[i])] = inputs[i];
  for (const Node& node : graph.nodes) {
    FUSELINE_ASSIGN_OR_RETURN(const OpGraph op, GraphOf(graph, node));
    std::vector<Tensor> operands;
    for (const ValueId id : op.inputs) operands.push_back(*values[static_cast<size_t>(id)]);
    FUSELINE_ASSIGN_OR_RETURN(std::vector<Tensor> results, engines.Run(kind, op.graph, operands, options));
    for (size_t r = 0; r < results.size(); ++r) values[static_cast<size_t>(node.results[r])] = std::move(results[r]);
  }
  std::vector<Tensor> out;
  for (const GraphOutput& o : graph.outputs) out.push_back(*values[static_cast<size_t>(o.value)]);
  return out;
}

}  // namespace fuseline::testing
