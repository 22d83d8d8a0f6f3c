// Shrinks a failing graph to the least graph, shapes and values that still fail the same way: delta debugging.
// Pipeline: graph, inputs, oracle -> ReduceGraph -> the smallest candidate for which the oracle holds.
// In turn, until nothing helps any more: fewer outputs; an earlier value returned; runs of nodes, then single ones,
// turned into inputs; a value replaced by an operand of its type, an input by another; operands left out or made
// literals; attributes left out or made simple; dims halved, in all inputs at once; dense inputs; values set to 0, 1 or
// whole numbers. Deterministic, save where the time runs out. Only graphs that VerifyGraph takes reach the oracle.
// Ownership: values. Thread-safety: a pure function of its arguments, as far as the oracle is one.
// Tested by tests/unit/client/reduce_graph_test.cc
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "absl/time/time.h"
#include "common/case_file/edit_graph.h"

namespace fuseline {

// Whether the candidate fails as the original does.
using FailureOracle = std::function<bool(const GraphWithInputs& candidate)>;
// The outputs of the graph, to stand for values that become inputs; nothing where they can't be had.
using ValueSource = std::function<std::optional<std::vector<Tensor>>(const GraphWithInputs& graph)>;

struct ReduceOptions {
  int64_t max_tries = 1000;  // calls of the oracle
  absl::Duration max_time = absl::InfiniteDuration();
  bool outputs_only = false;  // keep all values as they are: for failures against given results
  ValueSource values;         // empty: values that become inputs are random, but always the same
};

struct ReducedGraph {
  GraphWithInputs smallest;
  int64_t tries = 0;
  bool is_minimal = false;  // no step helps any more; false: tries or time ran out
};

// `failing`: fails already; the oracle is not asked about it.
ReducedGraph ReduceGraph(const GraphWithInputs& failing, const FailureOracle& fails, const ReduceOptions& options = {});

}  // namespace fuseline
