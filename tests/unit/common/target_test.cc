#include "common/target/target.h"

#include "common/status/error.h"
#include "common/target/compile_options.h"
#include "gtest/gtest.h"
#include "tests/testing/status_matchers.h"

namespace fuseline {
namespace {

using ::fuseline::testing::StatusIs;
constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;

TEST(TargetTest, TextReadsBack) {
  for (const Target& target :
       {Target::Cpu(), Target::Cuda(75), Target::Cuda(90), Target::Cuda(90, true), Target::Cuda(120)}) {
    const absl::StatusOr<Target> back = ParseTarget(target.ToString());
    ASSERT_OK(back);
    EXPECT_EQ(*back, target);
  }
  EXPECT_EQ(Target::Cpu().ToString(), "cpu");
  EXPECT_EQ(Target::Cuda(90).ToString(), "cuda:sm_90");
  EXPECT_EQ(Target::Cuda(90, true).ToString(), "cuda:sm_90a");
}

TEST(TargetTest, OtherTextIsRefused) {
  for (const char* text :
       {"", "CPU", "cpu ", "cuda", "cuda:", "cuda:90", "cuda:sm_", "cuda:sm_a", "cuda:sm_9", "cuda:sm_090",
        "cuda:sm_90b", "cuda:sm_90aa", "cuda:sm_1200", "cuda:sm_-9", "cuda:sm_9x", "rocm:gfx90a"}) {
    const absl::StatusOr<Target> target = ParseTarget(text);
    EXPECT_THAT(target, StatusIs(kInvalid, "target '")) << text;
    EXPECT_EQ(GetErrorReason(target.status()), ErrorReason::kOptionInvalid);
  }
}

TEST(CompileOptionsTest, NumericsReadBack) {
  for (Numerics numerics : {Numerics::kFused, Numerics::kEager}) {
    const absl::StatusOr<Numerics> back = ParseNumerics(NumericsName(numerics));
    ASSERT_OK(back);
    EXPECT_EQ(*back, numerics);
  }
  EXPECT_THAT(ParseNumerics("Fused"), StatusIs(kInvalid, "numerics 'Fused'"));
  EXPECT_THAT(ParseNumerics(""), StatusIs(kInvalid, "numerics ''"));
}

}  // namespace
}  // namespace fuseline
