#include "server/cache/shared_write_queue.h"

#include <algorithm>
#include <system_error>
#include <utility>

#include "absl/time/clock.h"

namespace fuseline::cache {
namespace {

constexpr int kMostTries = 2;
constexpr size_t kMostWaiting = 100'000;  // whatever their bytes
constexpr absl::Duration kAwait = absl::Milliseconds(100);

}  // namespace

SharedWriteQueue::SharedWriteQueue(RedisClient& client, int64_t capacity_bytes)
    : client_(client), capacity_bytes_(capacity_bytes) {
  try {
    thread_ = std::thread([this] { RunAll(); });
  } catch (const std::system_error&) {
    absl::MutexLock lock(&mutex_);
    is_closing_ = true;  // nothing is written: what is pushed is dropped
  }
}

SharedWriteQueue::~SharedWriteQueue() { Close(); }

void SharedWriteQueue::Close() {
  {
    absl::MutexLock lock(&mutex_);
    is_closing_ = true;
  }
  if (thread_.joinable()) thread_.join();
  std::deque<Work> left;
  {
    absl::MutexLock lock(&mutex_);
    left.swap(queue_);
    stats_.dropped += static_cast<int64_t>(left.size());
    stats_.size_bytes = 0;
  }
  for (Work& work : left) {
    if (work.dropped) work.dropped();
  }
}

void SharedWriteQueue::Push(Work work) {
  {
    absl::MutexLock lock(&mutex_);
    if (!is_closing_ && queue_.size() < kMostWaiting && stats_.size_bytes + work.size_bytes <= capacity_bytes_) {
      stats_.size_bytes += work.size_bytes;
      queue_.push_back(std::move(work));
      return;
    }
    ++stats_.dropped;
  }
  if (work.dropped) work.dropped();
}

bool SharedWriteQueue::Flush(absl::Duration limit) {
  const absl::Time deadline = absl::Now() + limit;
  const auto is_idle = [this]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) {
    return is_closing_ || (queue_.empty() && !is_running_);
  };
  while (true) {
    {
      absl::MutexLock lock(&mutex_);
      if (mutex_.AwaitWithTimeout(absl::Condition(&is_idle), std::min(kAwait, deadline - absl::Now())))
        return queue_.empty();
    }
    // Redis that is away is not waited for.
    if (absl::Now() >= deadline || client_.state() != BreakerState::kClosed) return false;
  }
}

SharedWriteQueue::Stats SharedWriteQueue::stats() const {
  absl::MutexLock lock(&mutex_);
  return stats_;
}

void SharedWriteQueue::RunAll() {
  const auto has_work = [this]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) { return is_closing_ || !queue_.empty(); };
  while (true) {
    Work work;
    {
      absl::MutexLock lock(&mutex_, absl::Condition(&has_work));
      if (is_closing_) return;
    }
    if (!client_.WaitUntilClosed(kAwait)) continue;
    {
      absl::MutexLock lock(&mutex_);
      if (is_closing_) return;
      if (queue_.empty()) continue;
      work = std::move(queue_.front());
      queue_.pop_front();
      is_running_ = true;
    }
    bool is_done = false;
    for (int tries = 0; tries < kMostTries; ++tries) {
      const absl::Status status = work.run();
      is_done = status.ok();
      if (is_done) break;
      if (!absl::IsUnavailable(status) && !absl::IsDeadlineExceeded(status)) break;
      const auto is_closing = [this]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) { return is_closing_; };
      while (!client_.WaitUntilClosed(kAwait)) {
        absl::MutexLock lock(&mutex_);
        if (mutex_.AwaitWithTimeout(absl::Condition(&is_closing), absl::ZeroDuration())) break;
      }
    }
    if (!is_done && work.dropped) work.dropped();
    const int64_t size_bytes = work.size_bytes;
    work = {};  // what it owns is freed before it counts as gone
    absl::MutexLock lock(&mutex_);
    if (!is_done) ++stats_.dropped;
    stats_.size_bytes -= size_bytes;
    is_running_ = false;
  }
}

}  // namespace fuseline::cache
