#include "server/cache/shared_artifact_store.h"

#include <algorithm>
#include <atomic>
#include <fstream>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/time/clock.h"
#include "common/status/error.h"
#include "common/status/status_macros.h"
#include "common/status/str_cat.h"
#include "server/cache/artifact_parts.h"
#include "server/cache/artifact_size.h"
#include "server/cache/redis_address.h"
#include "server/cache/redis_client.h"
#include "server/cache/redis_lease.h"
#include "server/cache/shared_keys.h"
#include "server/cache/shared_write_queue.h"

namespace fuseline::cache {
namespace {

constexpr size_t kMostParts = 20'000;
// Larger ones are not shared: reading one would take more than the time limit.
constexpr int64_t kMostEntryBytes = int64_t{64} << 20;
// Of a batch of writes. It has more time than a read, since nobody waits for it.
constexpr int64_t kBatchBytes = int64_t{4} << 20;
constexpr int kWriteTimeouts = 8;
constexpr absl::Duration kFlushLimit = absl::Seconds(5);
constexpr size_t kMostPasswordBytes = 4096;
constexpr char kDeleteIfScript[] =
    "if redis.call('GET',KEYS[1])==ARGV[1] then return redis.call('DEL',KEYS[1]) end return 0";

absl::StatusOr<std::string> ReadPassword(const std::string& path) {
  if (path.empty()) return std::string();
  std::ifstream file(path);
  std::string line;
  if (!std::getline(file, line) || line.empty() || line.size() > kMostPasswordBytes) {
    return MakeError(absl::StatusCode::kNotFound, ErrorReason::kInputOutput, "shared_cache_password_file",
                     StrCat("shared_cache_password_file '", path, "' can't be read or has no password"));
  }
  if (line.back() == '\r') line.pop_back();
  return line;
}

// The connections, the queue of writes and the leases, which the store and its coordinator share.
struct Shared {
  explicit Shared(std::string_view name_space) : keys(name_space) {}
  // The queue's work uses the coordinator.
  ~Shared() {
    if (coordinator != nullptr) coordinator->Stop();
    if (writes != nullptr) writes->Close();
  }
  Shared(const Shared&) = delete;
  Shared& operator=(const Shared&) = delete;

  const SharedKeys keys;
  std::unique_ptr<RedisClient> client;
  std::unique_ptr<RedisBuildCoordinator> coordinator;
  std::unique_ptr<SharedWriteQueue> writes;
};

class SharedArtifactStore : public ArtifactStore {
 public:
  SharedArtifactStore(std::shared_ptr<Shared> shared, const SharedCacheOptions& options,
                      std::shared_ptr<RecordSigner> signer)
      : shared_(std::move(shared)), options_(options), signer_(std::move(signer)) {}
  ~SharedArtifactStore() override { shared_->writes->Close(); }  // its work uses this store

  absl::StatusOr<Lookup> Get(const Fingerprint& key) override {
    const absl::Time deadline = absl::Now() + options_.timeout;
    const std::string index = shared_->keys.Index(key);
    const auto found = shared_->client->Run({{{"GET", index}, index}, {{"PTTL", index}, index}});
    if (!found.ok()) return Failed(found.status());
    const RespValue& stored = (*found)[0];
    if (stored.is_nil()) return Missed();
    if (!stored.is_string()) return Refused(stored);
    const std::string& record = stored.text;
    const absl::StatusOr<std::vector<Digest>> digests = ReadRecord(key, record);
    if (!digests.ok()) {
      if (signer_ != nullptr && !signer_->Verify(key, record).ok()) ++unsigned_;
      return Corrupt(key, record, {});
    }
    std::vector<RoutedCommand> reads;
    absl::flat_hash_map<Digest, size_t> place;
    for (const Digest& digest : *digests) {
      if (!place.try_emplace(digest, reads.size()).second) continue;
      const std::string blob = shared_->keys.Blob(digest);
      reads.push_back({{"GET", blob}, blob});
    }
    const auto blobs = shared_->client->Run(reads, deadline - absl::Now());
    if (!blobs.ok()) return Failed(blobs.status());
    std::vector<std::string> parts;
    std::vector<Digest> bad;
    for (const Digest& digest : *digests) {
      const RespValue& blob = (*blobs)[place[digest]];
      if (blob.is_nil()) {  // evicted by Redis, most likely: the entry is of no use any more
        Drop(key, record, {});
        return Missed();
      }
      if (!blob.is_string()) return Refused(blob);
      if (ComputeDigest(blob.text) != digest) bad.push_back(digest);
      parts.push_back(blob.text);
    }
    if (!bad.empty()) return Corrupt(key, record, bad);
    absl::StatusOr<Artifact> artifact = JoinArtifact(std::move(parts));
    if (!artifact.ok()) return Corrupt(key, record, {});
    ++hits_;
    const int64_t left_millis = (*found)[1].integer;
    if (options_.ttl > absl::ZeroDuration() && absl::Milliseconds(left_millis) < 0.9 * options_.ttl)
      Refresh(key, *digests);
    return Lookup{std::make_shared<const Artifact>(*std::move(artifact)), Outcome::kSharedHit};
  }

