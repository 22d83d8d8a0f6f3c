// What the fuser and the scheduler assume of the hardware. Numbers are measured ones, rounded; they steer choices,
// never correctness.
#pragma once

#include <cstdint>

#include "common/target/target.h"
#include "server/lowering/loop_program.h"

namespace fuseline::fuser {

struct CostModel {
  double bytes_per_micro = 4.2e6;  // memory: an H200 copies at 4.27 TB/s
  double ops_per_micro = 20e6;     // scalar operations, all cores together, at a rate that leaves memory the bottleneck
  double launch_micros = 4.3;      // one more kernel
  int64_t rows_wanted = 264;       // independent rows that fill the machine: two blocks for each of 132 multiprocessors
  int64_t split_reduced_extent = 8192;  // shorter rows are not worth a second kernel
};
CostModel CostModelFor(const Target& target);

// The cost of a body in simple operations: an elementary function counts as many.
int64_t BodyCost(const lowering::LoopNode& node);

}  // namespace fuseline::fuser
