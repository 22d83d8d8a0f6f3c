#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "server/cache/artifact_store.h"
#include "server/cache/export_file.h"
#include "tests/testing/status_matchers.h"
#include "tests/unit/server/fake_artifact_store.h"
#include "tests/unit/server/test_artifacts.h"

namespace fuseline::cache {
namespace {

using ::fuseline::testing::FakeArtifactStore;
using ::fuseline::testing::FakeStoreState;
using ::fuseline::testing::IsOk;
using ::fuseline::testing::StoredArtifact;

class SeedArtifactStoreTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string path = (std::filesystem::temp_directory_path() / "fuseline-test-XXXXXX").string();
    ASSERT_NE(mkdtemp(path.data()), nullptr);
    folder_ = path;
    file_ = path + "/seed";
    std::string bytes;
    ExportWriter writer(
        [&bytes](std::string_view piece) {
          bytes.append(piece);
          return absl::OkStatus();
        },
        *signer_);
    for (int n : {1, 2}) ASSERT_THAT(writer.Add(*Seeded(n)), IsOk());
    ASSERT_THAT(writer.Finish(), IsOk());
    Write(bytes);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  // An artifact whose fingerprint is what it is made of.
  static ArtifactPtr Seeded(int n) {
    auto artifact = std::make_shared<Artifact>(*StoredArtifact(Fingerprint(), "kernel"));
    artifact->canonical_graph = std::string("graph ") + std::to_string(n);
    artifact->fingerprint = ComputeFingerprint(
        {artifact->canonical_graph, artifact->target, artifact->options, artifact->compiler_identity});
    return artifact;
  }
  static Fingerprint Key(int n) { return Seeded(n)->fingerprint; }

  void Write(const std::string& bytes) {
    bytes_ = bytes;
    std::ofstream(file_, std::ios::binary) << bytes;
  }
  void Open() { store_ = MakeSeedStore(file_, std::make_unique<FakeArtifactStore>(inner_), signer_, "compiler"); }
  bool Has(int n) {
    const auto found = store_->Get(Key(n));
    EXPECT_THAT(found, IsOk());
    return found.ok() && found->artifact != nullptr;
  }
  LevelStats Stats() const {
    StoreStats stats;
    store_->AddStats(stats);
    EXPECT_EQ(stats.levels.at(0).level, "seed");
    EXPECT_EQ(stats.levels.at(1).level, "fake");
    return stats.levels.at(0);
  }

  const std::shared_ptr<RecordSigner> signer_ = *RecordSigner::Create({});
  std::string folder_;
  std::string file_;
  std::string bytes_;
  FakeStoreState inner_;
  std::unique_ptr<ArtifactStore> store_;
};

TEST_F(SeedArtifactStoreTest, EntriesOfTheFileAreServedAndNotCopied) {
  Open();
  const auto found = store_->Get(Key(1));
  ASSERT_THAT(found, IsOk());
  ASSERT_NE(found->artifact, nullptr);
  EXPECT_EQ(found->artifact->fingerprint, Key(1));
  EXPECT_EQ(found->outcome, Outcome::kDiskHit);
  EXPECT_EQ(inner_.puts, 0);
  EXPECT_EQ(inner_.gets, 0);
  EXPECT_EQ(Stats().entries, 2);
  EXPECT_EQ(Stats().hits, 1);
}

TEST_F(SeedArtifactStoreTest, OthersAreTheInnerStores) {
  Open();
  EXPECT_FALSE(Has(3));
  ASSERT_THAT(store_->Put(Key(3), Seeded(3)), IsOk());
  EXPECT_TRUE(Has(3));
  EXPECT_EQ(inner_.entries.size(), 1u);
  std::vector<Fingerprint> keys;
  store_->ForEachLevel([&](ArtifactStore& level) { level.AddKeys(keys); });
  EXPECT_EQ(keys.size(), 2u);
}

TEST_F(SeedArtifactStoreTest, DamagedEntryIsDroppedAndCounted) {
  bytes_[bytes_.size() / 4] = static_cast<char>(bytes_[bytes_.size() / 4] ^ 1);
  Write(bytes_);
  Open();
  EXPECT_FALSE(Has(1));
  EXPECT_FALSE(Has(1));
  EXPECT_TRUE(Has(2));
  EXPECT_EQ(Stats().corrupt, 1);
  EXPECT_EQ(Stats().entries, 1);
}

TEST_F(SeedArtifactStoreTest, EntriesOfAnotherCompilerAreDropped) {
  store_ = MakeSeedStore(file_, std::make_unique<FakeArtifactStore>(inner_), signer_, "another");
  EXPECT_FALSE(Has(1));
  EXPECT_EQ(Stats().corrupt, 1);
}

TEST_F(SeedArtifactStoreTest, DeletedAndEvictedEntriesAreNotFoundAnyMore) {
  Open();
  ASSERT_THAT(store_->Delete(Key(1)), IsOk());
  EXPECT_FALSE(Has(1));
  int64_t evicted = 0;
  store_->ForEachLevel([&](ArtifactStore& level) { evicted += level.Evict({.all = true}).entries; });
  EXPECT_EQ(evicted, 1);
  EXPECT_FALSE(Has(2));
  EXPECT_EQ(Stats().size_bytes, 0);
}

TEST_F(SeedArtifactStoreTest, FileThatIsCutOffOrAbsentIsDoneWithoutAndSaysWhy) {
  Write(bytes_.substr(0, 100));
  Open();
  EXPECT_FALSE(Stats().available);
  EXPECT_NE(Stats().reason.find("is cut off"), std::string::npos) << Stats().reason;
  EXPECT_FALSE(Has(1));
  std::filesystem::remove(file_);
  Open();
  EXPECT_FALSE(Stats().available);
  EXPECT_NE(Stats().reason.find("No such file"), std::string::npos) << Stats().reason;
}

TEST_F(SeedArtifactStoreTest, FileThatBecomesShorterCostsItsEntriesAlone) {
  Open();
  std::filesystem::resize_file(file_, 50);
  EXPECT_FALSE(Has(1));
  EXPECT_EQ(Stats().errors, 1);
  EXPECT_EQ(Stats().corrupt, 0);
}

TEST_F(SeedArtifactStoreTest, WithoutAnInnerStoreTheFileIsAll) {
  store_ = MakeSeedStore(file_, nullptr, signer_, "compiler");
  EXPECT_TRUE(Has(1));
  EXPECT_FALSE(Has(3));
  EXPECT_THAT(store_->Put(Key(3), Seeded(3)), IsOk());
  StoreStats stats;
  store_->AddStats(stats);
  EXPECT_EQ(stats.levels.size(), 1u);
}

}  // namespace
}  // namespace fuseline::cache
