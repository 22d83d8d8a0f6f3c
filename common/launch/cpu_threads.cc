#include "common/launch/cpu_threads.h"

#include <string.h>

#include "common/launch/stoppable_loop.h"

namespace fuseline::launch {
namespace {

// Below this a copy is not worth waking a thread: at 10 GB/s, 256 KiB take 26 us, a wake-up 5 to 10 us.
constexpr int64_t kCopyGrainBytes = 256 << 10;

}  // namespace

absl::Status CpuThreads::Run(int64_t items, int64_t grain, const StopCheck& stop,
                             absl::FunctionRef<void(int64_t begin, int64_t end)> body) {
  if (!stop) {
    parallel_for_.Run(items, grain, body);
    return absl::OkStatus();
  }
  StoppableLoop loop(stop);
  parallel_for_.Run(items, grain, [&](int64_t begin, int64_t end) { loop.Run(begin, end, grain, body); });
  return loop.status();
}

absl::Status CpuThreads::Copy(void* to, const void* from, int64_t size_bytes, const StopCheck& stop) {
  if (size_bytes <= 0 || to == from) return absl::OkStatus();
  return Run(size_bytes, kCopyGrainBytes, stop, [&](int64_t begin, int64_t end) {
    memcpy(static_cast<char*>(to) + begin, static_cast<const char*>(from) + begin, static_cast<size_t>(end - begin));
  });
}

}  // namespace fuseline::launch
