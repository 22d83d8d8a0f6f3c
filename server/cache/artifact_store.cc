// Tested by tests/unit/server/tiered_artifact_store_test.cc
#include "server/cache/artifact_store.h"

#include <utility>

#include "absl/time/clock.h"
#include "common/status/status_macros.h"

namespace fuseline::cache {

std::string_view OutcomeName(Outcome outcome) {
  switch (outcome) {
    case Outcome::kMiss:
      return "miss";
    case Outcome::kMemoryHit:
      return "memory-hit";
    case Outcome::kDiskHit:
      return "disk-hit";
    case Outcome::kJoined:
      return "joined";
    case Outcome::kSharedHit:
      return "shared-hit";
  }
  return "unknown";
}

absl::StatusOr<Lookup> ArtifactStore::GetOrBuild(const Fingerprint& key, const Builder& build,
                                                 const WaitOptions& wait) {
  absl::StatusOr<Lookup> found = Get(key);
  if (found.ok() && found->artifact != nullptr) return found;
  FUSELINE_ASSIGN_OR_RETURN(Lookup built, BuildAnew(build, wait));
  // What can't be kept can still be used; the level that failed has counted it.
  Put(key, built.artifact).IgnoreError();
  return built;
}

absl::StatusOr<Lookup> ArtifactStore::BuildAnew(const Builder& build, const WaitOptions& wait) {
  Lookup built;
  const absl::Time start = absl::Now();
  FUSELINE_ASSIGN_OR_RETURN(built.artifact, build(BuildControl{wait.stop}));
  built.build_time = absl::Now() - start;
  return built;
}

}  // namespace fuseline::cache
