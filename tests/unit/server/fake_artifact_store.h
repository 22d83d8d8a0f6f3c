// A store that keeps what it is given, counts calls and fails on demand: what decorators are tested on.
#pragma once

#include <map>
#include <utility>

#include "absl/synchronization/mutex.h"
#include "server/cache/artifact_store.h"

namespace fuseline::testing {

// What a test sees of a fake store that a decorator owns. Guarded by `mutex`.
struct FakeStoreState {
  absl::Mutex mutex;
  std::map<Fingerprint, ArtifactPtr> entries;
  absl::Status status;  // what every call returns unless OK
  cache::Outcome outcome = cache::Outcome::kDiskHit;
  int gets = 0;
  int puts = 0;
  int deletes = 0;
};

class FakeArtifactStore : public cache::ArtifactStore {
 public:
  explicit FakeArtifactStore(FakeStoreState& state) : state_(state) {}
  absl::StatusOr<cache::Lookup> Get(const Fingerprint& key) override {
    absl::MutexLock lock(&state_.mutex);
    ++state_.gets;
    if (!state_.status.ok()) return state_.status;
    const auto it = state_.entries.find(key);
    if (it == state_.entries.end()) return cache::Lookup{};
    return cache::Lookup{it->second, state_.outcome};
  }
  absl::Status Put(const Fingerprint& key, const ArtifactPtr& artifact) override {
    absl::MutexLock lock(&state_.mutex);
    ++state_.puts;
    if (state_.status.ok()) state_.entries[key] = artifact;
    return state_.status;
  }
  absl::Status Delete(const Fingerprint& key) override {
    absl::MutexLock lock(&state_.mutex);
    ++state_.deletes;
    state_.entries.erase(key);
    return state_.status;
  }
  void AddStats(cache::StoreStats& stats) const override {
    cache::LevelStats& level = stats.levels.emplace_back();
    level.level = "fake";
    level.evictions = 3;
  }

 private:
  FakeStoreState& state_;
};

}  // namespace fuseline::testing
