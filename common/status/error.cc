#include "common/status/error.h"

#include "common/status/str_cat.h"

#include <charconv>

#include "absl/strings/cord.h"

namespace fuseline {
namespace {

constexpr char kReasonUrl[] = "type.fuseline.dev/ErrorReason";
constexpr char kSubjectUrl[] = "type.fuseline.dev/ErrorSubject";
// The last reason of the enum: what a payload may hold.
constexpr int kMaxReason = static_cast<int>(ErrorReason::kIndexOutOfRange);

}  // namespace

std::string_view ErrorReasonName(ErrorReason reason) {
  switch (reason) {
    case ErrorReason::kUnspecified:
      return "UNSPECIFIED";
    case ErrorReason::kGraphSyntax:
      return "GRAPH_SYNTAX";
    case ErrorReason::kGraphStructure:
      return "GRAPH_STRUCTURE";
    case ErrorReason::kGraphTypeMismatch:
      return "GRAPH_TYPE_MISMATCH";
    case ErrorReason::kLimitExceeded:
      return "LIMIT_EXCEEDED";
    case ErrorReason::kTensorMismatch:
      return "TENSOR_MISMATCH";
    case ErrorReason::kOptionInvalid:
      return "OPTION_INVALID";
    case ErrorReason::kFingerprintUnknown:
      return "FINGERPRINT_UNKNOWN";
    case ErrorReason::kTargetNotAvailable:
      return "TARGET_NOT_AVAILABLE";
    case ErrorReason::kUnsupported:
      return "UNSUPPORTED";
    case ErrorReason::kQueueFull:
      return "QUEUE_FULL";
    case ErrorReason::kDeviceMemory:
      return "DEVICE_MEMORY";
    case ErrorReason::kDraining:
      return "DRAINING";
    case ErrorReason::kNoHealthyDevice:
      return "NO_HEALTHY_DEVICE";
    case ErrorReason::kInternalInvariant:
      return "INTERNAL_INVARIANT";
    case ErrorReason::kCompilerFailed:
      return "COMPILER_FAILED";
    case ErrorReason::kDataLoss:
      return "DATA_LOSS";
    case ErrorReason::kHandleUnknown:
      return "HANDLE_UNKNOWN";
    case ErrorReason::kCancelled:
      return "CANCELLED";
    case ErrorReason::kCaseFile:
      return "CASE_FILE";
    case ErrorReason::kInputOutput:
      return "INPUT_OUTPUT";
    case ErrorReason::kHandleTaken:
      return "HANDLE_TAKEN";
    case ErrorReason::kQuota:
      return "QUOTA";
    case ErrorReason::kIndexOutOfRange:
      return "INDEX_OUT_OF_RANGE";
  }
  return "UNSPECIFIED";
}

absl::Status MakeError(absl::StatusCode code, ErrorReason reason, std::string_view subject, std::string_view message) {
  absl::Status status(code, absl::string_view(message.data(), message.size()));
  if (status.ok()) return status;
  status.SetPayload(kReasonUrl, absl::Cord(StrCat(static_cast<int>(reason))));
  if (!subject.empty()) status.SetPayload(kSubjectUrl, absl::Cord(absl::string_view(subject.data(), subject.size())));
  return status;
}

absl::Status InvalidArgument(ErrorReason reason, std::string_view subject, std::string_view message) {
  return MakeError(absl::StatusCode::kInvalidArgument, reason, subject, message);
}

absl::Status Unimplemented(std::string_view subject, std::string_view message) {
  return MakeError(absl::StatusCode::kUnimplemented, ErrorReason::kUnsupported, subject, message);
}

absl::Status Internal(std::string_view message) {
  return MakeError(absl::StatusCode::kInternal, ErrorReason::kInternalInvariant, "", message);
}

ErrorReason GetErrorReason(const absl::Status& status) {
  const auto payload = status.GetPayload(kReasonUrl);
  if (!payload.has_value()) return ErrorReason::kUnspecified;
  const std::string text(*payload);
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  // A payload may come from another version of this program.
  if (error != std::errc() || end != text.data() + text.size() || value < 0 || value > kMaxReason) {
    return ErrorReason::kUnspecified;
  }
  return static_cast<ErrorReason>(value);
}

std::string GetErrorSubject(const absl::Status& status) {
  const auto payload = status.GetPayload(kSubjectUrl);
  return payload.has_value() ? std::string(*payload) : std::string();
}

absl::Status Wrap(const absl::Status& status, std::string_view context) {
  if (status.ok()) return status;
  absl::Status wrapped(status.code(), StrCat(context, ": ", status.message()));
  status.ForEachPayload(
      [&wrapped](absl::string_view url, const absl::Cord& payload) { wrapped.SetPayload(url, payload); });
  return wrapped;
}

}  // namespace fuseline
