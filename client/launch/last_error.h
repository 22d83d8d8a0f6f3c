// The last error of each thread, as a C ABI tells it, and the boundary at which statuses become codes.
// Thread-safety: each thread has its own. Tested by tests/unit/client/launch/launch_api_test.cc
#pragma once

#include <exception>
#include <new>
#include <string_view>

#include "absl/status/status.h"
#include "client/launch/fuseline_launch.h"
#include "common/status/error.h"

namespace fuseline::local {

// The status's code; remembers its text and reason unless it is OK.
fuseline_code Report(const absl::Status& status);
const char* LastErrorText();
const char* LastErrorReason();

// Calls `body`, which returns a status; what it throws (memory that can't be had, mostly) becomes a status too.
template <typename Body>
fuseline_code Guarded(const Body& body) {
  try {
    const absl::Status status = body();
    return status.ok() ? FUSELINE_OK : Report(status);
  } catch (const std::bad_alloc&) {
    return Report(MakeError(absl::StatusCode::kResourceExhausted, ErrorReason::kDeviceMemory, "", "out of memory"));
  } catch (const std::exception& error) {
    return Report(Internal(error.what()));
  }
}

}  // namespace fuseline::local
