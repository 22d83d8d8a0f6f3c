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

class CheckedArtifactStoreTest : public ::testing::Test {
 protected:
  // Whether `artifact`, found under KeyOf(1), is passed on.
  bool Passes(const ArtifactPtr& artifact) {
    inner_.entries[KeyOf(1)] = artifact;
    const auto found = store_->Get(KeyOf(1));
    return found.ok() && found->artifact != nullptr;
  }
  int64_t CorruptCount() const {
    StoreStats stats;
    store_->AddStats(stats);
    return stats.levels[0].corrupt;
  }

  FakeStoreState inner_;
  std::unique_ptr<ArtifactStore> store_ = MakeCheckedStore(std::make_unique<FakeArtifactStore>(inner_), "compiler 1");
};

TEST_F(CheckedArtifactStoreTest, GoodArtifactPasses) {
  EXPECT_TRUE(Passes(StoredArtifact(KeyOf(1), "kernel")));
  EXPECT_EQ(CorruptCount(), 0);
  EXPECT_EQ(inner_.deletes, 0);
}

TEST_F(CheckedArtifactStoreTest, OtherFingerprintOtherIdentityAndBadPlanAreDroppedAndCounted) {
  EXPECT_FALSE(Passes(StoredArtifact(KeyOf(2), "kernel")));
  EXPECT_FALSE(Passes(StoredArtifact(KeyOf(1), "kernel", "compiler 2")));
  auto bad = std::make_shared<Artifact>(*StoredArtifact(KeyOf(1), "kernel"));
  bad->plan.steps[0].buffers = {0, 7};
  EXPECT_FALSE(Passes(bad));
  EXPECT_EQ(CorruptCount(), 3);
  EXPECT_EQ(inner_.deletes, 3);
  EXPECT_TRUE(inner_.entries.empty());
}

}  // namespace
}  // namespace fuseline::cache
