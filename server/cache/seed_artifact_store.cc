// Tested by tests/unit/server/seed_artifact_store_test.cc
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/synchronization/mutex.h"
#include "common/status/error.h"
#include "common/status/status_macros.h"
#include "common/status/str_cat.h"
#include "server/cache/artifact_store.h"
#include "server/cache/export_file.h"
#include "server/cache/key_record.h"

namespace fuseline::cache {
namespace {

// Entries compared with a key that was not found: each one is read.
constexpr size_t kMostCompared = 10'000;

// A file that is read at places. Not mapped: one that becomes shorter would end the process.
class SeedFile {
 public:
  ~SeedFile() {
    if (file_ >= 0) close(file_);
  }

  absl::Status Open(const std::string& path) {
    path_ = path;
    file_ = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOCTTY);
    struct stat info {};
    if (file_ < 0 || fstat(file_, &info) != 0) return Failed(strerror(errno));
    size_bytes_ = info.st_size;
    return absl::OkStatus();
  }

  absl::StatusOr<std::string> Read(int64_t offset, size_t size) const {
    std::string bytes(size, '\0');
    size_t done = 0;
    while (done < size) {
      const ssize_t got = pread(file_, bytes.data() + done, size - done, offset + static_cast<off_t>(done));
      if (got < 0 && errno == EINTR) continue;
      if (got <= 0) return Failed(got < 0 ? strerror(errno) : "it is shorter than it was");
      done += static_cast<size_t>(got);
    }
    return bytes;
  }

  int64_t size_bytes() const { return size_bytes_; }

 private:
  absl::Status Failed(std::string_view why) const {
    return MakeError(absl::StatusCode::kNotFound, ErrorReason::kInputOutput, "cache_seed",
                     StrCat("can't read '", path_, "': ", why));
  }

  std::string path_;
  int file_ = -1;
  int64_t size_bytes_ = 0;
};

class SeedArtifactStore : public ArtifactStore {
 public:
  SeedArtifactStore(std::unique_ptr<ArtifactStore> inner, std::shared_ptr<const RecordSigner> signer,
                    std::string identity_prefix)
      : inner_(std::move(inner)), level_(std::move(signer), std::move(identity_prefix)) {}

  absl::Status Open(const std::string& path) { return level_.Open(path); }

  absl::StatusOr<Lookup> Get(const Fingerprint& key) override {
    const absl::StatusOr<Lookup> found = level_.Get(key);
    if (found.ok() && found->artifact != nullptr) return found;
    if (inner_ == nullptr) return Lookup{};
    return inner_->Get(key);
  }
  absl::Status Put(const Fingerprint& key, const ArtifactPtr& artifact) override {
    return inner_ != nullptr ? inner_->Put(key, artifact) : absl::OkStatus();
  }
  void Offer(const Fingerprint& key, const ArtifactPtr& artifact) override {
    if (inner_ != nullptr) inner_->Offer(key, artifact);
  }
  absl::Status Delete(const Fingerprint& key) override {
    level_.Forget(key);
    return inner_ != nullptr ? inner_->Delete(key) : absl::OkStatus();
  }
  void Touch(const Fingerprint& key) override {
    if (inner_ != nullptr) inner_->Touch(key);
  }
  void ForEachLevel(const std::function<void(ArtifactStore&)>& visit) override {
    visit(level_);
    if (inner_ != nullptr) inner_->ForEachLevel(visit);
  }
  void Drain() override {
    if (inner_ != nullptr) inner_->Drain();
  }
  void AddStats(StoreStats& stats) const override {
    level_.AddStats(stats);
    if (inner_ != nullptr) inner_->AddStats(stats);
  }

 private:
  // The file's entries. What is dropped is not found any more, until the server starts again.
  class Level : public ArtifactStore {
   public:
    Level(std::shared_ptr<const RecordSigner> signer, std::string identity_prefix)
        : signer_(std::move(signer)), identity_prefix_(std::move(identity_prefix)) {}

    absl::Status Open(const std::string& path) {
      absl::MutexLock lock(&mutex_);
      const absl::StatusOr<std::vector<ExportPlace>> places = List(path);
      if (!places.ok()) {
        reason_ = StrCat("seed '", path, "': ", std::string(places.status().message()));
        return places.status();
      }
      places_.reserve(places->size());
      for (const ExportPlace& place : *places) places_[place.key] = place;
      for (const auto& [key, place] : places_) size_bytes_ += place.record_bytes + place.body_bytes;
      return absl::OkStatus();
    }

