// Prints tiled contractions for CUDA: a block holds both factors' tiles in shared memory, a thread a rectangle of sums
// in registers. Pipeline: ScheduledKernel with a tile plan -> CudaTileText -> text for NVRTC. Thread-safety: pure
// functions.
#pragma once

#include <string>

#include "server/codegen/schedule/scheduled_kernel.h"

namespace fuseline::codegen {

std::string CudaTileText(const ScheduledKernel& kernel);

}  // namespace fuseline::codegen
