// Records, all in the default column family (docs/cache_format.md):
//   "i/" + key      -> EncodeIndexRecord: the digests of the entry's parts
//   "a/" + key      -> when the entry was last used, in seconds, as text: for eviction after a restart
//   "b/" + SHA-256  -> one part's bytes
//   "k/" + key      -> EncodeKeyRecord: the fingerprint, and what it is made of
// A key is the fingerprint, in a namespace a hash of both. Entries of other namespaces are never found, and go as they
// get old.
// A part is written in the same batch as the first entry that uses it and removed with the last, so a crash leaves
// neither a dangling entry nor a lost blob. Reads trust nothing: a record or part that does not match its checksum
// costs the entry, never the request. Tested by tests/unit/server/rocksdb_artifact_store_test.cc
#include "server/cache/rocksdb_artifact_store.h"

#include <string.h>

#include <algorithm>
#include <atomic>
#include <charconv>
#include <optional>
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
#include "server/cache/key_record.h"
#include "server/cache/record_signer.h"

namespace fuseline::cache {
namespace {

constexpr char kIndexPrefix[] = "i/";
constexpr char kAccessPrefix[] = "a/";
constexpr char kBlobPrefix[] = "b/";
constexpr char kKeyPrefix[] = "k/";
constexpr size_t kPrefixBytes = 2;
// An access time on disk may be this much too old: it keeps reads from writing.
constexpr absl::Duration kAccessTimePrecision = absl::Hours(1);
// And this part of the time after which entries go.
constexpr int kAccessTimePrecisionParts = 8;
// Entries removed in one batch, and those that one Put removes because they are old: so that nobody waits for long.
constexpr size_t kRemovalBatch = 256;
// Entries compared with a key that was not found: a second or so.
constexpr size_t kMostCompared = 1'000'000;
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
std::string KeyKey(const Fingerprint& key) { return Key(kKeyPrefix, key.bytes); }

// The key behind a prefix. False where there is none.
bool ReadKey(const rocksdb::Slice& name, Fingerprint& key) {
  if (name.size() != kPrefixBytes + key.bytes.size()) return false;
  memcpy(key.bytes.data(), name.data() + kPrefixBytes, key.bytes.size());
  return true;
}

int64_t AccessTime(std::string_view text) {
  int64_t seconds = 0;
  std::from_chars(text.data(), text.data() + text.size(), seconds);
  return seconds;
}

class RocksDbArtifactStore : public ArtifactStore {
 public:
  // With a signer.
  RocksDbArtifactStore(std::unique_ptr<DiskDatabase> db, const RocksDbOptions& options)
      : database_(std::move(db)),
        db_(**database_),
        capacity_bytes_(options.capacity_bytes),
        max_idle_(options.max_idle),
        time_precision_(std::min(kAccessTimePrecision, max_idle_ / kAccessTimePrecisionParts)),
        signer_(options.signer) {}

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
      Found entry;
      if (!ReadKey(records->key(), entry.key)) {
        bad.push_back(records->key().ToString());
        continue;
      }
      // Signatures are looked at when an entry is asked for: what another key or namespace signed takes up room too.
      const absl::StatusOr<std::string_view> payload = RecordSigner::UnverifiedPayload(records->value().ToStringView());
      absl::StatusOr<std::vector<Digest>> parts =
          payload.ok() ? DecodeIndexRecord(entry.key, *payload) : payload.status();
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
    EvictIdle();
    return absl::OkStatus();
  }

  absl::StatusOr<Lookup> Get(const Fingerprint& fingerprint) override {
    const Fingerprint key = signer_->StoredKey(fingerprint);
    if (!Use(key)) {
      ++misses_;
      return Lookup{};
    }
    Read read = ReadEntry(fingerprint, key);
    switch (read.outcome) {
      case Read::Outcome::kGood:
        ++hits_;
        return Lookup{std::move(read.artifact), Outcome::kDiskHit};
      case Read::Outcome::kBad:
        return Dropped(key, read.bad_part.has_value() ? &*read.bad_part : nullptr, read.is_unsigned);
      case Read::Outcome::kFailed:
        break;
    }
    ++errors_;
    ++misses_;
    return DatabaseError("read an entry", read.status);
  }

  ArtifactPtr Peek(const Fingerprint& fingerprint) override {
    const Fingerprint key = signer_->StoredKey(fingerprint);
    {
      absl::MutexLock lock(&mutex_);
      if (!index_.Has(key)) return nullptr;
    }
    return ReadEntry(fingerprint, key).artifact;
  }

  void Touch(const Fingerprint& fingerprint) override { Use(signer_->StoredKey(fingerprint)); }

