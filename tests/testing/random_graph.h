// Random valid graphs with inputs, for differential tests: the same seed gives the same graph and inputs everywhere.
// Pipeline: seed -> MakeRandomGraph -> graph, tensors -> CheckGraph (differential.h).
// Every op of the op table that can be compiled occurs (each seed has to use one of them, in turn); dtypes, ranks 0 to
// 5, dims of 0, 1, prime and larger sizes, broadcasts, chains of views, strided inputs, several outputs, inputs and
// values returned twice. The generator tracks the interval that each float value lies in and mostly brings operands to
// where an op is defined and does not overflow. Some seeds have NaN, infinities and -0.0 as inputs.
// Errors: INTERNAL where a node is refused: a bug here, or in the op's type rule. Thread-safety: pure functions.
// Tested by tests/conformance/random_graph_test.cc
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "common/ir/graph.h"
#include "common/ir/op_table.h"
#include "common/tensor/tensor.h"

namespace fuseline::testing {

struct RandomGraphOptions {
  int max_ops = 40;
  int64_t max_elements = 100'000;  // of one value
  std::string_view choices;        // RandomSource's; for fuzzers
};

struct RandomGraph {
  uint64_t seed = 0;
  Graph graph;                 // verified
  std::vector<Tensor> inputs;  // in the graph's order, dense row-major
};

absl::StatusOr<RandomGraph> MakeRandomGraph(uint64_t seed, const RandomGraphOptions& options = {});

// The ops that occur in random graphs: all that can be compiled, save those that only decompositions make.
std::vector<const OpDef*> RandomGraphOps();

}  // namespace fuseline::testing
