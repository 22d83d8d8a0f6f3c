// A fixed number of threads with a bounded queue: where work that blocks is done, so that gRPC's own threads never do.
// Thread-safety: thread-safe. Ownership: the destructor finishes what was accepted, then joins.
// Tested by tests/unit/service/worker_pool_test.cc
#pragma once

#include <cstddef>
#include <deque>
#include <functional>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"

namespace fuseline::service {

class WorkerPool {
 public:
  using Task = std::function<void()>;

  // `threads` and `max_queue` are at least 1 and 0.
  WorkerPool(int threads, int max_queue);
  ~WorkerPool();
  WorkerPool(const WorkerPool&) = delete;
  WorkerPool& operator=(const WorkerPool&) = delete;

  // False, at once, where every thread is busy and `max_queue` tasks wait. The task is not run then. Tasks do not
  // throw.
  bool Submit(Task task) ABSL_LOCKS_EXCLUDED(mutex_);
  // Tasks that wait for a thread.
  size_t queue_depth() const ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  void Work() ABSL_LOCKS_EXCLUDED(mutex_);
  bool HasWork() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return stopping_ || !queue_.empty(); }

  const size_t max_queue_;
  mutable absl::Mutex mutex_;
  std::deque<Task> queue_ ABSL_GUARDED_BY(mutex_);
  size_t idle_ ABSL_GUARDED_BY(mutex_) = 0;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<std::thread> threads_;
};

}  // namespace fuseline::service
