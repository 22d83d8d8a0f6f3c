// How much memory this process may use, and how much of it is left: so that a call that is too large is refused, and
// not the process ended. Counts the machine's memory and, where smaller, the limits of the process's control groups.
// Units: bytes. Errors: where the system does not say, limits are INT64_MAX. Thread-safety: thread-safe. Tested by
// tests/unit/server/host_memory_test.cc
#pragma once

#include <cstdint>
#include <string>

namespace fuseline::launch {

// All that this process may ever use.
int64_t HostMemoryLimitBytes();
// What it could take now without anything being ended or swapped out. Costs some 50 us.
int64_t HostMemoryAvailableBytes();

// The value of a line "Name:  123 kB" of /proc/meminfo's text; -1 where there is none.
int64_t MemInfoBytes(const std::string& text, const std::string& name);

}  // namespace fuseline::launch
