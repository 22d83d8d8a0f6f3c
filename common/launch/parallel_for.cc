#include "common/launch/parallel_for.h"

#include <algorithm>

namespace fuseline::launch {
namespace {

// Chunks end within microseconds of each other, so waiting for the last one starts without sleeping.
constexpr int kSpins = 2000;

void Pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

// The first item of chunk `chunk` of `chunks`.
int64_t ChunkBegin(int64_t items, int64_t chunk, int64_t chunks) {
  const int64_t size = items / chunks;
  return size * chunk + std::min(chunk, items % chunks);
}

}  // namespace

ParallelFor::ParallelFor(int threads) {
  for (int t = 1; t < std::min(threads, kMaxThreads); ++t) workers_.emplace_back([this] { Work(); });
}

ParallelFor::~ParallelFor() {
  stopping_.store(true);
  ticket_.fetch_add(uint64_t{1} << 32);
  ticket_.notify_all();
  for (std::thread& worker : workers_) worker.join();
}

void ParallelFor::Run(int64_t items, int64_t grain, absl::FunctionRef<void(int64_t, int64_t)> body) {
  if (items <= 0) return;
  const int64_t chunks = std::min<int64_t>(threads(), std::max<int64_t>(1, items / std::max<int64_t>(grain, 1)));
  if (chunks == 1) {
    body(0, items);
    return;
  }
  items_ = items;
  body_ = &body;
  done_.store(0, std::memory_order_relaxed);
  const uint64_t loop = (ticket_.load(std::memory_order_relaxed) >> 32) + 1;
  ticket_.store(loop << 32 | static_cast<uint64_t>(chunks) << 16, std::memory_order_release);
  if (chunks == threads()) {
    ticket_.notify_all();
  } else {
    for (int64_t c = 1; c < chunks; ++c) ticket_.notify_one();
  }
  while (RunNextChunk()) {
  }
  const uint32_t wanted = static_cast<uint32_t>(chunks);
  for (int spin = 0; spin < kSpins && done_.load(std::memory_order_acquire) != wanted; ++spin) Pause();
  for (uint32_t done; (done = done_.load(std::memory_order_acquire)) != wanted;)
    done_.wait(done, std::memory_order_acquire);
}

void ParallelFor::Work() {
  while (true) {
    // Before the look at stopping_: whoever sees the destructor's ticket sees its stop too, and does not wait on it.
    const uint64_t seen = ticket_.load(std::memory_order_acquire);
    if (stopping_.load(std::memory_order_relaxed)) return;
    if (RunNextChunk()) continue;
    ticket_.wait(seen, std::memory_order_acquire);
  }
}

bool ParallelFor::RunNextChunk() {
  uint64_t ticket = ticket_.load(std::memory_order_acquire);
  uint64_t chunk = 0;
  uint64_t chunks = 0;
  do {
    chunk = ticket & kChunkMask;
    chunks = ticket >> 16 & kChunkMask;
    if (chunk >= chunks) return false;
  } while (!ticket_.compare_exchange_weak(ticket, ticket + 1, std::memory_order_acq_rel, std::memory_order_acquire));
  const int64_t items = items_;
  (*body_)(ChunkBegin(items, static_cast<int64_t>(chunk), static_cast<int64_t>(chunks)),
           ChunkBegin(items, static_cast<int64_t>(chunk) + 1, static_cast<int64_t>(chunks)));
  // The last one tells the caller; after this the loop's data may be gone.
  if (done_.fetch_add(1, std::memory_order_acq_rel) + 1 == chunks) done_.notify_one();
  return true;
}

}  // namespace fuseline::launch
