// The cache's interface: fingerprint -> artifact. Decorators add levels, checks, single-flight and metrics.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/artifact/artifact.h"
#include "common/fingerprint/fingerprint.h"

namespace fuseline::cache {

enum class Outcome : uint8_t { kMiss = 0, kMemoryHit = 1, kDiskHit = 2, kJoined = 3, kSharedHit = 4 };
std::string_view OutcomeName(Outcome outcome);  // "miss", "memory-hit", "disk-hit", "joined", "shared-hit"

struct Lookup {
  ArtifactPtr artifact;  // null: not there
  Outcome outcome = Outcome::kMiss;
  absl::Duration build_time;  // of a kMiss or kJoined: what the build took
};

// How far a request for an artifact has come. Reported in this order, kQueued and kBuilding only where it is built or
// joins a build.
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
  std::string level;  // "memory", "rocksdb"
  int64_t entries = 0;
  int64_t size_bytes = 0;
  int64_t hits = 0;
  int64_t misses = 0;
  int64_t corrupt = 0;  // dropped because a check failed
  int64_t evictions = 0;
  int64_t errors = 0;  // reads or writes that failed; the service went on without this level
  bool available = true;
  std::string reason;  // why it is not
};

struct StoreStats {
  std::vector<LevelStats> levels;
  int64_t builds = 0;  // artifacts compiled
  int64_t joins = 0;   // requests that shared another's build
};

// It may outlive the caller of GetOrBuild, so it owns all that it needs.
using Builder = std::function<absl::StatusOr<ArtifactPtr>(const BuildControl&)>;

// Thread-safe. A level that fails is passed over: an error of the disk never fails a request.
class ArtifactStore {
 public:
  virtual ~ArtifactStore() = default;
  // Not being there is not an error: a null artifact.
  virtual absl::StatusOr<Lookup> Get(const Fingerprint& key) = 0;
  virtual absl::Status Put(const Fingerprint& key, const ArtifactPtr& artifact) = 0;
  virtual absl::Status Delete(const Fingerprint& key) = 0;
  // Adds the statistics of this store and those inside it.
  virtual void AddStats(StoreStats& stats) const = 0;
  // Get, or build and Put. The single-flight decorator makes it one build however many ask.
  virtual absl::StatusOr<Lookup> GetOrBuild(const Fingerprint& key, const Builder& build, const WaitOptions& wait = {});
};

// Level 0: least recently used by bytes.
std::unique_ptr<ArtifactStore> MakeMemoryStore(int64_t capacity_bytes);
// Level 1: RocksDB in `directory`, made where absent. An entry is an index record (graph key -> digests of kernels and
// the rest) and blobs by content; a hit only if all of its blobs are there. Errors: what opening the database says; a
// broken or newer one is moved aside.
absl::StatusOr<std::unique_ptr<ArtifactStore>> MakeRocksDbStore(const std::string& directory, int64_t capacity_bytes);
// Looks in `fast`, then in `slow`; a hit in `slow` fills `fast`; Put goes to both.
std::unique_ptr<ArtifactStore> MakeTieredStore(std::unique_ptr<ArtifactStore> fast,
                                               std::unique_ptr<ArtifactStore> slow);
// Drops what does not match its key: other fingerprint, a compiler identity that does not start with `identity_prefix`
// (the digest of this build's code generator; artifacts of several compilers share a store), a plan that does not
// validate.
std::unique_ptr<ArtifactStore> MakeCheckedStore(std::unique_ptr<ArtifactStore> inner, std::string identity_prefix);
std::unique_ptr<ArtifactStore> MakeSingleFlightStore(std::unique_ptr<ArtifactStore> inner);
// Counts hits, misses and builds of everything beneath.
std::unique_ptr<ArtifactStore> MakeMetricsStore(std::unique_ptr<ArtifactStore> inner);

}  // namespace fuseline::cache
