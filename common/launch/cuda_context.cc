#include "common/launch/cuda_context.h"

#include <utility>

#include "common/status/error.h"
#include "common/status/status_macros.h"
#include "common/status/str_cat.h"

namespace fuseline::launch {
namespace {

// Freed memory stays in the pool up to this many bytes, since giving it back to the driver costs far more than most
// kernels.
constexpr uint64_t kPoolReleaseThreshold = ~uint64_t{0};

}  // namespace

absl::StatusOr<std::shared_ptr<CudaContext>> CudaContext::Open(std::shared_ptr<const CudaDriver> driver, int ordinal,
                                                               CudaTenancy tenancy) {
  int device = 0;
  FUSELINE_RETURN_IF_ERROR(driver->Check(driver->DeviceGet(&device, ordinal), "cuDeviceGet"));
  std::shared_ptr<CudaContext> context(new CudaContext(std::move(driver), device, tenancy));
  FUSELINE_RETURN_IF_ERROR(context->Init());
  return context;
}

absl::Status CudaContext::Init() {
  char name[256] = {};
  FUSELINE_RETURN_IF_ERROR(driver_->Check(driver_->DeviceGetName(name, sizeof(name) - 1, device_), "cuDeviceGetName"));
  name_ = name;
  size_t bytes = 0;
  FUSELINE_RETURN_IF_ERROR(driver_->Check(driver_->DeviceTotalMem(&bytes, device_), "cuDeviceTotalMem"));
  memory_bytes_ = static_cast<int64_t>(bytes);
  FUSELINE_RETURN_IF_ERROR(
      driver_->Check(driver_->DevicePrimaryCtxRetain(&context_, device_), "cuDevicePrimaryCtxRetain"));
  const Scope scope(*this);
  FUSELINE_RETURN_IF_ERROR(scope.status());
  FUSELINE_RETURN_IF_ERROR(
      driver_->Check(driver_->StreamCreate(&stream_, CudaDriver::kStreamNonBlocking), "cuStreamCreate"));
  if (tenancy_ == CudaTenancy::kOwner && attribute(CudaDriver::kAttrMemoryPools) == 1 &&
      driver_->DeviceGetDefaultMemPool(&pool_, device_) == CudaDriver::kSuccess) {
    uint64_t threshold = kPoolReleaseThreshold;
    FUSELINE_RETURN_IF_ERROR(driver_->Check(
        driver_->MemPoolSetAttribute(pool_, CudaDriver::kPoolReleaseThreshold, &threshold), "cuMemPoolSetAttribute"));
  } else {
    pool_ = nullptr;
  }
  return absl::OkStatus();
}

CudaContext::~CudaContext() {
  if (context_ == nullptr) return;
  {
    const Scope scope(*this);
    if (stream_ != nullptr) driver_->StreamDestroy(stream_);
  }
  driver_->DevicePrimaryCtxRelease(device_);
}

int CudaContext::attribute(int attribute) const {
  int value = 0;
  return driver_->DeviceGetAttribute(&value, attribute, device_) == CudaDriver::kSuccess ? value : 0;
}

int64_t CudaContext::PoolBytes(int attribute) const {
  uint64_t bytes = 0;
  if (pool_ == nullptr || driver_->MemPoolGetAttribute(pool_, attribute, &bytes) != CudaDriver::kSuccess) return 0;
  return static_cast<int64_t>(bytes);
}

int CudaContext::AllocateOnce(size_t size_bytes, CuDevicePtr& address) {
  return pool_ != nullptr ? driver_->MemAllocAsync(&address, size_bytes, stream_)
                          : driver_->MemAlloc(&address, size_bytes);
}

absl::StatusOr<std::shared_ptr<void>> CudaContext::Allocate(int64_t size_bytes) {
  if (size_bytes < 0 || size_bytes > memory_bytes_) {
    return MakeError(absl::StatusCode::kResourceExhausted, ErrorReason::kDeviceMemory, "",
                     StrCat("'", name_, "' has ", memory_bytes_, " bytes of memory, not ", size_bytes));
  }
  const Scope scope(*this);
  FUSELINE_RETURN_IF_ERROR(scope.status());
  const size_t bytes = size_bytes == 0 ? 1 : static_cast<size_t>(size_bytes);
  CuDevicePtr address = 0;
  int result = AllocateOnce(bytes, address);
  if (result == CudaDriver::kOutOfMemory && pool_ != nullptr) {
    // What the pool holds may be in pieces too small: give it all back and try once more.
    driver_->StreamSynchronize(stream_);
    driver_->MemPoolTrimTo(pool_, 0);
    result = AllocateOnce(bytes, address);
  }
  FUSELINE_RETURN_IF_ERROR(driver_->Check(result, StrCat("allocate ", size_bytes, " bytes on '", name_, "'")));
  return std::shared_ptr<void>(reinterpret_cast<void*>(address), [self = shared_from_this()](void* block) {
    const Scope release_scope(*self);
    if (self->pool_ != nullptr) {
      self->driver_->MemFreeAsync(ToCuda(block), self->stream_);
    } else {
      self->driver_->MemFree(ToCuda(block));  // waits for the device
    }
  });
}

absl::Status CudaContext::Synchronize() const {
  const Scope scope(*this);
  FUSELINE_RETURN_IF_ERROR(scope.status());
  return driver_->Check(driver_->StreamSynchronize(stream_), StrCat("run on '", name_, "'"));
}

}  // namespace fuseline::launch
