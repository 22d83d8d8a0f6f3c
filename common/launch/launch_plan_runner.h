// Runs launch plans on one device. One piece of code for the server's executor and for clients that launch locally.
// Ownership: a LoadedArtifact keeps its kernels loaded and its artifact alive.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/artifact/artifact.h"

namespace fuseline::launch {

// A cancellation check, called between steps; returns the status to stop with. May be empty.
using StopCheck = std::function<absl::Status()>;

// An artifact loaded on a device (CUDA modules, or shared objects). Thread-safe.
class LoadedArtifact {
 public:
  virtual ~LoadedArtifact() = default;
  virtual const Artifact& artifact() const = 0;
};
using LoadedArtifactPtr = std::shared_ptr<const LoadedArtifact>;

// The figures of one run.
struct RunTimings {
  double device_micros = 0;  // of the steps, on the device's clock
};

// Thread-safe, except that runs on one stream are serialised by the device.
class Device {
 public:
  virtual ~Device() = default;
  virtual std::string name() const = 0;  // "NVIDIA H200", or the CPU's model
  virtual Target target() const = 0;     // what it runs natively
  virtual int64_t memory_bytes() const = 0;
  virtual bool CanRun(const Target& target) const = 0;

  virtual absl::StatusOr<LoadedArtifactPtr> Load(ArtifactPtr artifact) = 0;
  // Device memory, 256-byte aligned, from a stream-ordered pool. Errors: RESOURCE_EXHAUSTED (kDeviceMemory).
  virtual absl::StatusOr<std::shared_ptr<void>> Allocate(int64_t size_bytes) = 0;
  virtual absl::Status CopyToDevice(void* device, const void* host, int64_t size_bytes) = 0;
  virtual absl::Status CopyToHost(void* host, const void* device, int64_t size_bytes) = 0;
  // Enqueues the plan on the device's stream: `inputs` and `outputs` are device pointers in signature order.
  // Temporaries come from the pool.
  virtual absl::Status Run(const LoadedArtifact& artifact, absl::Span<void* const> inputs,
                           absl::Span<void* const> outputs, const StopCheck& stop) = 0;
  virtual absl::Status Synchronize() = 0;
  // Runs `iterations` times after `warmup` runs and returns the time of each, in microseconds on the device's clock;
  // flushes the device's L2 (or the CPU's cache) between them where `flush_cache`.
  virtual absl::StatusOr<std::vector<double>> Time(const LoadedArtifact& artifact, absl::Span<void* const> inputs,
                                                   absl::Span<void* const> outputs, int warmup, int iterations,
                                                   bool flush_cache) = 0;
  // Bytes read plus written a second by a plain device-to-device copy of `size_bytes`: the roof of memory-bound
  // kernels.
  virtual absl::StatusOr<double> MeasureCopyRate(int64_t size_bytes) = 0;
};

// The CUDA devices that the driver shows (libcuda.so.1, loaded when first needed); empty and `why` filled in where
// there is none.
std::vector<std::unique_ptr<Device>> OpenCudaDevices(std::string& why);
// A CPU device that runs kernels on up to `threads` threads of its own pool (0: one for each core).
std::unique_ptr<Device> OpenCpuDevice(int threads);

}  // namespace fuseline::launch
