#include "client/cpp/pinned_artifacts.h"

#include "absl/strings/str_cat.h"
#include "common/artifact/codec/artifact_codec.h"
#include "common/status/error.h"

namespace fuseline::client {

std::string ArtifactDigest(const Artifact& artifact) {
  Artifact run = artifact;
  run.report = {};
  for (KernelImage& kernel : run.kernels) kernel.source.clear();
  return ComputeDigest(SerializeArtifact(run)).ToHex();
}

absl::Status PinnedArtifacts::Check(const Artifact& artifact) {
  if (digests_.empty()) return absl::OkStatus();
  const auto refused = [](const std::string& message) {
    return MakeError(absl::StatusCode::kDataLoss, ErrorReason::kDataLoss, "lock", message);
  };
  const auto pinned = digests_.find(artifact.fingerprint);
  if (pinned == digests_.end()) {
    return refused(absl::StrCat("the lock file has no graph with the key ", artifact.fingerprint.ToHex(),
                                ": the graph, its options or the compiler have changed, or it was never locked"));
  }
  if (const std::string digest = ArtifactDigest(artifact); digest != pinned->second) {
    return refused(absl::StrCat("the lock file has the artifact ", pinned->second, " for the key ",
                                artifact.fingerprint.ToHex(), ", this is ", digest));
  }
  absl::MutexLock lock(&mutex_);
  accepted_.insert(artifact.fingerprint);
  return absl::OkStatus();
}

bool PinnedArtifacts::WasAccepted(const Fingerprint& key) const {
  absl::MutexLock lock(&mutex_);
  return accepted_.contains(key);
}

}  // namespace fuseline::client
