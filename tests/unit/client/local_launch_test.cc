#include "client/cpp/local_launch.h"

#include <gtest/gtest.h>

#include <array>
#include <memory>

#include "common/status/error.h"
#include "tests/testing/status_matchers.h"
#include "tests/unit/server/test_artifacts.h"

namespace fuseline::client {
namespace {

using ::fuseline::testing::AxpyArtifact;
using ::fuseline::testing::IsOk;
using ::fuseline::testing::StatusIs;

constexpr int64_t kElements = 64;

TEST(LocalCallableTest, LaunchOnTheCpuGivesTheResult) {
  const auto artifact = AxpyArtifact(kElements);
  ASSERT_THAT(artifact, IsOk());
  // The callable keeps its device.
  const auto callable = LocalCallable::Load(LocalDevice::OpenCpu(2), *artifact);
  ASSERT_THAT(callable, IsOk());
  ASSERT_EQ((*callable)->inputs().size(), 1u);
  EXPECT_EQ((*callable)->outputs()[0].name, "y");
  EXPECT_EQ((*callable)->arena_bytes(), (*artifact)->plan.arena_bytes);
  alignas(16) std::array<float, kElements> x;
  alignas(16) std::array<float, kElements> y{};
  x.fill(3.0f);
  ASSERT_THAT((*callable)->Launch({x.data()}, {y.data()}), IsOk());
  EXPECT_EQ(y[0], 7.0f);
  EXPECT_EQ(y[63], 70.0f);
  EXPECT_THAT((*callable)->Check(), IsOk());
}

TEST(LocalCallableTest, WrongCallsAreRefused) {
  const auto artifact = AxpyArtifact(kElements);
  ASSERT_THAT(artifact, IsOk());
  const auto device = LocalDevice::OpenCpu(1);
  const auto callable = LocalCallable::Load(device, *artifact);
  ASSERT_THAT(callable, IsOk());
  alignas(16) std::array<float, kElements> x{};
  EXPECT_THAT((*callable)->Launch({x.data()}, {}),
              StatusIs(absl::StatusCode::kInvalidArgument, "takes 1 inputs and 1 outputs, got 1 and 0"));
  EXPECT_THAT((*callable)->Launch({x.data() + 1}, {x.data()}),
              StatusIs(absl::StatusCode::kInvalidArgument, "input 'x': the pointer is not 16-byte aligned"));
  auto other = std::make_shared<Artifact>(**artifact);
  other->plan.steps[0].buffers[0] = 99;
  EXPECT_EQ(GetErrorReason(LocalCallable::Load(device, other).status()), ErrorReason::kDataLoss);
}

TEST(LocalDeviceTest, GpuThatIsNotThereIsAFailedPrecondition) {
  EXPECT_THAT(LocalDevice::OpenCuda(1000), StatusIs(absl::StatusCode::kFailedPrecondition, ""));
}

}  // namespace
}  // namespace fuseline::client
