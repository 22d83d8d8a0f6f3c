// What artifacts a client accepts, where a job pins them: digests by graph key, as a lock file has them.
// Thread-safety: thread-safe. Errors: DATA_LOSS (kDataLoss) for an artifact that is not pinned, or another one than the
// pinned one. Tested by tests/unit/client/client_cache_test.cc
#pragma once

#include <map>
#include <set>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "common/artifact/artifact.h"
#include "common/fingerprint/fingerprint.h"

namespace fuseline::client {

// SHA-256 in hex of the artifact in its serialised form, without report and source: of what is run.
std::string ArtifactDigest(const Artifact& artifact);

class PinnedArtifacts {
 public:
  // Graph key -> ArtifactDigest. Empty: everything is accepted.
  explicit PinnedArtifacts(std::map<Fingerprint, std::string> digests) : digests_(std::move(digests)) {}

  bool empty() const { return digests_.empty(); }
  absl::Status Check(const Artifact& artifact);
  // Whether an artifact with this key has passed Check.
  bool WasAccepted(const Fingerprint& key) const;

 private:
  const std::map<Fingerprint, std::string> digests_;
  mutable absl::Mutex mutex_;
  std::set<Fingerprint> accepted_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace fuseline::client
