// Launches compiled graphs in this process, on its own device, streams and memory: the C++ face of what
// client/launch/fuseline_launch.h is for other languages, over the same runner.
// Pipeline: Client::Compile -> CompileResult::artifact -> LocalCallable::Load -> Launch.
//
//   FUSELINE_ASSIGN_OR_RETURN(auto device, fuseline::client::LocalDevice::OpenCuda(0));
//   FUSELINE_ASSIGN_OR_RETURN(auto compiled, client->Compile({.graph = graph, .target = device->target()}));
//   FUSELINE_ASSIGN_OR_RETURN(auto callable, fuseline::client::LocalCallable::Load(device, compiled.artifact));
//   FUSELINE_RETURN_IF_ERROR(callable->Launch({x, w}, {y}, stream));
//
// Units: bytes. Ownership: a callable keeps its device; pointers and streams stay the caller's, and a stream outlives
// the callable or is forgotten first. Thread-safety: thread-safe. Blocking: on CUDA no launch waits; on a CPU it has
// been done when Launch returns. Streams, graph capture and index checks: as fuseline_launch.h says.
// Tested by tests/unit/client/local_launch_test.cc
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/artifact/artifact.h"
#include "common/launch/launch_plan_runner.h"
#include "common/launch/prepared_launch.h"

namespace fuseline::client {

class LocalDevice {
 public:
  // In the primary context of this process, beside whatever else uses it. Errors: FAILED_PRECONDITION
  // (kTargetNotAvailable) without a driver or such a GPU.
  static absl::StatusOr<std::shared_ptr<const LocalDevice>> OpenCuda(int ordinal);
  // `threads`, the caller's among them; 0: one for each core.
  static std::shared_ptr<const LocalDevice> OpenCpu(int threads = 0);

  std::string name() const { return device_->name(); }
  Target target() const { return device_->target(); }

 private:
  friend class LocalCallable;
  explicit LocalDevice(std::unique_ptr<launch::Device> device) : device_(std::move(device)) {}
  const std::unique_ptr<launch::Device> device_;
};

class LocalCallable {
 public:
  // Checks the artifact and loads it. Errors: INVALID_ARGUMENT (kDataLoss) for a plan that can't be run;
  // FAILED_PRECONDITION for another target or a newer driver; RESOURCE_EXHAUSTED (kDeviceMemory).
  static absl::StatusOr<std::unique_ptr<LocalCallable>> Load(std::shared_ptr<const LocalDevice> device,
                                                             ArtifactPtr artifact);

  // The signature: names, dtypes, shapes, strides, alignment.
  const std::vector<PlanTensor>& inputs() const { return launch_->artifact().plan.inputs; }
  const std::vector<PlanTensor>& outputs() const { return launch_->artifact().plan.outputs; }
  int64_t arena_bytes() const { return launch_->artifact().plan.arena_bytes; }

  // Device pointers in the signature's order. `arena`: arena_bytes() of memory, 256-byte aligned, in the stream's
  // order; null: memory of the callable's own. Errors: as PreparedLaunch::Launch; INVALID_ARGUMENT (kTensorMismatch)
  // for another number of pointers.
  absl::Status Launch(absl::Span<void* const> inputs, absl::Span<void* const> outputs, void* stream = nullptr,
                      void* arena = nullptr);
  // Waits for `stream` and reports an index out of range, once.
  absl::Status Check(void* stream = nullptr) { return launch_->Check(stream); }
  // Waits for `stream` and gives back what is kept for it.
  absl::Status ForgetStream(void* stream) { return launch_->ForgetStream(stream); }

 private:
  LocalCallable(std::shared_ptr<const LocalDevice> device, std::unique_ptr<launch::PreparedLaunch> launch)
      : device_(std::move(device)), launch_(std::move(launch)) {}
  const std::shared_ptr<const LocalDevice> device_;
  const std::unique_ptr<launch::PreparedLaunch> launch_;
};

}  // namespace fuseline::client
