// The right to use one device, given to one execution at a time in the order of asking.
// The asking thread does the work itself: a hand-over to a thread of the device's own would cost two context switches,
// more than a small kernel takes. Errors of Enter: RESOURCE_EXHAUSTED (kQueueFull), DEADLINE_EXCEEDED (kCancelled),
// UNAVAILABLE (kDraining), what `cancelled` returns, what the queue was closed with. Every call takes constant time,
// however many wait. Thread-safety: thread-safe. Blocking: Enter, until it is one's
// turn. Tested by tests/unit/server/device_queue_test.cc
#pragma once

#include <cstdint>
#include <list>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/launch/launch_plan_runner.h"

namespace fuseline::executor {

class DeviceQueue {
 public:
  // At most `max_waiting` callers wait at a time.
  explicit DeviceQueue(int max_waiting) : max_waiting_(max_waiting) {}

  // OK: the device is the caller's until Leave.
  absl::Status Enter(absl::Time deadline, const launch::StopCheck& cancelled) ABSL_LOCKS_EXCLUDED(mutex_);
  void Leave() ABSL_LOCKS_EXCLUDED(mutex_);
  // Until Open, everyone who wants to enter or waits gets `why`.
  void Close(absl::Status why) ABSL_LOCKS_EXCLUDED(mutex_);
  void Open() ABSL_LOCKS_EXCLUDED(mutex_);
  // Lets nobody enter any more, also of those that wait.
  void BeginDrain() ABSL_LOCKS_EXCLUDED(mutex_);
  // BeginDrain, and returns when the device is free.
  void Drain() ABSL_LOCKS_EXCLUDED(mutex_);

  // Who uses the device or waits for it.
  int64_t depth() const ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  struct Waiter {
    absl::CondVar turn;
    bool decided = false;
    absl::Status decision;
  };

  // Sends those that wait away.
  void Refuse(const absl::Status& why) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const int max_waiting_;
  mutable absl::Mutex mutex_;
  absl::CondVar free_;
  bool busy_ ABSL_GUARDED_BY(mutex_) = false;
  bool draining_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Status closed_ ABSL_GUARDED_BY(mutex_);  // OK: open
  std::list<Waiter*> waiting_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace fuseline::executor
