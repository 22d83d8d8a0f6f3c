// Compiles the loops of every CUDA prelude function with NVRTC, for tests.
#pragma once

#include <string>

#include "absl/status/statusor.h"

namespace fuseline::codegen {

// A cubin for `architecture`, such as "sm_90". kUnavailable without NVRTC; kInternal with the compiler's log.
absl::StatusOr<std::string> CompileCudaPrelude(const std::string& architecture);

}  // namespace fuseline::codegen
