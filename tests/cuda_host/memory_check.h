// Looks at every access of a kernel that runs on the host: is it inside a buffer or shared array that the kernel was
// given, aligned to its size, to bytes that have been written, and without a race?
// A race: two threads of a block touch the same element, one of them writing, and no barrier stands between; or two
// blocks of a launch do. It is found whatever order the threads run in. Shuffles order no memory.
// The unit is a region's element: accesses to parts of one count as accesses to all of it.
// Ownership: memory of regions is the caller's, and lives as long as they do. Thread-safety: none; one for each run of
// a plan. Tested by tests/cuda_host/memory_check_test.cc
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace fuseline::cuda_host {

// Where an access stands: the address in the kernel's code that it returns to. Null: unknown.
using Site = const void*;

// A buffer of global memory, or a shared array of the block.
class MemoryRegion {
 public:
  // `initialized`: the host has filled it. `element_bytes`: 1, 2, 4, 8 or 16.
  MemoryRegion(std::string name, void* begin, int64_t bytes, int64_t element_bytes, bool writable, bool initialized);

  const std::string& name() const { return name_; }
  char* begin() const { return begin_; }
  int64_t bytes() const { return bytes_; }
  // Any thread may write at any time, whichever write stays.
  void AllowRaces() { races_allowed_ = true; }

 private:
  friend class MemoryCheck;
  // Who last wrote and read an element. Epochs of 0: nobody.
  struct Element {
    uint32_t write_epoch = 0;
    uint32_t write_info = 0;
    uint32_t read_epoch = 0;
    uint32_t read_info = 0;
  };

  std::string name_;
  char* begin_;
  int64_t bytes_;
  int shift_;  // log2 of the element's size
  bool writable_;
  bool initialized_;
  bool is_shared_ = false;
  bool races_allowed_ = false;
  std::vector<Element> elements_;
};

struct MemoryAccess {
  uint32_t thread = 0;  // in its block
  const void* address = nullptr;
  int64_t bytes = 0;
  bool write = false;
  Site site = nullptr;
};

struct MemoryFault {
  std::string text;        // "writes 4 bytes past the end of output 'y' (64 bytes), at byte 64"
  Site earlier = nullptr;  // of a race: the other access
};

class MemoryCheck {
 public:
  // The regions that the next launch may touch. Sites of the kernel lie after `code`, to tell them apart in few bits.
  void BeginLaunch(const std::vector<MemoryRegion*>& regions, Site code);
  void BeginBlock(int64_t block);
  // All threads of the block have passed a barrier.
  void PassBarrier() { ++epoch_; }
  // A shared array of the launch's blocks; forgets what was written where a block begins.
  void AddShared(MemoryRegion* region);

  // Nothing where the access is right. May be called with overlapping regions never.
  std::optional<MemoryFault> Check(const MemoryAccess& access);

  // The first byte of `region` that no kernel has written since `region` was made; -1: none.
  int64_t FirstUnwritten(const MemoryRegion& region) const;

 private:
  static constexpr size_t kRecent = 256;

  MemoryRegion* Find(const MemoryAccess& access);
  MemoryFault Outside(const MemoryAccess& access) const;
  MemoryFault Race(const MemoryAccess& access, const MemoryRegion& region, int64_t element, bool other_wrote,
                   uint32_t epoch, uint32_t info) const;
  std::optional<MemoryFault> CheckElement(const MemoryAccess& access, MemoryRegion& region, int64_t element);

  std::vector<MemoryRegion*> regions_;
  std::array<MemoryRegion*, kRecent> recent_{};  // by site
  uint32_t epoch_ = 0;                           // grows; 2^32 of them take an hour, a run of a plan far less
  uint32_t launch_epoch_ = 0;                    // the launch's first
  uint32_t block_epoch_ = 0;                     // the block's first
  uint32_t here_ = 0;                            // of the access being checked: its thread and site
  Site code_ = nullptr;
  struct BlockStart {
    uint32_t epoch;
    int64_t block;
  };
  std::vector<BlockStart> blocks_;  // of the launch, in the order in which they run
};

}  // namespace fuseline::cuda_host
