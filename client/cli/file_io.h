// Whole files as strings, for the CLI. Errors: NOT_FOUND or INTERNAL (kInputOutput) naming the path.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace fuseline::cli {

// "-": standard input.
absl::StatusOr<std::string> ReadFile(const std::string& path);
// "-" or "": standard output.
absl::Status WriteFile(const std::string& path, const std::string& bytes);

}  // namespace fuseline::cli
