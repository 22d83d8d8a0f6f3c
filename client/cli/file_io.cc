#include "client/cli/file_io.h"

#include <cerrno>
#include <cstring>
#include <fstream>
#include <iostream>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "common/status/error.h"

namespace fuseline::cli {

absl::StatusOr<std::string> ReadFile(const std::string& path) {
  std::ostringstream text;
  if (path == "-") {
    text << std::cin.rdbuf();
    return text.str();
  }
  std::ifstream file(path, std::ios::binary);
  if (!file) {
    return MakeError(absl::StatusCode::kNotFound, ErrorReason::kInputOutput, path,
                     absl::StrCat("can't read '", path, "': ", std::strerror(errno)));
  }
  // A folder opens, and fails only when read; an empty file leaves failbit through rdbuf, which is no error.
  if (file.peek() == std::ifstream::traits_type::eof()) {
    if (file.bad())
      return MakeError(absl::StatusCode::kNotFound, ErrorReason::kInputOutput, path,
                       absl::StrCat("can't read '", path, "'"));
    return std::string();
  }
  text << file.rdbuf();
  return text.str();
}

absl::Status WriteFile(const std::string& path, const std::string& bytes) {
  if (path.empty() || path == "-") {
    std::cout.write(bytes.data(), static_cast<std::streamsize>(bytes.size())).flush();
    return absl::OkStatus();
  }
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  file.close();
  if (!file) {
    return MakeError(absl::StatusCode::kInternal, ErrorReason::kInputOutput, path,
                     absl::StrCat("can't write '", path, "': ", std::strerror(errno)));
  }
  return absl::OkStatus();
}

}  // namespace fuseline::cli
