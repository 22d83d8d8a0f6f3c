// Prints a scheduled kernel as C++ for the host compiler: loops that it vectorises, over a range of work items.
// Pipeline: ScheduledKernel -> EmitCpuKernel -> KernelSource.
// Thread-safety: a pure function.
// Tested by tests/unit/codegen/emitter_test.cc, golden files and the case files.
#pragma once

#include "server/codegen/kernel_source.h"
#include "server/codegen/schedule/scheduled_kernel.h"

namespace fuseline::codegen {

KernelSource EmitCpuKernel(const ScheduledKernel& kernel, const Target& target, bool fast_math);

}  // namespace fuseline::codegen