  // In the background: OK says that it waits to be written, or was counted as dropped.
  absl::Status Put(const Fingerprint& key, const ArtifactPtr& artifact) override {
    shared_->writes->Push({ArtifactMemoryBytes(*artifact), [this, key, artifact] { return Write(key, *artifact); }});
    return absl::OkStatus();
  }

  // So that a Redis that was emptied, or is new, gets what the servers' disks have.
  void Offer(const Fingerprint& key, const ArtifactPtr& artifact) override {
    if (shared_->client->state() != BreakerState::kClosed) return;  // what was compiled needs the room
    const std::string index = shared_->keys.Index(key);
    shared_->writes->Push({ArtifactMemoryBytes(*artifact), [this, key, artifact, index] {
                             FUSELINE_ASSIGN_OR_RETURN(const std::vector<RespValue> there,
                                                       shared_->client->Run({{{"EXISTS", index}, index}}));
                             return there[0].integer == 1 ? absl::OkStatus() : Write(key, *artifact);
                           }});
  }

  absl::Status Delete(const Fingerprint& key) override {
    const std::string index = shared_->keys.Index(key);
    return shared_->client->Run({{{"DEL", index}, index}}).status();
  }

  // Entries by name alone: the others are not this server's to drop. They are not counted.
  EvictResult Evict(const EvictRequest& request) override {
    for (const Fingerprint& key : request.keys) {
      if (!Delete(key).ok()) break;  // the next one would have to wait as long
    }
    return {};
  }

  void Drain() override { shared_->writes->Flush(kFlushLimit); }

  void AddStats(StoreStats& stats) const override {
    const SharedWriteQueue::Stats writes = shared_->writes->stats();
    const RedisBuildCoordinator::Stats leases = shared_->coordinator->stats();
    const BreakerState state = shared_->client->state();
    LevelStats& level = stats.levels.emplace_back();
    level.level = "redis";
    level.hits = hits_;
    level.misses = misses_;
    level.corrupt = corrupt_;
    level.unsigned_entries = unsigned_;
    level.errors = errors_ + shared_->client->failures();
    level.available = state == BreakerState::kClosed;
    level.reason = shared_->client->reason();
    SharedCacheStats shared;
    shared.breaker_state = static_cast<int>(state);
    shared.breaker_opened = shared_->client->times_opened();
    shared.queue_bytes = writes.size_bytes;
    shared.queue_drops = writes.dropped;
    shared.leases_held = leases.held;
    shared.builds_watched = leases.watched;
    shared.leases_acquired = leases.acquired;
    shared.leases_waited = leases.waited;
    shared.leases_taken_over = leases.taken_over;
    shared.leases_lost = leases.lost;
    stats.shared = shared;
  }

 private:
  absl::StatusOr<std::vector<Digest>> ReadRecord(const Fingerprint& key, const std::string& record) const {
    std::string payload = record;
    if (signer_ != nullptr) {
      FUSELINE_ASSIGN_OR_RETURN(payload, signer_->Verify(key, record));
    }
    FUSELINE_ASSIGN_OR_RETURN(std::vector<Digest> digests, DecodeIndexRecord(key, payload));
    int64_t size_bytes = 0;
    for (const Digest& digest : digests) size_bytes += std::min(digest.size_bytes, kMostEntryBytes);
    if (digests.size() > kMostParts || size_bytes > kMostEntryBytes)
      return InvalidArgument(ErrorReason::kDataLoss, "artifact", "the shared entry is too large");
    return digests;
  }

  // Parts that are there are not sent again; the index comes last, so that it never names what is not there.
  absl::Status Write(const Fingerprint& key, const Artifact& artifact) {
    const absl::Duration limit = kWriteTimeouts * options_.timeout;
    const std::vector<std::string> parts = SplitArtifact(artifact);
    std::vector<Digest> digests;
    std::vector<RoutedCommand> looks;
    absl::flat_hash_map<Digest, const std::string*> texts;
    int64_t size_bytes = 0;
    for (const std::string& part : parts) {
      digests.push_back(ComputeDigest(part));
      size_bytes += digests.back().size_bytes;
      texts.try_emplace(digests.back(), &part);
    }
    if (size_bytes > kMostEntryBytes || parts.size() > kMostParts) return absl::OkStatus();
    const std::vector<std::pair<Digest, const std::string*>> blobs(texts.begin(), texts.end());
    looks.reserve(blobs.size());
    for (const auto& [digest, text] : blobs) looks.push_back(Prolong(shared_->keys.Blob(digest)));
    FUSELINE_ASSIGN_OR_RETURN(const std::vector<RespValue> there, shared_->client->Run(looks, limit));
    std::vector<RoutedCommand> batch;
    int64_t batch_bytes = 0;
    for (size_t i = 0; i < blobs.size(); ++i) {
      if (there[i].integer == 1) continue;
      batch.push_back(Set(shared_->keys.Blob(blobs[i].first), *blobs[i].second));
      batch_bytes += blobs[i].first.size_bytes;
      if (batch_bytes < kBatchBytes && i + 1 < blobs.size()) continue;
      FUSELINE_RETURN_IF_ERROR(RunWrites(batch, limit));
      batch.clear();
      batch_bytes = 0;
    }
    if (!batch.empty()) FUSELINE_RETURN_IF_ERROR(RunWrites(batch, limit));
    const std::string payload = EncodeIndexRecord(key, digests);
    return RunWrites({Set(shared_->keys.Index(key), signer_ == nullptr ? payload : signer_->Sign(key, payload))},
                     limit);
  }

