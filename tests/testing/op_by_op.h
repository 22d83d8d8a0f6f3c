// Runs a graph as a program without a compiler would: each node as a graph of its own, on the results of the ones
// before. Pipeline: graph, inputs, options -> RunOpByOp -> tensors, which numerics = eager must equal bit for bit.
// Thread-safety: thread-safe, as EngineSet is.
#pragma once

#include <vector>

#include "absl/status/statusor.h"
#include "tests/testing/engines.h"

namespace fuseline::testing {

// The outputs in the graph's order. The graph is static and verified. Errors: those of the engine.
absl::StatusOr<std::vector<Tensor>> RunOpByOp(EngineSet& engines, EngineKind kind, const Graph& graph,
                                              const std::vector<Tensor>& inputs, const CompileOptions& options);

}  // namespace fuseline::testing
