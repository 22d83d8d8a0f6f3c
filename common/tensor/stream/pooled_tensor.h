// Uninitialised tensors in reused memory: the kernel zeroes fresh pages, which costs as much as sending them over
// loopback. Ownership: the tensor keeps its block, which goes back to the pool with the last copy. Thread-safety:
// thread-safe. Errors: RESOURCE_EXHAUSTED (kDeviceMemory). Tested by tests/unit/tensor_stream/chunk_assembler_test.cc
#pragma once

#include <cstdint>
#include <memory>
#include <utility>

#include "absl/status/statusor.h"
#include "common/launch/block_pool.h"
#include "common/status/status_macros.h"
#include "common/tensor/tensor.h"

namespace fuseline {

inline absl::StatusOr<Tensor> AllocatePooled(launch::BlockPool& pool, DType dtype, Shape shape) {
  constexpr int64_t kSmallBytes = 64 << 10;  // the allocator is as good for these
  const int64_t size_bytes = ElementCount(shape) * DTypeSizeBytes(dtype);
  if (size_bytes < kSmallBytes) return Tensor::Allocate(dtype, std::move(shape));
  FUSELINE_ASSIGN_OR_RETURN(std::shared_ptr<void> block, pool.Allocate(size_bytes));
  void* const data = block.get();
  return Tensor::Borrow(dtype, std::move(shape), data, std::move(block));
}

}  // namespace fuseline