    absl::StatusOr<Lookup> Get(const Fingerprint& key) override {
      const std::optional<ExportPlace> place = Find(key);
      if (!place.has_value()) {
        ++misses_;
        return Lookup{};
      }
      bool is_unsigned = false;
      absl::StatusOr<ArtifactPtr> artifact = Read(*place, &is_unsigned);
      if (!artifact.ok() || !MatchesKey(key, **artifact, identity_prefix_)) {
        ++misses_;
        if (GetErrorReason(artifact.status()) == ErrorReason::kInputOutput) {
          ++errors_;
          return Lookup{};
        }
        ++corrupt_;
        if (is_unsigned) ++unsigned_;
        Forget(key);
        return Lookup{};
      }
      ++hits_;
      return Lookup{*std::move(artifact), Outcome::kDiskHit};
    }
    absl::Status Put(const Fingerprint&, const ArtifactPtr&) override { return absl::OkStatus(); }
    absl::Status Delete(const Fingerprint& key) override {
      Forget(key);
      return absl::OkStatus();
    }
    void Forget(const Fingerprint& key) {
      absl::MutexLock lock(&mutex_);
      const auto it = places_.find(key);
      if (it == places_.end()) return;
      size_bytes_ -= it->second.record_bytes + it->second.body_bytes;
      places_.erase(it);
    }
    EvictResult Evict(const EvictRequest& request) override {
      EvictResult result;
      absl::MutexLock lock(&mutex_);
      const auto drop = [&](const ExportPlace& place) {
        ++result.entries;
        result.size_bytes += place.record_bytes + place.body_bytes;
      };
      for (const Fingerprint& key : request.keys) {
        if (const auto it = places_.find(key); it != places_.end()) {
          drop(it->second);
          places_.erase(it);
        }
      }
      if (request.all) {
        for (const auto& [key, place] : places_) drop(place);
        places_.clear();
      }
      size_bytes_ -= result.size_bytes;
      return result;
    }
    void AddKeys(std::vector<Fingerprint>& keys) const override {
      absl::MutexLock lock(&mutex_);
      for (const auto& [key, place] : places_) keys.push_back(key);
    }
    ArtifactPtr Peek(const Fingerprint& key) override {
      const std::optional<ExportPlace> place = Find(key);
      if (!place.has_value()) return nullptr;
      absl::StatusOr<ArtifactPtr> artifact = Read(*place, nullptr);
      return artifact.ok() ? *std::move(artifact) : nullptr;
    }
    void FindNearest(const KeyRecord& wanted, NearestEntry& nearest) const override {
      std::vector<ExportPlace> places;
      {
        absl::MutexLock lock(&mutex_);
        for (const auto& [key, place] : places_) {
          if (places.size() == kMostCompared) break;
          places.push_back(place);
        }
      }
      for (const ExportPlace& place : places) {
        const absl::StatusOr<ArtifactPtr> artifact = Read(place, nullptr);
        if (artifact.ok()) TakeNearer(wanted, MakeKeyRecord(place.key, **artifact), nearest);
      }
    }
    void AddStats(StoreStats& stats) const override {
      LevelStats& level = stats.levels.emplace_back();
      level.level = "seed";
      level.hits = hits_;
      level.misses = misses_;
      level.corrupt = corrupt_;
      level.unsigned_entries = unsigned_;
      level.errors = errors_;
      absl::MutexLock lock(&mutex_);
      level.entries = static_cast<int64_t>(places_.size());
      level.size_bytes = size_bytes_;
      level.available = reason_.empty();
      level.reason = reason_;
    }

   private:
    absl::StatusOr<std::vector<ExportPlace>> List(const std::string& path) {
      FUSELINE_RETURN_IF_ERROR(file_.Open(path));
      return ListExportEntries([this](int64_t offset, size_t size) { return file_.Read(offset, size); },
                               file_.size_bytes());
    }
    std::optional<ExportPlace> Find(const Fingerprint& key) const {
      absl::MutexLock lock(&mutex_);
      const auto it = places_.find(key);
      if (it == places_.end()) return std::nullopt;
      return it->second;
    }
    absl::StatusOr<ArtifactPtr> Read(const ExportPlace& place, bool* is_unsigned) const {
      FUSELINE_ASSIGN_OR_RETURN(
          const std::string bytes,
          file_.Read(place.record_offset, static_cast<size_t>(place.record_bytes + place.body_bytes)));
      const std::string_view view = bytes;
      const auto record_bytes = static_cast<size_t>(place.record_bytes);
      return ReadExportEntry(place.key, view.substr(0, record_bytes), view.substr(record_bytes), *signer_, is_unsigned);
    }

    const std::shared_ptr<const RecordSigner> signer_;
    const std::string identity_prefix_;
    SeedFile file_;  // fixed once it is open
    std::atomic<int64_t> hits_{0};
    std::atomic<int64_t> misses_{0};
    std::atomic<int64_t> corrupt_{0};
    std::atomic<int64_t> unsigned_{0};
    std::atomic<int64_t> errors_{0};
    mutable absl::Mutex mutex_;
    absl::flat_hash_map<Fingerprint, ExportPlace> places_ ABSL_GUARDED_BY(mutex_);
    int64_t size_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
    std::string reason_ ABSL_GUARDED_BY(mutex_);
  };

  const std::unique_ptr<ArtifactStore> inner_;  // null: the file is all there is
  Level level_;
};

}  // namespace

std::unique_ptr<ArtifactStore> MakeSeedStore(const std::string& path, std::unique_ptr<ArtifactStore> inner,
                                             std::shared_ptr<const RecordSigner> signer, std::string identity_prefix) {
  auto store = std::make_unique<SeedArtifactStore>(std::move(inner), std::move(signer), std::move(identity_prefix));
  store->Open(path).IgnoreError();  // its statistics say why
  return store;
}

}  // namespace fuseline::cache
