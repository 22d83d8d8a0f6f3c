#include "client/cpp/error_details.h"

#include <cstdint>
#include <optional>
#include <string_view>

#include "absl/strings/cord.h"
#include "common/status/error.h"
#include "google/protobuf/io/coded_stream.h"
#include "google/protobuf/wire_format_lite.h"

namespace fuseline::client {
namespace {

using google::protobuf::internal::WireFormatLite;
using google::protobuf::io::CodedInputStream;

constexpr char kTypePrefix[] = "type.googleapis.com/google.rpc.";
constexpr char kRetryInfoUrl[] = "type.googleapis.com/google.rpc.RetryInfo";
constexpr char kRequestInfoUrl[] = "type.googleapis.com/google.rpc.RequestInfo";

// Calls `field(number, bytes)` for each length-delimited field and `number(number, value)` for each varint; other
// fields are skipped. False where the bytes are malformed.
template <typename OnBytes, typename OnVarint>
bool ReadMessage(const std::string& message, const OnBytes& on_bytes, const OnVarint& on_varint) {
  CodedInputStream in(reinterpret_cast<const uint8_t*>(message.data()), static_cast<int>(message.size()));
  while (const uint32_t tag = in.ReadTag()) {
    const int number = WireFormatLite::GetTagFieldNumber(tag);
    switch (WireFormatLite::GetTagWireType(tag)) {
      case WireFormatLite::WIRETYPE_LENGTH_DELIMITED: {
        uint32_t size = 0;
        std::string bytes;
        if (!in.ReadVarint32(&size) || size > message.size() || !in.ReadString(&bytes, static_cast<int>(size)))
          return false;
        on_bytes(number, bytes);
        break;
      }
      case WireFormatLite::WIRETYPE_VARINT: {
        uint64_t value = 0;
        if (!in.ReadVarint64(&value)) return false;
        on_varint(number, static_cast<int64_t>(value));
        break;
      }
      default:
        if (!WireFormatLite::SkipField(&in, tag)) return false;
    }
  }
  return in.ConsumedEntireMessage();
}

void IgnoreVarint(int, int64_t) {}

// google.rpc.ErrorInfo: reason = 1, domain = 2, metadata = 3 (a map).
void ReadErrorInfo(const std::string& message, ErrorReason& reason, std::string& subject) {
  std::string reason_name;
  std::string domain;
  const auto on_entry = [&](const std::string& entry) {
    std::string key;
    std::string value;
    ReadMessage(
        entry, [&](int n, const std::string& b) { (n == 1 ? key : value) = b; }, IgnoreVarint);
    if (key == "subject") subject = value;
  };
  ReadMessage(
      message,
      [&](int n, const std::string& b) {
        if (n == 1) reason_name = b;
        if (n == 2) domain = b;
        if (n == 3) on_entry(b);
      },
      IgnoreVarint);
  if (domain != "fuseline") return;
  reason = ErrorReasonFromName(reason_name);
}

}  // namespace

ErrorReason ErrorReasonFromName(const std::string& name) {
  // The reasons are few and dense.
  for (int i = 1; i < 256; ++i) {
    const ErrorReason candidate = static_cast<ErrorReason>(i);
    if (ErrorReasonName(candidate) == name) return candidate;
  }
  return ErrorReason::kUnspecified;
}

absl::Status DecodeError(int code, const std::string& message, const std::string& details) {
  const absl::StatusCode status_code =
      code > 0 && code <= 16 ? static_cast<absl::StatusCode>(code) : absl::StatusCode::kUnknown;
  ErrorReason reason = ErrorReason::kUnspecified;
  std::string subject;
  std::optional<std::string> retry_info;
  std::optional<std::string> request_info;
  // google.rpc.Status: code = 1, message = 2, details = 3 (Any: type_url = 1, value = 2).
  const auto on_any = [&](const std::string& any) {
    std::string url;
    std::string value;
    ReadMessage(
        any,
        [&](int n, const std::string& b) {
          if (n == 1) url = b;
          if (n == 2) value = b;
        },
        IgnoreVarint);
    if (url == std::string(kTypePrefix) + "ErrorInfo") ReadErrorInfo(value, reason, subject);
    if (url == kRetryInfoUrl) retry_info = value;
    if (url == kRequestInfoUrl) request_info = value;
  };
  ReadMessage(
      details,
      [&](int n, const std::string& b) {
        if (n == 3) on_any(b);
      },
      IgnoreVarint);
  absl::Status status = reason == ErrorReason::kUnspecified ? absl::Status(status_code, message)
                                                            : MakeError(status_code, reason, subject, message);
  if (retry_info.has_value()) status.SetPayload(kRetryInfoUrl, absl::Cord(*retry_info));
  if (request_info.has_value()) status.SetPayload(kRequestInfoUrl, absl::Cord(*request_info));
  return status;
}

absl::Duration GetRetryDelay(const absl::Status& status) {
  const absl::optional<absl::Cord> payload = status.GetPayload(kRetryInfoUrl);
  if (!payload.has_value()) return absl::ZeroDuration();
  absl::Duration delay;
  // RetryInfo: retry_delay = 1 (Duration: seconds = 1, nanos = 2).
  const auto on_duration = [&](const std::string& duration) {
    ReadMessage(
        duration, [](int, const std::string&) {},
        [&](int n, int64_t v) {
          if (n == 1) delay += absl::Seconds(v);
          if (n == 2) delay += absl::Nanoseconds(v);
        });
  };
  ReadMessage(
      std::string(*payload),
      [&](int n, const std::string& b) {
        if (n == 1) on_duration(b);
      },
      IgnoreVarint);
  return delay < absl::ZeroDuration() ? absl::ZeroDuration() : delay;
}

std::string GetRequestId(const absl::Status& status) {
  const absl::optional<absl::Cord> payload = status.GetPayload(kRequestInfoUrl);
  if (!payload.has_value()) return "";
  std::string id;
  ReadMessage(
      std::string(*payload),
      [&](int n, const std::string& b) {
        if (n == 1) id = b;
      },
      IgnoreVarint);
  return id;
}

}  // namespace fuseline::client
