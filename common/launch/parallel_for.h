// Threads that stand ready to share a loop: what runs CPU kernels.
// The caller works too, and a loop of one chunk wakes nobody.
// Thread-safety: Run calls must not overlap (the device's lock sees to that). Blocking: until every chunk is done.
// Tested by tests/unit/server/parallel_for_test.cc
#pragma once

#include <atomic>
#include <cstdint>
#include <thread>
#include <vector>

#include "absl/functional/function_ref.h"

namespace fuseline::launch {

class ParallelFor {
 public:
  // `threads` counts the caller's: threads - 1 are started.
  explicit ParallelFor(int threads);
  ~ParallelFor();
  ParallelFor(const ParallelFor&) = delete;
  ParallelFor& operator=(const ParallelFor&) = delete;

  int threads() const { return static_cast<int>(workers_.size()) + 1; }

  // Splits [0, items) into at most threads() contiguous chunks of nearly equal size and of `grain` items or more where
  // there are that many, and calls `body(begin, end)` once for each.
  void Run(int64_t items, int64_t grain, absl::FunctionRef<void(int64_t begin, int64_t end)> body);

 private:
  // Which chunk is next, in one word, so that a worker which wakes late can't take a chunk of the wrong loop.
  // Bits: the loop's number (32), its chunks (16), the next chunk (16).
  static constexpr uint64_t kChunkMask = 0xffff;
  static constexpr int kMaxThreads = 1024;

  void Work();
  bool RunNextChunk();

  std::vector<std::thread> workers_;
  std::atomic<uint64_t> ticket_{0};
  std::atomic<uint32_t> done_{0};  // chunks of this loop that are done
  std::atomic<bool> stopping_{false};
  // Of the loop that runs: written before ticket_ is, read after taking a chunk of it.
  int64_t items_ = 0;
  const absl::FunctionRef<void(int64_t, int64_t)>* body_ = nullptr;
};

}  // namespace fuseline::launch
