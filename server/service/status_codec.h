// absl::Status -> grpc::Status with google.rpc details. The only file that knows both; style.md's table of codes is its
// contract. Pipeline: handler's absl::Status -> ToGrpcStatus -> the wire ("grpc-status-details-bin"). Details:
// ErrorInfo always (reason of docs/errors.md, domain "fuseline", metadata "subject"); BadRequest for INVALID_ARGUMENT
// with a subject; RetryInfo for UNAVAILABLE and for RESOURCE_EXHAUSTED, save a quota, which has QuotaFailure;
// PreconditionFailure for FAILED_PRECONDITION; ResourceInfo for NOT_FOUND, ALREADY_EXISTS and DATA_LOSS; RequestInfo
// for INTERNAL. Thread-safety: pure functions. Tested by tests/unit/service/status_codec_test.cc
#pragma once

#include <grpcpp/support/status.h>

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"

namespace fuseline::service {

// How long clients are told to wait: a queue of short runs is through in about a second; a draining server does not
// come back.
inline constexpr absl::Duration kQueueRetryDelay = absl::Milliseconds(500);
// Between these, where the wait is estimated.
inline constexpr absl::Duration kLeastQueueRetryDelay = absl::Milliseconds(50);
inline constexpr absl::Duration kMostQueueRetryDelay = absl::Seconds(30);
inline constexpr absl::Duration kMemoryRetryDelay = absl::Seconds(1);
inline constexpr absl::Duration kUnavailableRetryDelay = absl::Seconds(1);

// The same status, telling clients to wait for `delay`: for UNAVAILABLE and RESOURCE_EXHAUSTED.
absl::Status WithRetryDelay(absl::Status status, absl::Duration delay);
std::optional<absl::Duration> GetRetryDelay(const absl::Status& status);

// Codes that we never return (ABORTED, OUT_OF_RANGE, UNKNOWN) become INTERNAL. Long messages are cut, and bytes that
// are no UTF-8 replaced, so that the status always fits into gRPC's metadata (8 KiB) and every client can read it.
grpc::Status ToGrpcStatus(const absl::Status& status, const std::string& request_id);

// What the wire says of an error, for messages that carry one.
struct ErrorParts {
  int32_t code = 0;  // google.rpc.Code
  std::string reason;
  std::string subject;
  std::string message;
};
ErrorParts DescribeError(const absl::Status& status);

// The code that ToGrpcStatus gives, by its canonical name ("INVALID_ARGUMENT"): for logs.
std::string CodeName(const absl::Status& status);

}  // namespace fuseline::service
