// The threads of a CPU device, with what its runs share: one run at a time, since all threads work on it.
// Thread-safety: Run and Copy need the lock. Errors: what `stop` answers. Tested by
// tests/unit/server/cpu_device_test.cc
#pragma once

#include <cstdint>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "common/launch/launch_plan_runner.h"
#include "common/launch/parallel_for.h"

namespace fuseline::launch {

class CpuThreads {
 public:
  explicit CpuThreads(int threads) : parallel_for_(threads) {}

  absl::Mutex& mutex() ABSL_LOCK_RETURNED(mutex_) { return mutex_; }
  // On all threads, in slices that can be stopped between.
  absl::Status Run(int64_t items, int64_t grain, const StopCheck& stop,
                   absl::FunctionRef<void(int64_t begin, int64_t end)> body) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status Copy(void* to, const void* from, int64_t size_bytes, const StopCheck& stop)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

 private:
  absl::Mutex mutex_;
  ParallelFor parallel_for_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace fuseline::launch
