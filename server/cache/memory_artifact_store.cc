// Tested by tests/unit/server/memory_artifact_store_test.cc
#include <list>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "server/cache/artifact_size.h"
#include "server/cache/artifact_store.h"
#include "server/cache/key_record.h"

namespace fuseline::cache {
namespace {

// How often the levels below hear that an entry is in use: they forget what is not used for hours or days.
constexpr absl::Duration kTouchInterval = absl::Hours(1);

class MemoryArtifactStore : public ArtifactStore {
 public:
  explicit MemoryArtifactStore(int64_t capacity_bytes) : capacity_bytes_(capacity_bytes) {}

  absl::StatusOr<Lookup> Get(const Fingerprint& key) override {
    Lookup found = GetInMemory(key);
    if (found.artifact == nullptr) {
      absl::MutexLock lock(&mutex_);
      ++misses_;
    }
    return found;
  }

  Lookup GetInMemory(const Fingerprint& key) override {
    absl::MutexLock lock(&mutex_);
    const auto it = index_.find(key);
    if (it == index_.end()) return {};
    ++hits_;
    Entry& entry = *it->second;
    entries_.splice(entries_.begin(), entries_, it->second);
    entry.last_used = absl::Now();
    Lookup found = {entry.artifact, Outcome::kMemoryHit};
    found.was_idle = entry.last_used - entry.told > kTouchInterval;
    if (found.was_idle) entry.told = entry.last_used;
    return found;
  }

  absl::Status Put(const Fingerprint& key, const ArtifactPtr& artifact) override {
    const int64_t size_bytes = ArtifactMemoryBytes(*artifact);
    std::vector<ArtifactPtr> dropped;  // freed after the lock is given back
    absl::MutexLock lock(&mutex_);
    if (const auto it = index_.find(key); it != index_.end()) Drop(it->second, dropped);
    if (size_bytes > capacity_bytes_) return absl::OkStatus();
    const absl::Time now = absl::Now();
    entries_.push_front({key, artifact, size_bytes, now, now});
    index_[key] = entries_.begin();
    size_bytes_ += size_bytes;
    while (size_bytes_ > capacity_bytes_) {
      Drop(std::prev(entries_.end()), dropped);
      ++evictions_;
    }
    return absl::OkStatus();
  }

  absl::Status Delete(const Fingerprint& key) override {
    std::vector<ArtifactPtr> dropped;
    absl::MutexLock lock(&mutex_);
    if (const auto it = index_.find(key); it != index_.end()) Drop(it->second, dropped);
    return absl::OkStatus();
  }

  EvictResult Evict(const EvictRequest& request) override {
    std::vector<ArtifactPtr> dropped;
    EvictResult result;
    absl::MutexLock lock(&mutex_);
    const auto drop = [&](std::list<Entry>::iterator entry) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
      ++result.entries;
      result.size_bytes += entry->size_bytes;
      Drop(entry, dropped);
    };
    for (const Fingerprint& key : request.keys) {
      if (const auto it = index_.find(key); it != index_.end()) drop(it->second);
    }
    const absl::Time limit = absl::Now() - request.unused_for;
    while (!entries_.empty() && (request.all || entries_.back().last_used < limit)) drop(std::prev(entries_.end()));
    return result;
  }

  void AddKeys(std::vector<Fingerprint>& keys) const override {
    absl::MutexLock lock(&mutex_);
    for (const Entry& entry : entries_) keys.push_back(entry.key);
  }

  ArtifactPtr Peek(const Fingerprint& key) override {
    absl::MutexLock lock(&mutex_);
    const auto it = index_.find(key);
    return it == index_.end() ? nullptr : it->second->artifact;
  }

  void FindNearest(const KeyRecord& wanted, NearestEntry& nearest) const override {
    std::vector<ArtifactPtr> artifacts;
    {
      absl::MutexLock lock(&mutex_);
      for (const Entry& entry : entries_) artifacts.push_back(entry.artifact);
    }
    for (const ArtifactPtr& artifact : artifacts)
      TakeNearer(wanted, MakeKeyRecord(artifact->fingerprint, *artifact), nearest);
  }

  void AddStats(StoreStats& stats) const override {
    absl::MutexLock lock(&mutex_);
    LevelStats& level = stats.levels.emplace_back();
    level.level = "memory";
    level.entries = static_cast<int64_t>(entries_.size());
    level.size_bytes = size_bytes_;
    level.hits = hits_;
    level.misses = misses_;
    level.evictions = evictions_;
  }

 private:
  struct Entry {
    Fingerprint key;
    ArtifactPtr artifact;
    int64_t size_bytes = 0;
    absl::Time last_used;
    absl::Time told;  // when the levels below last heard of it
  };

  void Drop(std::list<Entry>::iterator entry, std::vector<ArtifactPtr>& dropped) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    size_bytes_ -= entry->size_bytes;
    dropped.push_back(std::move(entry->artifact));
    index_.erase(entry->key);
    entries_.erase(entry);
  }

  const int64_t capacity_bytes_;
  mutable absl::Mutex mutex_;
  std::list<Entry> entries_ ABSL_GUARDED_BY(mutex_);  // most recently used first
  absl::flat_hash_map<Fingerprint, std::list<Entry>::iterator> index_ ABSL_GUARDED_BY(mutex_);
  int64_t size_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t hits_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t misses_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t evictions_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace

std::unique_ptr<ArtifactStore> MakeMemoryStore(int64_t capacity_bytes) {
  return std::make_unique<MemoryArtifactStore>(capacity_bytes);
}

}  // namespace fuseline::cache
