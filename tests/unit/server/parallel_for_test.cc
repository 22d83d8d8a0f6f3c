#include "common/launch/parallel_for.h"

#include <algorithm>
#include <mutex>
#include <utility>
#include <vector>

#include "gtest/gtest.h"

namespace fuseline::launch {
namespace {

struct Case {
  int threads;
  int64_t items;
  int64_t grain;
  size_t most_chunks;
};

class ParallelForTest : public ::testing::TestWithParam<Case> {};

TEST_P(ParallelForTest, EachItemIsCoveredOnceInContiguousEqualChunks) {
  const Case& c = GetParam();
  ParallelFor parallel_for(c.threads);
  for (int round = 0; round < 20; ++round) {
    std::mutex mutex;
    std::vector<std::pair<int64_t, int64_t>> chunks;
    parallel_for.Run(c.items, c.grain, [&](int64_t begin, int64_t end) {
      const std::lock_guard<std::mutex> lock(mutex);
      chunks.emplace_back(begin, end);
    });
    std::sort(chunks.begin(), chunks.end());
    ASSERT_EQ(chunks.size(), c.most_chunks);
    int64_t next = 0;
    int64_t least = c.items;
    int64_t most = 0;
    for (const auto& [begin, end] : chunks) {
      ASSERT_EQ(begin, next);
      next = end;
      least = std::min(least, end - begin);
      most = std::max(most, end - begin);
    }
    ASSERT_EQ(next, c.items);
    EXPECT_LE(most - least, c.items == 0 ? 0 : 1);
  }
}

INSTANTIATE_TEST_SUITE_P(Shapes, ParallelForTest,
                         ::testing::Values(Case{1, 100, 1, 1}, Case{4, 0, 1, 0}, Case{4, 1, 1, 1}, Case{4, 3, 1, 3},
                                           Case{4, 100, 1, 4}, Case{4, 101, 1, 4}, Case{4, 100, 50, 2},
                                           Case{4, 99, 50, 1}, Case{4, 100, 1000, 1}, Case{4, 100, 0, 4},
                                           Case{3, int64_t{1} << 40, 1, 3}, Case{64, 1000, 1, 64}));

TEST(ParallelForStressTest, ManyShortLoopsInARowLoseNoItem) {
  ParallelFor parallel_for(4);
  std::vector<int> counts(64, 0);
  for (int round = 0; round < 20000; ++round) {
    parallel_for.Run(64, 1 + round % 40, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) ++counts[static_cast<size_t>(i)];
    });
  }
  EXPECT_EQ(std::count(counts.begin(), counts.end(), 20000), 64);
}

// A worker may look for work at any point of the destructor.
TEST(ParallelForStressTest, EndsAtOnceWhateverItsWorkersAreAt) {
  for (int round = 0; round < 3000; ++round) {
    ParallelFor parallel_for(8);
    if (round % 2 == 0) parallel_for.Run(8, 1, [](int64_t, int64_t) {});
  }
}

}  // namespace
}  // namespace fuseline::launch
