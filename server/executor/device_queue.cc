#include "server/executor/device_queue.h"

#include <algorithm>

#include "absl/time/clock.h"
#include "common/status/error.h"
#include "common/status/str_cat.h"

namespace fuseline::executor {
namespace {

// How often a waiting execution asks whether it has been cancelled.
constexpr absl::Duration kCancelCheckInterval = absl::Milliseconds(10);

absl::Status Draining() {
  return MakeError(absl::StatusCode::kUnavailable, ErrorReason::kDraining, "", "the executor is shutting down");
}

}  // namespace

absl::Status DeviceQueue::Enter(absl::Time deadline, const launch::StopCheck& cancelled) {
  Waiter self;
  absl::MutexLock lock(&mutex_);
  if (draining_) return Draining();
  if (!busy_) {
    busy_ = true;
    return absl::OkStatus();
  }
  if (static_cast<int64_t>(waiting_.size()) >= max_waiting_) {
    return MakeError(absl::StatusCode::kResourceExhausted, ErrorReason::kQueueFull, "",
                     StrCat("the device's queue is full: ", waiting_.size(), " executions wait"));
  }
  const auto place = waiting_.insert(waiting_.end(), &self);
  absl::Status status;
  while (!self.admitted) {
    const absl::Time now = absl::Now();
    if (draining_) {
      status = Draining();
    } else if (now >= deadline) {
      status = MakeError(absl::StatusCode::kDeadlineExceeded, ErrorReason::kCancelled, "",
                         "the deadline passed while waiting for the device");
    } else if (cancelled) {
      mutex_.Unlock();  // the caller's code must not run under our lock
      status = cancelled();
      mutex_.Lock();
      if (self.admitted) break;
    }
    if (!status.ok()) {
      waiting_.erase(place);
      return status;
    }
    self.turn.WaitWithDeadline(&mutex_, cancelled ? std::min(deadline, now + kCancelCheckInterval) : deadline);
  }
  return absl::OkStatus();
}

void DeviceQueue::Leave() {
  absl::MutexLock lock(&mutex_);
  if (!waiting_.empty() && !draining_) {
    // The device stays busy: it is handed over, so that nobody overtakes.
    Waiter* const next = waiting_.front();
    waiting_.pop_front();
    next->admitted = true;
    next->turn.Signal();
    return;
  }
  busy_ = false;
  free_.SignalAll();
}

void DeviceQueue::Drain() {
  absl::MutexLock lock(&mutex_);
  draining_ = true;
  for (Waiter* waiter : waiting_) waiter->turn.Signal();
  while (busy_ || !waiting_.empty()) free_.WaitWithTimeout(&mutex_, kCancelCheckInterval);
}

int64_t DeviceQueue::depth() const {
  absl::MutexLock lock(&mutex_);
  return static_cast<int64_t>(waiting_.size()) + (busy_ ? 1 : 0);
}

}  // namespace fuseline::executor
