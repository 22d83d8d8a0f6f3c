#include <stdlib.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/artifact/codec/artifact_codec.h"
#include "gtest/gtest.h"
#include "rocksdb/db.h"
#include "server/cache/key_record.h"
#include "server/cache/record_signer.h"
#include "server/cache/rocksdb_artifact_store.h"
#include "tests/testing/status_matchers.h"
#include "tests/unit/server/faulty_file_system.h"
#include "tests/unit/server/test_artifacts.h"

namespace fuseline::cache {
namespace {

using ::fuseline::testing::DiskFault;
using ::fuseline::testing::FaultyFileSystem;
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

  void Open(int64_t capacity_bytes = 1 << 30) { OpenWith({.capacity_bytes = capacity_bytes, .report = report_}); }
  void OpenWith(const RocksDbOptions& options) {
    store_.reset();
    auto store = MakeRocksDbStore(directory_, options);
    ASSERT_THAT(store, IsOk());
    store_ = *std::move(store);
  }
  // With signatures by `key` (none where empty) in a namespace.
  void OpenSigned(const std::string& key, const std::string& name_space = "") {
    const std::string file = key.empty() ? "" : parent_ + "/keys";
    if (!key.empty()) {
      std::ofstream(file) << "k " << key << "\n";
      std::filesystem::permissions(file, std::filesystem::perms::owner_read | std::filesystem::perms::owner_write);
    }
    auto signer = RecordSigner::Create({.key_file = file, .name_space = name_space});
    ASSERT_THAT(signer, IsOk());
    OpenWith({.report = report_, .signer = *signer});
  }
  std::vector<Fingerprint> Keys() const {
    std::vector<Fingerprint> keys;
    store_->AddKeys(keys);
    std::sort(keys.begin(), keys.end());
    return keys;
  }
  // The entry was last used so long ago, as the closed database has it.
  void MakeOld(int n, absl::Duration age) {
    ChangeRecords("a/", [&](rocksdb::DB& db, const std::string& key, const std::string&) {
      if (static_cast<uint8_t>(key[2]) != n) return;
      ASSERT_TRUE(db.Put({}, key, absl::StrCat(absl::ToUnixSeconds(absl::Now() - age))).ok());
    });
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
  absl::Status PutSmall(int n) { return store_->Put(KeyOf(n), StoredArtifact(KeyOf(n), absl::StrCat("kernel ", n))); }
  void PutOne() {
    Open();
    ASSERT_THAT(PutSmall(1), IsOk());
  }
  void PutTwo() {
    PutOne();
    ASSERT_THAT(PutSmall(2), IsOk());
  }
  void ExpectFirstIsCorruptAndCanBeWrittenAgain() {
    EXPECT_FALSE(Has(1));
    EXPECT_EQ(Stats().corrupt, 1);
    ASSERT_THAT(PutSmall(1), IsOk());
    EXPECT_TRUE(Has(1));
    Open();
    EXPECT_TRUE(Has(1));
    EXPECT_EQ(Stats().corrupt, 0);
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

// Each way to damage one record: entry 1 is damaged, entry 2 is not.
const struct Damage {
  const char* what;
  std::string (*change)(std::string value);
} kDamages[] = {
    {"a bit flipped at the beginning",
     [](std::string value) {
       value.front() = static_cast<char>(value.front() ^ 1);
       return value;
     }},
    {"a bit flipped at the end",
     [](std::string value) {
       value.back() = static_cast<char>(value.back() ^ 128);
       return value;
     }},
    {"a bit flipped in the middle",
     [](std::string value) {
       value[value.size() / 2] = static_cast<char>(value[value.size() / 2] ^ 16);
       return value;
     }},
    {"cut off by a byte", [](std::string value) { return value.substr(0, value.size() - 1); }},
    {"cut off in the middle", [](std::string value) { return value.substr(0, value.size() / 2); }},
    {"empty", [](std::string) { return std::string(); }},
    {"longer by a byte", [](std::string value) { return value + '\0'; }},
    {"garbage", [](std::string value) { return std::string(value.size(), 'g'); }},
};

TEST_F(RocksDbArtifactStoreTest, DamagedIndexRecordIsCountedDroppedAndWrittenAgain) {
  for (const Damage& damage : kDamages) {
    SCOPED_TRACE(damage.what);
    PutTwo();
    ChangeRecords("i/", [&](rocksdb::DB& db, const std::string& key, const std::string& value) {
      if (key[2] != 1) return;
      ASSERT_TRUE(db.Put({}, key, damage.change(value)).ok());
    });
    Open();
    ExpectFirstIsCorruptAndCanBeWrittenAgain();
    EXPECT_TRUE(Has(2));
  }
}

TEST_F(RocksDbArtifactStoreTest, DamagedBlobIsCountedDroppedAndWrittenAgain) {
  // The body, the kernel's bytes and its source.
  const struct {
    const char* what;
    bool (*is_part)(const std::string& value);
  } parts[] = {
      {"body", [](const std::string& value) { return value.find("graph") != std::string::npos; }},
      {"kernel", [](const std::string& value) { return value.starts_with("kernel"); }},
      {"source", [](const std::string& value) { return value.starts_with("source"); }},
  };
  for (const auto& part : parts) {
    for (const Damage& damage : kDamages) {
      SCOPED_TRACE(absl::StrCat(part.what, " ", damage.what));
      PutOne();
      int damaged = 0;
      ChangeRecords("b/", [&](rocksdb::DB& db, const std::string& key, const std::string& value) {
        if (!part.is_part(value)) return;
        ++damaged;
        ASSERT_TRUE(db.Put({}, key, damage.change(value)).ok());
      });
      ASSERT_EQ(damaged, 1);
      Open();
      ExpectFirstIsCorruptAndCanBeWrittenAgain();
    }
  }
}

TEST_F(RocksDbArtifactStoreTest, SwappedRecordsServeNoEntry) {
  const struct {
    const char* what;
    const char* prefix;
    bool (*is_swapped)(const std::string& value);
  } cases[] = {
      {"index records", "i/", [](const std::string&) { return true; }},
      {"kernels", "b/", [](const std::string& value) { return value.starts_with("kernel"); }},
      {"bodies", "b/", [](const std::string& value) { return value.find("graph") != std::string::npos; }},
  };
  for (const auto& c : cases) {
    SCOPED_TRACE(c.what);
    PutTwo();
    std::vector<std::pair<std::string, std::string>> swapped;
    ChangeRecords(c.prefix, [&](rocksdb::DB&, const std::string& key, const std::string& value) {
      if (c.is_swapped(value)) swapped.emplace_back(key, value);
    });
    ASSERT_EQ(swapped.size(), 2u);
    ASSERT_NE(swapped[0].second, swapped[1].second);
    ChangeRecords("version", [&](rocksdb::DB& db, const std::string&, const std::string&) {
      ASSERT_TRUE(db.Put({}, swapped[0].first, swapped[1].second).ok());
      ASSERT_TRUE(db.Put({}, swapped[1].first, swapped[0].second).ok());
    });
    Open();
    EXPECT_FALSE(Has(1));
    EXPECT_FALSE(Has(2));
    EXPECT_EQ(Stats().corrupt, 2);
    EXPECT_EQ(Stats().entries, 0);
    PutTwo();
    EXPECT_TRUE(Has(1));
    EXPECT_TRUE(Has(2));
  }
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

TEST_F(RocksDbArtifactStoreTest, DamagedTableCostsWhatItHeldAtMost) {
  // A table in which one block is damaged, found when it is read.
  for (int n = 1; n <= 20; ++n) {
    std::string kernel = absl::StrCat("kernel ", n);
    for (int i = 0; i < 20000; ++i) kernel += static_cast<char>(n * i * 2654435761u >> 13);
    ASSERT_THAT(store_->Put(KeyOf(n), StoredArtifact(KeyOf(n), kernel)), IsOk());
  }
  Open();  // writes the table
  store_.reset();
  for (const auto& entry : std::filesystem::directory_iterator(directory_)) {
    if (entry.path().extension() != ".sst") continue;
    std::fstream file(entry.path(), std::ios::in | std::ios::out);
    file.seekp(static_cast<std::streamoff>(std::filesystem::file_size(entry.path()) / 2));
    file << "damage";
  }
  Open();
  EXPECT_TRUE(reports_.empty()) << reports_[0];
  int hits = 0;
  for (int n = 1; n <= 20; ++n) hits += Has(n);
  EXPECT_LT(hits, 20);
  EXPECT_GE(hits, 15);
  EXPECT_EQ(Stats().corrupt, 20 - hits);
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

TEST_F(RocksDbArtifactStoreTest, DatabaseWhoseIndexCanNotBeReadIsMovedAside) {
  for (int n = 1; n <= 300; ++n) ASSERT_THAT(PutSmall(n), IsOk());
  Open();  // writes the table
  store_.reset();
  for (const auto& entry : std::filesystem::directory_iterator(directory_)) {
    if (entry.path().extension() != ".sst") continue;
    // Most of the data blocks; the footer and the table's own index stay.
    std::fstream file(entry.path(), std::ios::in | std::ios::out);
    file << std::string(std::filesystem::file_size(entry.path()) * 3 / 4, 'x');
  }
  Open();
  EXPECT_FALSE(Has(1));
  ASSERT_EQ(reports_.size(), 1u);
  EXPECT_NE(reports_[0].find("moved the database to"), std::string::npos);
  ASSERT_THAT(PutSmall(1), IsOk());
  Open();
  EXPECT_TRUE(Has(1));
}

// A store that recovers, on a disk with faults.
class DiskFaultTest : public RocksDbArtifactStoreTest {
 protected:
  void OpenRecovering() {
    store_.reset();
    RecoveryOptions recovery;
    recovery.first_retry = absl::Milliseconds(10);
    recovery.longest_retry = absl::Milliseconds(50);
    store_ = MakeRecoveringStore(
        "rocksdb",
        [this](bool start_anew) {
          return OpenRocksDbStore(directory_, {.start_anew = start_anew, .report = report_}, env_.get());
        },
        recovery);
  }
  void WaitUntilServed() {
    while (!Stats().available) absl::SleepFor(absl::Milliseconds(2));
  }

  std::shared_ptr<FaultyFileSystem> disk_ = std::make_shared<FaultyFileSystem>();
  std::unique_ptr<rocksdb::Env> env_ = rocksdb::NewCompositeEnv(disk_);
};

TEST_F(DiskFaultTest, LevelIsLeftWhileTheDiskFailsAndComesBackWithAllThatWasKept) {
  const struct {
    const char* what;
    DiskFault fault;
    const char* reason;
  } cases[] = {
      {"full", DiskFault::kFull, "space"},
      {"read-only", DiskFault::kReadOnly, "read-only"},
      {"write error", DiskFault::kWriteError, "input/output"},
  };
  int n = 0;
  for (const auto& c : cases) {
    SCOPED_TRACE(c.what);
    OpenRecovering();
    ASSERT_TRUE(Stats().available);
    const int kept = ++n;
    const int lost = ++n;
    ASSERT_THAT(PutSmall(kept), IsOk());
    disk_->Set(c.fault);
    EXPECT_FALSE(PutSmall(lost).ok());
    EXPECT_FALSE(Stats().available);
    EXPECT_NE(Stats().reason.find(c.reason), std::string::npos) << Stats().reason;
    EXPECT_FALSE(Has(kept));  // a miss, not an error
    absl::SleepFor(absl::Milliseconds(120));
    EXPECT_FALSE(Stats().available);
    disk_->Set(DiskFault::kNone);
    WaitUntilServed();
    EXPECT_TRUE(Has(kept));
    EXPECT_FALSE(Has(lost));
    ASSERT_THAT(PutSmall(lost), IsOk());
    EXPECT_TRUE(Has(lost));
    EXPECT_EQ(Stats().corrupt, 0);
    EXPECT_GE(Stats().errors, 1);
  }
  EXPECT_TRUE(reports_.empty());  // nothing was moved aside
}

TEST_F(DiskFaultTest, DiskThatFailsAtTheStartIsUsedOnceItWorks) {
  ASSERT_THAT(PutSmall(1), IsOk());
  store_.reset();
  for (const DiskFault fault : {DiskFault::kFull, DiskFault::kReadOnly, DiskFault::kNoDescriptors,
                                DiskFault::kWriteError, DiskFault::kReadError}) {
    SCOPED_TRACE(static_cast<int>(fault));
    disk_->Set(fault);
    OpenRecovering();
    EXPECT_FALSE(Stats().available);
    EXPECT_NE(Stats().reason.find("injected"), std::string::npos) << Stats().reason;
    disk_->Set(DiskFault::kNone);
    WaitUntilServed();
    EXPECT_TRUE(Has(1));
  }
  EXPECT_TRUE(reports_.empty()) << reports_[0];
}

TEST_F(DiskFaultTest, ReadThatFailsIsAMissAndTheEntryIsThereAgainLater) {
  for (int n = 1; n <= 50; ++n) ASSERT_THAT(PutSmall(n), IsOk());
  Open();  // writes the table
  for (const DiskFault fault : {DiskFault::kReadError, DiskFault::kNoDescriptors}) {
    OpenRecovering();
    disk_->Set(fault);
    // What was read while opening is still at hand, so it may take a few.
    for (int n = 1; n <= 50; ++n) store_->Get(KeyOf(n)).status().IgnoreError();
    disk_->Set(DiskFault::kNone);
    WaitUntilServed();
    for (int n = 1; n <= 50; ++n) EXPECT_TRUE(Has(n)) << n;
    EXPECT_EQ(Stats().corrupt, 0);
  }
}

TEST_F(DiskFaultTest, WriteInTheBackgroundThatFailsIsSurvived) {
  OpenRecovering();
  const std::string big(1 << 20, 'b');
  int kept = 0;
  // The log is written on; the tables, which a background thread writes, can't be begun.
  disk_->Set(DiskFault::kNoDescriptors);
  for (int n = 1; n <= 80 && Stats().available; ++n) {
    if (store_->Put(KeyOf(n), StoredArtifact(KeyOf(n), absl::StrCat(n, big))).ok()) kept = n;
  }
  EXPECT_FALSE(Stats().available);
  EXPECT_GE(kept, 1);
  disk_->Set(DiskFault::kNone);
  WaitUntilServed();
  for (int n = 1; n <= kept; ++n) EXPECT_TRUE(Has(n)) << n;
}

TEST_F(RocksDbArtifactStoreTest, DirectoryThatCanNotBeMadeIsAnError) {
  std::ofstream(parent_ + "/file") << "x";
  EXPECT_THAT(MakeRocksDbStore(parent_ + "/file/cache", {}), StatusIs(absl::StatusCode::kInternal, "file/cache"));
}

const std::string kKeyOne(64, '1');
const std::string kKeyTwo(64, '2');

TEST_F(RocksDbArtifactStoreTest, SignedEntriesAreReadWithTheirKeyAlone) {
  OpenSigned(kKeyOne);
  ASSERT_THAT(PutSmall(1), IsOk());
  ASSERT_THAT(PutSmall(2), IsOk());
  OpenSigned(kKeyOne);
  EXPECT_TRUE(Has(1));
  OpenSigned("");
  EXPECT_TRUE(Has(1));  // to turn signatures off costs nothing
  OpenSigned(kKeyTwo);
  EXPECT_FALSE(Has(1));
  EXPECT_EQ(Stats().corrupt, 1);
  EXPECT_EQ(Stats().unsigned_entries, 1);
  EXPECT_EQ(Stats().entries, 1);
  ASSERT_THAT(PutSmall(1), IsOk());
  EXPECT_TRUE(Has(1));
}

TEST_F(RocksDbArtifactStoreTest, UnsignedEntriesAreDroppedOnceThereAreKeys) {
  PutOne();
  OpenSigned(kKeyOne);
  EXPECT_EQ(store_->Peek(KeyOf(1)), nullptr);
  EXPECT_EQ(Stats().unsigned_entries, 0);
  EXPECT_FALSE(Has(1));
  EXPECT_EQ(Stats().unsigned_entries, 1);
  EXPECT_EQ(Stats().entries, 0);
}

// The signature covers which entry it is, and its parts by their digests.
TEST_F(RocksDbArtifactStoreTest, SignedRecordMovedToAnotherEntryIsDropped) {
  OpenSigned(kKeyOne);
  ASSERT_THAT(PutSmall(1), IsOk());
  ASSERT_THAT(PutSmall(2), IsOk());
  std::string first;
  ChangeRecords("i/", [&](rocksdb::DB& db, const std::string& key, const std::string& value) {
    if (first.empty()) {
      first = value;
    } else {
      ASSERT_TRUE(db.Put({}, key, first).ok());
    }
  });
  OpenSigned(kKeyOne);
  EXPECT_TRUE(Has(1));
  EXPECT_FALSE(Has(2));
  EXPECT_EQ(Stats().corrupt, 1);
}

TEST_F(RocksDbArtifactStoreTest, NamespacesDoNotSeeEachOther) {
  OpenSigned("", "one");
  ASSERT_THAT(PutSmall(1), IsOk());
  OpenSigned("", "two");
  EXPECT_FALSE(Has(1));
  ASSERT_THAT(PutSmall(1), IsOk());
  ASSERT_THAT(PutSmall(2), IsOk());
  EXPECT_EQ(Keys(), (std::vector<Fingerprint>{KeyOf(1), KeyOf(2)}));
  OpenSigned("");
  EXPECT_FALSE(Has(1));
  EXPECT_TRUE(Keys().empty());
  OpenSigned("", "one");
  EXPECT_TRUE(Has(1));
  EXPECT_FALSE(Has(2));
  EXPECT_EQ(Keys(), std::vector<Fingerprint>{KeyOf(1)});
  EXPECT_EQ(Stats().corrupt, 0);
  EXPECT_EQ(Stats().entries, 3);  // they take up room
  EXPECT_EQ(store_->Evict({.all = true}).entries, 3);
}

TEST_F(RocksDbArtifactStoreTest, EntriesThatNobodyUsesGoWithTheirAge) {
  PutTwo();
  MakeOld(1, absl::Hours(30));
  MakeOld(2, absl::Hours(20));
  OpenWith({.report = report_, .max_idle = absl::Hours(24)});
  EXPECT_EQ(Stats().entries, 1);
  EXPECT_EQ(Stats().evictions, 1);
  EXPECT_FALSE(Has(1));
  EXPECT_TRUE(Has(2));  // which makes it young again
  OpenWith({.report = report_, .max_idle = absl::Hours(12)});
  EXPECT_TRUE(Has(2));
}

TEST_F(RocksDbArtifactStoreTest, UseInALevelAboveKeepsAnEntryYoung) {
  PutTwo();
  MakeOld(1, absl::Hours(20));
  MakeOld(2, absl::Hours(20));
  Open();
  store_->Touch(KeyOf(1));
  store_->Touch(KeyOf(3));  // which is not there
  OpenWith({.report = report_, .max_idle = absl::Hours(12)});
  EXPECT_TRUE(Has(1));
  EXPECT_FALSE(Has(2));
}

TEST_F(RocksDbArtifactStoreTest, EvictionDropsByKeyByAgeAndAll) {
  PutTwo();
  ASSERT_THAT(PutSmall(3), IsOk());
  const int64_t size_bytes = Stats().size_bytes;
  EXPECT_EQ(store_->Evict({.keys = {KeyOf(2), KeyOf(9)}}).entries, 1);
  EXPECT_FALSE(Has(2));
  MakeOld(1, absl::Hours(2));
  Open();
  const EvictResult old = store_->Evict({.unused_for = absl::Hours(1)});
  EXPECT_EQ(old.entries, 1);
  EXPECT_GT(old.size_bytes, 0);
  EXPECT_FALSE(Has(1));
  EXPECT_TRUE(Has(3));
  EXPECT_EQ(store_->Evict({.all = true}).entries, 1);
  EXPECT_EQ(Stats().entries, 0);
  EXPECT_EQ(Stats().size_bytes, 0);
  EXPECT_GT(size_bytes, 0);
  EXPECT_EQ(Stats().evictions, 0);  // nobody needed the room
  int records = 0;
  for (const char* prefix : {"a/", "b/", "i/", "k/"})
    ChangeRecords(prefix, [&](rocksdb::DB&, const std::string&, const std::string&) { ++records; });
  EXPECT_EQ(records, 0);
}

TEST_F(RocksDbArtifactStoreTest, EvictionOfManyTakesSeveralBatches) {
  Open();
  for (int n = 0; n < 600; ++n) ASSERT_THAT(PutSmall(n), IsOk());
  EXPECT_EQ(store_->Evict({.all = true}).entries, 600);
  EXPECT_EQ(Stats().entries, 0);
}

TEST_F(RocksDbArtifactStoreTest, PeekLeavesNoTrace) {
  PutOne();
  ASSERT_NE(store_->Peek(KeyOf(1)), nullptr);
  EXPECT_EQ(store_->Peek(KeyOf(2)), nullptr);
  EXPECT_EQ(Stats().hits, 0);
  EXPECT_EQ(Stats().misses, 0);
}

TEST_F(RocksDbArtifactStoreTest, NearestEntryIsFoundAfterReopening) {
  PutOne();
  ASSERT_THAT(store_->Put(KeyOf(2), StoredArtifact(KeyOf(2), "kernel", "compiler 2")), IsOk());
  Open();
  const KeyRecord wanted = MakeKeyRecord(KeyOf(3), *StoredArtifact(KeyOf(3), "kernel", "compiler 2"));
  NearestEntry nearest;
  store_->FindNearest(wanted, nearest);
  EXPECT_EQ(nearest.key, KeyOf(2));
  EXPECT_EQ(nearest.compared, 2);
}

// As an earlier version left them.
TEST_F(RocksDbArtifactStoreTest, EntriesWithoutKeyRecordsAreServedAndListed) {
  PutOne();
  ChangeRecords(
      "k/", [](rocksdb::DB& db, const std::string& key, const std::string&) { ASSERT_TRUE(db.Delete({}, key).ok()); });
  Open();
  EXPECT_TRUE(Has(1));
  EXPECT_EQ(Keys(), std::vector<Fingerprint>{KeyOf(1)});
}

}  // namespace
}  // namespace fuseline::cache
