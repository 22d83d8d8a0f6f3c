#include "client/cpp/error_details.h"

#include "common/status/error.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace fuseline::client {
namespace {

// A length-delimited field, its length below 128.
std::string Field(int number, const std::string& bytes) {
  return std::string(1, static_cast<char>(number << 3 | 2)) + static_cast<char>(bytes.size()) + bytes;
}
std::string Varint(int number, int value) {
  return std::string(1, static_cast<char>(number << 3)) + static_cast<char>(value);
}
std::string Detail(const std::string& type, const std::string& value) {
  return Field(3, Field(1, "type.googleapis.com/google.rpc." + type) + Field(2, value));
}

const std::string kErrorInfo =
    Field(1, "GRAPH_TYPE_MISMATCH") + Field(2, "fuseline") + Field(3, Field(1, "subject") + Field(2, "%t3"));

TEST(ErrorDetailsTest, ReasonAndSubjectComeBack) {
  const absl::Status status =
      DecodeError(3, "node '%t3': no", Varint(1, 3) + Field(2, "node") + Detail("ErrorInfo", kErrorInfo));
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(status.message(), "node '%t3': no");
  EXPECT_EQ(GetErrorReason(status), ErrorReason::kGraphTypeMismatch);
  EXPECT_EQ(GetErrorSubject(status), "%t3");
  EXPECT_EQ(GetRetryDelay(status), absl::ZeroDuration());
  EXPECT_EQ(GetRequestId(status), "");
}

TEST(ErrorDetailsTest, RetryDelayAndRequestIdComeBack) {
  const std::string details =
      Detail("RetryInfo", Field(1, Varint(1, 2) + Varint(2, 100))) + Detail("RequestInfo", Field(1, "r-17"));
  const absl::Status status = DecodeError(14, "draining", details);
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(GetRetryDelay(status), absl::Seconds(2) + absl::Nanoseconds(100));
  EXPECT_EQ(GetRequestId(status), "r-17");
}

TEST(ErrorDetailsTest, OtherDomainsReasonIsNotOurs) {
  const std::string info = Field(1, "GRAPH_SYNTAX") + Field(2, "elsewhere");
  EXPECT_EQ(GetErrorReason(DecodeError(3, "m", Detail("ErrorInfo", info))), ErrorReason::kUnspecified);
}

TEST(ErrorDetailsTest, UnknownReasonAndFieldsArePassedOver) {
  const std::string info = Field(1, "FROM_THE_FUTURE") + Field(2, "fuseline") + Field(9, "more");
  const absl::Status status = DecodeError(13, "m", Detail("ErrorInfo", info) + Detail("Help", "xyz") + Varint(12, 1));
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
  EXPECT_EQ(GetErrorReason(status), ErrorReason::kUnspecified);
}

TEST(ErrorDetailsTest, EveryPrefixOfDetailsKeepsCodeAndMessage) {
  const std::string details = Detail("ErrorInfo", kErrorInfo) + Detail("RetryInfo", Field(1, Varint(1, 2)));
  for (size_t n = 0; n < details.size(); ++n) {
    const absl::Status status = DecodeError(8, "full", details.substr(0, n));
    EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
    EXPECT_EQ(status.message(), "full");
  }
}

TEST(ErrorDetailsTest, HostileDetailsDoNotCrash) {
  std::string bytes;
  for (int seed = 0; seed < 2000; ++seed) {
    bytes.clear();
    uint32_t x = static_cast<uint32_t>(seed) * 2654435761u + 1;
    for (int i = 0; i < seed % 40; ++i) {
      x = x * 1664525u + 1013904223u;
      bytes += static_cast<char>(x >> 24);
    }
    EXPECT_FALSE(DecodeError(3, "m", bytes).ok());
  }
}

TEST(ErrorDetailsTest, CodeOutsideTheRangeIsUnknown) {
  EXPECT_EQ(DecodeError(0, "m", "").code(), absl::StatusCode::kUnknown);
  EXPECT_EQ(DecodeError(99, "m", "").code(), absl::StatusCode::kUnknown);
}

}  // namespace
}  // namespace fuseline::client
