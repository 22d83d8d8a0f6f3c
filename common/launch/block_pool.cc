#include "common/launch/block_pool.h"

#include <stdlib.h>
#include <sys/mman.h>

#include <string>
#include <utility>

#include "common/launch/host_memory.h"
#include "common/status/error.h"
#include "common/status/str_cat.h"

namespace fuseline::launch {
namespace {

constexpr int64_t kSmallestBlock = 4096;
// From here on blocks are mapped directly, aligned to huge pages: one fault for 2 MiB instead of 512.
constexpr int64_t kHugePage = 2 << 20;
constexpr int64_t kLargestBlock = 1ll << 46;
// From here on the system is asked whether it has the memory: asking takes less than touching the block.
constexpr int64_t kCheckedBytes = 64 << 20;

absl::Status TooLarge(const std::string& message) {
  return MakeError(absl::StatusCode::kResourceExhausted, ErrorReason::kDeviceMemory, "", message);
}

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

std::shared_ptr<BlockPool> BlockPool::Create(int64_t max_idle_bytes, int64_t max_used_bytes) {
  return std::shared_ptr<BlockPool>(new BlockPool(max_idle_bytes, max_used_bytes));
}

BlockPool::~BlockPool() {
  for (const auto& [block_bytes, blocks] : idle_) {
    for (void* block : blocks) UnmapBlock(block, block_bytes);
  }
}

absl::StatusOr<std::shared_ptr<void>> BlockPool::Allocate(int64_t size_bytes) {
  if (size_bytes < 0 || size_bytes > kLargestBlock) return TooLarge(StrCat("can't allocate ", size_bytes, " bytes"));
  const int64_t block_bytes = BlockSize(size_bytes);
  void* block = nullptr;
  {
    absl::MutexLock lock(&mutex_);
    if (block_bytes > max_used_bytes_ - used_bytes_) {
      return TooLarge(StrCat("out of host memory for ", size_bytes, " bytes: ", used_bytes_, " of ", max_used_bytes_,
                             " are in use"));
    }
    used_bytes_ += block_bytes;
    block = TakeIdle(block_bytes);
  }
  if (block == nullptr) {
    absl::StatusOr<void*> mapped = MapChecked(block_bytes);
    if (!mapped.ok()) {
      absl::MutexLock lock(&mutex_);
      used_bytes_ -= block_bytes;
      return mapped.status();
    }
    block = *mapped;
  }
  return std::shared_ptr<void>(block,
                               [pool = shared_from_this(), block_bytes](void* b) { pool->Release(b, block_bytes); });
}

void* BlockPool::TakeIdle(int64_t block_bytes) {
  const auto it = idle_.find(block_bytes);
  if (it == idle_.end() || it->second.empty()) return nullptr;
  void* const block = it->second.back();
  it->second.pop_back();
  idle_bytes_ -= block_bytes;
  return block;
}

// Mapping succeeds whatever there is; touching what is not there ends the process.
absl::StatusOr<void*> BlockPool::MapChecked(int64_t block_bytes) {
  if (block_bytes >= kCheckedBytes) {
    std::map<int64_t, std::vector<void*>> dropped;
    if (HostMemoryAvailableBytes() < block_bytes) {
      absl::MutexLock lock(&mutex_);
      dropped.swap(idle_);
      idle_bytes_ = 0;
    }
    for (const auto& [bytes, blocks] : dropped) {
      for (void* block : blocks) UnmapBlock(block, bytes);
    }
    if (const int64_t available = HostMemoryAvailableBytes(); available < block_bytes) {
      return TooLarge(
          StrCat("out of host memory for ", block_bytes, " bytes: the system has ", available, " available"));
    }
  }
  void* const block = MapBlock(block_bytes);
  if (block == nullptr) return TooLarge(StrCat("out of host memory for ", block_bytes, " bytes"));
  return block;
}

int64_t BlockPool::idle_bytes() const {
  absl::MutexLock lock(&mutex_);
  return idle_bytes_;
}

int64_t BlockPool::used_bytes() const {
  absl::MutexLock lock(&mutex_);
  return used_bytes_;
}

void BlockPool::Release(void* block, int64_t block_bytes) {
  std::vector<std::pair<void*, int64_t>> evicted;
  {
    absl::MutexLock lock(&mutex_);
    used_bytes_ -= block_bytes;
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
