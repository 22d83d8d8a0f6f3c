#include "common/launch/cuda_transfer.h"

#include <string.h>

#include <algorithm>

#include "common/status/status_macros.h"

namespace fuseline::launch {

CudaTransfer::~CudaTransfer() {
  const CudaContext::Scope scope(*context_);
  absl::MutexLock lock(&mutex_);
  for (Chunk& chunk : chunks_) {
    if (chunk.copied != nullptr) {
      context_->driver().EventSynchronize(chunk.copied);
      context_->driver().EventDestroy(chunk.copied);
    }
    if (chunk.host != nullptr) context_->driver().MemFreeHost(chunk.host);
  }
}

absl::Status CudaTransfer::Init() {
  const CudaDriver& driver = context_->driver();
  for (Chunk& chunk : chunks_) {
    if (chunk.host == nullptr) {
      FUSELINE_RETURN_IF_ERROR(
          driver.Check(driver.MemAllocHost(&chunk.host, kChunkBytes), "allocate page-locked memory"));
    }
    if (chunk.copied == nullptr)
      FUSELINE_RETURN_IF_ERROR(driver.Check(driver.EventCreate(&chunk.copied, 0), "cuEventCreate"));
  }
  return absl::OkStatus();
}

absl::Status CudaTransfer::ToDevice(void* device, const void* host, int64_t size_bytes) {
  if (size_bytes <= 0) return absl::OkStatus();
  const CudaDriver& driver = context_->driver();
  const CudaContext::Scope scope(*context_);
  FUSELINE_RETURN_IF_ERROR(scope.status());
  absl::MutexLock lock(&mutex_);
  FUSELINE_RETURN_IF_ERROR(Init());
  for (int64_t offset = 0, n = 0; offset < size_bytes; offset += kChunkBytes, ++n) {
    const size_t bytes = static_cast<size_t>(std::min(kChunkBytes, size_bytes - offset));
    const Chunk& chunk = chunks_[n % kChunks];
    FUSELINE_RETURN_IF_ERROR(driver.Check(driver.EventSynchronize(chunk.copied), "copy to the device"));
    memcpy(chunk.host, static_cast<const char*>(host) + offset, bytes);
    FUSELINE_RETURN_IF_ERROR(driver.Check(driver.MemcpyHtoDAsync(ToCuda(device) + static_cast<CuDevicePtr>(offset),
                                                                 chunk.host, bytes, context_->stream()),
                                          "copy to the device"));
    FUSELINE_RETURN_IF_ERROR(driver.Check(driver.EventRecord(chunk.copied, context_->stream()), "copy to the device"));
  }
  return absl::OkStatus();
}

absl::Status CudaTransfer::ToHost(void* host, const void* device, int64_t size_bytes) {
  if (size_bytes <= 0) return absl::OkStatus();
  const CudaDriver& driver = context_->driver();
  const CudaContext::Scope scope(*context_);
  FUSELINE_RETURN_IF_ERROR(scope.status());
  absl::MutexLock lock(&mutex_);
  FUSELINE_RETURN_IF_ERROR(Init());
  const int64_t count = (size_bytes + kChunkBytes - 1) / kChunkBytes;
  const auto bytes_of = [&](int64_t n) {
    return static_cast<size_t>(std::min(kChunkBytes, size_bytes - n * kChunkBytes));
  };
  // Starts the copy of chunk n; chunk n - kChunks has been taken out of its place by then.
  const auto start = [&](int64_t n) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) -> absl::Status {
    const Chunk& chunk = chunks_[n % kChunks];
    FUSELINE_RETURN_IF_ERROR(
        driver.Check(driver.MemcpyDtoHAsync(chunk.host, ToCuda(device) + static_cast<CuDevicePtr>(n * kChunkBytes),
                                            bytes_of(n), context_->stream()),
                     "copy to the host"));
    return driver.Check(driver.EventRecord(chunk.copied, context_->stream()), "copy to the host");
  };
  // An upload may still read the chunks; the stream's order keeps these copies behind it.
  for (int64_t n = 0; n < std::min<int64_t>(kChunks, count); ++n) FUSELINE_RETURN_IF_ERROR(start(n));
  for (int64_t n = 0; n < count; ++n) {
    const Chunk& chunk = chunks_[n % kChunks];
    FUSELINE_RETURN_IF_ERROR(driver.Check(driver.EventSynchronize(chunk.copied), "copy to the host"));
    memcpy(static_cast<char*>(host) + n * kChunkBytes, chunk.host, bytes_of(n));
    if (n + kChunks < count) FUSELINE_RETURN_IF_ERROR(start(n + kChunks));
  }
  return absl::OkStatus();
}

}  // namespace fuseline::launch
