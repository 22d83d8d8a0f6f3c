// A private temporary folder, removed with all that is in it when the object goes away.
// Ownership: move-only. Errors: INTERNAL (kInputOutput). Thread-safety: thread-compatible.
#pragma once

#include <string>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace fuseline::compiler {

class ScratchFolder {
 public:
  // In `parent`; empty: $TMPDIR, then /tmp. Only this user may enter it.
  static absl::StatusOr<ScratchFolder> Create(const std::string& parent);
  ScratchFolder(ScratchFolder&& other) noexcept : path_(std::exchange(other.path_, "")) {}
  ScratchFolder& operator=(ScratchFolder&& other) noexcept {
    std::swap(path_, other.path_);
    return *this;
  }
  ~ScratchFolder();

  const std::string& path() const { return path_; }

 private:
  explicit ScratchFolder(std::string path) : path_(std::move(path)) {}
  std::string path_;
};

absl::Status WriteFile(const std::string& path, std::string_view bytes);
absl::StatusOr<std::string> ReadFile(const std::string& path);

}  // namespace fuseline::compiler
