#include "common/artifact/index_checks.h"

#include "common/artifact/report_names.h"
#include "common/status/error.h"
#include "gtest/gtest.h"
#include "tests/testing/status_matchers.h"

namespace fuseline {
namespace {

using ::fuseline::testing::StatusIs;

TEST(IndexChecksTest, TheFirstCheckThatFailedIsReported) {
  const std::vector<PlanCheck> checks = {{"%a", 3}, {"%b", 10}, {"%c", 5}};
  EXPECT_OK(IndexCheckStatus({}, {}));
  EXPECT_OK(IndexCheckStatus(checks, {0, 0, 0, 0, 0, 0}));
  const absl::Status status = IndexCheckStatus(checks, {0, 0, 1, -12, 1, 7});
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kInvalidArgument, "node '%b': index -12 is out of range for size 10"));
  EXPECT_EQ(GetErrorReason(status), ErrorReason::kIndexOutOfRange);
  EXPECT_EQ(GetErrorSubject(status), "%b");
}

TEST(IndexChecksTest, ErrorsAreToldInTheClientsNames) {
  const absl::Status status = IndexCheckStatus({{"%v1", 3}}, {1, 3});
  const absl::Status renamed = RenameIndexError({{"v1", "look"}, {"v0", "v1"}}, status);
  EXPECT_THAT(renamed,
              StatusIs(absl::StatusCode::kInvalidArgument, "node '%look': index 3 is out of range for size 3"));
  EXPECT_EQ(GetErrorReason(renamed), ErrorReason::kIndexOutOfRange);
  EXPECT_EQ(GetErrorSubject(renamed), "%look");
  EXPECT_OK(RenameIndexError({{"v1", "look"}}, absl::OkStatus()));
  EXPECT_THAT(RenameIndexError({{"v1", "look"}}, Internal("%v1")), StatusIs(absl::StatusCode::kInternal, "%v1"));
}

}  // namespace
}  // namespace fuseline
