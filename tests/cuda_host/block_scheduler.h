// Runs a translated kernel as CUDA would: the threads of a block as fibers, blocks one after the other.
// A thread runs until it comes to a barrier or a shuffle. A barrier opens when all threads of the block wait at the
// same one, a shuffle when all lanes of its mask wait at the same one with the same mask; anything else that leaves no
// thread able to run is an error. Every memory access goes to a MemoryCheck.
// Errors: INTERNAL saying kernel, block, thread, what it did and where in the kernel's text.
// Ownership: fibers and shared arrays are kept for the next launch. Thread-safety: none; one a host thread.
// Tested by tests/cuda_host/block_scheduler_test.cc
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "common/artifact/launch_plan.h"
#include "tests/cuda_host/guarded_memory.h"
#include "tests/cuda_host/host_abi.h"
#include "tests/cuda_host/host_kernel_compiler.h"
#include "tests/cuda_host/memory_check.h"

namespace fuseline::cuda_host {

// In which order threads that can run do so, and blocks; drawn anew after each barrier and shuffle where random.
struct ThreadOrder {
  enum class Kind : uint8_t { kForward, kReverse, kRandom } kind = Kind::kForward;
  uint64_t seed = 0;

  std::string ToString() const;  // "forward", "random 7"
};

class BlockScheduler {
 public:
  BlockScheduler();
  ~BlockScheduler();
  BlockScheduler(const BlockScheduler&) = delete;
  BlockScheduler& operator=(const BlockScheduler&) = delete;

  // `regions`: what the kernel may touch besides shared arrays.
  absl::Status Launch(const HostKernel& kernel, const std::vector<void*>& arguments, const LaunchDims& dims,
                      const ThreadOrder& order, const std::vector<MemoryRegion*>& regions, MemoryCheck& check);

 private:
  struct Callbacks;
  struct Fiber;
  struct Thread;
  struct PendingFault {
    int64_t block = 0;
    uint32_t thread = 0;
    std::string text;
    Site site = nullptr;
    Site earlier = nullptr;
  };

  // Leaves a fault where the block did not come to its end, as the others do.
  void RunBlock(int64_t block);
  void Resume(uint32_t thread);
  // Completes the shuffles whose lanes are all there; whether there were any.
  bool OpenShuffles();
  bool OpenShuffle(uint32_t thread);
  // Lets all threads pass the barrier that they wait at, or says why they can't.
  void OpenBarrier();
  uint64_t ShuffledValue(uint32_t thread);
  void Suspend();
  // Keeps the launch's first. It becomes a message once no fiber runs: that takes more stack than fibers have.
  void Fault(uint32_t thread, const std::string& text, Site site, Site earlier = nullptr);
  void FaultAllWaiting();
  absl::Status TakeFault();
  std::vector<uint32_t> Order(size_t count);
  Fiber* TakeFiber();
  static void RunFiber(Fiber* fiber);

  std::vector<std::unique_ptr<Fiber>> fibers_;
  std::vector<Fiber*> idle_fibers_;
  std::vector<Thread> threads_;        // of the block
  void* scheduler_context_ = nullptr;  // where fibers return to

  // Of the launch.
  GuardedMemory shared_memory_;
  std::map<const void*, MemoryRegion> shared_;
  std::optional<PendingFault> fault_;
  const HostKernel* kernel_ = nullptr;
  const std::vector<void*>* arguments_ = nullptr;
  MemoryCheck* check_ = nullptr;
  ThreadOrder order_;
  uint64_t draws_ = 0;
  int64_t block_ = 0;
  uint32_t thread_count_ = 0;
  uint32_t block_count_ = 0;
};

}  // namespace fuseline::cuda_host
