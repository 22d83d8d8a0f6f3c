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
#include "common/launch/prepared_launch.h"

namespace fuseline::launch {

// A cancellation check; returns the status to stop with. May be empty. Called between steps and, on a CPU, every few
// milliseconds within one, from any of the device's threads, one at a time.
using StopCheck = std::function<absl::Status()>;

// An artifact loaded on a device (CUDA modules, or shared objects). Thread-safe.
class LoadedArtifact {
 public:
  virtual ~LoadedArtifact() = default;
  virtual const Artifact& artifact() const = 0;
};
using LoadedArtifactPtr = std::shared_ptr<const LoadedArtifact>;

// What a device's pool holds.
struct MemoryUsage {
  int64_t used_bytes = 0;
  int64_t reserved_bytes = 0;  // used, or free and kept for reuse
};

// Thread-safe, except that runs on one stream are serialised by the device, and that during Reset only the calls which
// describe the device may be made. Errors of all calls: UNAVAILABLE (kNoHealthyDevice) where the device, or all that
// lay on it, is lost: until Reset, every call fails so.
class Device {
 public:
  virtual ~Device() = default;
  virtual std::string name() const = 0;  // "NVIDIA H200", or the CPU's model
  virtual Target target() const = 0;     // what it runs natively
  virtual int64_t memory_bytes() const = 0;
  virtual bool CanRun(const Target& target) const = 0;
  // Whether its memory is the host's: kernels read tensors where they lie.
  virtual bool uses_host_memory() const { return !target().is_cuda(); }
  virtual MemoryUsage memory_usage() const { return {}; }
  virtual int driver_version() const { return 0; }  // 13000 for CUDA 13.0; 0 without a driver

  virtual absl::StatusOr<LoadedArtifactPtr> Load(ArtifactPtr artifact) = 0;
  // What Load of this device has made, for launches on streams and memory of the caller's. On CUDA the device should be
  // a guest's. Errors: UNIMPLEMENTED where the device is not in this process.
  virtual absl::StatusOr<std::unique_ptr<PreparedLaunch>> Prepare(LoadedArtifactPtr artifact);
  // Device memory, 256-byte aligned, from a stream-ordered pool. Errors: RESOURCE_EXHAUSTED (kDeviceMemory).
  virtual absl::StatusOr<std::shared_ptr<void>> Allocate(int64_t size_bytes) = 0;
  virtual absl::Status CopyToDevice(void* device, const void* host, int64_t size_bytes) = 0;
  virtual absl::Status CopyToHost(void* host, const void* device, int64_t size_bytes) = 0;
  // Enqueues the plan on the device's stream: `inputs` and `outputs` are device pointers in signature order.
  // Temporaries come from the pool. `stop`: asked between steps and, on a CPU, within them; what a GPU has begun it
  // ends. A plan that checks indices is waited for. Errors: INVALID_ARGUMENT (kIndexOutOfRange) where one is out of
  // range, named as the plan names its node; the outputs then hold nothing of use.
  virtual absl::Status Run(const LoadedArtifact& artifact, absl::Span<void* const> inputs,
                           absl::Span<void* const> outputs, const StopCheck& stop) = 0;
  virtual absl::Status Synchronize() = 0;
  // Runs `iterations` times after `warmup` runs and returns the time of each, in microseconds on the device's clock;
  // flushes the device's L2 (or the CPU's cache) between them where `flush_cache`. `stop`: as Run, and between runs.
  virtual absl::StatusOr<std::vector<double>> Time(const LoadedArtifact& artifact, absl::Span<void* const> inputs,
                                                   absl::Span<void* const> outputs, int warmup, int iterations,
                                                   bool flush_cache, const StopCheck& stop) = 0;
  // Bytes read plus written a second by a plain device-to-device copy of `size_bytes`: the roof of memory-bound
  // kernels.
  virtual absl::StatusOr<double> MeasureCopyRate(int64_t size_bytes) = 0;
  // Starts over after the device was lost. What was loaded or allocated before is lost; letting go of it is safe, then
  // and later. Errors: UNAVAILABLE (kNoHealthyDevice) where it can't; trying again later may help.
  virtual absl::Status Reset() { return absl::OkStatus(); }
};

// Whether a device of target `device` runs code compiled for `code`: a cubin runs on its own architecture and, within
// the same major one, on newer minors; an architecture-specific one on its own alone.
bool RunsCodeFor(const Target& device, const Target& code);

// The CUDA devices that the driver shows (libcuda.so.1, loaded when first needed); empty and `why` filled in where
// there is none.
std::vector<std::unique_ptr<Device>> OpenCudaDevices(std::string& why);
// How many there are, without opening one; 0 and `why` filled in where there is none.
int CountCudaDevices(std::string& why);
// Whose process it is. A guest leaves the device's memory pool as it is and takes memory that every stream can use at
// once; its calls are allowed while the process captures streams into graphs.
enum class CudaTenancy : uint8_t { kOwner, kGuest };
// One of them.
absl::StatusOr<std::unique_ptr<Device>> OpenCudaDevice(int ordinal, CudaTenancy tenancy = CudaTenancy::kOwner);
// A CPU device that runs kernels on up to `threads` threads of its own pool (0: one for each core).
std::unique_ptr<Device> OpenCpuDevice(int threads);

}  // namespace fuseline::launch
