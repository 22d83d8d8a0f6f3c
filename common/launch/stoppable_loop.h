// Makes a long loop stoppable: walks its range in slices of a few milliseconds and asks a StopCheck between them.
// The first slice is small and the next ones grow with what it took, since nobody knows what an item costs. A loop that
// is shorter than a slice pays a comparison. One item is never cut.
// Thread-safety: thread-safe; the threads that share a loop share one object. Tested by
// tests/unit/server/stoppable_loop_test.cc
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "common/launch/launch_plan_runner.h"

namespace fuseline::launch {

class StoppableLoop {
 public:
  // `stop` may be empty.
  explicit StoppableLoop(const StopCheck& stop) : stop_(stop) {}

  // Calls `body` on [begin, end) piece by piece, in order, until the end or the stop. `grain`: items that are certainly
  // not worth an interruption; slices are multiples of it.
  void Run(int64_t begin, int64_t end, int64_t grain, absl::FunctionRef<void(int64_t begin, int64_t end)> body);
  // What `stop` answered.
  absl::Status status() const ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  using Clock = std::chrono::steady_clock;

  static int64_t Now() {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now().time_since_epoch()).count();
  }
  // Asks, unless someone has just asked or is asking.
  bool Stopped(int64_t now) ABSL_LOCKS_EXCLUDED(mutex_);

  const StopCheck& stop_;
  std::atomic<bool> stopped_{false};
  std::atomic<int64_t> last_asked_{0};  // in nanoseconds of the clock; 0: no slice has begun
  mutable absl::Mutex mutex_;
  absl::Status status_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace fuseline::launch
