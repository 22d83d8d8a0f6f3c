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
using ::fuseline::testing::StatusIs;
using ::fuseline::testing::StoredArtifact;

class TieredArtifactStoreTest : public ::testing::Test {
 protected:
  FakeStoreState fast_;
  FakeStoreState slow_;
  std::unique_ptr<ArtifactStore> store_ =
      MakeTieredStore(std::make_unique<FakeArtifactStore>(fast_), std::make_unique<FakeArtifactStore>(slow_));
  const ArtifactPtr artifact_ = StoredArtifact(KeyOf(1), "kernel");
};

TEST_F(TieredArtifactStoreTest, HitInTheSlowLevelFillsTheFastOne) {
  fast_.outcome = Outcome::kMemoryHit;
  slow_.entries[KeyOf(1)] = artifact_;
  auto found = store_->Get(KeyOf(1));
  ASSERT_THAT(found, IsOk());
  EXPECT_EQ(found->outcome, Outcome::kDiskHit);
  found = store_->Get(KeyOf(1));
  ASSERT_THAT(found, IsOk());
  EXPECT_EQ(found->outcome, Outcome::kMemoryHit);
  EXPECT_EQ(slow_.gets, 1);
}

TEST_F(TieredArtifactStoreTest, PutAndDeleteGoToBoth) {
  ASSERT_THAT(store_->Put(KeyOf(1), artifact_), IsOk());
  EXPECT_EQ(fast_.entries.size(), 1u);
  EXPECT_EQ(slow_.entries.size(), 1u);
  ASSERT_THAT(store_->Delete(KeyOf(1)), IsOk());
  EXPECT_TRUE(fast_.entries.empty());
  EXPECT_TRUE(slow_.entries.empty());
}

TEST_F(TieredArtifactStoreTest, FailingLevelIsPassedOver) {
  slow_.status = absl::InternalError("disk");
  auto found = store_->Get(KeyOf(1));
  ASSERT_THAT(found, IsOk());
  EXPECT_EQ(found->artifact, nullptr);
  EXPECT_THAT(store_->Put(KeyOf(1), artifact_), IsOk());
  found = store_->Get(KeyOf(1));
  ASSERT_THAT(found, IsOk());
  EXPECT_EQ(found->artifact, artifact_);
  slow_.status = absl::OkStatus();
  fast_.status = absl::InternalError("memory");
  slow_.entries[KeyOf(1)] = artifact_;
  found = store_->Get(KeyOf(1));
  ASSERT_THAT(found, IsOk());
  EXPECT_EQ(found->artifact, artifact_);
}

TEST_F(TieredArtifactStoreTest, GetOrBuildBuildsOnceAndKeepsTheResult) {
  int builds = 0;
  const auto build = [&](const BuildControl&) -> absl::StatusOr<ArtifactPtr> {
    ++builds;
    return artifact_;
  };
  auto found = store_->GetOrBuild(KeyOf(1), build);
  ASSERT_THAT(found, IsOk());
  EXPECT_EQ(found->outcome, Outcome::kMiss);
  EXPECT_EQ(found->artifact, artifact_);
  found = store_->GetOrBuild(KeyOf(1), build);
  ASSERT_THAT(found, IsOk());
  EXPECT_EQ(found->outcome, Outcome::kDiskHit);
  EXPECT_EQ(builds, 1);
  EXPECT_THAT(
      store_->GetOrBuild(
          KeyOf(2), [](const BuildControl&) { return absl::StatusOr<ArtifactPtr>(absl::InternalError("compiler")); }),
      StatusIs(absl::StatusCode::kInternal, "compiler"));
}

TEST(OutcomeNameTest, NamesAreThoseOfTheContract) {
  EXPECT_EQ(OutcomeName(Outcome::kMiss), "miss");
  EXPECT_EQ(OutcomeName(Outcome::kMemoryHit), "memory-hit");
  EXPECT_EQ(OutcomeName(Outcome::kDiskHit), "disk-hit");
  EXPECT_EQ(OutcomeName(Outcome::kJoined), "joined");
  EXPECT_EQ(OutcomeName(Outcome::kSharedHit), "shared-hit");
}

}  // namespace
}  // namespace fuseline::cache
