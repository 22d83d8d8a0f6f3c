// Tested by tests/unit/server/recovering_artifact_store_test.cc
#include <algorithm>
#include <memory>
#include <system_error>
#include <thread>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "common/status/error.h"
#include "common/status/str_cat.h"
#include "server/cache/artifact_store.h"

namespace fuseline::cache {
namespace {

// The counters of a level; its entries and bytes are what is there, and are not added up.
void AddCounters(const LevelStats& from, LevelStats& to) {
  to.hits += from.hits;
  to.misses += from.misses;
  to.corrupt += from.corrupt;
  to.unsigned_entries += from.unsigned_entries;
  to.evictions += from.evictions;
  to.errors += from.errors;
}

class RecoveringArtifactStore : public ArtifactStore {
 public:
  RecoveringArtifactStore(std::string level, StoreOpener open, const RecoveryOptions& options)
      : level_(std::move(level)), open_(std::move(open)), options_(options), retry_(options.first_retry) {
    const absl::Status status = Open(false);
    if (status.ok()) return;
    ReportUnavailable(status);
    absl::MutexLock lock(&mutex_);
    StartRecovery();
  }

  ~RecoveringArtifactStore() override {
    std::thread recovery;
    {
      absl::MutexLock lock(&mutex_);
      is_closing_ = true;
      recovery.swap(recovery_);
    }
    if (recovery.joinable()) recovery.join();
  }

  absl::StatusOr<Lookup> Get(const Fingerprint& key) override {
    const std::shared_ptr<ArtifactStore> inner = Inner();
    if (inner == nullptr) return Missed();
    absl::StatusOr<Lookup> found = inner->Get(key);
    if (!found.ok()) Failed(inner, found.status());
    return found;
  }

  absl::Status Put(const Fingerprint& key, const ArtifactPtr& artifact) override {
    const std::shared_ptr<ArtifactStore> inner = Inner();
    if (inner == nullptr) return NotServed();
    absl::Status status = inner->Put(key, artifact);
    if (!status.ok()) Failed(inner, status);
    return status;
  }

  absl::Status Delete(const Fingerprint& key) override {
    const std::shared_ptr<ArtifactStore> inner = Inner();
    if (inner == nullptr) return NotServed();
    absl::Status status = inner->Delete(key);
    if (!status.ok()) Failed(inner, status);
    return status;
  }

  void Touch(const Fingerprint& key) override {
    if (const std::shared_ptr<ArtifactStore> inner = Inner()) inner->Touch(key);
  }

  void ForEachLevel(const std::function<void(ArtifactStore&)>& visit) override {
    if (const std::shared_ptr<ArtifactStore> inner = Inner()) inner->ForEachLevel(visit);
  }

  void AddStats(StoreStats& stats) const override {
    std::shared_ptr<ArtifactStore> counted = Inner();
    const bool available = counted != nullptr;
    if (!available) {
      absl::MutexLock lock(&mutex_);
      counted = failed_;
    }
    LevelStats level = CountersOf(counted.get());
    if (!available) level.entries = level.size_bytes = 0;
    level.level = level_;
    level.available = available;
    absl::MutexLock lock(&mutex_);
    AddCounters(closed_, level);
    level.misses += misses_;
    level.errors += open_errors_;
    if (!available) level.reason = reason_;
    stats.levels.push_back(std::move(level));
  }

 private:
  static LevelStats CountersOf(const ArtifactStore* store) {
    StoreStats stats;
    if (store != nullptr) store->AddStats(stats);
    return stats.levels.empty() ? LevelStats{} : stats.levels.front();
  }

  std::shared_ptr<ArtifactStore> Inner() const {
    absl::MutexLock lock(&mutex_);
    return inner_;
  }

  Lookup Missed() {
    absl::MutexLock lock(&mutex_);
    ++misses_;
    return {};
  }

