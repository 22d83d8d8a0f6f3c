#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/artifact/codec/artifact_codec.h"
#include "gtest/gtest.h"
#include "rocksdb/db.h"
#include "server/cache/artifact_store.h"
#include "tests/testing/status_matchers.h"
#include "tests/unit/server/test_artifacts.h"

namespace fuseline::cache {
namespace {

using ::fuseline::testing::IsOk;
using ::fuseline::testing::KeyOf;
using ::fuseline::testing::StatusIs;
using ::fuseline::testing::StoredArtifact;

class RocksDbArtifactStoreTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string path = (std::filesystem::temp_directory_path() / "fuseline-test-XXXXXX").string();
    ASSERT_NE(mkdtemp(path.data()), nullptr);
    parent_ = path;
    directory_ = path + "/cache";
    Open();
  }
  void TearDown() override {
    store_.reset();
    std::filesystem::remove_all(parent_);
  }

  void Open(int64_t capacity_bytes = 1 << 30) {
    store_.reset();
    auto store = MakeRocksDbStore(directory_, {.capacity_bytes = capacity_bytes, .report = report_});
    ASSERT_THAT(store, IsOk());
    store_ = *std::move(store);
  }
  bool Has(int n) {
    const auto found = store_->Get(KeyOf(n));
    EXPECT_THAT(found, IsOk());
    return found.ok() && found->artifact != nullptr;
  }
  LevelStats Stats() const {
    StoreStats stats;
    store_->AddStats(stats);
    return stats.levels.at(0);
  }
  // Changes the closed database behind the store's back. `change` gets the key and the value of each record.
  template <typename F>
  void ChangeRecords(const std::string& prefix, F change) {
    store_.reset();
    rocksdb::DB* opened = nullptr;
    ASSERT_TRUE(rocksdb::DB::Open({}, directory_, &opened).ok());
    const std::unique_ptr<rocksdb::DB> db(opened);
    const std::unique_ptr<rocksdb::Iterator> records(db->NewIterator({}));
    for (records->Seek(prefix); records->Valid() && records->key().starts_with(prefix); records->Next()) {
      change(*db, records->key().ToString(), records->value().ToString());
    }
  }

  std::string parent_;
  std::string directory_;
  std::vector<std::string> reports_;
  Report report_ = [this](const std::string& line) { reports_.push_back(line); };
  std::unique_ptr<ArtifactStore> store_;
};

TEST_F(RocksDbArtifactStoreTest, EntrySurvivesReopening) {
  const ArtifactPtr artifact = StoredArtifact(KeyOf(1), std::string(20000, 'k'));
  ASSERT_THAT(store_->Put(KeyOf(1), artifact), IsOk());
  const int64_t size_bytes = Stats().size_bytes;
  Open();
  const auto found = store_->Get(KeyOf(1));
  ASSERT_THAT(found, IsOk());
  ASSERT_NE(found->artifact, nullptr);
  EXPECT_EQ(found->outcome, Outcome::kDiskHit);
  EXPECT_EQ(SerializeArtifact(*found->artifact), SerializeArtifact(*artifact));
  EXPECT_FALSE(Has(2));
  EXPECT_EQ(Stats().entries, 1);
  EXPECT_EQ(Stats().size_bytes, size_bytes);
  EXPECT_EQ(Stats().hits, 1);
  EXPECT_EQ(Stats().misses, 1);
}

TEST_F(RocksDbArtifactStoreTest, EqualKernelsAreStoredOnce) {
  const std::string kernel(100000, 'k');
  ASSERT_THAT(store_->Put(KeyOf(1), StoredArtifact(KeyOf(1), kernel)), IsOk());
  ASSERT_THAT(store_->Put(KeyOf(2), StoredArtifact(KeyOf(2), kernel)), IsOk());
  EXPECT_LT(Stats().size_bytes, 150000);
  ASSERT_THAT(store_->Delete(KeyOf(1)), IsOk());
  EXPECT_FALSE(Has(1));
  EXPECT_TRUE(Has(2));
  Open();
  EXPECT_FALSE(Has(1));
  EXPECT_TRUE(Has(2));
  ASSERT_THAT(store_->Delete(KeyOf(2)), IsOk());
  int blobs = 0;
  ChangeRecords("b/", [&](rocksdb::DB&, const std::string&, const std::string&) { ++blobs; });
  EXPECT_EQ(blobs, 0);
}

TEST_F(RocksDbArtifactStoreTest, DamagedIndexRecordIsDroppedAndCanBeWrittenAgain) {
  ASSERT_THAT(store_->Put(KeyOf(1), StoredArtifact(KeyOf(1), "kernel")), IsOk());
  ChangeRecords("i/", [](rocksdb::DB& db, const std::string& key, std::string value) {
    value[5] = static_cast<char>(value[5] ^ 1);
    ASSERT_TRUE(db.Put({}, key, value).ok());
  });
  Open();
  EXPECT_FALSE(Has(1));
  EXPECT_EQ(Stats().corrupt, 1);
  EXPECT_EQ(Stats().entries, 0);
  ASSERT_THAT(store_->Put(KeyOf(1), StoredArtifact(KeyOf(1), "kernel")), IsOk());
  EXPECT_TRUE(Has(1));
}

