#include "server/service/status_codec.h"

#include <gtest/gtest.h>

#include <string>

#include "common/status/error.h"
#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"

namespace fuseline::service {
namespace {

google::rpc::Status Details(const grpc::Status& status) {
  google::rpc::Status details;
  EXPECT_TRUE(details.ParseFromString(status.error_details()));
  return details;
}

// The detail of type T, or a default one with `found` false.
template <typename T>
T Find(const google::rpc::Status& status, bool* found = nullptr) {
  T detail;
  bool any = false;
  for (const google::protobuf::Any& packed : status.details()) any = packed.UnpackTo(&detail) || any;
  if (found != nullptr) *found = any;
  return detail;
}

template <typename T>
bool Has(const google::rpc::Status& status) {
  bool found = false;
  Find<T>(status, &found);
  return found;
}

TEST(StatusCodecTest, OkHasNoDetails) {
  const grpc::Status status = ToGrpcStatus(absl::OkStatus(), "id");
  EXPECT_TRUE(status.ok());
  EXPECT_TRUE(status.error_details().empty());
}

struct CodeCase {
  absl::StatusCode in;
  ErrorReason reason;
  grpc::StatusCode out;
  const char* reason_name;
  bool bad_request, retry, precondition, resource, request;
};

TEST(StatusCodecTest, EachCodeHasItsDetails) {
  const CodeCase cases[] = {
      {absl::StatusCode::kInvalidArgument, ErrorReason::kGraphTypeMismatch, grpc::StatusCode::INVALID_ARGUMENT,
       "GRAPH_TYPE_MISMATCH", true, false, false, false, false},
      {absl::StatusCode::kNotFound, ErrorReason::kFingerprintUnknown, grpc::StatusCode::NOT_FOUND,
       "FINGERPRINT_UNKNOWN", false, false, false, true, false},
      {absl::StatusCode::kFailedPrecondition, ErrorReason::kTargetNotAvailable, grpc::StatusCode::FAILED_PRECONDITION,
       "TARGET_NOT_AVAILABLE", false, false, true, false, false},
      {absl::StatusCode::kUnimplemented, ErrorReason::kUnsupported, grpc::StatusCode::UNIMPLEMENTED, "UNSUPPORTED",
       false, false, false, false, false},
      {absl::StatusCode::kResourceExhausted, ErrorReason::kQueueFull, grpc::StatusCode::RESOURCE_EXHAUSTED,
       "QUEUE_FULL", false, true, false, false, false},
      {absl::StatusCode::kResourceExhausted, ErrorReason::kDeviceMemory, grpc::StatusCode::RESOURCE_EXHAUSTED,
       "DEVICE_MEMORY", false, true, false, false, false},
      {absl::StatusCode::kUnavailable, ErrorReason::kDraining, grpc::StatusCode::UNAVAILABLE, "DRAINING", false, true,
       false, false, false},
      {absl::StatusCode::kDeadlineExceeded, ErrorReason::kUnspecified, grpc::StatusCode::DEADLINE_EXCEEDED, "CANCELLED",
       false, false, false, false, false},
      {absl::StatusCode::kCancelled, ErrorReason::kCancelled, grpc::StatusCode::CANCELLED, "CANCELLED", false, false,
       false, false, false},
      {absl::StatusCode::kDataLoss, ErrorReason::kDataLoss, grpc::StatusCode::DATA_LOSS, "DATA_LOSS", false, false,
       false, true, false},
      {absl::StatusCode::kAlreadyExists, ErrorReason::kUnspecified, grpc::StatusCode::ALREADY_EXISTS, "UNSPECIFIED",
       false, false, false, true, false},
      {absl::StatusCode::kInternal, ErrorReason::kCompilerFailed, grpc::StatusCode::INTERNAL, "COMPILER_FAILED", false,
       false, false, false, true},
      {absl::StatusCode::kPermissionDenied, ErrorReason::kUnspecified, grpc::StatusCode::PERMISSION_DENIED,
       "UNSPECIFIED", false, false, false, false, false},
      {absl::StatusCode::kUnauthenticated, ErrorReason::kUnspecified, grpc::StatusCode::UNAUTHENTICATED, "UNSPECIFIED",
       false, false, false, false, false},
      // Codes that we never return.
      {absl::StatusCode::kUnknown, ErrorReason::kUnspecified, grpc::StatusCode::INTERNAL, "INTERNAL_INVARIANT", false,
       false, false, false, true},
      {absl::StatusCode::kAborted, ErrorReason::kUnspecified, grpc::StatusCode::INTERNAL, "INTERNAL_INVARIANT", false,
       false, false, false, true},
      {absl::StatusCode::kOutOfRange, ErrorReason::kUnspecified, grpc::StatusCode::INTERNAL, "INTERNAL_INVARIANT",
       false, false, false, false, true},
  };
  for (const CodeCase& c : cases) {
    const grpc::Status status = ToGrpcStatus(MakeError(c.in, c.reason, "%t3", "node '%t3': wrong"), "request-1");
    SCOPED_TRACE(absl::StatusCodeToString(c.in));
    EXPECT_EQ(status.error_code(), c.out);
    EXPECT_EQ(status.error_message(), "node '%t3': wrong");
    const google::rpc::Status details = Details(status);
    EXPECT_EQ(details.code(), static_cast<int>(c.out));
    EXPECT_EQ(details.message(), "node '%t3': wrong");
    bool found = false;
    const auto info = Find<google::rpc::ErrorInfo>(details, &found);
    EXPECT_TRUE(found);
    EXPECT_EQ(info.reason(), c.reason_name);
    EXPECT_EQ(info.domain(), "fuseline");
    EXPECT_EQ(info.metadata().at("subject"), "%t3");
    EXPECT_EQ(Has<google::rpc::BadRequest>(details), c.bad_request);
    EXPECT_EQ(Has<google::rpc::RetryInfo>(details), c.retry);
    EXPECT_EQ(Has<google::rpc::PreconditionFailure>(details), c.precondition);
    EXPECT_EQ(Has<google::rpc::ResourceInfo>(details), c.resource);
    EXPECT_EQ(Has<google::rpc::RequestInfo>(details), c.request);
  }
}

TEST(StatusCodecTest, QuotaHasQuotaFailureAndNoTimeToWait) {
  const auto details = Details(ToGrpcStatus(
      MakeError(absl::StatusCode::kResourceExhausted, ErrorReason::kQuota, "h1", "the owner's quota is used up"),
      "id"));
  EXPECT_FALSE(Has<google::rpc::RetryInfo>(details));
  const auto quota = Find<google::rpc::QuotaFailure>(details);
  ASSERT_EQ(quota.violations_size(), 1);
  EXPECT_EQ(quota.violations(0).subject(), "h1");
  EXPECT_EQ(quota.violations(0).description(), "the owner's quota is used up");
}

TEST(StatusCodecTest, RetryDelayTravels) {
  absl::Status status = MakeError(absl::StatusCode::kResourceExhausted, ErrorReason::kQueueFull, "", "full");
  EXPECT_FALSE(GetRetryDelay(status).has_value());
  status = WithRetryDelay(status, absl::Milliseconds(1250));
  EXPECT_EQ(GetRetryDelay(status), absl::Milliseconds(1250));
  const auto retry = Find<google::rpc::RetryInfo>(Details(ToGrpcStatus(status, "id")));
  EXPECT_EQ(retry.retry_delay().seconds(), 1);
  EXPECT_EQ(retry.retry_delay().nanos(), 250'000'000);
}

TEST(StatusCodecTest, ErrorPartsAreThoseOfTheWire) {
  ErrorParts parts = DescribeError(InvalidArgument(ErrorReason::kGraphSyntax, "%t\xff", std::string(5000, 'x')));
  EXPECT_EQ(parts.code, 3);
  EXPECT_EQ(parts.reason, "GRAPH_SYNTAX");
  EXPECT_EQ(parts.subject, "%t?");
  EXPECT_LT(parts.message.size(), 1300u);
  parts = DescribeError(absl::UnknownError("x"));
  EXPECT_EQ(parts.code, 13);
  EXPECT_EQ(parts.reason, "INTERNAL_INVARIANT");
}

TEST(StatusCodecTest, DetailsSayWhatTheyAreAbout) {
  auto details = Details(ToGrpcStatus(InvalidArgument(ErrorReason::kTensorMismatch, "x", "input 'x': rank 2"), "id"));
  EXPECT_EQ(Find<google::rpc::BadRequest>(details).field_violations(0).field(), "x");
  EXPECT_EQ(Find<google::rpc::BadRequest>(details).field_violations(0).description(), "input 'x': rank 2");
  details =
      Details(ToGrpcStatus(MakeError(absl::StatusCode::kUnavailable, ErrorReason::kDraining, "", "draining"), "id"));
  EXPECT_EQ(Find<google::rpc::RetryInfo>(details).retry_delay().seconds(), 1);
  details =
      Details(ToGrpcStatus(MakeError(absl::StatusCode::kResourceExhausted, ErrorReason::kQueueFull, "", "full"), "id"));
  EXPECT_EQ(Find<google::rpc::RetryInfo>(details).retry_delay().nanos(), 500'000'000);
  details = Details(
      ToGrpcStatus(MakeError(absl::StatusCode::kNotFound, ErrorReason::kHandleUnknown, "weights", "gone"), "id"));
  EXPECT_EQ(Find<google::rpc::ResourceInfo>(details).resource_type(), "tensor");
  EXPECT_EQ(Find<google::rpc::ResourceInfo>(details).resource_name(), "weights");
  details = Details(
      ToGrpcStatus(MakeError(absl::StatusCode::kNotFound, ErrorReason::kFingerprintUnknown, "00ff", "gone"), "id"));
  EXPECT_EQ(Find<google::rpc::ResourceInfo>(details).resource_type(), "artifact");
  details = Details(ToGrpcStatus(
      MakeError(absl::StatusCode::kFailedPrecondition, ErrorReason::kTargetNotAvailable, "cuda:sm_90", "no"), "id"));
  EXPECT_EQ(Find<google::rpc::PreconditionFailure>(details).violations(0).type(), "TARGET_NOT_AVAILABLE");
  EXPECT_EQ(Find<google::rpc::PreconditionFailure>(details).violations(0).subject(), "cuda:sm_90");
  details = Details(ToGrpcStatus(Internal("bug"), "request-9"));
  EXPECT_EQ(Find<google::rpc::RequestInfo>(details).request_id(), "request-9");
}

TEST(StatusCodecTest, InvalidArgumentWithoutSubjectHasNoBadRequest) {
  const auto details = Details(ToGrpcStatus(absl::InvalidArgumentError("no"), "id"));
  EXPECT_FALSE(Has<google::rpc::BadRequest>(details));
  EXPECT_EQ(Find<google::rpc::ErrorInfo>(details).metadata_size(), 0);
}

TEST(StatusCodecTest, LongMessageIsCutToFitIntoMetadata) {
  const std::string message(100'000, 'x');
  const grpc::Status status =
      ToGrpcStatus(InvalidArgument(ErrorReason::kGraphSyntax, std::string(10'000, 's'), message), "id");
  EXPECT_LT(status.error_message().size(), 1300u);
  EXPECT_EQ(status.error_message().substr(0, 1200), message.substr(0, 1200));
  // In base64 with the message beside it.
  EXPECT_LT(status.error_details().size() * 4 / 3 + status.error_message().size(), 7000u);
}

struct TextCase {
  const char* in;
  const char* out;
};

TEST(StatusCodecTest, BytesThatAreNoUtf8AreReplaced) {
  const TextCase cases[] = {
      {"plain", "plain"},
      {"gr\xc3\xbc\xc3\x9f", "gr\xc3\xbc\xc3\x9f"},
      {"\xe2\x82\xac", "\xe2\x82\xac"},
      {"\xf0\x9f\x98\x80", "\xf0\x9f\x98\x80"},
      {"a\xff"
       "b",
       "a?b"},
      {"\xc3", "?"},
      {"\xc0\x80", "??"},            // overlong
      {"\xed\xa0\x80", "???"},       // a surrogate
      {"\xf4\x90\x80\x80", "????"},  // above U+10FFFF
      {"\xe2\x82", "??"},
  };
  for (const TextCase& c : cases) {
    EXPECT_EQ(ToGrpcStatus(absl::InvalidArgumentError(c.in), "id").error_message(), c.out);
  }
}

TEST(StatusCodecTest, CodeNameIsTheOneOnTheWire) {
  EXPECT_EQ(CodeName(absl::OkStatus()), "OK");
  EXPECT_EQ(CodeName(absl::InvalidArgumentError("")), "INVALID_ARGUMENT");
  EXPECT_EQ(CodeName(absl::UnknownError("")), "INTERNAL");
}

}  // namespace
}  // namespace fuseline::service