  EvictResult Evict(const EvictRequest& request) override {
    EvictResult result;
    const absl::Time limit = absl::Now() - request.unused_for;
    size_t next = 0;
    bool done = false;
    while (!done) {
      absl::MutexLock lock(&mutex_);
      std::vector<Fingerprint> batch;
      for (; next < request.keys.size() && batch.size() < kRemovalBatch; ++next) {
        const Fingerprint key = signer_->StoredKey(request.keys[next]);
        if (index_.Has(key)) batch.push_back(key);
      }
      if (next == request.keys.size() && batch.empty()) {
        batch = index_.Oldest(kRemovalBatch, [&](const Fingerprint& key) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
          return request.all || access_times_[key] < limit;
        });
      }
      done = batch.empty() && next == request.keys.size();
      const int64_t entries = index_.entries();
      const int64_t size_bytes = index_.size_bytes();
      done = !RemoveEntries(batch).ok() || done;
      result.entries += entries - index_.entries();
      result.size_bytes += size_bytes - index_.size_bytes();
    }
    return result;
  }

  // Those of this namespace. Entries of earlier versions have no key record, and no namespace.
  void AddKeys(std::vector<Fingerprint>& keys) const override {
    const std::unique_ptr<rocksdb::Iterator> names(db_.NewIterator({}));
    names->Seek(kKeyPrefix);
    const std::unique_ptr<rocksdb::Iterator> records(db_.NewIterator({}));
    for (records->Seek(kIndexPrefix); records->Valid() && records->key().starts_with(kIndexPrefix); records->Next()) {
      Fingerprint key;
      if (!ReadKey(records->key(), key)) continue;
      const std::string name = KeyKey(key);
      while (names->Valid() && names->key().compare(name) < 0) names->Next();
      Fingerprint fingerprint = key;
      if (names->Valid() && names->key() == rocksdb::Slice(name)) {
        const absl::StatusOr<KeyRecord> record = DecodeKeyRecord(names->value().ToStringView());
        if (record.ok()) fingerprint = record->fingerprint;
      }
      if (signer_->StoredKey(fingerprint) == key) keys.push_back(fingerprint);
    }
  }

  void FindNearest(const KeyRecord& wanted, NearestEntry& nearest) const override {
    const std::unique_ptr<rocksdb::Iterator> names(db_.NewIterator({}));
    size_t count = 0;
    for (names->Seek(kKeyPrefix); names->Valid() && names->key().starts_with(kKeyPrefix); names->Next()) {
      if (++count > kMostCompared) return;
      Fingerprint key;
      if (!ReadKey(names->key(), key)) continue;
      const absl::StatusOr<KeyRecord> record = DecodeKeyRecord(names->value().ToStringView());
      if (record.ok() && signer_->StoredKey(record->fingerprint) == key) TakeNearer(wanted, *record, nearest);
    }
  }

  absl::Status Put(const Fingerprint& fingerprint, const ArtifactPtr& artifact) override {
    const Fingerprint key = signer_->StoredKey(fingerprint);
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
    batch.Put(IndexKey(key), signer_->Sign(fingerprint, EncodeIndexRecord(key, digests)));
    batch.Put(KeyKey(key), EncodeKeyRecord(MakeKeyRecord(fingerprint, *artifact)));
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
    EvictIdle();
    return absl::OkStatus();
  }

  absl::Status Delete(const Fingerprint& fingerprint) override {
    absl::MutexLock lock(&mutex_);
    return RemoveEntries({signer_->StoredKey(fingerprint)});
  }

  void AddStats(StoreStats& stats) const override {
    LevelStats& level = stats.levels.emplace_back();
    level.level = "rocksdb";
    level.hits = hits_;
    level.misses = misses_;
    level.corrupt = corrupt_;
    level.unsigned_entries = unsigned_;
    level.evictions = evictions_;
    level.errors = errors_;
    absl::MutexLock lock(&mutex_);
    level.entries = index_.entries();
    level.size_bytes = index_.size_bytes();
  }

 private:
  // What ReadEntry finds.
  struct Read {
    enum class Outcome : uint8_t { kGood, kBad, kFailed };
    Outcome outcome = Outcome::kBad;
    ArtifactPtr artifact;
    std::optional<Digest> bad_part;  // of kBad, where one part is at fault
    bool is_unsigned = false;        // of kBad
    rocksdb::Status status;          // of kFailed
  };

