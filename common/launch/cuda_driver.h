// libcuda.so.1, opened at run time: the driver functions that are used, declared here so that building needs no CUDA
// header. Ownership: the library stays loaded for the process's life. Thread-safety: immutable after loading; the
// driver is thread-safe. Errors: FAILED_PRECONDITION (kTargetNotAvailable) with a reason that people can act on. Tested
// by tests/unit/server/cuda_device_test.cc
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace fuseline::launch {

// Opaque driver objects and addresses, as cuda.h has them.
using CuContext = struct CuContextStruct*;
using CuModule = struct CuModuleStruct*;
using CuFunction = struct CuFunctionStruct*;
using CuStream = struct CuStreamStruct*;
using CuEvent = struct CuEventStruct*;
using CuMemPool = struct CuMemPoolStruct*;
using CuDevicePtr = unsigned long long;  // NOLINT(google-runtime-int): the driver's ABI

struct CudaDriver {
  // Results that are told apart.
  static constexpr int kSuccess = 0;
  static constexpr int kOutOfMemory = 2;
  // Device attributes.
  static constexpr int kAttrL2CacheBytes = 38;
  static constexpr int kAttrComputeMajor = 75;
  static constexpr int kAttrComputeMinor = 76;
  static constexpr int kAttrMaxSharedOptin = 97;
  static constexpr int kAttrMemoryPools = 115;
  // Others.
  static constexpr int kFuncMaxDynamicShared = 8;
  static constexpr unsigned kStreamNonBlocking = 1;
  static constexpr int kCaptureNone = 0;     // a stream that is not being captured
  static constexpr int kCaptureRelaxed = 2;  // the mode in which a thread may allocate while streams are captured
  static constexpr unsigned kHostPortable = 1;
  static constexpr unsigned kHostDeviceMap = 2;
  static constexpr int kPoolReleaseThreshold = 4;
  static constexpr int kPoolReservedBytes = 5;
  static constexpr int kPoolUsedBytes = 7;

  int (*GetErrorName)(int result, const char** name);
  int (*GetErrorString)(int result, const char** text);
  int (*Init)(unsigned flags);
  int (*DriverGetVersion)(int* version);
  int (*DeviceGetCount)(int* count);
  int (*DeviceGet)(int* device, int ordinal);
  int (*DeviceGetName)(char* name, int size, int device);
  int (*DeviceTotalMem)(size_t* bytes, int device);
  int (*DeviceGetAttribute)(int* value, int attribute, int device);
  int (*DeviceGetDefaultMemPool)(CuMemPool* pool, int device);
  int (*DevicePrimaryCtxRetain)(CuContext* context, int device);
  int (*DevicePrimaryCtxRelease)(int device);
  int (*CtxPushCurrent)(CuContext context);
  int (*CtxPopCurrent)(CuContext* context);
  int (*CtxGetCurrent)(CuContext* context);
  int (*StreamCreate)(CuStream* stream, unsigned flags);
  int (*StreamDestroy)(CuStream stream);
  int (*StreamSynchronize)(CuStream stream);
  int (*StreamIsCapturing)(CuStream stream, int* status);
  int (*ThreadExchangeStreamCaptureMode)(int* mode);
  int (*ModuleLoadData)(CuModule* module, const void* image);
  int (*ModuleUnload)(CuModule module);
  int (*ModuleGetFunction)(CuFunction* function, CuModule module, const char* name);
  int (*FuncSetAttribute)(CuFunction function, int attribute, int value);
  int (*LaunchKernel)(CuFunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
                      unsigned block_y, unsigned block_z, unsigned shared_bytes, CuStream stream, void** params,
                      void** extra);
  int (*MemAlloc)(CuDevicePtr* address, size_t bytes);
  int (*MemFree)(CuDevicePtr address);
  int (*MemAllocAsync)(CuDevicePtr* address, size_t bytes, CuStream stream);
  int (*MemFreeAsync)(CuDevicePtr address, CuStream stream);
  int (*MemPoolSetAttribute)(CuMemPool pool, int attribute, void* value);
  int (*MemPoolGetAttribute)(CuMemPool pool, int attribute, void* value);
  int (*MemPoolTrimTo)(CuMemPool pool, size_t keep_bytes);
  int (*MemcpyHtoDAsync)(CuDevicePtr to, const void* from, size_t bytes, CuStream stream);
  int (*MemcpyDtoHAsync)(void* to, CuDevicePtr from, size_t bytes, CuStream stream);
  int (*MemcpyDtoDAsync)(CuDevicePtr to, CuDevicePtr from, size_t bytes, CuStream stream);
  int (*MemsetD8Async)(CuDevicePtr to, unsigned char value, size_t bytes, CuStream stream);
  int (*MemAllocHost)(void** address, size_t bytes);
  int (*MemFreeHost)(void* address);
  int (*MemHostAlloc)(void** address, size_t bytes, unsigned flags);
  int (*MemHostGetDevicePointer)(CuDevicePtr* device, void* host, unsigned flags);
  int (*EventCreate)(CuEvent* event, unsigned flags);
  int (*EventDestroy)(CuEvent event);
  int (*EventRecord)(CuEvent event, CuStream stream);
  int (*EventSynchronize)(CuEvent event);
  int (*EventElapsedTime)(float* millis, CuEvent start, CuEvent end);

  int version = 0;  // 13000 for CUDA 13.0

  // OK, or the driver's name and text of `result` after `what`: RESOURCE_EXHAUSTED (kDeviceMemory) for memory,
  // UNAVAILABLE (kNoHealthyDevice) for errors after which the context is lost, otherwise INTERNAL.
  absl::Status Check(int result, std::string_view what) const;
};

// Opens and initialises the driver.
absl::StatusOr<std::shared_ptr<const CudaDriver>> LoadCudaDriver();

}  // namespace fuseline::launch
