// What translated kernels and the block scheduler call each other by: declared once, for C++ and as text that every
// translation unit of kernels begins with.
// A fiber's stack is kFiberStackBytes long and aligned to that; a HostThread lies at its upper end, so that code on the
// stack finds it without a thread-local variable.
// Ownership: the scheduler's. Thread-safety: none; a fiber runs on one thread at a time.
#pragma once

#include <cstdint>

// The text must mean the same without headers and namespaces.
#define FUSELINE_CUDA_HOST_ABI                                                                                 \
  struct HostThread;                                                                                           \
  struct HostCalls {                                                                                           \
    void (*access)(HostThread * thread, const void* address, unsigned long bytes, int write, void* site);      \
    void (*index_out_of_bounds)(HostThread * thread, const void* check, unsigned long index, void* site);      \
    void (*barrier)(HostThread * thread);                                                                      \
    unsigned long long (*shuffle)(HostThread * thread, int kind, unsigned mask, int operand, int width,        \
                                  unsigned long long value);                                                   \
    void* (*shared)(HostThread * thread, const void* key, const char* name, unsigned long bytes,               \
                    unsigned long element_bytes);                                                              \
  };                                                                                                           \
  struct HostThread {                                                                                          \
    HostCalls calls; /* a copy: what lies on the stack is not checked */                                       \
    void* scheduler;                                                                                           \
    unsigned thread, block, threads, blocks;                                                                   \
  };                                                                                                           \
  enum HostShuffle { kShuffleXor = 0, kShuffleUp = 1, kShuffleDown = 2, kShuffleIndex = 3 };                   \
  template <int kCount>                                                                                        \
  struct HostParams {                                                                                          \
    int count;                                                                                                 \
    int codes[kCount + 1]; /* of each pointer: 2 x the size of what it points to, plus 1 where it may write */ \
  };

namespace fuseline::cuda_host {

FUSELINE_CUDA_HOST_ABI

constexpr uintptr_t kFiberStackBytes = 256 << 10;

// Calls a kernel with its pointers.
using HostEntry = void (*)(void* const* arguments);

}  // namespace fuseline::cuda_host
