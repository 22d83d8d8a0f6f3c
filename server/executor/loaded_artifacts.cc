#include "server/executor/loaded_artifacts.h"

#include <utility>
#include <vector>

#include "common/status/status_macros.h"

namespace fuseline::executor {
namespace {

// Code and constants: what an artifact takes on the device.
int64_t LoadedBytes(const Artifact& artifact) {
  int64_t bytes = 0;
  for (const KernelImage& kernel : artifact.kernels) bytes += static_cast<int64_t>(kernel.bytes.size());
  for (const std::string& constant : artifact.plan.constants) bytes += static_cast<int64_t>(constant.size());
  return bytes;
}

// Equal fingerprints mean equal programs, but an artifact built anew (or by hand) must not run another one's code, and
// the comparison costs next to nothing where both are one object.
bool IsSameProgram(const Artifact& a, const Artifact& b) {
  if (&a == &b) return true;
  if (a.target != b.target || a.kernels.size() != b.kernels.size() || a.plan.constants != b.plan.constants ||
      a.plan.steps.size() != b.plan.steps.size() || a.plan.buffers.size() != b.plan.buffers.size() ||
      a.plan.inputs.size() != b.plan.inputs.size() || a.plan.outputs.size() != b.plan.outputs.size() ||
      a.plan.arena_bytes != b.plan.arena_bytes) {
    return false;
  }
  for (size_t k = 0; k < a.kernels.size(); ++k) {
    if (a.kernels[k].entry != b.kernels[k].entry || a.kernels[k].bytes != b.kernels[k].bytes) return false;
  }
  return true;
}

}  // namespace

absl::StatusOr<launch::LoadedArtifactPtr> LoadedArtifacts::Get(const ArtifactPtr& artifact) {
  {
    absl::MutexLock lock(&mutex_);
    const auto it = index_.find(artifact->fingerprint);
    if (it != index_.end() && IsSameProgram(it->second->loaded->artifact(), *artifact)) {
      entries_.splice(entries_.begin(), entries_, it->second);
      return it->second->loaded;
    }
  }
  FUSELINE_ASSIGN_OR_RETURN(launch::LoadedArtifactPtr loaded, device_.Load(artifact));
  std::vector<launch::LoadedArtifactPtr> dropped;  // unloaded after the lock is given back
  absl::MutexLock lock(&mutex_);
  const auto drop = [&](std::list<Entry>::iterator entry) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    size_bytes_ -= entry->size_bytes;
    index_.erase(entry->key);
    dropped.push_back(std::move(entry->loaded));
    entries_.erase(entry);
  };
  if (const auto it = index_.find(artifact->fingerprint); it != index_.end()) drop(it->second);
  entries_.push_front({artifact->fingerprint, loaded, LoadedBytes(*artifact)});
  index_[artifact->fingerprint] = entries_.begin();
  size_bytes_ += entries_.front().size_bytes;
  while (entries_.size() > 1 && (entries_.size() > max_count_ || size_bytes_ > max_bytes_))
    drop(std::prev(entries_.end()));
  return loaded;
}

void LoadedArtifacts::Clear() {
  std::list<Entry> dropped;  // unloaded after the lock is given back
  absl::MutexLock lock(&mutex_);
  dropped.swap(entries_);
  index_.clear();
  size_bytes_ = 0;
}

size_t LoadedArtifacts::count() const {
  absl::MutexLock lock(&mutex_);
  return entries_.size();
}

}  // namespace fuseline::executor
