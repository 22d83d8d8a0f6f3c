// Remembers which fingerprint the server answered for which request, so that an unchanged graph is asked for by 32
// bytes. Thread-safety: thread-safe. Tested by tests/unit/client/client_test.cc
#pragma once

#include <cstdint>
#include <deque>
#include <optional>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/synchronization/mutex.h"
#include "common/fingerprint/fingerprint.h"

namespace fuseline::client {

class FingerprintMemory {
 public:
  // `capacity`: entries; 0: remembers nothing.
  explicit FingerprintMemory(int64_t capacity) : capacity_(capacity) {}

  std::optional<Fingerprint> Find(const Digest& request) const {
    absl::MutexLock lock(&mutex_);
    const auto it = entries_.find(request);
    return it == entries_.end() ? std::nullopt : std::optional<Fingerprint>(it->second);
  }

  void Remember(const Digest& request, const Fingerprint& fingerprint) {
    if (capacity_ <= 0) return;
    absl::MutexLock lock(&mutex_);
    if (!entries_.insert_or_assign(request, fingerprint).second) return;
    order_.push_back(request);
    if (static_cast<int64_t>(order_.size()) > capacity_) {
      entries_.erase(order_.front());
      order_.pop_front();
    }
  }

 private:
  const int64_t capacity_;
  mutable absl::Mutex mutex_;
  absl::flat_hash_map<Digest, Fingerprint> entries_ ABSL_GUARDED_BY(mutex_);
  std::deque<Digest> order_ ABSL_GUARDED_BY(mutex_);  // oldest first
};

}  // namespace fuseline::client
