// Records, all in the default column family (docs/cache_format.md):
//   "i/" + key      -> EncodeIndexRecord: the digests of the entry's parts
//   "a/" + key      -> when the entry was last used, in seconds, as text: for eviction after a restart
//   "b/" + SHA-256  -> one part's bytes
// A part is written in the same batch as the first entry that uses it and removed with the last, so a crash leaves
// neither a dangling entry nor a lost blob. Reads trust nothing: a record or part that does not match its checksum
// costs the entry, never the request. Tested by tests/unit/server/rocksdb_artifact_store_test.cc
#include "server/cache/rocksdb_artifact_store.h"

#include <string.h>

#include <algorithm>
#include <atomic>
#include <charconv>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/status/error.h"
#include "common/status/status_macros.h"
#include "common/status/str_cat.h"
#include "rocksdb/db.h"
#include "server/cache/artifact_parts.h"
#include "server/cache/disk_database.h"
#include "server/cache/disk_index.h"

namespace fuseline::cache {
namespace {

constexpr char kIndexPrefix[] = "i/";
constexpr char kAccessPrefix[] = "a/";
constexpr char kBlobPrefix[] = "b/";
constexpr size_t kPrefixBytes = 2;
// An access time on disk may be this much too old: it keeps reads from writing.
constexpr absl::Duration kAccessTimePrecision = absl::Hours(1);
// One eviction frees a tenth of the capacity, so that it is rare.
constexpr int64_t kEvictionTenths = 9;

template <typename Bytes>
std::string Key(const char* prefix, const Bytes& bytes) {
  std::string key(prefix);
  key.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  return key;
}

std::string IndexKey(const Fingerprint& key) { return Key(kIndexPrefix, key.bytes); }
std::string AccessKey(const Fingerprint& key) { return Key(kAccessPrefix, key.bytes); }
std::string BlobKey(const Digest& digest) { return Key(kBlobPrefix, digest.sha256); }

int64_t AccessTime(std::string_view text) {
  int64_t seconds = 0;
  std::from_chars(text.data(), text.data() + text.size(), seconds);
  return seconds;
}

class RocksDbArtifactStore : public ArtifactStore {
 public:
  RocksDbArtifactStore(std::unique_ptr<DiskDatabase> db, int64_t capacity_bytes)
      : database_(std::move(db)), db_(**database_), capacity_bytes_(capacity_bytes) {}

  // Reads what is there into the index. Index records and access times lie in the same order, so that one walk of each
  // is enough.
  absl::Status Init() {
    struct Found {
      Fingerprint key;
      std::vector<Digest> parts;
      int64_t last_used = 0;
    };
    std::vector<Found> found;
    std::vector<std::string> bad;
    const std::unique_ptr<rocksdb::Iterator> times(db_.NewIterator({}));
    times->Seek(kAccessPrefix);
    const std::unique_ptr<rocksdb::Iterator> records(db_.NewIterator({}));
    for (records->Seek(kIndexPrefix); records->Valid() && records->key().starts_with(kIndexPrefix); records->Next()) {
      rocksdb::Slice name = records->key();
      name.remove_prefix(kPrefixBytes);
      Found entry;
      if (name.size() != entry.key.bytes.size()) {
        bad.push_back(records->key().ToString());
        continue;
      }
      memcpy(entry.key.bytes.data(), name.data(), name.size());
      absl::StatusOr<std::vector<Digest>> parts = DecodeIndexRecord(entry.key, records->value().ToStringView());
      if (!parts.ok()) {
        bad.push_back(records->key().ToString());
        continue;
      }
      entry.parts = *std::move(parts);
      const std::string access = AccessKey(entry.key);
      while (times->Valid() && times->key().compare(access) < 0) times->Next();
      if (times->Valid() && times->key() == rocksdb::Slice(access))
        entry.last_used = AccessTime(times->value().ToStringView());
      found.push_back(std::move(entry));
    }
    if (!records->status().ok()) return DatabaseError("read the index", records->status());
    if (!times->status().ok()) return DatabaseError("read the access times", times->status());
    std::stable_sort(found.begin(), found.end(),
                     [](const Found& a, const Found& b) { return a.last_used < b.last_used; });
    absl::MutexLock lock(&mutex_);
    index_.Reserve(found.size());
    access_times_.reserve(found.size());
    for (const Found& entry : found) {
      index_.Add(entry.key, entry.parts);
      access_times_[entry.key] = absl::FromUnixSeconds(entry.last_used);
    }
    corrupt_ += static_cast<int64_t>(bad.size());
    for (const std::string& key : bad) db_.Delete({}, key);
    return absl::OkStatus();
  }

