#include "server/executor/device_queue.h"

#include <atomic>
#include <thread>
#include <vector>

#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "common/status/error.h"
#include "gtest/gtest.h"
#include "tests/testing/status_matchers.h"

namespace fuseline::executor {
namespace {

using ::fuseline::testing::IsOk;
using ::fuseline::testing::StatusIs;

constexpr absl::Time kNever = absl::InfiniteFuture();

void WaitForDepth(const DeviceQueue& queue, int64_t depth) {
  while (queue.depth() < depth) absl::SleepFor(absl::Milliseconds(1));
}

TEST(DeviceQueueTest, OneAtATimeInTheOrderOfAsking) {
  DeviceQueue queue(100);
  ASSERT_THAT(queue.Enter(kNever, nullptr), IsOk());
  std::vector<int> order;  // written by whoever has the device
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([&, t] {
      if (!queue.Enter(kNever, nullptr).ok()) return;
      order.push_back(t);
      queue.Leave();
    });
    WaitForDepth(queue, t + 2);
  }
  queue.Leave();
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(order, (std::vector<int>{0, 1, 2, 3, 4, 5, 6, 7}));
  EXPECT_EQ(queue.depth(), 0);
}

TEST(DeviceQueueTest, FullQueueRefusesAtOnce) {
  DeviceQueue queue(0);
  ASSERT_THAT(queue.Enter(kNever, nullptr), IsOk());
  const absl::Status status = queue.Enter(kNever, nullptr);
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kResourceExhausted, "queue is full"));
  EXPECT_EQ(GetErrorReason(status), ErrorReason::kQueueFull);
  queue.Leave();
  EXPECT_THAT(queue.Enter(kNever, nullptr), IsOk());
  queue.Leave();
}

TEST(DeviceQueueTest, DeadlineAndCancellationEndTheWait) {
  DeviceQueue queue(10);
  ASSERT_THAT(queue.Enter(kNever, nullptr), IsOk());
  EXPECT_THAT(queue.Enter(absl::Now() + absl::Milliseconds(20), nullptr),
              StatusIs(absl::StatusCode::kDeadlineExceeded, "deadline"));
  int calls = 0;
  EXPECT_THAT(queue.Enter(kNever, [&] { return ++calls < 3 ? absl::OkStatus() : absl::CancelledError("gone"); }),
              StatusIs(absl::StatusCode::kCancelled, "gone"));
  EXPECT_EQ(queue.depth(), 1);
  queue.Leave();
}

TEST(DeviceQueueTest, DrainWaitsForWhoeverRunsAndRefusesTheRest) {
  DeviceQueue queue(10);
  ASSERT_THAT(queue.Enter(kNever, nullptr), IsOk());
  absl::Status waiting;
  std::thread waiter([&] { waiting = queue.Enter(kNever, nullptr); });
  WaitForDepth(queue, 2);
  std::atomic<bool> left{false};
  std::thread worker([&] {
    absl::SleepFor(absl::Milliseconds(30));
    left = true;
    queue.Leave();
  });
  queue.Drain();
  EXPECT_TRUE(left);
  waiter.join();
  worker.join();
  EXPECT_THAT(waiting, StatusIs(absl::StatusCode::kUnavailable, "shutting down"));
  EXPECT_EQ(GetErrorReason(waiting), ErrorReason::kDraining);
  EXPECT_THAT(queue.Enter(kNever, nullptr), StatusIs(absl::StatusCode::kUnavailable, "shutting down"));
}

TEST(DeviceQueueTest, ManyThreadsNeverHaveTheDeviceTogether) {
  DeviceQueue queue(1000);
  int inside = 0;
  int entered = 0;
  std::atomic<int> clashes{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 200; ++i) {
        const absl::Time deadline = (i + t) % 3 == 0 ? absl::Now() + absl::Microseconds(50) : kNever;
        if (!queue.Enter(deadline, nullptr).ok()) continue;
        clashes += ++inside != 1;
        ++entered;
        --inside;
        queue.Leave();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(clashes, 0);
  EXPECT_GE(entered, 8 * 130);
  EXPECT_EQ(queue.depth(), 0);
}

TEST(DeviceQueueTest, ClosedQueueSendsWaitersAwayUntilItOpens) {
  DeviceQueue queue(10);
  ASSERT_THAT(queue.Enter(absl::InfiniteFuture(), nullptr), IsOk());
  absl::Status waiting;
  std::thread waiter([&] { waiting = queue.Enter(absl::InfiniteFuture(), nullptr); });
  while (queue.depth() < 2) absl::SleepFor(absl::Milliseconds(1));
  queue.Close(absl::UnavailableError("lost"));
  waiter.join();
  EXPECT_THAT(waiting, StatusIs(absl::StatusCode::kUnavailable, "lost"));
  EXPECT_THAT(queue.Enter(absl::InfiniteFuture(), nullptr), StatusIs(absl::StatusCode::kUnavailable, "lost"));
  EXPECT_EQ(queue.depth(), 1);
  queue.Leave();
  queue.Open();
  EXPECT_THAT(queue.Enter(absl::InfiniteFuture(), nullptr), IsOk());
  queue.Leave();
}

TEST(DeviceQueueTest, DrainedQueueStaysClosedWhenItIsOpened) {
  DeviceQueue queue(10);
  queue.Drain();
  queue.Open();
  EXPECT_THAT(queue.Enter(absl::InfiniteFuture(), nullptr), StatusIs(absl::StatusCode::kUnavailable, "shutting down"));
}

}  // namespace
}  // namespace fuseline::executor
