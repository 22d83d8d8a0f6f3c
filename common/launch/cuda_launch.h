// Local launches on a GPU: a loaded artifact with the arenas of the streams that it is launched on, and the notes of
// its index checks. Pipeline: LoadedCudaArtifact -> PreparedCudaLaunch -> Launch. The context is a guest's
// (CudaTenancy). The notes lie in host memory that the device sees, so that a call can look at those of earlier ones
// without waiting, and a captured graph needs no copy: kernels write there only when an index is out of range.
// Thread-safety, errors: as PreparedLaunch. Tested by tests/gpu/local_launch_test.cc
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "common/launch/cuda_artifact.h"
#include "common/launch/pointer_checks.h"
#include "common/launch/prepared_launch.h"

namespace fuseline::launch {

class PreparedCudaLaunch : public PreparedLaunch {
 public:
  static absl::StatusOr<std::unique_ptr<PreparedLaunch>> Prepare(std::shared_ptr<const LoadedCudaArtifact> loaded);
  ~PreparedCudaLaunch() override;

  const Artifact& artifact() const override { return loaded_->artifact(); }
  absl::Status Launch(void* const* inputs, void* const* outputs, void* arena, void* stream) override
      ABSL_LOCKS_EXCLUDED(mutex_);
  absl::Status PrepareStream(void* stream, bool own_arena) override ABSL_LOCKS_EXCLUDED(mutex_);
  absl::Status Check(void* stream) override ABSL_LOCKS_EXCLUDED(mutex_);
  absl::Status ForgetStream(void* stream) override ABSL_LOCKS_EXCLUDED(mutex_);
  bool Finish() override ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  // A stream that was launched on, and the arena that it has, if any.
  struct StreamSlot {
    CuStream stream = nullptr;
    std::shared_ptr<void> arena;
  };

  explicit PreparedCudaLaunch(std::shared_ptr<const LoadedCudaArtifact> loaded)
      : loaded_(std::move(loaded)), context_(loaded_->context()), pointers_(loaded_->artifact().plan) {}
  absl::Status Init();
  StreamSlot& Slot(CuStream stream) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status NeedArena(StreamSlot& slot) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool Noted() const;
  absl::Status TakeNotes();

  const std::shared_ptr<const LoadedCudaArtifact> loaded_;
  CudaContext& context_;
  const PointerChecks pointers_;
  // Fixed after Init; two elements for each check. What they hold is the device's to write.
  volatile int64_t* notes_ = nullptr;
  CuDevicePtr device_notes_ = 0;
  absl::Mutex mutex_;  // held while a call is enqueued: calls on one stream share its arena
  std::vector<StreamSlot> slots_ ABSL_GUARDED_BY(mutex_);
  size_t last_slot_ ABSL_GUARDED_BY(mutex_) = 0;  // most callers have one stream
};

}  // namespace fuseline::launch
