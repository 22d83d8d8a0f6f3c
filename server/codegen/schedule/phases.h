// Orders a kernel body into phases: what is computed once a row, and what in each pass over the row.
// A row phase stands before each pass and after the last one. A pass computes what its reductions and stores need;
// values that an earlier pass has computed are computed again, unless they are kept (in registers, by a persistent
// schedule). Thread-safety: pure functions. Linear in the body for each pass.
// Tested by tests/unit/codegen/phases_test.cc
#pragma once

#include <cstdint>
#include <vector>

#include "server/codegen/kernel_body.h"

namespace fuseline::codegen {

struct Phase {
  bool row = false;  // else a pass
  int32_t pass = 0;
  std::vector<int32_t> instrs;      // to compute, in order
  std::vector<int32_t> reductions;  // a pass: to accumulate and, at its end, to combine
  std::vector<int32_t> stores;
};

struct PhasePlan {
  std::vector<Phase> phases;  // row 0, pass 0, row 1, pass 1, …, row n
  std::vector<int32_t> kept;  // full instructions that a later pass takes from the pass that computed them
};

// `may_keep[i]`: instruction i may be kept from pass to pass.
PhasePlan BuildPhases(const KernelBody& body, const std::vector<bool>& may_keep);

// How many passes each full instruction is computed in when nothing is kept.
std::vector<int32_t> CountPasses(const KernelBody& body);

}  // namespace fuseline::codegen
