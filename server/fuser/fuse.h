// Puts loop nests into kernels: vertical fusion (a producer into its consumer), reductions with what stands before and
// after them, siblings over one input, and recomputation of cheap values instead of storing them. Pipeline: LoopProgram
// -> Fuse -> FusionPlan -> GenerateKernels. Before:  %t = mul(x, w); %y = add(%t, b)      two kernels, 6 tensors moved
// After:   group {mul, add}                     one kernel, 4 tensors moved
// The algorithm, a greedy pass in topological order: groups stand in a total order, and a node may join a group only if
// no operand of it is made in a later one. So every edge leads to the same or a later group and no cycle can arise; no
// search for paths is needed, and the pass is near linear in the edges. Thread-safety: a pure function. Errors:
// INTERNAL for a bug here. Tested by tests/unit/fuser/fuse_test.cc
#pragma once

#include "absl/status/statusor.h"
#include "server/fuser/cost_model.h"
#include "server/fuser/fusion_plan.h"

namespace fuseline::fuser {

struct FuseOptions {
  bool fuse = true;  // false: a kernel for each loop nest, as the baseline for comparisons
  CostModel cost;
};
absl::StatusOr<FusionPlan> Fuse(const LoopProgram& program, const FuseOptions& options);

}  // namespace fuseline::fuser
