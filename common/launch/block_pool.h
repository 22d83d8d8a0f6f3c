// Host memory in large aligned blocks, kept for reuse: the first touch of fresh pages costs more than most kernels.
// Ownership: a block returns to the pool when its last owner lets go; blocks keep the pool alive.
// Units: bytes. Errors: RESOURCE_EXHAUSTED (kDeviceMemory): over the pool's bound, or a large block while the system
// has no memory for it. Thread-safety: thread-safe. Tested by tests/unit/server/block_pool_test.cc
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"

namespace fuseline::launch {

class BlockPool : public std::enable_shared_from_this<BlockPool> {
 public:
  // Up to `max_idle_bytes` of free blocks are kept. Blocks in use never take more than `max_used_bytes` together.
  static std::shared_ptr<BlockPool> Create(int64_t max_idle_bytes, int64_t max_used_bytes = INT64_MAX);
  ~BlockPool();

  // At least `size_bytes` of uninitialised memory, 256-byte aligned; never null, also for 0 bytes.
  absl::StatusOr<std::shared_ptr<void>> Allocate(int64_t size_bytes);
  int64_t idle_bytes() const ABSL_LOCKS_EXCLUDED(mutex_);
  int64_t used_bytes() const ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  BlockPool(int64_t max_idle_bytes, int64_t max_used_bytes)
      : max_idle_bytes_(max_idle_bytes), max_used_bytes_(max_used_bytes) {}
  void* TakeIdle(int64_t block_bytes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::StatusOr<void*> MapChecked(int64_t block_bytes) ABSL_LOCKS_EXCLUDED(mutex_);
  void Release(void* block, int64_t block_bytes) ABSL_LOCKS_EXCLUDED(mutex_);

  const int64_t max_idle_bytes_;
  const int64_t max_used_bytes_;
  mutable absl::Mutex mutex_;
  std::map<int64_t, std::vector<void*>> idle_ ABSL_GUARDED_BY(mutex_);  // by block size
  int64_t idle_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t used_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace fuseline::launch
