// Which loop nests share a kernel.
// Pipeline: LoopProgram -> Fuse -> FusionPlan -> GenerateKernels.
// Invariants (VerifyFusionPlan checks them; numbers are those of docs/ir.md):
//   (F1) groups stand in topological order: a group reads inputs, constants and what earlier groups store;
//   (F2) every returned tensor is stored by exactly one group, every tensor that a group reads from memory by an
//   earlier one; (F3) a stored tensor has as many elements as the group's domain, or as its rows (a scatter's as many
//   as what it writes into, which an earlier group has stored); (F4) reductions of a group run over the same rows and
//   the same reduced extent as the group.
// Ownership: values; ids refer to the LoopProgram. Thread-safety: thread-compatible.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "server/lowering/loop_program.h"

namespace fuseline::fuser {

using lowering::LoopNodeId;
using lowering::LoopProgram;
using lowering::TensorId;

// The loops of one kernel: rows (dims kept) and, for a reduction group, the reduced extent.
struct FusionGroup {
  Shape domain;
  std::vector<bool> reduced;      // all false: a pointwise group
  std::vector<LoopNodeId> nodes;  // topological; a pointwise node may be computed in several groups
  std::vector<TensorId> stored;   // written to memory, in order of computation
  std::vector<TensorId> loads;    // read from memory, in order of first use
  bool split = false;             // few rows, long ones: several blocks share a row, a second kernel combines
  LoopNodeId ordered = -1;  // the scan, scatter or sort that it is for: `reduced` runs in order, nothing else joins
  bool is_reduction() const;
  int64_t row_count() const;      // product of the kept extents
  int64_t reduced_count() const;  // product of the reduced extents
};

struct FusionRefusalNote {
  TensorId producer = -1;
  TensorId consumer = -1;
  std::string reason;
};

struct FusionPlan {
  std::vector<FusionGroup> groups;
  std::vector<FusionRefusalNote> refusals;
};

absl::Status VerifyFusionPlan(const LoopProgram& program, const FusionPlan& plan);
std::string PrintFusionPlan(const LoopProgram& program, const FusionPlan& plan);

}  // namespace fuseline::fuser
