#include "common/launch/stoppable_loop.h"

#include <algorithm>

namespace fuseline::launch {
namespace {

constexpr int64_t kSliceNanos = 4'000'000;
// A slice is at most this many times the one before: the cost of an item may differ from place to place.
constexpr int64_t kGrowth = 8;
constexpr int64_t kMaxSlice = int64_t{1} << 40;

}  // namespace

void StoppableLoop::Run(int64_t begin, int64_t end, int64_t grain, absl::FunctionRef<void(int64_t, int64_t)> body) {
  grain = std::clamp<int64_t>(grain, 1, kMaxSlice);
  if (!stop_ || end - begin <= grain) {
    if (!stopped_.load(std::memory_order_relaxed)) body(begin, end);
    return;
  }
  int64_t slice = grain;
  int64_t started = Now();
  int64_t not_yet = 0;
  last_asked_.compare_exchange_strong(not_yet, started, std::memory_order_relaxed);
  while (begin < end) {
    if (stopped_.load(std::memory_order_relaxed)) return;
    const int64_t next = end - begin > slice ? begin + slice : end;
    body(begin, next);
    begin = next;
    const int64_t now = Now();
    if (begin < end && Stopped(now)) return;
    const int64_t nanos = std::max<int64_t>(now - started, 1);
    started = now;
    const double fitting = static_cast<double>(slice) * static_cast<double>(kSliceNanos) / static_cast<double>(nanos);
    const int64_t most = std::min(slice <= kMaxSlice / kGrowth ? slice * kGrowth : kMaxSlice, kMaxSlice);
    slice = fitting >= static_cast<double>(most) ? most : std::max(static_cast<int64_t>(fitting), grain);
    slice = slice / grain * grain;
  }
}

bool StoppableLoop::Stopped(int64_t now) {
  if (now - last_asked_.load(std::memory_order_relaxed) < kSliceNanos) return stopped_.load(std::memory_order_relaxed);
  if (!mutex_.TryLock()) return stopped_.load(std::memory_order_relaxed);
  if (status_.ok()) {
    last_asked_.store(now, std::memory_order_relaxed);
    status_ = stop_();
    if (!status_.ok()) stopped_.store(true, std::memory_order_relaxed);
  }
  mutex_.Unlock();
  return stopped_.load(std::memory_order_relaxed);
}

absl::Status StoppableLoop::status() const {
  if (!stopped_.load(std::memory_order_relaxed)) return absl::OkStatus();
  absl::MutexLock lock(&mutex_);
  return status_;
}

}  // namespace fuseline::launch
