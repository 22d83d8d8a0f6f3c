// One GPU's primary context with its stream and memory pool: what CUDA devices, loaded artifacts and memory blocks
// share. Ownership: shared; the context is released with its last user, so memory may outlive the Device it came from.
// Errors: as CudaDriver::Check. Thread-safety: thread-safe; work on the one stream runs in the order of the calls.
// Tested by tests/unit/server/cuda_device_test.cc
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/launch/cuda_driver.h"
#include "common/launch/launch_plan_runner.h"

namespace fuseline::launch {

class CudaContext : public std::enable_shared_from_this<CudaContext> {
 public:
  static absl::StatusOr<std::shared_ptr<CudaContext>> Open(std::shared_ptr<const CudaDriver> driver, int ordinal,
                                                           CudaTenancy tenancy = CudaTenancy::kOwner);
  ~CudaContext();
  CudaContext(const CudaContext&) = delete;
  CudaContext& operator=(const CudaContext&) = delete;

  // Makes the context current on this thread while it lives, and what was current before again afterwards.
  class Scope {
   public:
    explicit Scope(const CudaContext& context)
        : driver_(*context.driver_),
          guest_(context.tenancy_ == CudaTenancy::kGuest),
          result_(driver_.CtxPushCurrent(context.context_)) {
      if (guest_) driver_.ThreadExchangeStreamCaptureMode(&capture_mode_);
    }
    ~Scope() {
      CuContext ignored = nullptr;
      if (guest_) driver_.ThreadExchangeStreamCaptureMode(&capture_mode_);
      if (result_ == CudaDriver::kSuccess) driver_.CtxPopCurrent(&ignored);
    }
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;
    absl::Status status() const { return driver_.Check(result_, "cuCtxPushCurrent"); }

   private:
    const CudaDriver& driver_;
    const bool guest_;
    int capture_mode_ = CudaDriver::kCaptureRelaxed;  // what the thread had, while this lives
    const int result_;
  };

  // The same for enqueueing alone, and cheaper where the context is current already, as it is beside CUDA's runtime.
  class LaunchScope {
   public:
    explicit LaunchScope(const CudaContext& context) : driver_(*context.driver_) {
      CuContext current = nullptr;
      result_ = driver_.CtxGetCurrent(&current);
      if (result_ != CudaDriver::kSuccess || current == context.context_) return;
      result_ = driver_.CtxPushCurrent(context.context_);
      pushed_ = result_ == CudaDriver::kSuccess;
    }
    ~LaunchScope() {
      CuContext ignored = nullptr;
      if (pushed_) driver_.CtxPopCurrent(&ignored);
    }
    LaunchScope(const LaunchScope&) = delete;
    LaunchScope& operator=(const LaunchScope&) = delete;
    absl::Status status() const { return driver_.Check(result_, "cuCtxPushCurrent"); }

   private:
    const CudaDriver& driver_;
    int result_ = CudaDriver::kSuccess;
    bool pushed_ = false;
  };

  const CudaDriver& driver() const { return *driver_; }
  CuStream stream() const { return stream_; }
  int attribute(int attribute) const;
  const std::string& name() const { return name_; }
  int64_t memory_bytes() const { return memory_bytes_; }

  // Device memory whose release is ordered after the stream's work so far.
  absl::StatusOr<std::shared_ptr<void>> Allocate(int64_t size_bytes);
  absl::Status Synchronize() const;
  // The pool's; 0 without a pool.
  int64_t used_bytes() const { return PoolBytes(CudaDriver::kPoolUsedBytes); }
  int64_t reserved_bytes() const { return PoolBytes(CudaDriver::kPoolReservedBytes); }

 private:
  CudaContext(std::shared_ptr<const CudaDriver> driver, int device, CudaTenancy tenancy)
      : driver_(std::move(driver)), device_(device), tenancy_(tenancy) {}
  absl::Status Init();
  int64_t PoolBytes(int attribute) const;
  int AllocateOnce(size_t size_bytes, CuDevicePtr& address);

  const std::shared_ptr<const CudaDriver> driver_;
  const int device_;
  const CudaTenancy tenancy_;
  // Fixed after Init.
  std::string name_;
  int64_t memory_bytes_ = 0;
  CuContext context_ = nullptr;
  CuStream stream_ = nullptr;
  CuMemPool pool_ = nullptr;  // null: the device has no pools, memory is allocated one by one
};

inline CuDevicePtr ToCuda(const void* address) { return reinterpret_cast<CuDevicePtr>(address); }

}  // namespace fuseline::launch