  absl::Status RunWrites(const std::vector<RoutedCommand>& batch, absl::Duration limit) {
    FUSELINE_ASSIGN_OR_RETURN(const std::vector<RespValue> replies, shared_->client->Run(batch, limit));
    for (const RespValue& reply : replies) {
      if (!reply.is_error()) continue;
      ++errors_;  // no room, say: trying again would not help
      return Internal(StrCat("Redis refuses a write: ", reply.text));
    }
    return absl::OkStatus();
  }

  RoutedCommand Set(const std::string& name, const std::string& value) const {
    if (options_.ttl <= absl::ZeroDuration()) return {{"SET", name, value}, name};
    return {{"SET", name, value, "PX", Ttl()}, name};
  }
  // Its reply is 1 where there is such a key.
  RoutedCommand Prolong(const std::string& name) const {
    if (options_.ttl <= absl::ZeroDuration()) return {{"EXISTS", name}, name};
    return {{"PEXPIRE", name, Ttl()}, name};
  }
  std::string Ttl() const { return StrCat(absl::ToInt64Milliseconds(options_.ttl)); }

  // The entry has been used: all of it stays for another while.
  void Refresh(const Fingerprint& key, const std::vector<Digest>& digests) {
    std::vector<RoutedCommand> commands = {Prolong(shared_->keys.Index(key))};
    for (const Digest& digest : digests) commands.push_back(Prolong(shared_->keys.Blob(digest)));
    shared_->writes->Push({static_cast<int64_t>(sizeof(Digest) * 4 * commands.size()), [this, commands] {
                             return shared_->client->Run(commands, kWriteTimeouts * options_.timeout).status();
                           }});
  }

  // Not what another has written in its place since.
  void Drop(const Fingerprint& key, const std::string& record, const std::vector<Digest>& bad_blobs) {
    const std::string index = shared_->keys.Index(key);
    std::vector<RoutedCommand> commands = {{{"EVAL", kDeleteIfScript, "1", index, record}, index}};
    for (const Digest& digest : bad_blobs) {
      const std::string blob = shared_->keys.Blob(digest);
      commands.push_back({{"DEL", blob}, blob});
    }
    shared_->client->Run(commands).IgnoreError();  // it is not used, whether or not it can be removed
  }

  Lookup Corrupt(const Fingerprint& key, const std::string& record, const std::vector<Digest>& bad_blobs) {
    ++corrupt_;
    Drop(key, record, bad_blobs);
    return Missed();
  }
  Lookup Missed() {
    ++misses_;
    return Lookup{};
  }
  absl::Status Failed(const absl::Status& status) {
    ++misses_;
    return status;
  }
  absl::Status Refused(const RespValue& reply) {
    ++misses_;
    ++errors_;
    return Internal(StrCat("Redis refuses a read: ", reply.text));
  }

  const std::shared_ptr<Shared> shared_;
  const SharedCacheOptions options_;
  const std::shared_ptr<RecordSigner> signer_;
  std::atomic<int64_t> hits_{0};
  std::atomic<int64_t> misses_{0};
  std::atomic<int64_t> corrupt_{0};
  std::atomic<int64_t> unsigned_{0};
  std::atomic<int64_t> errors_{0};
};

}  // namespace

absl::StatusOr<SharedLevel> OpenSharedLevel(const SharedCacheOptions& options, std::shared_ptr<RecordSigner> signer,
                                            const Report& report) {
  RedisClientOptions client;
  FUSELINE_ASSIGN_OR_RETURN(client.address, ParseRedisAddress(options.url));
  FUSELINE_ASSIGN_OR_RETURN(client.password, ReadPassword(options.password_file));
  client.user = options.user;
  client.tls = {options.ca_file, options.cert_file, options.key_file};
  client.timeout = options.timeout;
  client.report = report;
  auto shared = std::make_shared<Shared>(signer == nullptr ? "" : signer->name_space());
  FUSELINE_ASSIGN_OR_RETURN(shared->client, RedisClient::Create(client));
  shared->writes = std::make_unique<SharedWriteQueue>(*shared->client, options.queue_bytes);
  RedisLeaseOptions lease;
  lease.lease = options.lease;
  lease.patience = options.timeout;
  shared->coordinator = std::make_unique<RedisBuildCoordinator>(*shared->client, *shared->writes, shared->keys, lease);
  SharedLevel level;
  level.coordinator = std::shared_ptr<BuildCoordinator>(shared, shared->coordinator.get());
  level.store = std::make_unique<SharedArtifactStore>(std::move(shared), options, std::move(signer));
  return level;
}

}  // namespace fuseline::cache
