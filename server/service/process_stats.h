// What the operating system knows of this process, for the metrics.
// Units: bytes, seconds. Thread-safety: a pure function but for what it reads from /proc; what can't be read is 0.
// Tested by tests/unit/service/metrics_test.cc
#pragma once

#include <cstdint>

namespace fuseline::service {

struct ProcessStats {
  int64_t resident_bytes = 0;
  int64_t open_files = 0;
  int64_t max_open_files = 0;
  int64_t threads = 0;
  double cpu_seconds = 0;
};
ProcessStats ReadProcessStats();

}  // namespace fuseline::service
