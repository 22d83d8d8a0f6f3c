// Tested by tests/unit/server/single_flight_artifact_store_test.cc
#include <atomic>
#include <memory>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/synchronization/mutex.h"
#include "server/cache/artifact_store.h"

namespace fuseline::cache {
namespace {

// The leader gave up for reasons of its own, which say nothing about those who wait.
bool IsLeadersOwn(const absl::Status& status) { return absl::IsCancelled(status) || absl::IsDeadlineExceeded(status); }

class SingleFlightArtifactStore : public ArtifactStore {
 public:
  explicit SingleFlightArtifactStore(std::unique_ptr<ArtifactStore> inner) : inner_(std::move(inner)) {}

  absl::StatusOr<Lookup> Get(const Fingerprint& key) override { return inner_->Get(key); }
  absl::Status Put(const Fingerprint& key, const ArtifactPtr& artifact) override { return inner_->Put(key, artifact); }
  absl::Status Delete(const Fingerprint& key) override { return inner_->Delete(key); }

  absl::StatusOr<Lookup> GetOrBuild(const Fingerprint& key, const Builder& build, const WaitOptions& wait) override {
    // Hits need no coordination.
    absl::StatusOr<Lookup> found = inner_->Get(key);
    if (found.ok() && found->artifact != nullptr) return found;
    while (true) {
      const auto [flight, is_leader] = Join(key);
      if (is_leader) {
        // Looks again: a flight may have landed between our look and our taking off.
        absl::StatusOr<Lookup> result = inner_->GetOrBuild(key, build, wait);
        Land(key, *flight, result);
        return result;
      }
      absl::StatusOr<Lookup> result = flight->Wait();
      if (!result.ok() && IsLeadersOwn(result.status())) continue;
      ++joins_;
      if (result.ok()) result->outcome = Outcome::kJoined;
      return result;
    }
  }

  void AddStats(StoreStats& stats) const override {
    inner_->AddStats(stats);
    stats.joins += joins_;
  }

 private:
  // One build that is under way, and what came of it.
  class Flight {
   public:
    absl::StatusOr<Lookup> Wait() {
      absl::MutexLock lock(&mutex_, absl::Condition(&landed_));
      return result_;
    }
    void Land(const absl::StatusOr<Lookup>& result) {
      absl::MutexLock lock(&mutex_);
      result_ = result;
      landed_ = true;
    }

   private:
    absl::Mutex mutex_;
    bool landed_ ABSL_GUARDED_BY(mutex_) = false;
    absl::StatusOr<Lookup> result_ ABSL_GUARDED_BY(mutex_) = absl::UnknownError("not landed");
  };

  std::pair<std::shared_ptr<Flight>, bool> Join(const Fingerprint& key) {
    absl::MutexLock lock(&mutex_);
    std::shared_ptr<Flight>& flight = flights_[key];
    const bool is_leader = flight == nullptr;
    if (is_leader) flight = std::make_shared<Flight>();
    return {flight, is_leader};
  }

  // Out of the table first, so that an error is shared with those who wait but with nobody who comes later.
  void Land(const Fingerprint& key, Flight& flight, const absl::StatusOr<Lookup>& result) {
    {
      absl::MutexLock lock(&mutex_);
      flights_.erase(key);
    }
    flight.Land(result);
  }

  const std::unique_ptr<ArtifactStore> inner_;
  std::atomic<int64_t> joins_{0};
  absl::Mutex mutex_;
  absl::flat_hash_map<Fingerprint, std::shared_ptr<Flight>> flights_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace

std::unique_ptr<ArtifactStore> MakeSingleFlightStore(std::unique_ptr<ArtifactStore> inner) {
  return std::make_unique<SingleFlightArtifactStore>(std::move(inner));
}

}  // namespace fuseline::cache
