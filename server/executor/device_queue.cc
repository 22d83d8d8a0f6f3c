#include "server/executor/device_queue.h"

#include <algorithm>
#include <utility>

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
  if (!closed_.ok()) return closed_;
  if (!busy_) {
    busy_ = true;
    return absl::OkStatus();
  }
  if (static_cast<int64_t>(waiting_.size()) >= max_waiting_) {
    return MakeError(absl::StatusCode::kResourceExhausted, ErrorReason::kQueueFull, "",
                     StrCat("the device's queue is full: ", waiting_.size(), " executions wait"));
  }
  const auto place = waiting_.insert(waiting_.end(), &self);
  while (!self.decided) {
    const absl::Time now = absl::Now();
    absl::Status status;
    if (now >= deadline) {
      status = MakeError(absl::StatusCode::kDeadlineExceeded, ErrorReason::kCancelled, "",
                         "the deadline passed while waiting for the device");
    } else if (cancelled) {
      mutex_.Unlock();  // the caller's code must not run under our lock
      status = cancelled();
      mutex_.Lock();
      if (self.decided) break;
    }
    if (!status.ok()) {
      waiting_.erase(place);
      return status;
    }
    self.turn.WaitWithDeadline(&mutex_, cancelled ? std::min(deadline, now + kCancelCheckInterval) : deadline);
  }
  return self.decision;
}

void DeviceQueue::Leave() {
  absl::MutexLock lock(&mutex_);
  if (!waiting_.empty()) {
    // The device stays busy: it is handed over, so that nobody overtakes.
    Waiter* const next = waiting_.front();
    waiting_.pop_front();
    next->decided = true;
    next->turn.Signal();
    return;
  }
  busy_ = false;
  free_.SignalAll();
}

void DeviceQueue::Refuse(const absl::Status& why) {
  for (Waiter* waiter : waiting_) {
    waiter->decided = true;
    waiter->decision = why;
    waiter->turn.Signal();
  }
  waiting_.clear();
}

void DeviceQueue::Close(absl::Status why) {
  absl::MutexLock lock(&mutex_);
  Refuse(why);
  closed_ = std::move(why);
}

void DeviceQueue::Open() {
  absl::MutexLock lock(&mutex_);
  closed_ = absl::OkStatus();
}

void DeviceQueue::BeginDrain() {
  absl::MutexLock lock(&mutex_);
  draining_ = true;
  Refuse(Draining());
}

void DeviceQueue::Drain() {
  BeginDrain();
  absl::MutexLock lock(&mutex_);
  while (busy_) free_.Wait(&mutex_);
}

int64_t DeviceQueue::depth() const {
  absl::MutexLock lock(&mutex_);
  return static_cast<int64_t>(waiting_.size()) + (busy_ ? 1 : 0);
}

}  // namespace fuseline::executor
