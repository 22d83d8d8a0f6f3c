#include "server/executor/device_health.h"

#include <atomic>
#include <thread>
#include <vector>

#include "absl/time/clock.h"
#include "common/status/error.h"
#include "gtest/gtest.h"
#include "tests/testing/status_matchers.h"

namespace fuseline::executor {
namespace {

using ::fuseline::testing::IsOk;
using ::fuseline::testing::StatusIs;

class DeviceHealthTest : public ::testing::Test {
 protected:
  DeviceHealth::Actions Actions() {
    return {[this]() -> absl::Status {
              EXPECT_EQ(users_, 0);
              const int n = attempts_++;
              {
                absl::MutexLock lock(&mutex_);
                times_.push_back(absl::Now());
              }
              return n < failures_ ? absl::InternalError("still broken") : absl::OkStatus();
            },
            [this](const absl::Status& why) {
              ++left_;
              EXPECT_EQ(GetErrorReason(why), ErrorReason::kNoHealthyDevice);
            },
            [this] { ++back_; }};
  }
  static void AwaitHealthy(const DeviceHealth& health) {
    while (!health.healthy()) absl::SleepFor(absl::Milliseconds(1));
  }

  static constexpr RebuildOptions kFast = {absl::Milliseconds(1), absl::Milliseconds(20)};
  std::atomic<int> failures_{0};
  std::atomic<int> attempts_{0};
  std::atomic<int> users_{0};
  std::atomic<int> left_{0};
  std::atomic<int> back_{0};
  absl::Mutex mutex_;
  std::vector<absl::Time> times_ ABSL_GUARDED_BY(mutex_);
};

TEST_F(DeviceHealthTest, LostDeviceComesBackRebuilt) {
  DeviceHealth health("device 0", kFast, Actions());
  EXPECT_TRUE(health.healthy());
  EXPECT_EQ(health.reason(), "");
  const DeviceLifePtr life = health.life();
  ASSERT_THAT(health.BeginUse(), IsOk());
  ++users_;
  health.Lost("an illegal address");
  health.Lost("another one");
  EXPECT_TRUE(life->over);
  EXPECT_FALSE(health.healthy());
  EXPECT_EQ(health.reason(), "an illegal address");
  const absl::Status refused = health.BeginUse();
  EXPECT_THAT(refused, StatusIs(absl::StatusCode::kUnavailable, "device 0 is being rebuilt: an illegal address"));
  EXPECT_EQ(left_, 1);
  absl::SleepFor(absl::Milliseconds(30));
  EXPECT_EQ(attempts_, 0);  // it is in use
  --users_;
  health.EndUse();
  AwaitHealthy(health);
  EXPECT_EQ(health.rebuilds(), 1);
  EXPECT_EQ(back_, 1);
  EXPECT_NE(health.life(), life);
  EXPECT_FALSE(health.life()->over);
  EXPECT_THAT(health.BeginUse(), IsOk());
  health.EndUse();
}

TEST_F(DeviceHealthTest, FailedRebuildsAreRepeatedWithGrowingPauses) {
  failures_ = 4;
  DeviceHealth health("device 0", {absl::Milliseconds(10), absl::Milliseconds(40)}, Actions());
  health.Lost("gone");
  while (attempts_ < 2) absl::SleepFor(absl::Milliseconds(1));
  AwaitHealthy(health);
  EXPECT_EQ(attempts_, 5);
  EXPECT_EQ(health.rebuilds(), 1);
  absl::MutexLock lock(&mutex_);
  EXPECT_GE(times_[1] - times_[0], absl::Milliseconds(20));
  EXPECT_GE(times_[2] - times_[1], absl::Milliseconds(40));
  EXPECT_GE(times_[4] - times_[3], absl::Milliseconds(40));
}

TEST_F(DeviceHealthTest, ReasonSaysWhyRebuildingFailed) {
  failures_ = 1'000'000;
  DeviceHealth health("device 0", kFast, Actions());
  health.Lost("gone");
  while (health.reason() != "still broken") absl::SleepFor(absl::Milliseconds(1));
  EXPECT_FALSE(health.healthy());
}

TEST_F(DeviceHealthTest, DeviceThatIsLostAgainWaitsLonger) {
  DeviceHealth health("device 0", {absl::Milliseconds(20), absl::Seconds(60)}, Actions());
  const absl::Time start = absl::Now();
  for (int i = 0; i < 3; ++i) {
    health.Lost("gone");
    AwaitHealthy(health);
  }
  EXPECT_GE(absl::Now() - start, absl::Milliseconds(20 + 40 + 80));
}

TEST_F(DeviceHealthTest, EndDoesNotWaitForThePause) {
  const absl::Time start = absl::Now();
  {
    DeviceHealth health("device 0", {absl::Minutes(10), absl::Minutes(10)}, Actions());
    health.Lost("gone");
  }
  EXPECT_LT(absl::Now() - start, absl::Seconds(10));
}

TEST_F(DeviceHealthTest, UsersAndLossesAtOnceNeverMeetARebuild) {
  DeviceHealth health("device 0", {absl::ZeroDuration(), absl::ZeroDuration()}, Actions());
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 300; ++i) {
        if (!health.BeginUse().ok()) continue;
        ++users_;
        if (i % 10 == 0) health.Lost("gone");
        --users_;
        health.EndUse();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  AwaitHealthy(health);
  EXPECT_EQ(left_, back_);
  EXPECT_EQ(health.rebuilds(), back_);
}

}  // namespace
}  // namespace fuseline::executor
