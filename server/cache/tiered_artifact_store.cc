// Tested by tests/unit/server/tiered_artifact_store_test.cc
#include <deque>
#include <system_error>
#include <thread>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "server/cache/artifact_size.h"
#include "server/cache/artifact_store.h"

namespace fuseline::cache {
namespace {

// What waits to be filled in keeps memory.
constexpr int64_t kMostWaitingBytes = int64_t{256} << 20;
// Writes to disk take time and locks from the requests of a burst, so they wait until it is over, but not for ever.
constexpr absl::Duration kQuiet = absl::Milliseconds(100);
constexpr absl::Duration kLongestWait = absl::Seconds(2);

// Errors of the slow level are dropped here: it has counted them, and the request goes on without it.
class TieredArtifactStore : public ArtifactStore {
 public:
  TieredArtifactStore(std::unique_ptr<ArtifactStore> fast, std::unique_ptr<ArtifactStore> slow)
      : fast_(std::move(fast)), slow_(std::move(slow)) {}

  absl::StatusOr<Lookup> Get(const Fingerprint& key) override {
    absl::StatusOr<Lookup> found = fast_->Get(key);
    if (found.ok() && found->artifact != nullptr) {
      if (found->was_idle) slow_->Touch(key);
      return found;
    }
    found = slow_->Get(key);
    if (!found.ok()) return Lookup{};
    if (found->artifact != nullptr) Fill(key, found->artifact);
    return found;
  }

  Lookup GetInMemory(const Fingerprint& key) override {
    Lookup found = fast_->GetInMemory(key);
    if (found.was_idle) slow_->Touch(key);
    return found;
  }

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

  void Touch(const Fingerprint& key) override {
    fast_->Touch(key);
    slow_->Touch(key);
  }

  void ForEachLevel(const std::function<void(ArtifactStore&)>& visit) override {
    fast_->ForEachLevel(visit);
    slow_->ForEachLevel(visit);
  }

  void Drain() override {
    fast_->Drain();
    slow_->Drain();
  }

  void AddStats(StoreStats& stats) const override {
    fast_->AddStats(stats);
    slow_->AddStats(stats);
  }

 protected:
  virtual void Fill(const Fingerprint& key, const ArtifactPtr& artifact) {
    fast_->Put(key, artifact).IgnoreError();  // counted there
  }

  const std::unique_ptr<ArtifactStore> fast_;
  const std::unique_ptr<ArtifactStore> slow_;
};

class LazilyFilledArtifactStore : public TieredArtifactStore {
 public:
  LazilyFilledArtifactStore(std::unique_ptr<ArtifactStore> fast, std::unique_ptr<ArtifactStore> slow)
      : TieredArtifactStore(std::move(fast), std::move(slow)) {
    try {
      thread_ = std::thread([this] { FillAll(); });
    } catch (const std::system_error&) {
      // Without a thread nothing is filled in.
    }
  }

  // Fills in what waits.
  ~LazilyFilledArtifactStore() override {
    {
      absl::MutexLock lock(&mutex_);
      is_closing_ = true;
    }
    if (thread_.joinable()) thread_.join();
  }

  absl::StatusOr<Lookup> Get(const Fingerprint& key) override {
    absl::StatusOr<Lookup> found = TieredArtifactStore::Get(key);
    if (found.ok() && found->artifact != nullptr && found->outcome == Outcome::kDiskHit)
      slow_->Offer(key, found->artifact);
    return found;
  }

 private:
  void Fill(const Fingerprint& key, const ArtifactPtr& artifact) override {
    const int64_t size_bytes = ArtifactMemoryBytes(*artifact);
    absl::MutexLock lock(&mutex_);
    if (waiting_bytes_ + size_bytes > kMostWaitingBytes || !thread_.joinable()) return;
    waiting_bytes_ += size_bytes;
    waiting_.push_back({key, artifact, size_bytes});
  }

  void FillAll() {
    const auto has_work = [this]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) { return is_closing_ || !waiting_.empty(); };
    const auto is_closing = [this]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) { return is_closing_; };
    while (true) {
      std::deque<Waiting> taken;
      {
        absl::MutexLock lock(&mutex_, absl::Condition(&has_work));
        if (waiting_.empty()) return;
        const absl::Time limit = absl::Now() + kLongestWait;
        for (size_t seen = 0; seen != waiting_.size() && absl::Now() < limit;) {
          seen = waiting_.size();
          mutex_.AwaitWithTimeout(absl::Condition(&is_closing), kQuiet);
        }
        taken.swap(waiting_);
      }
      for (Waiting& next : taken) {
        fast_->Put(next.key, next.artifact).IgnoreError();  // counted there
        next.artifact.reset();
        absl::MutexLock lock(&mutex_);
        waiting_bytes_ -= next.size_bytes;
      }
    }
  }

  struct Waiting {
    Fingerprint key;
    ArtifactPtr artifact;
    int64_t size_bytes = 0;
  };

  absl::Mutex mutex_;
  std::deque<Waiting> waiting_ ABSL_GUARDED_BY(mutex_);
  int64_t waiting_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  bool is_closing_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace

std::unique_ptr<ArtifactStore> MakeTieredStore(std::unique_ptr<ArtifactStore> fast,
                                               std::unique_ptr<ArtifactStore> slow) {
  return std::make_unique<TieredArtifactStore>(std::move(fast), std::move(slow));
}

std::unique_ptr<ArtifactStore> MakeLazilyFilledStore(std::unique_ptr<ArtifactStore> fast,
                                                     std::unique_ptr<ArtifactStore> slow) {
  return std::make_unique<LazilyFilledArtifactStore>(std::move(fast), std::move(slow));
}

}  // namespace fuseline::cache
