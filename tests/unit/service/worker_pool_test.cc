#include "server/service/worker_pool.h"

#include <gtest/gtest.h>

#include <atomic>

#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace fuseline::service {
namespace {

TEST(WorkerPoolTest, AcceptedTasksAllRunBeforeItIsGone) {
  std::atomic<int> ran{0};
  {
    WorkerPool pool(3, 1000);
    for (int i = 0; i < 500; ++i) ASSERT_TRUE(pool.Submit([&] { ++ran; }));
  }
  EXPECT_EQ(ran, 500);
}

TEST(WorkerPoolTest, FullQueueRefusesAtOnceAndTakesTasksAgainLater) {
  absl::Notification release;
  absl::Notification running;
  std::atomic<int> ran{0};
  WorkerPool pool(1, 2);
  ASSERT_TRUE(pool.Submit([&] {
    running.Notify();
    release.WaitForNotification();
  }));
  running.WaitForNotification();
  EXPECT_TRUE(pool.Submit([&] { ++ran; }));
  EXPECT_TRUE(pool.Submit([&] { ++ran; }));
  EXPECT_EQ(pool.queue_depth(), 2u);
  EXPECT_FALSE(pool.Submit([&] { ++ran; }));
  release.Notify();
  absl::Notification done;
  while (!pool.Submit([&] { done.Notify(); })) {
  }
  done.WaitForNotification();
  EXPECT_EQ(ran, 2);
}

TEST(WorkerPoolTest, QueueOfNoneStillUsesEveryThread) {
  absl::Notification release;
  WorkerPool pool(2, 0);
  EXPECT_TRUE(pool.Submit([&] { release.WaitForNotification(); }));
  EXPECT_TRUE(pool.Submit([&] { release.WaitForNotification(); }));
  EXPECT_FALSE(pool.Submit([] {}));
  release.Notify();
}

TEST(WorkerPoolTest, StatisticsSayWhatWaitsAndHowLongItWillTake) {
  WorkerPool pool(2, 100);
  EXPECT_EQ(pool.EstimateWait(), absl::ZeroDuration());  // nothing is known yet
  absl::Notification first;
  ASSERT_TRUE(pool.Submit([&] {
    absl::SleepFor(absl::Milliseconds(20));
    first.Notify();
  }));
  first.WaitForNotification();
  while (pool.stats().running > 0) absl::SleepFor(absl::Milliseconds(1));
  const absl::Duration mean = pool.stats().mean_service;
  EXPECT_GE(mean, absl::Milliseconds(20));
  absl::Notification release;
  for (int i = 0; i < 12; ++i) ASSERT_TRUE(pool.Submit([&] { release.WaitForNotification(); }));
  while (pool.stats().running < 2) absl::SleepFor(absl::Milliseconds(1));
  EXPECT_EQ(pool.stats().waiting, 10u);
  EXPECT_EQ(pool.EstimateWait(), mean * 6);
  release.Notify();
}

}  // namespace
}  // namespace fuseline::service
