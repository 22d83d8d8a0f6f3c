// Writes to the shared level, in the background and in order, so that no request waits for them: bounded by the bytes
// that they keep in memory. While Redis is away they wait; what does not fit is dropped and counted.
// Thread-safety: thread-safe. Units: bytes. Tested by tests/unit/server/shared_artifact_store_test.cc
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "server/cache/redis_client.h"

namespace fuseline::cache {

class SharedWriteQueue {
 public:
  struct Work {
    int64_t size_bytes = 0;
    // UNAVAILABLE and DEADLINE_EXCEEDED: once more when Redis is back.
    std::function<absl::Status()> run;
    std::function<void()> dropped = {};  // called instead of, or after, `run`; may be empty
  };
  struct Stats {
    int64_t size_bytes = 0;  // waiting, now
    int64_t dropped = 0;     // writes that did not fit, or could not be made
  };

  SharedWriteQueue(RedisClient& client, int64_t capacity_bytes);
  ~SharedWriteQueue();
  SharedWriteQueue(const SharedWriteQueue&) = delete;
  SharedWriteQueue& operator=(const SharedWriteQueue&) = delete;

  void Push(Work work);
  // Waits until all that was pushed has been written or dropped, while Redis is there; whether it has been.
  bool Flush(absl::Duration limit);
  // Drops what still waits. When it returns nothing runs, and nothing will. To be called by one thread.
  void Close();
  Stats stats() const;

 private:
  void RunAll();

  RedisClient& client_;
  const int64_t capacity_bytes_;
  mutable absl::Mutex mutex_;
  std::deque<Work> queue_ ABSL_GUARDED_BY(mutex_);
  bool is_running_ ABSL_GUARDED_BY(mutex_) = false;  // one that is not in the queue any more
  bool is_closing_ ABSL_GUARDED_BY(mutex_) = false;
  Stats stats_ ABSL_GUARDED_BY(mutex_);
  std::thread thread_;
};

}  // namespace fuseline::cache
