// Runs artifacts on tensors: a worker for each device, inputs in, outputs out.
// Pipeline: Artifact, tensors -> Execute -> tensors. Knows neither code generation, compilers nor caches.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/artifact/artifact.h"
#include "common/launch/launch_plan_runner.h"
#include "common/tensor/tensor.h"
#include "server/executor/device_health.h"
#include "server/executor/tensor_store.h"

namespace fuseline::executor {

struct DeviceInfo {
  int32_t ordinal = 0;  // among this executor's devices
  std::string name;
  Target target;
  int64_t memory_bytes = 0;
  bool healthy = true;
  int64_t executions = 0;   // that succeeded
  int64_t queue_depth = 0;  // executions that wait or run
  std::string unhealthy_reason;
  int64_t resets = 0;                 // contexts lost and built again
  int64_t failures = 0;               // executions that the device failed
  double queue_seconds = 0;           // that executions have waited, all together
  double run_seconds = 0;             // that executions have run, transfers included
  int64_t bytes_to_device = 0;        // inputs moved into the device's memory; 0 where that is the host's
  int64_t bytes_to_host = 0;          // results moved out of it
  int64_t memory_used_bytes = 0;      // of the device's memory, by this process
  int64_t memory_reserved_bytes = 0;  // used, or held free for reuse
  int64_t kept_bytes = 0;             // of memory_used_bytes: kept tensors, and copies of them
};

struct ExecutorOptions {
  int cpu_devices = 1;  // 0: none
  int cpu_threads = 0;  // for each CPU device; 0: cores / cpu_devices
  bool use_cuda = true;
  int max_queue = 256;  // waiting executions for each device; more: RESOURCE_EXHAUSTED (kQueueFull)
  RebuildOptions rebuild;
  // Where CUDA devices come from: `why` is filled in where there are none. Empty: launch::OpenCudaDevices, which can't
  // be rebuilt in this process once one is lost; see server/device_worker.
  std::function<std::vector<std::unique_ptr<launch::Device>>(std::string& why)> open_cuda;
  // For tests: puts a device of the caller's around each one that is opened. `ordinal`: among this executor's.
  std::function<std::unique_ptr<launch::Device>(std::unique_ptr<launch::Device>, int ordinal)> wrap_device;
};

// An input of a run: a tensor that came with the call, or one that the store keeps.
struct Argument {
  Argument(Tensor t) : tensor(std::move(t)) {}           // NOLINT(google-explicit-constructor)
  Argument(StoredTensorPtr s) : stored(std::move(s)) {}  // NOLINT(google-explicit-constructor)
  Tensor tensor;
  StoredTensorPtr stored;  // null: `tensor`
  DType dtype() const { return stored != nullptr ? StoredDType(*stored) : tensor.dtype(); }
  const Shape& shape() const { return stored != nullptr ? StoredShape(*stored) : tensor.shape(); }
};
std::vector<Argument> Arguments(const std::vector<Tensor>& tensors);

struct ExecuteOptions {
  absl::Time deadline = absl::InfiniteFuture();
  launch::StopCheck cancelled;  // may be empty
  int32_t device = -1;          // -1: the least busy one that can run the target
  std::vector<bool> keep;       // by output; empty: none. These stay where they are, as Execution::kept.
};

struct Execution {
  std::vector<Tensor> outputs;        // in signature order; without data where kept
  std::vector<StoredTensorPtr> kept;  // by output, null where not kept; empty where none is
  int32_t device = 0;
  double queue_micros = 0;
  double run_micros = 0;  // transfers and kernels
};

struct BenchResult {
  std::vector<double> micros;  // one for each iteration
  double copy_bytes_per_second = 0;
  int32_t device = 0;
};

// Thread-safe. Execute blocks.
class Executor {
 public:
  static absl::StatusOr<std::unique_ptr<Executor>> Create(const ExecutorOptions& options);
  ~Executor();
  std::vector<DeviceInfo> Devices() const;
  // OK, or FAILED_PRECONDITION (kTargetNotAvailable) saying why there is no device for it.
  absl::Status CanRun(const Target& target) const;
  // `inputs` in signature order, dense row-major; strided inputs are laid out as the plan says. A kept tensor goes to a
  // device once and stays there; among devices that are equally busy, the one where the inputs lie is taken. A run
  // whose device is lost is run again on another. Errors: INVALID_ARGUMENT (kTensorMismatch) naming the input;
  // RESOURCE_EXHAUSTED (kQueueFull, kDeviceMemory); DEADLINE_EXCEEDED and CANCELLED, within milliseconds on a CPU, on a
  // GPU after the kernels that have begun; FAILED_PRECONDITION; UNAVAILABLE (kNoHealthyDevice), also where a kept input
  // was lost with its device.
  absl::StatusOr<Execution> Execute(const ArtifactPtr& artifact, const std::vector<Argument>& inputs,
                                    const ExecuteOptions& options);
  // Times the plan on device-resident inputs. Cancelling and the deadline are honoured between iterations, on a CPU
  // within them too.
  absl::StatusOr<BenchResult> Bench(const ArtifactPtr& artifact, const std::vector<Tensor>& inputs, int warmup,
                                    int iterations, const ExecuteOptions& options = {});
  // The tensor in host memory, copied from its device where it lies there alone; the copy stays. Errors: UNAVAILABLE
  // (kNoHealthyDevice) where it was lost with its device.
  absl::StatusOr<Tensor> Fetch(const StoredTensorPtr& tensor);
  // Stops taking work and waits for what runs.
  void Drain();

 private:
  class Impl;
  explicit Executor(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace fuseline::executor
