// Tested by tests/unit/server/metrics_artifact_store_test.cc
#include <algorithm>
#include <atomic>
#include <utility>

#include "server/cache/artifact_store.h"

namespace fuseline::cache {
namespace {

constexpr int64_t kMostStageMicros = int64_t{24} * 3600 * 1'000'000;

class MetricsArtifactStore : public ArtifactStore {
 public:
  explicit MetricsArtifactStore(std::unique_ptr<ArtifactStore> inner) : inner_(std::move(inner)) {}

  absl::StatusOr<Lookup> Get(const Fingerprint& key) override {
    absl::StatusOr<Lookup> found = inner_->Get(key);
    Count(found);
    return found;
  }
  Lookup GetInMemory(const Fingerprint& key) override {
    Lookup found = inner_->GetInMemory(key);
    if (found.artifact != nullptr) Count(found);
    return found;
  }
  absl::Status Put(const Fingerprint& key, const ArtifactPtr& artifact) override {
    absl::Status status = inner_->Put(key, artifact);
    if (!status.ok()) ++errors_;
    return status;
  }
  absl::Status Delete(const Fingerprint& key) override { return inner_->Delete(key); }

  absl::StatusOr<Lookup> GetOrBuild(const Fingerprint& key, const Builder& build, const WaitOptions& wait) override {
    absl::StatusOr<Lookup> found = inner_->GetOrBuild(key, build, wait);
    Count(found);
    return found;
  }
  // Not a request to the cache.
  absl::StatusOr<Lookup> BuildAnew(const Builder& build, const WaitOptions& wait) override {
    return inner_->BuildAnew(build, wait);
  }
  void Touch(const Fingerprint& key) override { inner_->Touch(key); }
  void ForEachLevel(const std::function<void(ArtifactStore&)>& visit) override { inner_->ForEachLevel(visit); }
  void Drain() override { inner_->Drain(); }

  // A last level "all" with the figures of requests, whatever level answered them; one that joined another's build is a
  // miss.
  void AddStats(StoreStats& stats) const override {
    inner_->AddStats(stats);
    stats.seconds_saved += static_cast<double>(saved_micros_) / 1e6;
    LevelStats all;
    all.level = "all";
    for (const LevelStats& level : stats.levels) {
      all.corrupt += level.corrupt;
      all.unsigned_entries += level.unsigned_entries;
      all.evictions += level.evictions;
      all.errors += level.errors;
    }
    all.errors += errors_;
    all.hits = hits_;
    all.misses = misses_;
    stats.levels.push_back(std::move(all));
  }

 private:
  void Count(const absl::StatusOr<Lookup>& found) {
    const bool hit = found.ok() && found->artifact != nullptr &&
                     (found->outcome == Outcome::kMemoryHit || found->outcome == Outcome::kDiskHit ||
                      found->outcome == Outcome::kSharedHit);
    ++(hit ? hits_ : misses_);
    if (!hit) return;
    // Clamped: a report from disk may say anything.
    for (const auto& [stage, micros] : found->artifact->report.stage_micros)
      saved_micros_ += std::clamp<int64_t>(micros, 0, kMostStageMicros);
  }

  const std::unique_ptr<ArtifactStore> inner_;
  std::atomic<int64_t> hits_{0};
  std::atomic<int64_t> misses_{0};
  std::atomic<int64_t> saved_micros_{0};
  std::atomic<int64_t> errors_{0};
};

}  // namespace

std::unique_ptr<ArtifactStore> MakeMetricsStore(std::unique_ptr<ArtifactStore> inner) {
  return std::make_unique<MetricsArtifactStore>(std::move(inner));
}

}  // namespace fuseline::cache
