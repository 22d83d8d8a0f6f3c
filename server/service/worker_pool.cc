#include "server/service/worker_pool.h"

#include <algorithm>
#include <system_error>
#include <utility>

#include "absl/time/clock.h"

namespace fuseline::service {
namespace {

// The weight of the newest task in the mean: about the last sixteen count.
constexpr double kNewest = 1.0 / 16;

}  // namespace

WorkerPool::WorkerPool(int threads, int max_queue)
    : max_threads_(static_cast<size_t>(std::max(threads, 1))),
      max_queue_(static_cast<size_t>(std::max(max_queue, 0))) {}

WorkerPool::~WorkerPool() {
  std::vector<std::thread> threads;
  {
    absl::MutexLock lock(&mutex_);
    stopping_ = true;
    threads.swap(threads_);
  }
  for (std::thread& thread : threads) thread.join();
}

bool WorkerPool::Submit(Task task) {
  absl::MutexLock lock(&mutex_);
  if (stopping_ || queue_.size() >= max_queue_ + idle()) return false;
  // A thread more where those that are there have enough to do.
  if (running_ + queue_.size() >= threads_.size() && threads_.size() < max_threads_) {
    try {
      threads_.emplace_back([this] { Work(); });
    } catch (const std::system_error&) {
      if (threads_.empty()) return false;  // otherwise those that are there take it in time
    }
  }
  queue_.push_back(std::move(task));
  return true;
}

WorkerPool::Stats WorkerPool::stats() const {
  absl::MutexLock lock(&mutex_);
  return {queue_.size() > idle() ? queue_.size() - idle() : 0, running_, mean_service_};
}

absl::Duration WorkerPool::EstimateWait() const {
  absl::MutexLock lock(&mutex_);
  return mean_service_ * static_cast<double>(queue_.size() + running_) / static_cast<double>(max_threads_);
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
      ++running_;
    }
    const absl::Time start = absl::Now();
    task();
    task = nullptr;  // what it holds is freed before the thread counts as idle
    const absl::Duration service = absl::Now() - start;
    absl::MutexLock lock(&mutex_);
    --running_;
    mean_service_ =
        mean_service_ == absl::ZeroDuration() ? service : mean_service_ + (service - mean_service_) * kNewest;
  }
}

}  // namespace fuseline::service
