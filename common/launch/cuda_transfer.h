// Copies between pageable host memory and a GPU by way of page-locked chunks, so that the copy engine and the host's
// memcpy overlap. Errors: as CudaDriver::Check. Thread-safety: thread-safe; one transfer at a time. Tested by
// tests/unit/server/cuda_device_test.cc
#pragma once

#include <cstdint>
#include <memory>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "common/launch/cuda_context.h"

namespace fuseline::launch {

class CudaTransfer {
 public:
  explicit CudaTransfer(std::shared_ptr<CudaContext> context) : context_(std::move(context)) {}
  ~CudaTransfer();
  CudaTransfer(const CudaTransfer&) = delete;
  CudaTransfer& operator=(const CudaTransfer&) = delete;

  // Returns when `host` has been read; the device has the bytes before the stream's later work begins.
  absl::Status ToDevice(void* device, const void* host, int64_t size_bytes) ABSL_LOCKS_EXCLUDED(mutex_);
  // Returns when `host` has the bytes that the stream's earlier work left in `device`.
  absl::Status ToHost(void* host, const void* device, int64_t size_bytes) ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  struct Chunk {
    void* host = nullptr;      // page-locked
    CuEvent copied = nullptr;  // the copy engine is done with it
  };
  static constexpr int kChunks = 2;
  // At 50 GB/s a chunk takes 84 us, long beside the few microseconds that starting a copy costs.
  static constexpr int64_t kChunkBytes = 4 << 20;

  absl::Status Init() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const std::shared_ptr<CudaContext> context_;
  absl::Mutex mutex_;
  Chunk chunks_[kChunks] ABSL_GUARDED_BY(mutex_);
};

}  // namespace fuseline::launch
