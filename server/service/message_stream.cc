#include "server/service/message_stream.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/status/error.h"

namespace fuseline::service {

void StreamGate::Begin(Direction direction) {
  absl::MutexLock lock(&mutex_);
  (direction == Direction::kRead ? read_ : write_) = {true, false};
}

absl::StatusOr<bool> StreamGate::Wait(Direction direction) {
  const absl::Time idle_until = absl::Now() + idle_;
  absl::MutexLock lock(&mutex_);
  const auto is_over = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return !side(direction).under_way || cancelled_; };
  const bool over = mutex_.AwaitWithDeadline(absl::Condition(&is_over), std::min(idle_until, deadline_));
  if (cancelled_) {
    return MakeError(absl::StatusCode::kCancelled, ErrorReason::kCancelled, "", "the client cancelled the call");
  }
  if (over) return side(direction).ok;
  if (deadline_ <= idle_until) {
    return MakeError(absl::StatusCode::kDeadlineExceeded, ErrorReason::kCancelled, "",
                     "the call's deadline has passed");
  }
  return MakeError(absl::StatusCode::kDeadlineExceeded, ErrorReason::kCancelled, "",
                   absl::StrCat("the client ", direction == Direction::kRead ? "sent" : "took", " nothing for ",
                                absl::FormatDuration(idle_)));
}

void StreamGate::WaitUntilDone(Direction direction) {
  absl::MutexLock lock(&mutex_);
  const auto is_done = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return !side(direction).under_way; };
  mutex_.Await(absl::Condition(&is_done));
}

bool StreamGate::is_under_way(Direction direction) const {
  absl::MutexLock lock(&mutex_);
  return side(direction).under_way;
}

void StreamGate::Done(Direction direction, bool ok) {
  absl::MutexLock lock(&mutex_);
  (direction == Direction::kRead ? read_ : write_) = {false, ok};
}

void StreamGate::Cancel() {
  absl::MutexLock lock(&mutex_);
  cancelled_ = true;
}

}  // namespace fuseline::service
