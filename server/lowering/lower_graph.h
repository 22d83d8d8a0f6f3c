// Lowers a graph to loops: composites are decomposed, views become index maps, every other op one loop nest.
// Pipeline: Graph (verified, static) -> LowerGraph -> LoopProgram -> Fuse.
// Before:  %t = permute(x) {dims = [1, 0]}    %y = mul(%t, 2.0)
// After:   y[d0, d1] = mul(x[d1, d0], 2)      one loop nest, no copy
// Thread-safety: a pure function. Linear in the graph; no recursion on it.
// Errors: UNIMPLEMENTED for an op without a lowering; INTERNAL for a bug here.
// Tested by tests/unit/lowering/lower_graph_test.cc
#pragma once

#include "absl/status/statusor.h"
#include "common/ir/graph.h"
#include "common/target/compile_options.h"
#include "server/lowering/loop_program.h"

namespace fuseline::lowering {

absl::StatusOr<LoopProgram> LowerGraph(const Graph& graph, const CompileOptions& options);

}  // namespace fuseline::lowering
