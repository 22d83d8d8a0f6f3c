// An artifact loaded on a GPU: modules, constants, and the steps laid out for being enqueued, so that a call fills in
// the addresses of its tensors and walks over the steps.
// Pipeline: Artifact -> LoadedCudaArtifact::Load -> Enqueue, once a call, from the server's runs and from local
// launches. Ownership: keeps context and artifact alive; its code must not run any more when it goes: it waits for the
// context's own stream, others are for the caller to wait for. Errors: as CudaDriver::Check. Thread-safety:
// thread-safe. Tested by tests/unit/server/cuda_device_test.cc, tests/gpu/local_launch_test.cc
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "common/artifact/artifact.h"
#include "common/launch/cuda_context.h"
#include "common/launch/cuda_transfer.h"
#include "common/launch/launch_plan_runner.h"

namespace fuseline::launch {

class LoadedCudaArtifact : public LoadedArtifact {
 public:
  static absl::StatusOr<std::shared_ptr<LoadedCudaArtifact>> Load(ArtifactPtr artifact,
                                                                  std::shared_ptr<CudaContext> context,
                                                                  CudaTransfer& transfer);
  ~LoadedCudaArtifact() override;
  const Artifact& artifact() const override { return *artifact_; }
  CudaContext& context() const { return *context_; }

  // Enqueues the steps on `stream`; the context is current. `inputs` and `outputs`: device pointers in the signature's
  // order; `arena`: of plan.arena_bytes; `checks`: of ChecksBytes, null where the plan has none. `stop` is asked
  // between steps.
  absl::Status Enqueue(void* const* inputs, void* const* outputs, const void* arena, CuDevicePtr checks,
                       CuStream stream, const StopCheck& stop) const ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  struct Step {
    CuFunction function = nullptr;  // null for copies
    unsigned grid[3] = {};
    unsigned block[3] = {};
    unsigned dynamic_shared_bytes = 0;
    size_t first_param = 0;  // in params_
    // Copies: positions in addresses_.
    size_t from = 0;
    size_t to = 0;
    size_t copy_bytes = 0;
    int32_t kernel = 0;
  };
  // A buffer, and which tensor or what place of the arena it is.
  struct BufferSource {
    size_t buffer = 0;
    size_t source = 0;
  };

  LoadedCudaArtifact(ArtifactPtr artifact, std::shared_ptr<CudaContext> context)
      : artifact_(std::move(artifact)), context_(std::move(context)) {}
  absl::Status Init(CudaTransfer& transfer);
  absl::Status InitModules(std::vector<CuFunction>& functions);
  absl::Status InitConstants(CudaTransfer& transfer) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void InitAddresses() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status InitSteps(const std::vector<CuFunction>& functions) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status AllowSharedMemory(const PlanStep& step, CuFunction function, int64_t& allowed_bytes);
  absl::Status StepError(int result, const Step& step) const;

  const ArtifactPtr artifact_;
  const std::shared_ptr<CudaContext> context_;
  // Fixed after Init.
  std::vector<CuModule> modules_;
  std::shared_ptr<void> constant_block_;
  std::vector<CuDevicePtr> constants_;
  std::vector<Step> steps_;
  std::vector<BufferSource> inputs_;
  std::vector<BufferSource> outputs_;
  std::vector<BufferSource> temporaries_;
  std::vector<size_t> checks_;  // buffers
  // Of the call that is being enqueued. params_ points into addresses_ and the plan's sizes.
  mutable absl::Mutex mutex_;
  mutable std::vector<CuDevicePtr> addresses_ ABSL_GUARDED_BY(mutex_);  // by buffer
  mutable std::vector<void*> params_ ABSL_GUARDED_BY(mutex_);
  mutable CuDevicePtr arena_ ABSL_GUARDED_BY(mutex_) = 0;  // whose places addresses_ has
};

}  // namespace fuseline::launch
