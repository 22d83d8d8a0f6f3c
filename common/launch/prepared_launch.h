// A loaded artifact made ready to be launched again and again, on streams and memory of the caller's: what a call needs
// is laid out once, so that it is one pass over the steps. For clients that launch locally; servers use Device::Run.
// Pipeline: Artifact -> Device::Load -> LoadedArtifact -> Device::Prepare -> PreparedLaunch -> Launch.
// Ownership: keeps the artifact loaded and its device's memory alive. A stream (a CUstream; null: the legacy default
// stream) belongs to the caller, and outlives this or is forgotten first. On a CPU streams are not looked at.
// Thread-safety: thread-safe; launches of one object exclude each other while they are enqueued.
// Tested by tests/unit/client/launch/launch_api_test.cc, tests/gpu/local_launch_test.cc
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "common/artifact/artifact.h"

namespace fuseline::launch {

class PreparedLaunch {
 public:
  virtual ~PreparedLaunch() = default;
  virtual const Artifact& artifact() const = 0;

  // Enqueues one call; on a CPU, runs it. `inputs` and `outputs` are device pointers in the signature's order, as many
  // as it has. `arena`: memory for the temporaries, 256-byte aligned; null: own memory, kept for the stream.
  // Nothing is enqueued on an error. Errors: INVALID_ARGUMENT (kTensorMismatch) for a pointer that is null or not
  // aligned, (kIndexOutOfRange) for an index that kernels found to be out of range: on CUDA those of an earlier call,
  // which are reported once; RESOURCE_EXHAUSTED (kDeviceMemory); UNAVAILABLE (kNoHealthyDevice).
  virtual absl::Status Launch(void* const* inputs, void* const* outputs, void* arena, void* stream) = 0;
  // Makes ready what the first launch on `stream` would.
  virtual absl::Status PrepareStream(void* stream, bool own_arena) = 0;
  // Waits for `stream` and reports an index out of range of the calls that are done, once.
  virtual absl::Status Check(void* stream) = 0;
  // Waits for `stream` and gives back what is kept for it.
  virtual absl::Status ForgetStream(void* stream) = 0;
  // Waits for all streams that were launched on, so that destroying this is safe; false where one is being captured,
  // which waiting would break.
  virtual bool Finish() = 0;
};

}  // namespace fuseline::launch