  absl::Status NotServed() const {
    absl::MutexLock lock(&mutex_);
    return MakeError(absl::StatusCode::kUnavailable, ErrorReason::kInputOutput, "cache", reason_);
  }

  // The first of those who use `inner` and find it failing takes it out of service.
  void Failed(const std::shared_ptr<ArtifactStore>& inner, const absl::Status& status) {
    {
      absl::MutexLock lock(&mutex_);
      if (inner_ != inner) return;
      failed_ = std::move(inner_);
      inner_ = nullptr;
      reason_ = std::string(status.message());
      start_anew_ = absl::IsDataLoss(status);
      // A level that fails as soon as it is used does not come back at once every time.
      if (absl::Now() - opened_ > 2 * options_.longest_retry) retry_ = options_.first_retry;
      StartRecovery();
    }
    ReportUnavailable(status);
  }

  void ReportUnavailable(const absl::Status& why) const {
    if (options_.report)
      options_.report(
          StrCat("serving without the disk cache: ", std::string_view(why.message().data(), why.message().size())));
  }

  absl::Status Open(bool start_anew) {
    absl::StatusOr<std::unique_ptr<ArtifactStore>> opened = open_(start_anew);
    absl::MutexLock lock(&mutex_);
    if (!opened.ok()) {
      ++open_errors_;
      reason_ = std::string(opened.status().message());
      return opened.status();
    }
    inner_ = *std::move(opened);
    reason_.clear();
    start_anew_ = false;
    opened_ = absl::Now();
    return absl::OkStatus();
  }

  void StartRecovery() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (recovery_.joinable() || is_closing_) return;
    try {
      recovery_ = std::thread([this] { Recover(); });
    } catch (const std::system_error&) {
      // Without a thread there is no way back, but all else goes on.
    }
  }

  // Runs until the store is destroyed. What failed is closed here, so that no request waits for that.
  void Recover() {
    const auto is_closing = [this]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) { return is_closing_; };
    const auto has_work = [this]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) { return is_closing_ || inner_ == nullptr; };
    while (true) {
      bool start_anew = false;
      std::shared_ptr<ArtifactStore> failed;
      {
        absl::MutexLock lock(&mutex_, absl::Condition(&has_work));
        if (mutex_.AwaitWithTimeout(absl::Condition(&is_closing), retry_)) return;
        if (failed_.use_count() > 1) continue;  // someone is still inside
        retry_ = std::min(2 * retry_, options_.longest_retry);
        start_anew = start_anew_;
        AddCounters(CountersOf(failed_.get()), closed_);
        failed.swap(failed_);
      }
      failed.reset();
      if (Open(start_anew).ok() && options_.report) options_.report("serving with the disk cache again");
    }
  }

  const std::string level_;
  const StoreOpener open_;
  const RecoveryOptions options_;
  mutable absl::Mutex mutex_;
  std::shared_ptr<ArtifactStore> inner_ ABSL_GUARDED_BY(mutex_);   // null: not in service
  std::shared_ptr<ArtifactStore> failed_ ABSL_GUARDED_BY(mutex_);  // taken out of service and not closed yet
  std::string reason_ ABSL_GUARDED_BY(mutex_);
  bool start_anew_ ABSL_GUARDED_BY(mutex_) = false;
  bool is_closing_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Duration retry_ ABSL_GUARDED_BY(mutex_);
  absl::Time opened_ ABSL_GUARDED_BY(mutex_);
  LevelStats closed_ ABSL_GUARDED_BY(mutex_);  // what the stores that are closed counted
  int64_t misses_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t open_errors_ ABSL_GUARDED_BY(mutex_) = 0;
  std::thread recovery_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace

std::unique_ptr<ArtifactStore> MakeRecoveringStore(const std::string& level, StoreOpener open,
                                                   const RecoveryOptions& options) {
  return std::make_unique<RecoveringArtifactStore>(level, std::move(open), options);
}

}  // namespace fuseline::cache