  absl::StatusOr<Lookup> Get(const Fingerprint& key) override {
    if (!Touch(key)) {
      ++misses_;
      return Lookup{};
    }
    std::string record;
    rocksdb::Status status = db_.Get({}, IndexKey(key), &record);
    if (!status.ok()) return ReadFailed(key, status, nullptr);
    const absl::StatusOr<std::vector<Digest>> digests = DecodeIndexRecord(key, record);
    if (!digests.ok()) return Dropped(key, nullptr);
    std::vector<std::string> parts(digests->size());
    for (size_t i = 0; i < parts.size(); ++i) {
      const Digest& digest = (*digests)[i];
      status = db_.Get({}, BlobKey(digest), &parts[i]);
      if (!status.ok()) return ReadFailed(key, status, &digest);
      if (ComputeDigest(parts[i]) != digest) return Dropped(key, &digest);
    }
    absl::StatusOr<Artifact> artifact = JoinArtifact(std::move(parts));
    if (!artifact.ok()) return Dropped(key, nullptr);
    ++hits_;
    return Lookup{std::make_shared<const Artifact>(*std::move(artifact)), Outcome::kDiskHit};
  }

  absl::Status Put(const Fingerprint& key, const ArtifactPtr& artifact) override {
    const std::vector<std::string> parts = SplitArtifact(*artifact);
    std::vector<Digest> digests;
    int64_t size_bytes = 0;
    for (const std::string& part : parts) {
      digests.push_back(ComputeDigest(part));
      size_bytes += digests.back().size_bytes;
    }
    if (size_bytes > capacity_bytes_) return absl::OkStatus();  // it would push out all others and then itself
    const absl::Time now = absl::Now();
    rocksdb::WriteBatch batch;
    batch.Put(IndexKey(key), EncodeIndexRecord(key, digests));
    batch.Put(AccessKey(key), StrCat(absl::ToUnixSeconds(now)));
    // Held while writing: a part must not be removed between the look at the index and the batch that relies on it. A
    // synchronous write takes under a millisecond, what it keeps took a hundred to compile.
    absl::MutexLock lock(&mutex_);
    for (size_t i = 0; i < parts.size(); ++i) {
      if (!index_.HasBlob(digests[i])) batch.Put(BlobKey(digests[i]), parts[i]);
    }
    rocksdb::WriteOptions durable;
    durable.sync = true;
    const rocksdb::Status status = db_.Write(durable, &batch);
    if (!status.ok()) {
      ++errors_;
      return DatabaseError("write an entry", status);
    }
    const std::vector<Digest> unused = index_.Add(key, digests);
    access_times_[key] = now;
    RemoveBlobs(unused);
    if (index_.size_bytes() > capacity_bytes_) EvictTo(capacity_bytes_ / 10 * kEvictionTenths);
    return absl::OkStatus();
  }

  absl::Status Delete(const Fingerprint& key) override {
    absl::MutexLock lock(&mutex_);
    return RemoveEntry(key);
  }

  void AddStats(StoreStats& stats) const override {
    LevelStats& level = stats.levels.emplace_back();
    level.level = "rocksdb";
    level.hits = hits_;
    level.misses = misses_;
    level.corrupt = corrupt_;
    level.evictions = evictions_;
    level.errors = errors_;
    absl::MutexLock lock(&mutex_);
    level.entries = index_.entries();
    level.size_bytes = index_.size_bytes();
  }

