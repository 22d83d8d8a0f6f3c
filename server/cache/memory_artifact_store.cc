// Tested by tests/unit/server/memory_artifact_store_test.cc
#include <list>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/synchronization/mutex.h"
#include "server/cache/artifact_size.h"
#include "server/cache/artifact_store.h"

namespace fuseline::cache {
namespace {

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
    entries_.splice(entries_.begin(), entries_, it->second);
    return Lookup{it->second->artifact, Outcome::kMemoryHit};
  }

  absl::Status Put(const Fingerprint& key, const ArtifactPtr& artifact) override {
    const int64_t size_bytes = ArtifactMemoryBytes(*artifact);
    std::vector<ArtifactPtr> dropped;  // freed after the lock is given back
    absl::MutexLock lock(&mutex_);
    if (const auto it = index_.find(key); it != index_.end()) Drop(it->second, dropped);
    if (size_bytes > capacity_bytes_) return absl::OkStatus();
    entries_.push_front({key, artifact, size_bytes});
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
