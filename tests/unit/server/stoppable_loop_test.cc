#include "common/launch/stoppable_loop.h"

#include <atomic>
#include <chrono>
#include <cstdint>
#include <thread>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "tests/testing/status_matchers.h"

namespace fuseline::launch {
namespace {

using ::fuseline::testing::IsOk;
using ::fuseline::testing::StatusIs;

absl::Status GoOn() { return absl::OkStatus(); }

TEST(StoppableLoopTest, EveryItemIsDoneOnceAndInOrder) {
  const StopCheck stop = GoOn;
  for (const int64_t items : {1, 7, 64, 1000, 12345}) {
    for (const int64_t grain : {1, 3, 64, 100'000}) {
      StoppableLoop loop(stop);
      int64_t next = 10;
      loop.Run(10, 10 + items, grain, [&](int64_t begin, int64_t end) {
        EXPECT_EQ(begin, next);
        EXPECT_GT(end, begin);
        next = end;
      });
      EXPECT_EQ(next, 10 + items) << items << " " << grain;
      EXPECT_THAT(loop.status(), IsOk());
    }
  }
}

TEST(StoppableLoopTest, WithoutStopTheLoopIsOnePiece) {
  const StopCheck none;
  StoppableLoop loop(none);
  int pieces = 0;
  loop.Run(0, 1'000'000, 1, [&](int64_t, int64_t) { ++pieces; });
  EXPECT_EQ(pieces, 1);
}

TEST(StoppableLoopTest, SlicesGrowToMilliseconds) {
  const StopCheck stop = GoOn;
  StoppableLoop loop(stop);
  int pieces = 0;
  int64_t largest = 0;
  loop.Run(0, int64_t{1} << 36, 16, [&](int64_t begin, int64_t end) {
    ++pieces;
    largest = std::max(largest, end - begin);
    if (end != int64_t{1} << 36) {
      EXPECT_EQ((end - begin) % 16, 0);
    }
  });
  EXPECT_LT(pieces, 40);  // items that cost nothing
  EXPECT_GT(largest, 1 << 30);
}

TEST(StoppableLoopTest, SlowItemsAreStoppedBetween) {
  int asked = 0;
  const StopCheck stop = [&] { return ++asked == 3 ? absl::CancelledError("enough") : absl::OkStatus(); };
  StoppableLoop loop(stop);
  int64_t done = 0;
  loop.Run(0, 1'000'000, 1, [&](int64_t begin, int64_t end) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5 * (end - begin)));
    done = end;
  });
  EXPECT_EQ(asked, 3);
  EXPECT_LT(done, 20);
  EXPECT_THAT(loop.status(), StatusIs(absl::StatusCode::kCancelled, "enough"));
}

TEST(StoppableLoopTest, StopEndsAllThreadsThatShareTheLoop) {
  std::atomic<bool> cancel{false};
  std::atomic<int> asking{0};
  std::atomic<bool> overlapped{false};
  const StopCheck stop = [&] {
    if (++asking > 1) overlapped = true;
    --asking;
    return cancel ? absl::CancelledError("enough") : absl::OkStatus();
  };
  StoppableLoop loop(stop);
  std::vector<std::thread> threads;
  for (int t = 0; t < 3; ++t) {
    threads.emplace_back([&] {
      loop.Run(0, int64_t{1} << 60, 1, [&](int64_t begin, int64_t end) {
        std::this_thread::sleep_for(std::chrono::microseconds(end - begin));
      });
    });
  }
  cancel = true;
  for (std::thread& thread : threads) thread.join();
  EXPECT_FALSE(overlapped);
  EXPECT_THAT(loop.status(), StatusIs(absl::StatusCode::kCancelled, "enough"));
}

}  // namespace
}  // namespace fuseline::launch