 private:
  // False where there is no such entry.
  bool Touch(const Fingerprint& key) {
    absl::MutexLock lock(&mutex_);
    if (!index_.Touch(key)) return false;
    const absl::Time now = absl::Now();
    absl::Time& last = access_times_[key];
    if (now - last > kAccessTimePrecision) {
      last = now;
      const rocksdb::Status status = db_.Put({}, AccessKey(key), StrCat(absl::ToUnixSeconds(now)));
      if (!status.ok()) ++errors_;
    }
    return true;
  }

  // An entry or part that is absent or damaged is a miss, and the entry is dropped; other errors are the disk's.
  absl::StatusOr<Lookup> ReadFailed(const Fingerprint& key, const rocksdb::Status& status, const Digest* part) {
    if (status.IsNotFound() || IsDamage(status)) return Dropped(key, part);
    ++errors_;
    ++misses_;
    return DatabaseError("read an entry", status);
  }

  Lookup Dropped(const Fingerprint& key, const Digest* bad_part) {
    ++misses_;
    absl::MutexLock lock(&mutex_);
    if (!index_.Touch(key)) return Lookup{};  // evicted while it was read
    ++corrupt_;
    if (bad_part != nullptr && index_.HasBlob(*bad_part)) {
      // Others that share the part will find it absent, or written anew.
      index_.ForgetBlob(*bad_part);
      if (!db_.Delete({}, BlobKey(*bad_part)).ok()) ++errors_;
    }
    RemoveEntry(key).IgnoreError();  // counted there
    return Lookup{};
  }

  absl::Status RemoveEntry(const Fingerprint& key) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    rocksdb::WriteBatch batch;
    batch.Delete(IndexKey(key));
    batch.Delete(AccessKey(key));
    for (const Digest& blob : index_.Remove(key)) batch.Delete(BlobKey(blob));
    access_times_.erase(key);
    const rocksdb::Status status = db_.Write({}, &batch);
    if (status.ok()) return absl::OkStatus();
    ++errors_;
    return DatabaseError("remove an entry", status);
  }

  void RemoveBlobs(const std::vector<Digest>& blobs) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    for (const Digest& blob : blobs) {
      if (!db_.Delete({}, BlobKey(blob)).ok()) ++errors_;
    }
  }

  void EvictTo(int64_t wanted_bytes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    while (index_.size_bytes() > wanted_bytes && index_.entries() > 1) {
      RemoveEntry(*index_.LeastRecentlyUsed()).IgnoreError();  // counted there
      ++evictions_;
    }
  }

  const std::unique_ptr<DiskDatabase> database_;
  rocksdb::DB& db_;
  const int64_t capacity_bytes_;
  std::atomic<int64_t> hits_{0};
  std::atomic<int64_t> misses_{0};
  std::atomic<int64_t> corrupt_{0};
  std::atomic<int64_t> evictions_{0};
  std::atomic<int64_t> errors_{0};
  mutable absl::Mutex mutex_;
  DiskIndex index_ ABSL_GUARDED_BY(mutex_);
  absl::flat_hash_map<Fingerprint, absl::Time> access_times_ ABSL_GUARDED_BY(mutex_);  // as they are on disk
};

}  // namespace

absl::StatusOr<std::unique_ptr<ArtifactStore>> OpenRocksDbStore(const std::string& directory,
                                                                const RocksDbOptions& options, rocksdb::Env* env) {
  DiskDatabase::Options database;
  database.report = options.report;
  database.env = env;
  database.start_anew = options.start_anew;
  while (true) {
    FUSELINE_ASSIGN_OR_RETURN(std::unique_ptr<DiskDatabase> db, DiskDatabase::Open(directory, database));
    auto store = std::make_unique<RocksDbArtifactStore>(std::move(db), options.capacity_bytes);
    const absl::Status status = store->Init();
    if (status.ok()) return std::unique_ptr<ArtifactStore>(std::move(store));
    // Broken, which opening did not see. Once: a new one has nothing to read.
    if (!absl::IsDataLoss(status) || database.start_anew) return status;
    database.start_anew = true;
  }
}

absl::StatusOr<std::unique_ptr<ArtifactStore>> MakeRocksDbStore(const std::string& directory,
                                                                const RocksDbOptions& options) {
  return OpenRocksDbStore(directory, options, nullptr);
}

}  // namespace fuseline::cache
