// What compilers print: resources out of ptxas's verbose output, and the part of a log that fits an error message.
// Thread-safety: pure functions. Tested by tests/unit/compiler/compiler_log_test.cc
#pragma once

#include <string>
#include <string_view>

#include "common/artifact/kernel_image.h"

namespace fuseline::compiler {

// The figures of the entry function `entry` in the log of `ptxas -v`; what the log does not say stays 0.
KernelResources ParsePtxasLog(std::string_view log, std::string_view entry);

// The first lines of `log` that are not ptxas's information, cut so that they fit an error message.
std::string FirstLogLines(std::string_view log);

}  // namespace fuseline::compiler
