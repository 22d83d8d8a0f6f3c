// The cache's interface: fingerprint -> artifact. Decorators add levels, checks, single-flight and metrics.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/artifact/artifact.h"
#include "common/fingerprint/fingerprint.h"
#include "server/cache/build_coordinator.h"

namespace fuseline::cache {

class RecordSigner;
struct KeyRecord;

enum class Outcome : uint8_t { kMiss = 0, kMemoryHit = 1, kDiskHit = 2, kJoined = 3, kSharedHit = 4 };
std::string_view OutcomeName(Outcome outcome);  // "miss", "memory-hit", "disk-hit", "joined", "shared-hit"

struct Lookup {
  ArtifactPtr artifact;  // null: not there
  Outcome outcome = Outcome::kMiss;
  absl::Duration build_time;  // of a kMiss or kJoined: what the build took
  bool was_idle = false;      // of a kMemoryHit: the levels below have not heard of its use for a while: see Touch
};

// How far a request for an artifact has come. Reported in this order, kQueued and kBuilding only where it is built or
// joins a build, kDone only where there is an artifact.
enum class BuildStage : uint8_t { kCacheCheck = 1, kQueued = 2, kBuilding = 3, kDone = 4 };

// How a caller waits for a build.
struct WaitOptions {
  absl::Time deadline = absl::InfiniteFuture();
  std::function<absl::Status()> stop;             // asked now and then; the status to give up with; may be empty
  std::function<void(BuildStage)> on_stage = {};  // called on the caller's thread; may be empty
};

// What a build is told while it runs.
struct BuildControl {
  // OK, or the status to stop with, since nobody waits for the build any more. To be asked between stages; may be
  // empty.
  std::function<absl::Status()> stop;
};

struct LevelStats {
  std::string level;  // "memory", "rocksdb", "redis"
  int64_t entries = 0;
  int64_t size_bytes = 0;
  int64_t hits = 0;
  int64_t misses = 0;
  int64_t corrupt = 0;  // dropped because a check failed
  int64_t evictions = 0;
  int64_t errors = 0;  // reads or writes that failed; the service went on without this level
  bool available = true;
  std::string reason;            // why it is not
  int64_t unsigned_entries = 0;  // of `corrupt`: were not signed, or signed wrongly, where they must be
};

// Of the level that machines share, besides its LevelStats.
struct SharedCacheStats {
  int breaker_state = 0;          // 0 closed (in use), 1 half-open (being tried), 2 open (not asked)
  int64_t breaker_opened = 0;     // how often it was
  int64_t queue_bytes = 0;        // writes waiting, now
  int64_t queue_drops = 0;        // writes that did not fit, or could not be made
  int64_t leases_held = 0;        // now
  int64_t builds_watched = 0;     // that other servers have, and requests here wait for, now
  int64_t leases_acquired = 0;    // each for a build
  int64_t leases_waited = 0;      // builds that another server had the lease of
  int64_t leases_taken_over = 0;  // of those acquired, from a server that let its own expire
  int64_t leases_lost = 0;        // while this server still built
};

struct StoreStats {
  std::vector<LevelStats> levels;
  std::optional<SharedCacheStats> shared;  // none: no shared level
  int64_t builds = 0;                      // artifacts compiled
  int64_t joins = 0;                       // requests that shared another's build
  int64_t build_errors = 0;                // builds that ended without an artifact
  double build_seconds = 0;                // that all builds took
  double seconds_saved = 0;  // that building what hits served took, once, here or in an earlier life of the disk cache
  int64_t known_errors = 0;  // requests answered with a failure that was remembered
  int64_t builds_waiting = 0;  // for a thread, now
  int64_t builds_running = 0;  // now
};

// What is to be dropped: entries with these keys, all, or those that were last used longer ago than `unused_for`.
struct EvictRequest {
  std::vector<Fingerprint> keys;
  bool all = false;
  absl::Duration unused_for = absl::InfiniteDuration();
};
struct EvictResult {
  int64_t entries = 0;
  int64_t size_bytes = 0;
};

// The entry that is nearest to a key that has none.
struct NearestEntry {
  Fingerprint key;
  int64_t nearness = 0;  // as of Nearness; 0: none found
  int64_t compared = 0;  // entries that were looked at
};

// It may outlive the caller of GetOrBuild, so it owns all that it needs.
using Builder = std::function<absl::StatusOr<ArtifactPtr>(const BuildControl&)>;

// Thread-safe. A level that fails is passed over: an error of the disk never fails a request.
class ArtifactStore {
 public:
  virtual ~ArtifactStore() = default;
  // Not being there is not an error: a null artifact.
  virtual absl::StatusOr<Lookup> Get(const Fingerprint& key) = 0;
  // As Get, where that takes microseconds: nothing where it is not in memory, which is not counted as a miss.
  virtual Lookup GetInMemory(const Fingerprint& key) { return {}; }
  virtual absl::Status Put(const Fingerprint& key, const ArtifactPtr& artifact) = 0;
  // A faster level has it: Put, in the background, where this level lacks it. Only the shared level does.
  virtual void Offer(const Fingerprint& key, const ArtifactPtr& artifact) {}
  virtual absl::Status Delete(const Fingerprint& key) = 0;
  // Adds the statistics of this store and those inside it.
  virtual void AddStats(StoreStats& stats) const = 0;
  // The entry was used just now, in a level above.
  virtual void Touch(const Fingerprint& key) {}
  // Calls `visit` with each level, fastest first; levels that are out of service are left out. What follows is for
  // levels alone: decorators need not know of it.
  virtual void ForEachLevel(const std::function<void(ArtifactStore& level)>& visit) { visit(*this); }
  // Drops entries, which are not counted as evictions. What can't be removed stays.
  virtual EvictResult Evict(const EvictRequest& request) { return {}; }
  // Adds the keys of the entries that this machine keeps, in no order.
  virtual void AddKeys(std::vector<Fingerprint>& keys) const {}
  // As Get, without a trace in statistics and in the order of use. Null where it is not there or damaged.
  virtual ArtifactPtr Peek(const Fingerprint& key) { return nullptr; }
  // Replaces `nearest` where an entry of this level is nearer to `wanted`; its own key does not count. Looks at all
  // entries, up to a bound.
  virtual void FindNearest(const KeyRecord& wanted, NearestEntry& nearest) const {}
  // Get, or build and Put. The single-flight decorator makes it one build however many ask.
  virtual absl::StatusOr<Lookup> GetOrBuild(const Fingerprint& key, const Builder& build, const WaitOptions& wait = {});
  // Builds without looking or keeping: a kMiss.
  virtual absl::StatusOr<Lookup> BuildAnew(const Builder& build, const WaitOptions& wait = {});
  // Refuses new builds from now on and waits for those that run; hits are served on.
  virtual void Drain() {}
};

// Told what an operator should know, when it happens: one line, on any thread. May be empty.
using Report = std::function<void(const std::string& line)>;

struct BuildPoolOptions {
  int threads = 1;         // builds at a time
  int max_waiting = 1024;  // for a thread; more are refused
  // For how long a build that nobody waits for any more goes on, so that who asks again finds it.
  absl::Duration linger = absl::Seconds(30);
  // Makes it one build on all servers; may be null. What others build waits without a thread.
  std::shared_ptr<BuildCoordinator> coordinator;
};

// How a level that failed comes back: tried by a thread of its own, after `first_retry`, then twice as long each time
// up to `longest_retry`.
struct RecoveryOptions {
  absl::Duration first_retry = absl::Seconds(1);
  absl::Duration longest_retry = absl::Seconds(30);
  Report report;
};
// Opens a level. `start_anew`: what is there is known to be broken.
using StoreOpener = std::function<absl::StatusOr<std::unique_ptr<ArtifactStore>>(bool start_anew)>;

// Level 0: least recently used by bytes.
std::unique_ptr<ArtifactStore> MakeMemoryStore(int64_t capacity_bytes);
// Level 1: RocksDB in `directory`, made where absent. An entry is an index record (graph key -> digests of kernels and
// the rest) and blobs by content; a hit only if all of its blobs are there. A broken database or one of another format
// version is moved aside, into a folder beside it, and reported; with `start_anew` a readable one too. What is not a
// cache of this program is left alone. Errors: what opening the database says; FAILED_PRECONDITION where the folder is
// another's; UNAVAILABLE where another process has it. The store's own errors: DATA_LOSS where the database turns out
// to be broken, else INTERNAL.
struct RocksDbOptions {
  int64_t capacity_bytes = 16ll << 30;
  bool start_anew = false;
  Report report;
  absl::Duration max_idle = absl::InfiniteDuration();  // entries that were not used for longer go
  std::shared_ptr<const RecordSigner> signer = {};     // null: neither signatures nor a namespace
};
absl::StatusOr<std::unique_ptr<ArtifactStore>> MakeRocksDbStore(const std::string& directory,
                                                                const RocksDbOptions& options);
// Serves without the level while it can't be opened or has failed, says so in its statistics, and opens it again when
// that works. Opens it once before it returns. An operation that fails takes the level out of service; DATA_LOSS starts
// it anew.
std::unique_ptr<ArtifactStore> MakeRecoveringStore(const std::string& level, StoreOpener open,
                                                   const RecoveryOptions& options);
// Looks in `fast`, then in `slow`; a hit in `slow` fills `fast`; Put goes to both.
std::unique_ptr<ArtifactStore> MakeTieredStore(std::unique_ptr<ArtifactStore> fast,
                                               std::unique_ptr<ArtifactStore> slow);
// As MakeTieredStore, but the request does not wait for the filling of `fast`, which a thread does; of entries that
// come faster than that, some are not filled in. What is found in `fast` is offered to `slow`.
std::unique_ptr<ArtifactStore> MakeLazilyFilledStore(std::unique_ptr<ArtifactStore> fast,
                                                     std::unique_ptr<ArtifactStore> slow);
// Whether an artifact is what its key says, as MakeCheckedStore has it.
bool MatchesKey(const Fingerprint& key, const Artifact& artifact, const std::string& identity_prefix);
// Drops what does not match its key: another fingerprint, one that the artifact's graph, target, options and compiler
// identity do not give, a compiler identity that does not start with `identity_prefix` (the digest of this build's code
// generator; artifacts of several compilers share a store), a plan that does not validate.
std::unique_ptr<ArtifactStore> MakeCheckedStore(std::unique_ptr<ArtifactStore> inner, std::string identity_prefix);
// Builds run on threads of its own; callers wait. An artifact is kept before anybody is given it. Errors of GetOrBuild:
// the builder's, shared by those who wait and not kept; RESOURCE_EXHAUSTED (kQueueFull); UNAVAILABLE (kDraining);
// DEADLINE_EXCEEDED (kCancelled) at `deadline`; what `stop` says.
std::unique_ptr<ArtifactStore> MakeSingleFlightStore(std::unique_ptr<ArtifactStore> inner,
                                                     const BuildPoolOptions& options = {});
// Remembers failures that would come again (IsLasting), so that asking for the key answers them at once, without a
// build, for `duration`; 0: does not. An artifact that is put ends that. Bounded: the oldest are forgotten first.
std::unique_ptr<ArtifactStore> MakeNegativeStore(std::unique_ptr<ArtifactStore> inner, absl::Duration duration);
// Serves the entries of an export file besides those of `inner`, which may be null, without copying them there. Level
// "seed". What is put goes to `inner`. Its entries are checked as MakeCheckedStore does. Where the file can't be read,
// the level is out of service and says why.
std::unique_ptr<ArtifactStore> MakeSeedStore(const std::string& path, std::unique_ptr<ArtifactStore> inner,
                                             std::shared_ptr<const RecordSigner> signer, std::string identity_prefix);
// Counts requests by outcome, and the seconds that hits saved.
std::unique_ptr<ArtifactStore> MakeMetricsStore(std::unique_ptr<ArtifactStore> inner);

}  // namespace fuseline::cache
