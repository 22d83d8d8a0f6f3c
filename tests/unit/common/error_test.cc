#include "common/status/error.h"
#include "common/status/lasting_error.h"

#include <set>
#include <string>

#include "absl/strings/cord.h"
#include "common/status/status_macros.h"
#include "common/status/str_cat.h"
#include "gtest/gtest.h"
#include "tests/testing/status_matchers.h"

namespace fuseline {
namespace {

using ::fuseline::testing::StatusIs;

constexpr int kLastReason = static_cast<int>(ErrorReason::kQuota);

TEST(ErrorTest, EveryReasonHasANameOfItsOwn) {
  std::set<std::string_view> names;
  for (int i = 0; i <= kLastReason; ++i) names.insert(ErrorReasonName(static_cast<ErrorReason>(i)));
  EXPECT_EQ(names.size(), static_cast<size_t>(kLastReason) + 1);
  EXPECT_EQ(ErrorReasonName(ErrorReason::kGraphTypeMismatch), "GRAPH_TYPE_MISMATCH");
  EXPECT_EQ(ErrorReasonName(ErrorReason::kInputOutput), "INPUT_OUTPUT");
}

TEST(ErrorTest, ReasonAndSubjectComeBack) {
  for (int i = 0; i <= kLastReason; ++i) {
    const auto reason = static_cast<ErrorReason>(i);
    const absl::Status status = InvalidArgument(reason, "inputs.x", "message");
    EXPECT_THAT(status, StatusIs(absl::StatusCode::kInvalidArgument, "message"));
    EXPECT_EQ(GetErrorReason(status), reason);
    EXPECT_EQ(GetErrorSubject(status), "inputs.x");
  }
}

TEST(ErrorTest, StatusMadeElsewhereHasNoReasonAndNoSubject) {
  EXPECT_EQ(GetErrorReason(absl::InternalError("x")), ErrorReason::kUnspecified);
  EXPECT_EQ(GetErrorSubject(absl::InternalError("x")), "");
  EXPECT_EQ(GetErrorReason(absl::OkStatus()), ErrorReason::kUnspecified);
}

TEST(ErrorTest, PayloadThatIsNoReasonIsIgnored) {
  for (const char* payload : {"", "x", "4x", "-1", "1000", "99999999999999999999"}) {
    absl::Status status = absl::InternalError("x");
    status.SetPayload("type.fuseline.dev/ErrorReason", absl::Cord(payload));
    EXPECT_EQ(GetErrorReason(status), ErrorReason::kUnspecified) << payload;
  }
}

TEST(ErrorTest, ShortFormsSetCodeAndReason) {
  EXPECT_EQ(Unimplemented("%t0", "no").code(), absl::StatusCode::kUnimplemented);
  EXPECT_EQ(GetErrorReason(Unimplemented("%t0", "no")), ErrorReason::kUnsupported);
  EXPECT_EQ(Internal("bug").code(), absl::StatusCode::kInternal);
  EXPECT_EQ(GetErrorReason(Internal("bug")), ErrorReason::kInternalInvariant);
  EXPECT_EQ(GetErrorSubject(Internal("bug")), "");
}

TEST(ErrorTest, OkCarriesNothing) {
  EXPECT_EQ(MakeError(absl::StatusCode::kOk, ErrorReason::kDataLoss, "x", "y"), absl::OkStatus());
}

TEST(ErrorTest, WrapKeepsCodeAndPayloads) {
  const absl::Status inner = MakeError(absl::StatusCode::kUnavailable, ErrorReason::kDraining, "server", "going down");
  const absl::Status status = Wrap(inner, "call 3");
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(status.message(), "call 3: going down");
  EXPECT_EQ(GetErrorReason(status), ErrorReason::kDraining);
  EXPECT_EQ(GetErrorSubject(status), "server");
  EXPECT_EQ(Wrap(absl::OkStatus(), "call 3"), absl::OkStatus());
}

absl::StatusOr<int> Half(int value) {
  if (value % 2 != 0) return absl::InvalidArgumentError("odd");
  return value / 2;
}

absl::Status Quarter(int value, int* result) {
  FUSELINE_ASSIGN_OR_RETURN(const int half, Half(value));
  FUSELINE_ASSIGN_OR_RETURN(*result, Half(half));
  FUSELINE_RETURN_IF_ERROR(absl::OkStatus());
  return absl::OkStatus();
}

TEST(ErrorTest, MacrosAssignOrReturn) {
  int result = 0;
  EXPECT_OK(Quarter(12, &result));
  EXPECT_EQ(result, 3);
  EXPECT_THAT(Quarter(6, &result), StatusIs(absl::StatusCode::kInvalidArgument, "odd"));
}

TEST(ErrorTest, LastingErrorsAreMarkedOrUnimplemented) {
  const absl::Status error = Internal("kernel 'k': rejected");
  EXPECT_FALSE(IsLasting(error));
  const absl::Status lasting = Wrap(MarkLasting(error), "kernel 2 of 3");
  EXPECT_TRUE(IsLasting(lasting));
  EXPECT_EQ(GetErrorReason(lasting), GetErrorReason(error));
  EXPECT_TRUE(IsLasting(Unimplemented("%t", "not in this version")));
  EXPECT_FALSE(IsLasting(absl::OkStatus()));
  EXPECT_OK(MarkLasting(absl::OkStatus()));
}

TEST(StrCatTest, TakesEveryKindOfString) {
  std::string text = StrCat("a", std::string("b"), std::string_view("c"), absl::string_view("d"), 5, int64_t{-6});
  EXPECT_EQ(text, "abcd5-6");
  StrAppend(&text, std::string_view("!"), 1.5);
  EXPECT_EQ(text, "abcd5-6!1.5");
}

}  // namespace
}  // namespace fuseline
