// The artifacts that are loaded on one device, so that running one again costs a look-up: least recently used go first.
// Ownership: an artifact that is dropped here stays loaded while an execution holds it.
// Thread-safety: thread-safe; two first uses at the same time may both load, one of the results stays.
// Tested by tests/unit/server/loaded_artifacts_test.cc
#pragma once

#include <cstdint>
#include <list>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "common/artifact/artifact.h"
#include "common/launch/launch_plan_runner.h"

namespace fuseline::executor {

class LoadedArtifacts {
 public:
  LoadedArtifacts(launch::Device& device, size_t max_count, int64_t max_bytes)
      : device_(device), max_count_(max_count), max_bytes_(max_bytes) {}

  // Errors: as Device::Load.
  absl::StatusOr<launch::LoadedArtifactPtr> Get(const ArtifactPtr& artifact) ABSL_LOCKS_EXCLUDED(mutex_);
  // Drops all: after a loss they are of no use.
  void Clear() ABSL_LOCKS_EXCLUDED(mutex_);
  size_t count() const ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  struct Entry {
    Fingerprint key;
    launch::LoadedArtifactPtr loaded;
    int64_t size_bytes = 0;
  };

  launch::Device& device_;
  const size_t max_count_;
  const int64_t max_bytes_;
  mutable absl::Mutex mutex_;
  std::list<Entry> entries_ ABSL_GUARDED_BY(mutex_);  // most recently used first
  absl::flat_hash_map<Fingerprint, std::list<Entry>::iterator> index_ ABSL_GUARDED_BY(mutex_);
  int64_t size_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace fuseline::executor
