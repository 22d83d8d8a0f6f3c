// Tested by tests/unit/server/tiered_artifact_store_test.cc
#include <utility>

#include "server/cache/artifact_store.h"

namespace fuseline::cache {
namespace {

// Errors of the slow level are dropped here: it has counted them, and the request goes on without it.
class TieredArtifactStore : public ArtifactStore {
 public:
  TieredArtifactStore(std::unique_ptr<ArtifactStore> fast, std::unique_ptr<ArtifactStore> slow)
      : fast_(std::move(fast)), slow_(std::move(slow)) {}

  absl::StatusOr<Lookup> Get(const Fingerprint& key) override {
    absl::StatusOr<Lookup> found = fast_->Get(key);
    if (found.ok() && found->artifact != nullptr) return found;
    found = slow_->Get(key);
    if (!found.ok()) return Lookup{};
    if (found->artifact != nullptr) fast_->Put(key, found->artifact).IgnoreError();
    return found;
  }

  Lookup GetInMemory(const Fingerprint& key) override { return fast_->GetInMemory(key); }

  absl::Status Put(const Fingerprint& key, const ArtifactPtr& artifact) override {
    const absl::Status fast = fast_->Put(key, artifact);
    const absl::Status slow = slow_->Put(key, artifact);
    return fast.ok() || slow.ok() ? absl::OkStatus() : slow;
  }

  absl::Status Delete(const Fingerprint& key) override {
    absl::Status status = fast_->Delete(key);
    status.Update(slow_->Delete(key));
    return status;
  }

  void Drain() override {
    fast_->Drain();
    slow_->Drain();
  }

  void AddStats(StoreStats& stats) const override {
    fast_->AddStats(stats);
    slow_->AddStats(stats);
  }

 private:
  const std::unique_ptr<ArtifactStore> fast_;
  const std::unique_ptr<ArtifactStore> slow_;
};

}  // namespace

std::unique_ptr<ArtifactStore> MakeTieredStore(std::unique_ptr<ArtifactStore> fast,
                                               std::unique_ptr<ArtifactStore> slow) {
  return std::make_unique<TieredArtifactStore>(std::move(fast), std::move(slow));
}

}  // namespace fuseline::cache
