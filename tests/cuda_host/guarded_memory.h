// Blocks of memory with room on both sides that nothing may touch, kept for reuse: an address that misses its block by
// less than the block's size is in no other block.
// A block begins 16 bytes past a multiple of 32, so that code which relies on more alignment than launch plans promise
// is found out. Units: bytes. Errors: RESOURCE_EXHAUSTED. Ownership: blocks live as long as the object.
// Thread-safety: none. Tested by tests/cuda_host/memory_check_test.cc
#pragma once

#include <cstddef>
#include <map>
#include <vector>

#include "absl/status/statusor.h"

namespace fuseline::cuda_host {

class GuardedMemory {
 public:
  GuardedMemory() = default;
  ~GuardedMemory();
  GuardedMemory(const GuardedMemory&) = delete;
  GuardedMemory& operator=(const GuardedMemory&) = delete;

  // At least `bytes`, with what the last user left in it.
  absl::StatusOr<void*> Take(size_t bytes);
  // All blocks that were taken may be taken again.
  void Reset();

 private:
  struct Block {
    char* mapping = nullptr;
    size_t mapped_bytes = 0;
    char* begin = nullptr;
  };
  struct SizeClass {
    std::vector<Block> blocks;
    size_t taken = 0;
  };
  std::map<size_t, SizeClass> classes_;  // by capacity, a power of two
};

}  // namespace fuseline::cuda_host
