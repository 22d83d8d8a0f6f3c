#include "common/launch/block_pool.h"

#include <stdlib.h>
#include <sys/mman.h>

#include <utility>

#include "common/status/error.h"
#include "common/status/str_cat.h"

namespace fuseline::launch {
namespace {

constexpr int64_t kSmallestBlock = 4096;
// From here on blocks are mapped directly, aligned to huge pages: one fault for 2 MiB instead of 512.
constexpr int64_t kHugePage = 2 << 20;
constexpr int64_t kLargestBlock = 1ll << 46;

// Four sizes for each power of two, so that at most a fifth of a block is unused and blocks fit again.
int64_t BlockSize(int64_t size_bytes) {
  int64_t block = kSmallestBlock;
  while (block < size_bytes) block *= 2;
  if (block >= 4 * kSmallestBlock) {
    for (const int64_t quarters : {5, 6, 7}) {
      const int64_t smaller = block / 8 * quarters;
      if (smaller >= size_bytes) {
        block = smaller;
        break;
      }
    }
  }
  if (block >= kHugePage) block = (block + kHugePage - 1) / kHugePage * kHugePage;
  return block;
}

void* MapBlock(int64_t block_bytes) {
  if (block_bytes < kHugePage)
    return aligned_alloc(kSmallestBlock,
                         static_cast<size_t>(block_bytes + kSmallestBlock - 1) / kSmallestBlock * kSmallestBlock);
  // Over-map by one huge page and give back what lies outside the aligned part.
  const size_t mapped = static_cast<size_t>(block_bytes + kHugePage);
  void* address = mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (address == MAP_FAILED) return nullptr;
  char* const begin = static_cast<char*>(address);
  const size_t before = static_cast<size_t>(-reinterpret_cast<intptr_t>(begin)) & (kHugePage - 1);
  if (before != 0) munmap(begin, before);
  munmap(begin + before + block_bytes, mapped - before - static_cast<size_t>(block_bytes));
  madvise(begin + before, static_cast<size_t>(block_bytes), MADV_HUGEPAGE);  // a hint
  return begin + before;
}

void UnmapBlock(void* block, int64_t block_bytes) {
  if (block_bytes < kHugePage) {
    free(block);
  } else {
    munmap(block, static_cast<size_t>(block_bytes));
  }
}

}  // namespace

std::shared_ptr<BlockPool> BlockPool::Create(int64_t max_idle_bytes) {
  return std::shared_ptr<BlockPool>(new BlockPool(max_idle_bytes));
}

BlockPool::~BlockPool() {
  for (const auto& [block_bytes, blocks] : idle_) {
    for (void* block : blocks) UnmapBlock(block, block_bytes);
  }
}

absl::StatusOr<std::shared_ptr<void>> BlockPool::Allocate(int64_t size_bytes) {
  if (size_bytes < 0 || size_bytes > kLargestBlock) {
    return MakeError(absl::StatusCode::kResourceExhausted, ErrorReason::kDeviceMemory, "",
                     StrCat("can't allocate ", size_bytes, " bytes"));
  }
  const int64_t block_bytes = BlockSize(size_bytes);
  void* block = nullptr;
  {
    absl::MutexLock lock(&mutex_);
    if (const auto it = idle_.find(block_bytes); it != idle_.end() && !it->second.empty()) {
      block = it->second.back();
      it->second.pop_back();
      idle_bytes_ -= block_bytes;
    }
  }
  if (block == nullptr) block = MapBlock(block_bytes);
  if (block == nullptr) {
    return MakeError(absl::StatusCode::kResourceExhausted, ErrorReason::kDeviceMemory, "",
                     StrCat("out of host memory for ", size_bytes, " bytes"));
  }
  return std::shared_ptr<void>(block,
                               [pool = shared_from_this(), block_bytes](void* b) { pool->Release(b, block_bytes); });
}

int64_t BlockPool::idle_bytes() const {
  absl::MutexLock lock(&mutex_);
  return idle_bytes_;
}

void BlockPool::Release(void* block, int64_t block_bytes) {
  std::vector<std::pair<void*, int64_t>> evicted;
  {
    absl::MutexLock lock(&mutex_);
    if (block_bytes <= max_idle_bytes_) {
      idle_[block_bytes].push_back(block);
      idle_bytes_ += block_bytes;
    } else {
      evicted.emplace_back(block, block_bytes);
    }
    // Sizes that are no longer asked for must not fill the pool: the largest go first, the released one's own size
    // last.
    for (auto it = idle_.rbegin(); it != idle_.rend() && idle_bytes_ > max_idle_bytes_; ++it) {
      while (it->first != block_bytes && !it->second.empty() && idle_bytes_ > max_idle_bytes_) {
        evicted.emplace_back(it->second.back(), it->first);
        it->second.pop_back();
        idle_bytes_ -= it->first;
      }
    }
    std::vector<void*>& same = idle_[block_bytes];
    while (!same.empty() && idle_bytes_ > max_idle_bytes_) {
      evicted.emplace_back(same.back(), block_bytes);
      same.pop_back();
      idle_bytes_ -= block_bytes;
    }
  }
  for (const auto& [b, bytes] : evicted) UnmapBlock(b, bytes);  // outside the lock: unmapping is slow
}

}  // namespace fuseline::launch
