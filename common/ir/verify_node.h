// The checks and the type inference of one node: what VerifyGraph and GraphBuilder share. Thread-safety: pure
// functions.
#pragma once

#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/ir/graph.h"

namespace fuseline {

// Far beyond what a program has; they keep the counts within int.
inline constexpr int64_t kMaxInputs = 1'000'000;
inline constexpr int64_t kMaxOutputs = 1'000'000;

// Resolves the op; checks operand and result counts, attributes and constant data; normalises attributes and fills in
// defaults. Needs no types. Errors: as VerifyGraph, without the node's name.
absl::Status CheckNodeStructure(Node& node);

// Infers the types of the results from those of the operands in `graph`; gives literals the kind of the dtype they
// take. The node must have passed CheckNodeStructure and need not be in the graph. Errors: as VerifyGraph, without the
// node's name.
absl::StatusOr<std::vector<TensorType>> InferNodeTypes(const Graph& graph, Node& node, const GraphLimits& limits);

// "node '%t3': add: …" around an error of the above, with the node as its subject.
absl::Status NodeError(const absl::Status& status, std::string_view node_name, std::string_view op);

// The bytes of a node's constant; 0 for the others.
inline int64_t ConstantBytes(const Node& node) {
  return node.constant_bytes == nullptr ? 0 : static_cast<int64_t>(node.constant_bytes->size());
}
absl::Status ConstantBytesOverLimit(const GraphLimits& limits);

}  // namespace fuseline
