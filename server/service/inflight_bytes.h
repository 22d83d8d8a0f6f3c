// Bytes of request messages that the server holds: bounded, so that memory stays flat however much is sent.
// Units: bytes. Thread-safety: thread-safe.
// Tested by tests/unit/service/message_stream_test.cc
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <utility>

namespace fuseline::service {

class InflightBytes {
 public:
  explicit InflightBytes(int64_t bound) : bound_(bound) {}

  // False, and nothing is taken, where the bound would be passed. A taker that finds nothing taken is always granted,
  // so that one message over the bound is late rather than never served.
  bool TryTake(int64_t bytes) {
    int64_t taken = taken_.load(std::memory_order_relaxed);
    do {
      if (taken > 0 && bytes > bound_ - std::min(taken, bound_)) return false;
    } while (!taken_.compare_exchange_weak(taken, taken + bytes, std::memory_order_relaxed));
    return true;
  }
  void GiveBack(int64_t bytes) { taken_.fetch_sub(bytes, std::memory_order_relaxed); }
  int64_t taken() const { return taken_.load(std::memory_order_relaxed); }
  int64_t bound() const { return bound_; }

  // Bytes taken for as long as it lives.
  class Hold {
   public:
    Hold() = default;
    Hold(InflightBytes& from, int64_t bytes) : from_(&from), bytes_(bytes) {}  // `bytes` are taken already
    Hold(Hold&& other) noexcept : from_(std::exchange(other.from_, nullptr)), bytes_(other.bytes_) {}
    Hold& operator=(Hold&& other) noexcept {
      std::swap(from_, other.from_);
      std::swap(bytes_, other.bytes_);
      return *this;
    }
    ~Hold() {
      if (from_ != nullptr) from_->GiveBack(bytes_);
    }

   private:
    InflightBytes* from_ = nullptr;
    int64_t bytes_ = 0;
  };

 private:
  const int64_t bound_;
  std::atomic<int64_t> taken_{0};
};

}  // namespace fuseline::service
