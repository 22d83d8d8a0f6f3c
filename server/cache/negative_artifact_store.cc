// Tested by tests/unit/server/negative_artifact_store_test.cc
#include <atomic>
#include <deque>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "common/status/lasting_error.h"
#include "server/cache/artifact_store.h"

namespace fuseline::cache {
namespace {

// Some 10 MB, should the messages be of a kilobyte.
constexpr size_t kMostErrors = 10'000;

class NegativeArtifactStore : public ArtifactStore {
 public:
  NegativeArtifactStore(std::unique_ptr<ArtifactStore> inner, absl::Duration duration)
      : inner_(std::move(inner)), duration_(duration) {}

  absl::StatusOr<Lookup> Get(const Fingerprint& key) override { return inner_->Get(key); }
  Lookup GetInMemory(const Fingerprint& key) override { return inner_->GetInMemory(key); }
  absl::Status Put(const Fingerprint& key, const ArtifactPtr& artifact) override {
    Forget(key);
    return inner_->Put(key, artifact);
  }
  absl::Status Delete(const Fingerprint& key) override {
    Forget(key);
    return inner_->Delete(key);
  }

  absl::StatusOr<Lookup> GetOrBuild(const Fingerprint& key, const Builder& build, const WaitOptions& wait) override {
    if (absl::Status known = Find(key); !known.ok()) {
      ++known_errors_;
      return known;
    }
    absl::StatusOr<Lookup> found = inner_->GetOrBuild(key, build, wait);
    if (!found.ok() && IsLasting(found.status())) Remember(key, found.status());
    return found;
  }
  absl::StatusOr<Lookup> BuildAnew(const Builder& build, const WaitOptions& wait) override {
    return inner_->BuildAnew(build, wait);
  }

  void Touch(const Fingerprint& key) override { inner_->Touch(key); }
  // What is evicted is asked for anew, and so are the errors: whoever empties a cache wants to see what happens then.
  void ForEachLevel(const std::function<void(ArtifactStore&)>& visit) override {
    visit(*this);
    inner_->ForEachLevel(visit);
  }
  EvictResult Evict(const EvictRequest& request) override {
    absl::MutexLock lock(&mutex_);
    for (const Fingerprint& key : request.keys) errors_.erase(key);
    if (request.all) errors_.clear();
    return {};
  }
  void Drain() override { inner_->Drain(); }
  void AddStats(StoreStats& stats) const override {
    inner_->AddStats(stats);
    stats.known_errors += known_errors_;
  }

 private:
  struct Error {
    absl::Status status;
    absl::Time expires;
  };

  // OK where nothing is known.
  absl::Status Find(const Fingerprint& key) {
    absl::MutexLock lock(&mutex_);
    const auto it = errors_.find(key);
    if (it == errors_.end()) return absl::OkStatus();
    if (absl::Now() < it->second.expires) return it->second.status;
    errors_.erase(it);
    return absl::OkStatus();
  }

  void Remember(const Fingerprint& key, const absl::Status& status) {
    absl::MutexLock lock(&mutex_);
    const absl::Time now = absl::Now();
    // Those who waited for one build come one after the other: the first counts.
    const auto [it, is_new] = errors_.try_emplace(key, Error{status, now + duration_});
    if (!is_new) return;
    order_.push_back({key, it->second.expires});
    // All live equally long, so the first is the oldest. A key that was forgotten, and remembered since, stands here
    // twice.
    while (!order_.empty() && (order_.size() > kMostErrors || order_.front().second <= now)) {
      const auto oldest = errors_.find(order_.front().first);
      if (oldest != errors_.end() && oldest->second.expires == order_.front().second) errors_.erase(oldest);
      order_.pop_front();
    }
  }

  void Forget(const Fingerprint& key) {
    absl::MutexLock lock(&mutex_);
    errors_.erase(key);
  }

  const std::unique_ptr<ArtifactStore> inner_;
  const absl::Duration duration_;
  std::atomic<int64_t> known_errors_{0};
  absl::Mutex mutex_;
  absl::flat_hash_map<Fingerprint, Error> errors_ ABSL_GUARDED_BY(mutex_);
  std::deque<std::pair<Fingerprint, absl::Time>> order_ ABSL_GUARDED_BY(mutex_);  // oldest first
};

}  // namespace

std::unique_ptr<ArtifactStore> MakeNegativeStore(std::unique_ptr<ArtifactStore> inner, absl::Duration duration) {
  if (duration <= absl::ZeroDuration()) return inner;
  return std::make_unique<NegativeArtifactStore>(std::move(inner), duration);
}

}  // namespace fuseline::cache
