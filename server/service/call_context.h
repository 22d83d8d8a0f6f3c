// What a handler knows of the call that it serves, without gRPC's types.
// Thread-safety: immutable while the call runs.
#pragma once

#include <functional>
#include <string>

#include "absl/status/status.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/status/error.h"

namespace fuseline::service {

struct CallContext {
  std::string request_id;
  absl::Time deadline = absl::InfiniteFuture();
  std::function<bool()> is_cancelled;  // may be empty

  // OK, or why the call should stop: CANCELLED or DEADLINE_EXCEEDED.
  absl::Status CheckAlive() const {
    if (is_cancelled && is_cancelled())
      return MakeError(absl::StatusCode::kCancelled, ErrorReason::kCancelled, "", "the client cancelled the call");
    if (absl::Now() >= deadline)
      return MakeError(absl::StatusCode::kDeadlineExceeded, ErrorReason::kCancelled, "",
                       "the call's deadline has passed");
    return absl::OkStatus();
  }
};

}  // namespace fuseline::service
