// What a process with CUDA of its own has, for tests of local launches: the primary context, made current, a stream in
// it, memory, and graphs captured from the stream. Everything by the driver's own functions.
// Thread-safety: thread-compatible. Errors: as CudaDriver::Check.
#pragma once

#include <dlfcn.h>

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/launch/cuda_context.h"
#include "common/launch/cuda_driver.h"
#include "common/status/status_macros.h"

namespace fuseline::testing {

using CuGraph = struct CuGraphStruct*;
using CuGraphExec = struct CuGraphExecStruct*;

class GpuProcess {
 public:
  static absl::StatusOr<std::unique_ptr<GpuProcess>> Start() {
    FUSELINE_ASSIGN_OR_RETURN(std::shared_ptr<const launch::CudaDriver> driver, launch::LoadCudaDriver());
    std::unique_ptr<GpuProcess> process(new GpuProcess(std::move(driver)));
    FUSELINE_RETURN_IF_ERROR(process->Init());
    return process;
  }
  ~GpuProcess() {
    if (graph_exec_ != nullptr) graph_exec_destroy_(graph_exec_);
    for (const launch::CuDevicePtr address : memory_) driver_->MemFree(address);
    if (stream_ != nullptr) driver_->StreamDestroy(stream_);
    launch::CuContext ignored = nullptr;
    if (context_ != nullptr) {
      driver_->CtxPopCurrent(&ignored);
      driver_->DevicePrimaryCtxRelease(0);
    }
  }
  GpuProcess(const GpuProcess&) = delete;
  GpuProcess& operator=(const GpuProcess&) = delete;

  const launch::CudaDriver& driver() const { return *driver_; }
  launch::CuContext context() const { return context_; }
  launch::CuStream stream() const { return stream_; }
  int capture_mode = 0;  // global: the strictest

  // Kept until this goes.
  absl::StatusOr<void*> Allocate(size_t bytes) {
    launch::CuDevicePtr address = 0;
    FUSELINE_RETURN_IF_ERROR(driver_->Check(driver_->MemAlloc(&address, bytes), "cuMemAlloc"));
    memory_.push_back(address);
    return reinterpret_cast<void*>(address);
  }
  template <typename T>
  absl::Status ToDevice(void* device, const std::vector<T>& host) {
    FUSELINE_RETURN_IF_ERROR(driver_->Check(
        driver_->MemcpyHtoDAsync(launch::ToCuda(device), host.data(), host.size() * sizeof(T), stream_), "copy"));
    return Synchronize();
  }
  template <typename T>
  absl::Status ToHost(std::vector<T>& host, const void* device) {
    FUSELINE_RETURN_IF_ERROR(driver_->Check(
        driver_->MemcpyDtoHAsync(host.data(), launch::ToCuda(device), host.size() * sizeof(T), stream_), "copy"));
    return Synchronize();
  }
  absl::Status Synchronize() { return driver_->Check(driver_->StreamSynchronize(stream_), "synchronize"); }

  absl::Status BeginCapture() { return driver_->Check(begin_capture_(stream_, capture_mode), "cuStreamBeginCapture"); }
  // What was captured, ready for Replay.
  absl::Status EndCapture() {
    CuGraph graph = nullptr;
    FUSELINE_RETURN_IF_ERROR(driver_->Check(end_capture_(stream_, &graph), "cuStreamEndCapture"));
    const int result = instantiate_(&graph_exec_, graph, 0);
    graph_destroy_(graph);
    return driver_->Check(result, "cuGraphInstantiate");
  }
  absl::Status Replay() { return driver_->Check(graph_launch_(graph_exec_, stream_), "cuGraphLaunch"); }

 private:
  explicit GpuProcess(std::shared_ptr<const launch::CudaDriver> driver) : driver_(std::move(driver)) {}

  template <typename F>
  static absl::Status Find(void* library, const char* name, F*& function) {
    function = reinterpret_cast<F*>(dlsym(library, name));
    return function != nullptr ? absl::OkStatus() : absl::NotFoundError(name);
  }
  absl::Status Init() {
    void* library = dlopen("libcuda.so.1", RTLD_NOW);
    if (library == nullptr) return absl::NotFoundError("libcuda.so.1");
    FUSELINE_RETURN_IF_ERROR(Find(library, "cuStreamBeginCapture_v2", begin_capture_));
    FUSELINE_RETURN_IF_ERROR(Find(library, "cuStreamEndCapture", end_capture_));
    FUSELINE_RETURN_IF_ERROR(Find(library, "cuGraphInstantiateWithFlags", instantiate_));
    FUSELINE_RETURN_IF_ERROR(Find(library, "cuGraphLaunch", graph_launch_));
    FUSELINE_RETURN_IF_ERROR(Find(library, "cuGraphDestroy", graph_destroy_));
    FUSELINE_RETURN_IF_ERROR(Find(library, "cuGraphExecDestroy", graph_exec_destroy_));
    FUSELINE_RETURN_IF_ERROR(driver_->Check(driver_->DevicePrimaryCtxRetain(&context_, 0), "cuDevicePrimaryCtxRetain"));
    FUSELINE_RETURN_IF_ERROR(driver_->Check(driver_->CtxPushCurrent(context_), "cuCtxPushCurrent"));
    return driver_->Check(driver_->StreamCreate(&stream_, launch::CudaDriver::kStreamNonBlocking), "cuStreamCreate");
  }

  const std::shared_ptr<const launch::CudaDriver> driver_;
  launch::CuContext context_ = nullptr;
  launch::CuStream stream_ = nullptr;
  std::vector<launch::CuDevicePtr> memory_;
  CuGraphExec graph_exec_ = nullptr;
  int (*begin_capture_)(launch::CuStream, int mode) = nullptr;
  int (*end_capture_)(launch::CuStream, CuGraph*) = nullptr;
  int (*instantiate_)(CuGraphExec*, CuGraph, unsigned long long flags) = nullptr;  // NOLINT: the driver's ABI
  int (*graph_launch_)(CuGraphExec, launch::CuStream) = nullptr;
  int (*graph_destroy_)(CuGraph) = nullptr;
  int (*graph_exec_destroy_)(CuGraphExec) = nullptr;
};

}  // namespace fuseline::testing
