// Tested by tests/unit/service/call_log_test.cc
#include "server/service/line_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status/error.h"

namespace fuseline::service {
namespace {

absl::Status FileError(const std::string& path, const char* what) {
  return MakeError(absl::StatusCode::kUnavailable, ErrorReason::kInputOutput, path,
                   absl::StrCat("can't ", what, " '", path, "': ", std::strerror(errno)));
}

int OpenToAppend(const std::string& path) {
  return open(path.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOCTTY, 0644);
}

}  // namespace

absl::StatusOr<std::unique_ptr<LineFile>> LineFile::Open(const std::string& path) {
  const int file = OpenToAppend(path);
  if (file < 0) return FileError(path, "open");
  return std::unique_ptr<LineFile>(new LineFile(path, file));
}

LineFile::~LineFile() {
  absl::MutexLock lock(&mutex_);
  close(file_);
}

absl::Status LineFile::Write(std::string_view line) {
  absl::MutexLock lock(&mutex_);
  // One write for the whole line, so that lines of several processes do not mix.
  std::string bytes = is_torn_ ? "\n" : "";
  bytes.append(line.data(), line.size());
  bytes += '\n';
  ssize_t written = 0;
  do {
    written = write(file_, bytes.data(), bytes.size());
  } while (written < 0 && errno == EINTR);
  if (written == static_cast<ssize_t>(bytes.size())) {
    is_torn_ = false;
    return absl::OkStatus();
  }
  if (written > 0) {
    is_torn_ = true;
    errno = ENOSPC;  // the only reason for part of a line
  }
  return FileError(path_, "write to");
}

absl::Status LineFile::Reopen() {
  const int file = OpenToAppend(path_);
  if (file < 0) return FileError(path_, "open");
  absl::MutexLock lock(&mutex_);
  close(std::exchange(file_, file));
  is_torn_ = false;
  return absl::OkStatus();
}

}  // namespace fuseline::service
