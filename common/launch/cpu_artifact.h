// An artifact loaded on a CPU: shared objects, constants, and the kernels' arguments laid out once, so that a call
// fills in the addresses of its tensors and walks over the steps. Pipeline: Artifact -> LoadedCpuArtifact::Load -> Run,
// once a call, from the server's runs and from local launches. Ownership: keeps the artifact and its code alive.
// Thread-safety: thread-safe, but runs need their device's lock. Errors: INTERNAL for code that can't be loaded. Tested
// by tests/unit/server/cpu_device_test.cc
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/artifact/artifact.h"
#include "common/launch/block_pool.h"
#include "common/launch/cpu_threads.h"
#include "common/launch/launch_plan_runner.h"
#include "common/launch/shared_object.h"

namespace fuseline::launch {

class LoadedCpuArtifact : public LoadedArtifact {
 public:
  static absl::StatusOr<std::shared_ptr<LoadedCpuArtifact>> Load(ArtifactPtr artifact, BlockPool& pool);
  const Artifact& artifact() const override { return *artifact_; }

  // Runs the steps on `threads`, always the same ones. `arena`: of plan.arena_bytes. `stop`: asked between steps and
  // within them. Errors: INVALID_ARGUMENT (kIndexOutOfRange).
  absl::Status Run(void* const* inputs, void* const* outputs, void* arena, CpuThreads& threads,
                   const StopCheck& stop) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(threads.mutex());

 private:
  using Kernel = void (*)(void* const* buffers, int64_t begin, int64_t end);
  struct Step {
    Kernel kernel = nullptr;    // null for copies
    size_t first_argument = 0;  // in arguments_; of copies, from and to
    int64_t items = 0;          // of copies, bytes
    int64_t grain = 1;
  };
  // An argument, and which tensor or what place of the arena it is.
  struct ArgumentSource {
    size_t argument = 0;
    size_t source = 0;
  };

  explicit LoadedCpuArtifact(ArtifactPtr artifact) : artifact_(std::move(artifact)) {}
  absl::Status InitKernels(std::vector<Kernel>& kernels);
  absl::Status InitConstants(BlockPool& pool);
  void InitSteps(const std::vector<Kernel>& kernels);
  void AddArgument(size_t buffer);

  const ArtifactPtr artifact_;
  // Fixed after loading.
  std::vector<std::unique_ptr<SharedObject>> objects_;
  std::shared_ptr<void> constant_block_;
  std::vector<void*> constants_;  // by index
  std::vector<Step> steps_;
  std::vector<ArgumentSource> inputs_;
  std::vector<ArgumentSource> outputs_;
  std::vector<ArgumentSource> temporaries_;
  // Of the run that holds the device's lock.
  mutable std::vector<void*> arguments_;
  mutable std::vector<int64_t> noted_;  // by the index checks
};

}  // namespace fuseline::launch
