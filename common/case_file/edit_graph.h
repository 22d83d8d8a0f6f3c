// One edit of a graph with its inputs: returns fewer values, turns values into inputs, replaces nodes or input types.
// Pipeline: GraphWithInputs, GraphEdit -> EditGraph -> GraphWithInputs; what reduce_graph.h tries, one after the other.
// What the edit leaves without a reader is dropped. Ownership: values. Thread-safety: pure functions. Linear in the
// graph, no recursion. Tested by tests/unit/client/reduce_graph_test.cc
#pragma once

#include <map>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "common/ir/graph.h"
#include "common/tensor/tensor.h"

namespace fuseline {

struct GraphWithInputs {
  Graph graph;                 // verified and static
  std::vector<Tensor> inputs;  // in the graph's order, dense row-major
};

struct GraphEdit {
  std::optional<std::vector<ValueId>> outputs;  // unset: the graph's
  std::map<ValueId, Tensor> cuts;               // results of nodes that become inputs
  std::map<ValueId, ValueId> replaced;          // readers of the first value, the caller included, get the second
  std::map<NodeId, Node> nodes;                 // other operands or attributes; the same results
  std::map<ValueId, TensorType> input_types;    // with `input_tensors` of the same shape
  std::map<ValueId, Tensor> input_tensors;
  // Every dim of `from` elements gets `to` of them: inputs keep the first ones, and so do attributes that say sizes.
  struct Resize {
    int64_t from = 0;
    int64_t to = 0;
  };
  std::optional<Resize> resize;
};

// The edited graph, verified; `renamed`, where given, says what became of each value (kNoValue: dropped).
// Errors: INVALID_ARGUMENT where the verifier refuses it, or where a value would be read before it is made.
absl::StatusOr<GraphWithInputs> EditGraph(const GraphWithInputs& from, const GraphEdit& edit,
                                          std::vector<ValueId>* renamed = nullptr);

// The first elements of each dim: `shape` is no larger than the tensor's in any dim.
Tensor LeadingPart(const Tensor& tensor, const Shape& shape);

}  // namespace fuseline
