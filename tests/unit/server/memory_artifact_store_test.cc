#include <string>

#include "gtest/gtest.h"
#include "server/cache/artifact_size.h"
#include "server/cache/artifact_store.h"
#include "tests/testing/status_matchers.h"
#include "tests/unit/server/test_artifacts.h"

namespace fuseline::cache {
namespace {

using ::fuseline::testing::IsOk;
using ::fuseline::testing::KeyOf;
using ::fuseline::testing::StoredArtifact;

bool Has(ArtifactStore& store, int n) {
  const auto found = store.Get(KeyOf(n));
  return found.ok() && found->artifact != nullptr;
}

TEST(MemoryArtifactStoreTest, WhatIsPutIsFoundAsAMemoryHit) {
  const auto store = MakeMemoryStore(1 << 20);
  const ArtifactPtr artifact = StoredArtifact(KeyOf(1), "kernel");
  ASSERT_THAT(store->Put(KeyOf(1), artifact), IsOk());
  const auto found = store->Get(KeyOf(1));
  ASSERT_THAT(found, IsOk());
  EXPECT_EQ(found->artifact, artifact);
  EXPECT_EQ(found->outcome, Outcome::kMemoryHit);
  const auto absent = store->Get(KeyOf(2));
  ASSERT_THAT(absent, IsOk());
  EXPECT_EQ(absent->artifact, nullptr);
  EXPECT_EQ(absent->outcome, Outcome::kMiss);
  ASSERT_THAT(store->Delete(KeyOf(1)), IsOk());
  EXPECT_FALSE(Has(*store, 1));
}

TEST(MemoryArtifactStoreTest, LookThroughAllLevelsAtWhatIsInMemoryCountsHitsAlone) {
  const auto store =
      MakeMetricsStore(MakeSingleFlightStore(MakeTieredStore(MakeMemoryStore(1 << 20), MakeMemoryStore(1 << 20))));
  const ArtifactPtr artifact = StoredArtifact(KeyOf(1), "kernel");
  ASSERT_THAT(store->Put(KeyOf(1), artifact), IsOk());
  EXPECT_EQ(store->GetInMemory(KeyOf(1)).artifact, artifact);
  EXPECT_EQ(store->GetInMemory(KeyOf(2)).artifact, nullptr);
  StoreStats stats;
  store->AddStats(stats);
  ASSERT_EQ(stats.levels.size(), 3u);
  EXPECT_EQ(stats.levels[0].hits, 1);
  EXPECT_EQ(stats.levels[0].misses, 0);
  EXPECT_EQ(stats.levels[1].hits + stats.levels[1].misses, 0);
  EXPECT_EQ(stats.levels[2].hits, 1);
  EXPECT_EQ(stats.levels[2].misses, 0);
}

TEST(MemoryArtifactStoreTest, LeastRecentlyUsedGoesFirst) {
  const int64_t each = ArtifactMemoryBytes(*StoredArtifact(KeyOf(1), std::string(10000, 'a')));
  const auto store = MakeMemoryStore(3 * each);
  for (int n = 1; n <= 3; ++n)
    ASSERT_THAT(store->Put(KeyOf(n), StoredArtifact(KeyOf(n), std::string(10000, 'a'))), IsOk());
  ASSERT_TRUE(Has(*store, 1));
  ASSERT_THAT(store->Put(KeyOf(4), StoredArtifact(KeyOf(4), std::string(10000, 'a'))), IsOk());
  EXPECT_TRUE(Has(*store, 1));
  EXPECT_FALSE(Has(*store, 2));
  EXPECT_TRUE(Has(*store, 3));
  EXPECT_TRUE(Has(*store, 4));
  StoreStats stats;
  store->AddStats(stats);
  ASSERT_EQ(stats.levels.size(), 1u);
  EXPECT_EQ(stats.levels[0].level, "memory");
  EXPECT_EQ(stats.levels[0].entries, 3);
  EXPECT_EQ(stats.levels[0].size_bytes, 3 * each);
  EXPECT_EQ(stats.levels[0].evictions, 1);
  EXPECT_EQ(stats.levels[0].hits, 4);
  EXPECT_EQ(stats.levels[0].misses, 1);
}

TEST(MemoryArtifactStoreTest, ReplacementAndEntriesOverTheCapacityKeepTheCount) {
  const auto store = MakeMemoryStore(20000);
  ASSERT_THAT(store->Put(KeyOf(1), StoredArtifact(KeyOf(1), std::string(5000, 'a'))), IsOk());
  ASSERT_THAT(store->Put(KeyOf(1), StoredArtifact(KeyOf(1), std::string(1000, 'b'))), IsOk());
  ASSERT_THAT(store->Put(KeyOf(2), StoredArtifact(KeyOf(2), std::string(50000, 'c'))), IsOk());
  EXPECT_TRUE(Has(*store, 1));
  EXPECT_FALSE(Has(*store, 2));
  StoreStats stats;
  store->AddStats(stats);
  EXPECT_EQ(stats.levels[0].entries, 1);
  EXPECT_EQ(stats.levels[0].size_bytes, ArtifactMemoryBytes(*StoredArtifact(KeyOf(1), std::string(1000, 'b'))));
}

}  // namespace
}  // namespace fuseline::cache
