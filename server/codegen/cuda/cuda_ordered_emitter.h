// Prints the scheduled kernel of a scan, scatter or sort as CUDA C++.
// Pipeline: ScheduledKernel of kind kOrdered -> EmitCudaOrderedKernel -> KernelSource.
// Thread-safety: a pure function. Tested by tests/unit/codegen/ordered_kernel_test.cc
#pragma once

#include "server/codegen/kernel_source.h"
#include "server/codegen/schedule/scheduled_kernel.h"

namespace fuseline::codegen {

KernelSource EmitCudaOrderedKernel(const ScheduledKernel& kernel, const Target& target, bool fast_math);

}  // namespace fuseline::codegen
