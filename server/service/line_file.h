// A file that lines are appended to, for the access log. A disk that is full or gone loses lines, never calls.
// Thread-safety: thread-safe. Blocking: as writing to the file does. Tested by tests/unit/service/call_log_test.cc
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"

namespace fuseline::service {

class LineFile {
 public:
  // Made where absent. Errors: UNAVAILABLE (kInputOutput).
  static absl::StatusOr<std::unique_ptr<LineFile>> Open(const std::string& path);
  ~LineFile();
  LineFile(const LineFile&) = delete;
  LineFile& operator=(const LineFile&) = delete;

  // `line` without its end. Errors: UNAVAILABLE (kInputOutput): the line is lost, in whole or in part; the next one
  // starts on a line of its own.
  absl::Status Write(std::string_view line) ABSL_LOCKS_EXCLUDED(mutex_);
  // Goes on in a new file of the same name, after a log rotation has renamed the old one. On errors, those of Open, it
  // goes on in the old one.
  absl::Status Reopen() ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  LineFile(std::string path, int file) : path_(std::move(path)), file_(file) {}

  const std::string path_;
  absl::Mutex mutex_;
  int file_ ABSL_GUARDED_BY(mutex_);
  bool is_torn_ ABSL_GUARDED_BY(mutex_) = false;  // the last line has no end
};

}  // namespace fuseline::service
