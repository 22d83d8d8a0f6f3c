// A bounded number of threads with a bounded queue: where work that blocks is done, so that gRPC's own threads never
// do. Threads are made as they are needed, and kept. Thread-safety: thread-safe. Ownership: the destructor finishes
// what was accepted, then joins. Tested by tests/unit/service/worker_pool_test.cc
#pragma once

#include <cstddef>
#include <deque>
#include <functional>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"

namespace fuseline::service {

class WorkerPool {
 public:
  using Task = std::function<void()>;

  struct Stats {
    size_t waiting = 0;  // tasks that wait for a thread
    size_t running = 0;
    absl::Duration mean_service;  // of late, what a task took; 0 before the first
  };

  // `threads` and `max_queue` are at least 1 and 0.
  WorkerPool(int threads, int max_queue);
  ~WorkerPool();
  WorkerPool(const WorkerPool&) = delete;
  WorkerPool& operator=(const WorkerPool&) = delete;

  // False, at once, where every thread is busy and `max_queue` tasks wait, or the system gives no thread at all. The
  // task is not run then. Tasks do not throw.
  bool Submit(Task task) ABSL_LOCKS_EXCLUDED(mutex_);
  // Tasks that wait for a thread.
  size_t queue_depth() const ABSL_LOCKS_EXCLUDED(mutex_) { return stats().waiting; }
  Stats stats() const ABSL_LOCKS_EXCLUDED(mutex_);
  // When a task that is refused now would find room: what waits and runs, at the pace of late.
  absl::Duration EstimateWait() const ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  void Work() ABSL_LOCKS_EXCLUDED(mutex_);
  bool HasWork() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return stopping_ || !queue_.empty(); }
  size_t idle() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return max_threads_ - running_; }

  const size_t max_threads_;
  const size_t max_queue_;
  mutable absl::Mutex mutex_;
  std::deque<Task> queue_ ABSL_GUARDED_BY(mutex_);
  size_t running_ ABSL_GUARDED_BY(mutex_) = 0;
  absl::Duration mean_service_ ABSL_GUARDED_BY(mutex_);
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<std::thread> threads_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace fuseline::service
