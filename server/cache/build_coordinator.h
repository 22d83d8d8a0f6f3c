// Makes equal builds one build across machines: who claims a key builds it, the others wait to be told.
// Pipeline: single_flight_artifact_store (one build in a process) -> BuildCoordinator (one in the cluster).
// Thread-safety: thread-safe. Errors: none; a coordinator that can't be asked lets everybody build.
// Tested by tests/unit/server/redis_lease_test.cc (ours) and single_flight_artifact_store_test.cc (its user)
#pragma once

#include <cstdint>
#include <functional>

#include "common/fingerprint/fingerprint.h"

namespace fuseline::cache {

enum class Claim : uint8_t {
  kMine,         // build it, then Release
  kOthers,       // another builds it: `wake` will be called
  kPublished,    // it is there: look again
  kUnavailable,  // nobody can be asked: build it
};

class BuildCoordinator {
 public:
  virtual ~BuildCoordinator() = default;
  // Called, on one of the coordinator's threads, for each key for which TryClaim has said kOthers: once the artifact is
  // there, its build has failed, its builder has died or nobody can be asked any more. It may come before TryClaim
  // returns, and once more than needed. To be set before the first TryClaim.
  virtual void OnWake(std::function<void(const Fingerprint&)> wake) = 0;
  // Blocking: for the time limit of one operation.
  virtual Claim TryClaim(const Fingerprint& key) = 0;
  // The build of a key that was kMine has ended, and what it gave has been put into the store. Others hear of it when
  // that has been written.
  virtual void Release(const Fingerprint& key) = 0;
  // Returns when no `wake` runs any more; none will.
  virtual void Stop() = 0;
};

}  // namespace fuseline::cache