  // An entry or part that is absent or damaged is bad; other errors are the disk's.
  Read ReadEntry(const Fingerprint& fingerprint, const Fingerprint& key) const {
    Read read;
    const auto failed = [&read](const rocksdb::Status& status) {
      if (!status.IsNotFound() && !IsDamage(status)) read.outcome = Read::Outcome::kFailed;
      read.status = status;
      return std::move(read);
    };
    std::string record;
    rocksdb::Status status = db_.Get({}, IndexKey(key), &record);
    if (!status.ok()) return failed(status);
    const absl::StatusOr<std::string> payload = signer_->Verify(fingerprint, record);
    read.is_unsigned = !payload.ok();
    if (!payload.ok()) return read;
    const absl::StatusOr<std::vector<Digest>> digests = DecodeIndexRecord(key, *payload);
    if (!digests.ok()) return read;
    std::vector<std::string> parts(digests->size());
    for (size_t i = 0; i < parts.size(); ++i) {
      read.bad_part = (*digests)[i];
      status = db_.Get({}, BlobKey(*read.bad_part), &parts[i]);
      if (!status.ok()) return failed(status);
      if (ComputeDigest(parts[i]) != *read.bad_part) return read;
    }
    read.bad_part.reset();
    absl::StatusOr<Artifact> artifact = JoinArtifact(std::move(parts));
    if (!artifact.ok()) return read;
    read.artifact = std::make_shared<const Artifact>(*std::move(artifact));
    read.outcome = Read::Outcome::kGood;
    return read;
  }

  // Notes that an entry is used now. False where there is none, or none that is not too old.
  bool Use(const Fingerprint& key) {
    absl::MutexLock lock(&mutex_);
    if (!index_.Has(key)) return false;
    const absl::Time now = absl::Now();
    absl::Time& last = access_times_[key];
    if (now - last > max_idle_) {
      EvictIdle();
      return false;
    }
    index_.Touch(key);
    if (now - last > time_precision_) {
      last = now;
      const rocksdb::Status status = db_.Put({}, AccessKey(key), StrCat(absl::ToUnixSeconds(now)));
      if (!status.ok()) ++errors_;
    }
    return true;
  }

  Lookup Dropped(const Fingerprint& key, const Digest* bad_part, bool is_unsigned) {
    ++misses_;
    absl::MutexLock lock(&mutex_);
    if (!index_.Has(key)) return Lookup{};  // evicted while it was read
    ++corrupt_;
    if (is_unsigned) ++unsigned_;
    if (bad_part != nullptr && index_.HasBlob(*bad_part)) {
      // Others that share the part will find it absent, or written anew.
      index_.ForgetBlob(*bad_part);
      if (!db_.Delete({}, BlobKey(*bad_part)).ok()) ++errors_;
    }
    RemoveEntries({key}).IgnoreError();  // counted there
    return Lookup{};
  }

  absl::Status RemoveEntries(const std::vector<Fingerprint>& keys) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (keys.empty()) return absl::OkStatus();
    rocksdb::WriteBatch batch;
    for (const Fingerprint& key : keys) {
      batch.Delete(IndexKey(key));
      batch.Delete(AccessKey(key));
      batch.Delete(KeyKey(key));
      for (const Digest& blob : index_.Remove(key)) batch.Delete(BlobKey(blob));
      access_times_.erase(key);
    }
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
      RemoveEntries({*index_.LeastRecentlyUsed()}).IgnoreError();  // counted there
      ++evictions_;
    }
  }

  // Removes some of the entries that were not used for too long. The others go later, and are not found meanwhile.
  void EvictIdle() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (max_idle_ == absl::InfiniteDuration()) return;
    const absl::Time limit = absl::Now() - max_idle_;
    const std::vector<Fingerprint> old =
        index_.Oldest(kRemovalBatch, [&](const Fingerprint& key)
                                         ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return access_times_[key] < limit; });
    if (RemoveEntries(old).ok()) evictions_ += static_cast<int64_t>(old.size());
  }

  const std::unique_ptr<DiskDatabase> database_;
  rocksdb::DB& db_;
  const int64_t capacity_bytes_;
  const absl::Duration max_idle_;
  const absl::Duration time_precision_;
  const std::shared_ptr<const RecordSigner> signer_;
  std::atomic<int64_t> hits_{0};
  std::atomic<int64_t> misses_{0};
  std::atomic<int64_t> corrupt_{0};
  std::atomic<int64_t> unsigned_{0};
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
  RocksDbOptions with_signer = options;
  if (options.signer == nullptr) {
    FUSELINE_ASSIGN_OR_RETURN(with_signer.signer, RecordSigner::Create({}));
  }
  while (true) {
    FUSELINE_ASSIGN_OR_RETURN(std::unique_ptr<DiskDatabase> db, DiskDatabase::Open(directory, database));
    auto store = std::make_unique<RocksDbArtifactStore>(std::move(db), with_signer);
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
