#include "common/launch/cuda_driver.h"

#include <dlfcn.h>

#include <utility>

#include "common/status/error.h"
#include "common/status/str_cat.h"

namespace fuseline::launch {
namespace {

constexpr const char* kLibrary = "libcuda.so.1";

absl::Status NoDriver(const std::string& message) {
  return MakeError(absl::StatusCode::kFailedPrecondition, ErrorReason::kTargetNotAvailable, "cuda", message);
}

// Errors after which every call in the context fails: the device's memory and modules are lost with it.
bool LosesContext(int result) {
  switch (result) {
    case 4:    // DEINITIALIZED: the process ends
    case 46:   // DEVICES_UNAVAILABLE
    case 201:  // INVALID_CONTEXT
    case 214:  // ECC_UNCORRECTABLE
    case 220:  // NVLINK_UNCORRECTABLE
    case 700:  // ILLEGAL_ADDRESS
    case 702:  // LAUNCH_TIMEOUT
    case 709:  // CONTEXT_IS_DESTROYED
    case 710:  // ASSERT
    case 714:  // HARDWARE_STACK_ERROR
    case 715:  // ILLEGAL_INSTRUCTION
    case 716:  // MISALIGNED_ADDRESS
    case 717:  // INVALID_ADDRESS_SPACE
    case 718:  // INVALID_PC
    case 719:  // LAUNCH_FAILED
    case 802:  // SYSTEM_NOT_READY
    case 999:  // UNKNOWN
      return true;
    default:
      return false;
  }
}

// Looks up functions and remembers the first that is missing.
class SymbolTable {
 public:
  explicit SymbolTable(void* handle) : handle_(handle) {}
  template <typename F>
  void Find(const char* name, F*& function) {
    function = reinterpret_cast<F*>(dlsym(handle_, name));
    if (function == nullptr && missing_.empty()) missing_ = name;
  }
  const std::string& missing() const { return missing_; }

 private:
  void* handle_;
  std::string missing_;
};

}  // namespace

absl::Status CudaDriver::Check(int result, std::string_view what) const {
  if (result == kSuccess) return absl::OkStatus();
  const char* name = nullptr;
  const char* text = nullptr;
  if (GetErrorName(result, &name) != kSuccess || name == nullptr) name = "CUDA_ERROR";
  if (GetErrorString(result, &text) != kSuccess || text == nullptr) text = "no description";
  const std::string message = StrCat(what, ": ", name, " (", result, "): ", text);
  if (result == kOutOfMemory)
    return MakeError(absl::StatusCode::kResourceExhausted, ErrorReason::kDeviceMemory, "", message);
  if (LosesContext(result))
    return MakeError(absl::StatusCode::kUnavailable, ErrorReason::kNoHealthyDevice, "", message);
  return Internal(message);
}

absl::StatusOr<std::shared_ptr<const CudaDriver>> LoadCudaDriver() {
  void* handle = dlopen(kLibrary, RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    const char* error = dlerror();
    return NoDriver(StrCat("no NVIDIA driver: ", error == nullptr ? kLibrary : error));
  }
  auto driver = std::make_shared<CudaDriver>();
  CudaDriver& d = *driver;
  SymbolTable table(handle);
  table.Find("cuGetErrorName", d.GetErrorName);
  table.Find("cuGetErrorString", d.GetErrorString);
  table.Find("cuInit", d.Init);
  table.Find("cuDriverGetVersion", d.DriverGetVersion);
  table.Find("cuDeviceGetCount", d.DeviceGetCount);
  table.Find("cuDeviceGet", d.DeviceGet);
  table.Find("cuDeviceGetName", d.DeviceGetName);
  table.Find("cuDeviceTotalMem_v2", d.DeviceTotalMem);
  table.Find("cuDeviceGetAttribute", d.DeviceGetAttribute);
  table.Find("cuDeviceGetDefaultMemPool", d.DeviceGetDefaultMemPool);
  table.Find("cuDevicePrimaryCtxRetain", d.DevicePrimaryCtxRetain);
  table.Find("cuDevicePrimaryCtxRelease_v2", d.DevicePrimaryCtxRelease);
  table.Find("cuCtxPushCurrent_v2", d.CtxPushCurrent);
  table.Find("cuCtxPopCurrent_v2", d.CtxPopCurrent);
  table.Find("cuCtxGetCurrent", d.CtxGetCurrent);
  table.Find("cuStreamCreate", d.StreamCreate);
  table.Find("cuStreamDestroy_v2", d.StreamDestroy);
  table.Find("cuStreamSynchronize", d.StreamSynchronize);
  table.Find("cuStreamIsCapturing", d.StreamIsCapturing);
  table.Find("cuThreadExchangeStreamCaptureMode", d.ThreadExchangeStreamCaptureMode);
  table.Find("cuModuleLoadData", d.ModuleLoadData);
  table.Find("cuModuleUnload", d.ModuleUnload);
  table.Find("cuModuleGetFunction", d.ModuleGetFunction);
  table.Find("cuFuncSetAttribute", d.FuncSetAttribute);
  table.Find("cuLaunchKernel", d.LaunchKernel);
  table.Find("cuMemAlloc_v2", d.MemAlloc);
  table.Find("cuMemFree_v2", d.MemFree);
  table.Find("cuMemAllocAsync", d.MemAllocAsync);
  table.Find("cuMemFreeAsync", d.MemFreeAsync);
  table.Find("cuMemPoolSetAttribute", d.MemPoolSetAttribute);
  table.Find("cuMemPoolGetAttribute", d.MemPoolGetAttribute);
  table.Find("cuMemPoolTrimTo", d.MemPoolTrimTo);
  table.Find("cuMemcpyHtoDAsync_v2", d.MemcpyHtoDAsync);
  table.Find("cuMemcpyDtoHAsync_v2", d.MemcpyDtoHAsync);
  table.Find("cuMemcpyDtoDAsync_v2", d.MemcpyDtoDAsync);
  table.Find("cuMemsetD8Async", d.MemsetD8Async);
  table.Find("cuMemAllocHost_v2", d.MemAllocHost);
  table.Find("cuMemFreeHost", d.MemFreeHost);
  table.Find("cuMemHostAlloc", d.MemHostAlloc);
  table.Find("cuMemHostGetDevicePointer_v2", d.MemHostGetDevicePointer);
  table.Find("cuEventCreate", d.EventCreate);
  table.Find("cuEventDestroy_v2", d.EventDestroy);
  table.Find("cuEventRecord", d.EventRecord);
  table.Find("cuEventSynchronize", d.EventSynchronize);
  table.Find("cuEventElapsedTime", d.EventElapsedTime);
  if (!table.missing().empty())
    return NoDriver(StrCat("the NVIDIA driver is too old: it has no '", table.missing(), "'"));

  // The toolkit's stub of the driver answers 34 here; a driver without a device answers 100.
  if (const int result = d.Init(0); result != CudaDriver::kSuccess) {
    return NoDriver(result == 34 ? std::string("no NVIDIA driver: the libcuda that was found is the toolkit's stub")
                                 : StrCat("no usable GPU: ", std::string(d.Check(result, "cuInit").message())));
  }
  if (d.DriverGetVersion(&d.version) != CudaDriver::kSuccess) d.version = 0;
  return std::shared_ptr<const CudaDriver>(std::move(driver));
}

}  // namespace fuseline::launch
