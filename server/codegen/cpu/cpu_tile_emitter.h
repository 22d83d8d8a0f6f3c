// Prints tiled contractions for the CPU: factors are packed into panels, which a micro-kernel of vector instructions
// multiplies. Pipeline: ScheduledKernel with a tile plan -> CpuTileText -> text for the host's C++ compiler.
// Thread-safety: pure functions.
#pragma once

#include <string>

#include "server/codegen/schedule/scheduled_kernel.h"

namespace fuseline::codegen {

std::string CpuTileText(const ScheduledKernel& kernel);

}  // namespace fuseline::codegen
