// Decodes the status that a server sent into absl::Status: the inverse of server/service/status_codec.
// Pipeline: gRPC code, message, "grpc-status-details-bin" -> DecodeError -> absl::Status with reason and subject.
// The google.rpc messages are read from the wire by hand: generated classes here would clash with the copy that a
// program may bring. Thread-safety: pure functions. Malformed details are passed over: the code and message are always
// kept. Tested by tests/unit/client/error_details_test.cc
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/status/error.h"

namespace fuseline::client {

// `code`: gRPC's, which are those of absl. `details`: a serialised google.rpc.Status, or empty.
absl::Status DecodeError(int code, const std::string& message, const std::string& details);

// The reason of that name; kUnspecified for others.
ErrorReason ErrorReasonFromName(const std::string& name);

// The least time to wait before another attempt; ZeroDuration where the server named none.
absl::Duration GetRetryDelay(const absl::Status& status);
// The id under which the server's log has the call; empty where it sent none.
std::string GetRequestId(const absl::Status& status);

}  // namespace fuseline::client
