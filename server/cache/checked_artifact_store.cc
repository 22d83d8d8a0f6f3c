// Tested by tests/unit/server/checked_artifact_store_test.cc
#include <atomic>
#include <utility>

#include "common/artifact/codec/artifact_codec.h"
#include "common/fingerprint/fingerprint.h"
#include "common/status/status_macros.h"
#include "server/cache/artifact_store.h"

namespace fuseline::cache {
namespace {

bool HasNameOf(const Fingerprint& key, const Artifact& artifact, const std::string& identity_prefix) {
  return artifact.fingerprint == key && artifact.compiler_identity.rfind(identity_prefix, 0) == 0;
}

class CheckedArtifactStore : public ArtifactStore {
 public:
  CheckedArtifactStore(std::unique_ptr<ArtifactStore> inner, std::string identity_prefix)
      : inner_(std::move(inner)), identity_prefix_(std::move(identity_prefix)) {}

  absl::StatusOr<Lookup> Get(const Fingerprint& key) override {
    FUSELINE_ASSIGN_OR_RETURN(Lookup found, inner_->Get(key));
    if (found.artifact == nullptr || IsGood(key, found)) return found;
    ++(found.outcome == Outcome::kMemoryHit ? corrupt_in_memory_ : corrupt_on_disk_);
    inner_->Delete(key).IgnoreError();  // it is not used, whether or not it can be removed
    return Lookup{};
  }

  absl::Status Put(const Fingerprint& key, const ArtifactPtr& artifact) override { return inner_->Put(key, artifact); }
  void Offer(const Fingerprint& key, const ArtifactPtr& artifact) override { inner_->Offer(key, artifact); }
  absl::Status Delete(const Fingerprint& key) override { return inner_->Delete(key); }
  void Touch(const Fingerprint& key) override { inner_->Touch(key); }
  void ForEachLevel(const std::function<void(ArtifactStore&)>& visit) override { inner_->ForEachLevel(visit); }
  void Drain() override { inner_->Drain(); }

  // What was dropped counts for the level that it came from: memory is the first, a disk the last.
  void AddStats(StoreStats& stats) const override {
    const size_t first = stats.levels.size();
    inner_->AddStats(stats);
    if (stats.levels.size() == first) return;
    stats.levels[first].corrupt += corrupt_in_memory_;
    stats.levels.back().corrupt += corrupt_on_disk_;
  }

 private:
  // What is in memory was looked at when it came in. The rest must be what its key says: the key is made of what the
  // artifact holds.
  bool IsGood(const Fingerprint& key, const Lookup& found) const {
    if (found.outcome == Outcome::kMemoryHit) return HasNameOf(key, *found.artifact, identity_prefix_);
    return MatchesKey(key, *found.artifact, identity_prefix_);
  }

  const std::unique_ptr<ArtifactStore> inner_;
  const std::string identity_prefix_;
  std::atomic<int64_t> corrupt_in_memory_{0};
  std::atomic<int64_t> corrupt_on_disk_{0};
};

}  // namespace

bool MatchesKey(const Fingerprint& key, const Artifact& artifact, const std::string& identity_prefix) {
  const FingerprintInputs inputs = {artifact.canonical_graph, artifact.target, artifact.options,
                                    artifact.compiler_identity};
  return HasNameOf(key, artifact, identity_prefix) && ComputeFingerprint(inputs) == key &&
         ValidateArtifact(artifact).ok();
}

std::unique_ptr<ArtifactStore> MakeCheckedStore(std::unique_ptr<ArtifactStore> inner, std::string identity_prefix) {
  return std::make_unique<CheckedArtifactStore>(std::move(inner), std::move(identity_prefix));
}

}  // namespace fuseline::cache
