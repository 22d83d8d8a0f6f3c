// Errors with a stable reason and the field or node they are about, carried as payloads of an absl::Status.
// Units: none. Ownership: values. Thread-safety: pure functions.
// The payloads become google.rpc details in one place, server/service/status_codec.cc.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"

namespace fuseline {

// Why a call failed, finer than the status code. Listed in docs/errors.md. Never renumber, never reuse for another
// meaning.
enum class ErrorReason : int {
  kUnspecified = 0,
  kGraphSyntax = 1,         // INVALID_ARGUMENT: the text or the message is malformed
  kGraphStructure = 2,      // INVALID_ARGUMENT: names, order, arity, attributes
  kGraphTypeMismatch = 3,   // INVALID_ARGUMENT: dtypes or shapes do not fit the op
  kLimitExceeded = 4,       // INVALID_ARGUMENT: a size or count is over its limit
  kTensorMismatch = 5,      // INVALID_ARGUMENT: a tensor does not fit the graph's input
  kOptionInvalid = 6,       // INVALID_ARGUMENT: an option or flag has a bad value
  kFingerprintUnknown = 7,  // NOT_FOUND: send the graph
  kTargetNotAvailable = 8,  // FAILED_PRECONDITION: this server lacks the target
  kUnsupported = 9,         // UNIMPLEMENTED: a valid request that this version can't serve
  kQueueFull = 10,          // RESOURCE_EXHAUSTED
  kDeviceMemory = 11,       // RESOURCE_EXHAUSTED
  kDraining = 12,           // UNAVAILABLE
  kNoHealthyDevice = 13,    // UNAVAILABLE
  kInternalInvariant = 14,  // INTERNAL: a bug of ours
  kCompilerFailed = 15,     // INTERNAL: it rejected our code, crashed or timed out; others: it could not be started
  kDataLoss = 16,           // DATA_LOSS
  kHandleUnknown = 17,      // NOT_FOUND
  kCancelled = 18,          // CANCELLED or DEADLINE_EXCEEDED
  kCaseFile = 19,           // INVALID_ARGUMENT: a case file is malformed
  kInputOutput = 20,        // a file can't be read or written
  kHandleTaken = 21,        // ALREADY_EXISTS: another tensor has this handle
  kQuota = 22,              // RESOURCE_EXHAUSTED: the owner's or the store's room for tensors is used up
  kIndexOutOfRange = 23,    // INVALID_ARGUMENT: a tensor holds an index outside the range of the dim it indexes
};

// "GRAPH_TYPE_MISMATCH" and so on.
std::string_view ErrorReasonName(ErrorReason reason);

// A status with `code`, `message`, `reason` and, where not empty, the subject: a node ("%t3"), a field ("inputs.x"),
// ...
absl::Status MakeError(absl::StatusCode code, ErrorReason reason, std::string_view subject, std::string_view message);

// Short forms for the two most frequent codes.
absl::Status InvalidArgument(ErrorReason reason, std::string_view subject, std::string_view message);
absl::Status Unimplemented(std::string_view subject, std::string_view message);
absl::Status Internal(std::string_view message);

// The reason and subject of a status made above; kUnspecified and "" for others.
ErrorReason GetErrorReason(const absl::Status& status);
std::string GetErrorSubject(const absl::Status& status);

// The same status with "context: " before its message; code and payloads kept. OK stays OK.
absl::Status Wrap(const absl::Status& status, std::string_view context);

}  // namespace fuseline
