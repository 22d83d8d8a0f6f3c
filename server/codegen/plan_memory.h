// Places temporaries in the arena so that those whose lives do not overlap share memory.
// Thread-safety: a pure function of its argument. O(n log n + n * live) for n temporaries.
// Tested by tests/unit/codegen/plan_memory_test.cc
#pragma once

#include "common/artifact/launch_plan.h"

namespace fuseline::codegen {

// Sets arena_offset_bytes of every temporary, and arena_bytes. First fit in order of first use; a temporary lives from
// its first step to its last, both included.
void PlanMemory(LaunchPlan& plan);

}  // namespace fuseline::codegen
