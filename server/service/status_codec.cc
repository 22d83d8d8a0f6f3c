#include "server/service/status_codec.h"

#include <algorithm>
#include <cstdint>
#include <string>

#include "absl/strings/cord.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/status/error.h"
#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"

namespace fuseline::service {
namespace {

// The message is sent up to three times (grpc-message, Status.message, a description), the last two in base64: 1200 *
// (1 + 2 * 4/3) is 4.4 KB of the 8 KB that gRPC allows for all metadata of a call.
constexpr size_t kMaxMessageBytes = 1200;
constexpr size_t kMaxSubjectBytes = 256;
constexpr char kRetryDelayUrl[] = "type.fuseline.dev/RetryDelayMicros";

absl::StatusCode OurCode(absl::StatusCode code) {
  switch (code) {
    case absl::StatusCode::kAborted:
    case absl::StatusCode::kOutOfRange:
    case absl::StatusCode::kUnknown:
      return absl::StatusCode::kInternal;
    default:
      return code;
  }
}

// The length of the UTF-8 sequence at `i`, or 0 where there is none.
size_t SequenceLength(const std::string& text, size_t i) {
  const auto byte = [&](size_t k) { return static_cast<uint8_t>(text[k]); };
  const uint8_t first = byte(i);
  const size_t length = first < 0x80                    ? 1
                        : first >= 0xC2 && first < 0xE0 ? 2
                        : first >= 0xE0 && first < 0xF0 ? 3
                        : first >= 0xF0 && first < 0xF5 ? 4
                                                        : 0;
  if (length == 0 || i + length > text.size()) return 0;
  for (size_t k = 1; k < length; ++k) {
    if ((byte(i + k) & 0xC0) != 0x80) return 0;
  }
  // Overlong forms, surrogates, and what is above U+10FFFF.
  if (length == 3 && ((first == 0xE0 && byte(i + 1) < 0xA0) || (first == 0xED && byte(i + 1) > 0x9F))) return 0;
  if (length == 4 && ((first == 0xF0 && byte(i + 1) < 0x90) || (first == 0xF4 && byte(i + 1) > 0x8F))) return 0;
  return length;
}

std::string Readable(const std::string& text, size_t max_bytes) {
  std::string out;
  for (size_t i = 0; i < text.size();) {
    const size_t length = SequenceLength(text, i);
    if (out.size() + std::max<size_t>(length, 1) > max_bytes) {
      out += "…";
      break;
    }
    if (length == 0) {
      out += '?';
      ++i;
    } else {
      out.append(text, i, length);
      i += length;
    }
  }
  return out;
}

std::string Reason(const absl::Status& status, absl::StatusCode code) {
  ErrorReason reason = GetErrorReason(status);
  if (reason == ErrorReason::kUnspecified && code == absl::StatusCode::kInternal)
    reason = ErrorReason::kInternalInvariant;
  if (reason == ErrorReason::kUnspecified &&
      (code == absl::StatusCode::kCancelled || code == absl::StatusCode::kDeadlineExceeded)) {
    reason = ErrorReason::kCancelled;
  }
  return std::string(ErrorReasonName(reason));
}

void SetDuration(absl::Duration duration, google::protobuf::Duration* proto) {
  const int64_t nanos = absl::ToInt64Nanoseconds(duration);
  proto->set_seconds(nanos / 1'000'000'000);
  proto->set_nanos(static_cast<int32_t>(nanos % 1'000'000'000));
}

class DetailWriter {
 public:
  DetailWriter(const absl::Status& status, absl::StatusCode code, const std::string& request_id)
      : code_(code),
        reason_(status.ok() ? "" : Reason(status, code)),
        subject_(Readable(GetErrorSubject(status), kMaxSubjectBytes)),
        message_(Readable(std::string(status.message()), kMaxMessageBytes)),
        retry_delay_(GetRetryDelay(status)),
        request_id_(request_id) {}

  const std::string& message() const { return message_; }

  std::string Write() {
    google::rpc::Status out;
    out.set_code(static_cast<int32_t>(code_));
    out.set_message(message_);
    google::rpc::ErrorInfo info;
    info.set_reason(reason_);
    info.set_domain("fuseline");
    if (!subject_.empty()) (*info.mutable_metadata())["subject"] = subject_;
    out.add_details()->PackFrom(info);
    AddCodeDetail(out);
    return out.SerializeAsString();
  }

 private:
  void AddCodeDetail(google::rpc::Status& out) const {
    switch (code_) {
      case absl::StatusCode::kInvalidArgument:
        if (!subject_.empty()) {
          google::rpc::BadRequest detail;
          auto* violation = detail.add_field_violations();
          violation->set_field(subject_);
          violation->set_description(message_);
          out.add_details()->PackFrom(detail);
        }
        break;
      case absl::StatusCode::kUnavailable:
      case absl::StatusCode::kResourceExhausted: {
        // Waiting does not help; deleting tensors does.
        if (reason_ == ErrorReasonName(ErrorReason::kQuota)) {
          google::rpc::QuotaFailure detail;
          auto* violation = detail.add_violations();
          violation->set_subject(subject_);
          violation->set_description(message_);
          out.add_details()->PackFrom(detail);
          break;
        }
        const bool memory = reason_ == ErrorReasonName(ErrorReason::kDeviceMemory);
        google::rpc::RetryInfo detail;
        SetDuration(retry_delay_.has_value()                  ? *retry_delay_
                    : code_ == absl::StatusCode::kUnavailable ? kUnavailableRetryDelay
                    : memory                                  ? kMemoryRetryDelay
                                                              : kQueueRetryDelay,
                    detail.mutable_retry_delay());
        out.add_details()->PackFrom(detail);
        break;
      }
      case absl::StatusCode::kFailedPrecondition: {
        google::rpc::PreconditionFailure detail;
        auto* violation = detail.add_violations();
        violation->set_type(reason_);
        violation->set_subject(subject_);
        violation->set_description(message_);
        out.add_details()->PackFrom(detail);
        break;
      }
      case absl::StatusCode::kNotFound:
      case absl::StatusCode::kAlreadyExists:
      case absl::StatusCode::kDataLoss: {
        const bool tensor =
            reason_ == ErrorReasonName(ErrorReason::kHandleUnknown) || code_ == absl::StatusCode::kAlreadyExists;
        google::rpc::ResourceInfo detail;
        detail.set_resource_type(tensor ? "tensor" : "artifact");
        detail.set_resource_name(subject_);
        detail.set_description(message_);
        out.add_details()->PackFrom(detail);
        break;
      }
      case absl::StatusCode::kInternal: {
        google::rpc::RequestInfo detail;
        detail.set_request_id(request_id_);
        out.add_details()->PackFrom(detail);
        break;
      }
      default:
        break;
    }
  }

  const absl::StatusCode code_;
  const std::string reason_;
  const std::string subject_;
  const std::string message_;
  const std::optional<absl::Duration> retry_delay_;
  const std::string request_id_;
};

}  // namespace

absl::Status WithRetryDelay(absl::Status status, absl::Duration delay) {
  status.SetPayload(kRetryDelayUrl, absl::Cord(absl::StrCat(absl::ToInt64Microseconds(delay))));
  return status;
}

std::optional<absl::Duration> GetRetryDelay(const absl::Status& status) {
  const absl::optional<absl::Cord> payload = status.GetPayload(kRetryDelayUrl);
  int64_t micros = 0;
  if (!payload.has_value() || !absl::SimpleAtoi(std::string(*payload), &micros)) return std::nullopt;
  return absl::Microseconds(micros);
}

grpc::Status ToGrpcStatus(const absl::Status& status, const std::string& request_id) {
  if (status.ok()) return grpc::Status::OK;
  const absl::StatusCode code = OurCode(status.code());
  DetailWriter writer(status, code, request_id);
  // absl's and gRPC's codes have the same numbers.
  return grpc::Status(static_cast<grpc::StatusCode>(code), writer.message(), writer.Write());
}

ErrorParts DescribeError(const absl::Status& status) {
  const absl::StatusCode code = OurCode(status.code());
  return {static_cast<int32_t>(code), status.ok() ? "" : Reason(status, code),
          Readable(GetErrorSubject(status), kMaxSubjectBytes),
          Readable(std::string(status.message()), kMaxMessageBytes)};
}

std::string CodeName(const absl::Status& status) { return absl::StatusCodeToString(OurCode(status.code())); }

}  // namespace fuseline::service
