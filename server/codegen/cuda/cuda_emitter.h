// Prints a scheduled kernel as CUDA C++ for NVRTC.
// Pipeline: ScheduledKernel -> EmitCudaKernel -> KernelSource.
// Thread-safety: a pure function.
// Tested by tests/unit/codegen/emitter_test.cc, golden files and, on a GPU, the case files.
#pragma once

#include "server/codegen/kernel_source.h"
#include "server/codegen/schedule/scheduled_kernel.h"

namespace fuseline::codegen {

KernelSource EmitCudaKernel(const ScheduledKernel& kernel, const Target& target, bool fast_math);

}  // namespace fuseline::codegen
