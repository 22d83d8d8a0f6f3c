#include "gtest/gtest.h"
#include "server/cache/artifact_store.h"
#include "tests/testing/status_matchers.h"
#include "tests/unit/server/fake_artifact_store.h"
#include "tests/unit/server/test_artifacts.h"

namespace fuseline::cache {
namespace {

using ::fuseline::testing::FakeArtifactStore;
using ::fuseline::testing::FakeStoreState;
using ::fuseline::testing::IsOk;
using ::fuseline::testing::KeyOf;
using ::fuseline::testing::StoredArtifact;

TEST(MetricsArtifactStoreTest, HitsMissesErrorsAndSecondsSavedAreCounted) {
  FakeStoreState inner;
  const auto store = MakeMetricsStore(std::make_unique<FakeArtifactStore>(inner));
  const auto build = [](const BuildControl&) -> absl::StatusOr<ArtifactPtr> {
    auto artifact = std::make_shared<Artifact>(*StoredArtifact(KeyOf(1), "kernel"));
    artifact->report.stage_micros = {{"lower", 500'000}, {"compile", 2'000'000}, {"odd", -7}};
    return artifact;
  };
  ASSERT_THAT(store->Get(KeyOf(1)), IsOk());                // miss
  ASSERT_THAT(store->GetOrBuild(KeyOf(1), build), IsOk());  // miss
  ASSERT_THAT(store->GetOrBuild(KeyOf(1), build), IsOk());  // hit
  ASSERT_THAT(store->Get(KeyOf(1)), IsOk());                // hit
  EXPECT_FALSE(
      store
          ->GetOrBuild(KeyOf(2),
                       [](const BuildControl&) { return absl::StatusOr<ArtifactPtr>(absl::InternalError("compiler")); })
          .ok());
  inner.status = absl::InternalError("disk");
  EXPECT_FALSE(store->Put(KeyOf(3), StoredArtifact(KeyOf(3), "kernel")).ok());
  StoreStats stats;
  store->AddStats(stats);
  EXPECT_DOUBLE_EQ(stats.seconds_saved, 5.0);  // by two hits
  ASSERT_EQ(stats.levels.size(), 2u);
  EXPECT_EQ(stats.levels[0].level, "fake");
  EXPECT_EQ(stats.levels[1].level, "all");
  EXPECT_EQ(stats.levels[1].hits, 2);
  EXPECT_EQ(stats.levels[1].misses, 3);
  EXPECT_EQ(stats.levels[1].errors, 1);
  EXPECT_EQ(stats.levels[1].evictions, 3);
}

}  // namespace
}  // namespace fuseline::cache
