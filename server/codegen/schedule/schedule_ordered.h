// Maps scans, scatters and sorts to the machine. A row (the variables that do not run in order) is walked along by one
// thread, so that the order is kept; on CUDA long rows of a scan have a block of threads, and sorts as many as the row
// has elements. Pipeline: KernelBody with `ordered` -> ScheduleOrdered -> ScheduledKernel -> cpu_ordered_emitter,
// cuda_ordered_emitter. Units: elements, threads. Thread-safety: a pure function. Tested by
// tests/unit/codegen/ordered_kernel_test.cc
#pragma once

#include <cstdint>
#include <vector>

#include "server/codegen/kernel_body.h"
#include "server/codegen/schedule/scheduled_kernel.h"

namespace fuseline::codegen {

// A sort has temporaries, numbered from `first_partial`, as its last parameters; on CUDA one of long rows is several
// kernels.
std::vector<ScheduledKernel> ScheduleOrdered(KernelBody body, bool cuda, int32_t first_partial);

}  // namespace fuseline::codegen
