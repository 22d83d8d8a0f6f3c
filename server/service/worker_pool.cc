#include "server/service/worker_pool.h"

#include <algorithm>
#include <utility>

namespace fuseline::service {

WorkerPool::WorkerPool(int threads, int max_queue) : max_queue_(static_cast<size_t>(std::max(max_queue, 0))) {
  const int count = std::max(threads, 1);
  {
    // All count as idle from the start, so that the first tasks are not refused before the threads run.
    absl::MutexLock lock(&mutex_);
    idle_ = static_cast<size_t>(count);
  }
  threads_.reserve(static_cast<size_t>(count));
  for (int i = 0; i < count; ++i) threads_.emplace_back([this] { Work(); });
}

WorkerPool::~WorkerPool() {
  {
    absl::MutexLock lock(&mutex_);
    stopping_ = true;
  }
  for (std::thread& thread : threads_) thread.join();
}

bool WorkerPool::Submit(Task task) {
  absl::MutexLock lock(&mutex_);
  if (stopping_ || queue_.size() >= max_queue_ + idle_) return false;
  queue_.push_back(std::move(task));
  return true;
}

size_t WorkerPool::queue_depth() const {
  absl::MutexLock lock(&mutex_);
  return queue_.size() > idle_ ? queue_.size() - idle_ : 0;
}

void WorkerPool::Work() {
  while (true) {
    Task task;
    {
      absl::MutexLock lock(&mutex_);
      mutex_.Await(absl::Condition(this, &WorkerPool::HasWork));
      if (queue_.empty()) return;  // stopping, and all is done
      task = std::move(queue_.front());
      queue_.pop_front();
      --idle_;
    }
    task();
    task = nullptr;  // what it holds is freed before the thread counts as idle
    absl::MutexLock lock(&mutex_);
    ++idle_;
  }
}

}  // namespace fuseline::service
