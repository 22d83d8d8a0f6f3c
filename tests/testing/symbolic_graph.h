// Static graphs made symbolic, for differential tests: sizes of the inputs become symbols, and there are inputs for
// other sizes of the symbols.
// Pipeline: graph, inputs -> MakeSymbolic -> graph with symbols, its bindings -> CheckGraph (differential.h).
// Thread-safety: pure functions. Tested by tests/conformance/random_graph_test.cc
#pragma once

#include <optional>
#include <vector>

#include "common/ir/graph.h"
#include "common/tensor/tensor.h"

namespace fuseline::testing {

// One set of sizes.
struct SymbolicBinding {
  Graph graph;  // static, verified
  std::vector<Tensor> inputs;
};

struct SymbolicGraph {
  Graph graph;
  std::vector<SymbolicBinding> bindings;  // the first: the sizes that the static graph had
};

// Each size above 1 of a dense input becomes a symbol where the graph then is valid at its own and at other sizes:
// a larger one, and 1 if that is valid too. Inputs of other sizes repeat the elements of the given ones, so that they
// stay in the ranges that these are in. Nothing where no size can change. `max_elements`: of a value.
std::optional<SymbolicGraph> MakeSymbolic(const Graph& graph, const std::vector<Tensor>& inputs, int64_t max_elements);

}  // namespace fuseline::testing
