// Generated source of one kernel.
// Pipeline: FusionPlan -> GenerateKernels -> KernelSource -> CompileKernel -> KernelImage.
#pragma once

#include <string>

#include "common/target/target.h"

namespace fuseline {

struct KernelSource {
  std::string entry;  // extern "C" name
  std::string text;   // self-contained: prelude and kernel, no #include
  Target target;
  bool fast_math = false;
};

}  // namespace fuseline
