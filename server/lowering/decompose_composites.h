// Replaces composite ops by the ops that their rows decompose them into.
// Pipeline: Graph (verified, static) -> DecomposeComposites -> Graph without composites, first pass of server/lowering.
// Before:  %y = softmax(x) {dim = -1}
// After:   %t0 = amax(x) … %t1 = sub(x, %t0) … %t4 = div(%t2, %t3)
// Thread-safety: a pure function. Errors: those of a decomposition's type inference, which would be a bug (INTERNAL).
#pragma once

#include <cstddef>
#include <vector>

#include "absl/status/statusor.h"
#include "common/ir/graph.h"

namespace fuseline::lowering {

struct DecomposedGraph {
  Graph graph;
  std::vector<NodeId> source;  // for each node of `graph`, the node of the original it stems from
};
absl::StatusOr<DecomposedGraph> DecomposeComposites(const Graph& graph);

// The dtype that a node's operand takes if it is a literal: that of the first operand that is a value, the condition of
// `where` aside, which is bool.
DType LiteralDType(const Graph& graph, const Node& node, size_t operand);

}  // namespace fuseline::lowering