TEST_F(RocksDbArtifactStoreTest, DamagedBlobCostsTheEntriesThatUseItAndIsWrittenAnew) {
  const std::string kernel(1000, 'k');
  ASSERT_THAT(store_->Put(KeyOf(1), StoredArtifact(KeyOf(1), kernel)), IsOk());
  ASSERT_THAT(store_->Put(KeyOf(2), StoredArtifact(KeyOf(2), kernel)), IsOk());
  ChangeRecords("b/", [&](rocksdb::DB& db, const std::string& key, std::string value) {
    if (value != kernel) return;
    value[500] = 'x';
    ASSERT_TRUE(db.Put({}, key, value).ok());
  });
  Open();
  EXPECT_FALSE(Has(1));
  EXPECT_FALSE(Has(2));
  EXPECT_EQ(Stats().corrupt, 2);
  ASSERT_THAT(store_->Put(KeyOf(1), StoredArtifact(KeyOf(1), kernel)), IsOk());
  EXPECT_TRUE(Has(1));
}

TEST_F(RocksDbArtifactStoreTest, MissingBlobIsAMiss) {
  ASSERT_THAT(store_->Put(KeyOf(1), StoredArtifact(KeyOf(1), "kernel")), IsOk());
  ChangeRecords("b/", [](rocksdb::DB& db, const std::string& key, const std::string& value) {
    if (value == "kernel") {
      ASSERT_TRUE(db.Delete({}, key).ok());
    }
  });
  Open();
  EXPECT_FALSE(Has(1));
  EXPECT_EQ(Stats().entries, 0);
}

TEST_F(RocksDbArtifactStoreTest, LeastRecentlyUsedEntriesGoWhenTheCapacityIsReached) {
  Open(60000);
  for (int n = 1; n <= 4; ++n)
    ASSERT_THAT(store_->Put(KeyOf(n), StoredArtifact(KeyOf(n), std::string(10000, static_cast<char>('a' + n)))),
                IsOk());
  ASSERT_TRUE(Has(1));
  for (int n = 5; n <= 6; ++n)
    ASSERT_THAT(store_->Put(KeyOf(n), StoredArtifact(KeyOf(n), std::string(10000, static_cast<char>('a' + n)))),
                IsOk());
  EXPECT_TRUE(Has(1));
  EXPECT_FALSE(Has(2));
  EXPECT_TRUE(Has(6));
  EXPECT_LE(Stats().size_bytes, 60000);
  EXPECT_GE(Stats().evictions, 1);
  // One that alone is over the capacity is not kept, and pushes nothing out.
  ASSERT_THAT(store_->Put(KeyOf(9), StoredArtifact(KeyOf(9), std::string(100000, 'z'))), IsOk());
  EXPECT_FALSE(Has(9));
  EXPECT_TRUE(Has(6));
}

TEST_F(RocksDbArtifactStoreTest, DirectoryThatIsInUseIsAnErrorAndLeftAlone) {
  ASSERT_THAT(store_->Put(KeyOf(1), StoredArtifact(KeyOf(1), "kernel")), IsOk());
  EXPECT_THAT(MakeRocksDbStore(directory_, {}), StatusIs(absl::StatusCode::kUnavailable, "in use"));
  EXPECT_TRUE(Has(1));
}

TEST_F(RocksDbArtifactStoreTest, NewerFormatIsMovedAside) {
  ASSERT_THAT(store_->Put(KeyOf(1), StoredArtifact(KeyOf(1), "kernel")), IsOk());
  ChangeRecords("version", [](rocksdb::DB& db, const std::string& key, const std::string&) {
    ASSERT_TRUE(db.Put({}, key, "999").ok());
  });
  Open();
  EXPECT_FALSE(Has(1));
  ASSERT_EQ(reports_.size(), 1u);
  EXPECT_NE(reports_[0].find("format version 999"), std::string::npos) << reports_[0];
}

TEST_F(RocksDbArtifactStoreTest, BrokenDatabaseIsMovedAside) {
  ASSERT_THAT(store_->Put(KeyOf(1), StoredArtifact(KeyOf(1), "kernel")), IsOk());
  store_.reset();
  for (const auto& entry : std::filesystem::directory_iterator(directory_)) {
    if (entry.path().filename().string().starts_with("MANIFEST"))
      std::ofstream(entry.path(), std::ios::trunc) << "not a manifest";
  }
  Open();
  EXPECT_FALSE(Has(1));
  ASSERT_THAT(store_->Put(KeyOf(1), StoredArtifact(KeyOf(1), "kernel")), IsOk());
  EXPECT_TRUE(Has(1));
}

TEST_F(RocksDbArtifactStoreTest, DirectoryThatCanNotBeMadeIsAnError) {
  std::ofstream(parent_ + "/file") << "x";
  EXPECT_THAT(MakeRocksDbStore(parent_ + "/file/cache", {}), StatusIs(absl::StatusCode::kInternal, "file/cache"));
}

}  // namespace
}  // namespace fuseline::cache
