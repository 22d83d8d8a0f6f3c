#include "tests/cuda_host/guarded_memory.h"

#include <sys/mman.h>

#include <algorithm>

#include "common/status/error.h"
#include "common/status/str_cat.h"

namespace fuseline::cuda_host {
namespace {

constexpr size_t kLeastCapacity = 4096;
constexpr size_t kLeastGuard = 1 << 20;
constexpr size_t kMostBytes = size_t{1} << 32;
constexpr size_t kOffset = 16;

}  // namespace

GuardedMemory::~GuardedMemory() {
  for (auto& [capacity, size_class] : classes_) {
    for (const Block& block : size_class.blocks) munmap(block.mapping, block.mapped_bytes);
  }
}

absl::StatusOr<void*> GuardedMemory::Take(size_t bytes) {
  const auto exhausted = [&] {
    return MakeError(absl::StatusCode::kResourceExhausted, ErrorReason::kDeviceMemory, "",
                     StrCat("no room for a block of ", bytes, " bytes"));
  };
  if (bytes > kMostBytes) return exhausted();
  size_t capacity = kLeastCapacity;
  while (capacity < bytes + kOffset) capacity *= 2;
  SizeClass& size_class = classes_[capacity];
  if (size_class.taken == size_class.blocks.size()) {
    const size_t guard = std::max(kLeastGuard, capacity);
    Block block;
    block.mapped_bytes = capacity + 2 * guard;
    void* mapping = mmap(nullptr, block.mapped_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (mapping == MAP_FAILED) return exhausted();
    block.mapping = static_cast<char*>(mapping);
    block.begin = block.mapping + guard;
    if (mprotect(block.begin, capacity, PROT_READ | PROT_WRITE) != 0) {
      munmap(block.mapping, block.mapped_bytes);
      return exhausted();
    }
    size_class.blocks.push_back(block);
  }
  return size_class.blocks[size_class.taken++].begin + kOffset;
}

void GuardedMemory::Reset() {
  for (auto& [capacity, size_class] : classes_) size_class.taken = 0;
}

}  // namespace fuseline::cuda_host
