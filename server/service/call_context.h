// What a handler knows of the call that it serves, without gRPC's types, and what it tells of it.
// Thread-safety: immutable while the call runs, save `notes`, which the handler's thread alone writes.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/status.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/status/error.h"

namespace fuseline::service {

// Of the request's metadata: whose tensors the call sees. Absent is the empty owner.
inline constexpr char kOwnerKey[] = "fuseline-owner";
// At most 128 bytes of printable ASCII.
bool IsValidOwner(const std::string& text);

// What a handler tells the log and the metrics of its call, besides its answer. Negative: nothing to tell.
struct CallNotes {
  std::string outcome;        // where the artifact came from, as OutcomeName; empty: the call looked for none
  int64_t build_micros = -1;  // of the build that the call started or joined
  int64_t run_micros = -1;    // on the device, with transfers
  int64_t device_queue_micros = -1;
};

struct CallContext {
  std::string request_id;
  std::string owner;
  absl::Time deadline = absl::InfiniteFuture();
  std::function<bool()> is_cancelled;  // may be empty
  CallNotes* notes = nullptr;          // may be null

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
