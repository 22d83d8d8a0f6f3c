// What a disk level holds, kept in memory: which entries use which blobs, their sizes, and the order in which they were
// last used. It decides what to evict; the database decides what is true. Units: bytes. Thread-safety:
// thread-compatible. Tested by tests/unit/server/disk_index_test.cc
#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <optional>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "common/fingerprint/fingerprint.h"

namespace fuseline::cache {

class DiskIndex {
 public:
  // Adds an entry as the most recently used one; replaces one with the same key, whose blobs that nobody else uses are
  // returned.
  std::vector<Digest> Add(const Fingerprint& key, const std::vector<Digest>& blobs);
  // Removes an entry; returns the blobs that nobody uses any more.
  std::vector<Digest> Remove(const Fingerprint& key);
  // The entry is the most recently used one now. False where there is none.
  bool Touch(const Fingerprint& key);

  bool Has(const Fingerprint& key) const { return entries_.contains(key); }

  void Reserve(size_t entries);
  bool HasBlob(const Digest& digest) const;
  // Forgets a blob that turned out to be bad, so that the next Add brings it anew.
  void ForgetBlob(const Digest& digest);
  std::optional<Fingerprint> LeastRecentlyUsed() const;
  // The least recently used entries, as long as `is_wanted` says so of them, and not more than `most`.
  std::vector<Fingerprint> Oldest(size_t most, const std::function<bool(const Fingerprint&)>& is_wanted) const;

  int64_t entries() const { return static_cast<int64_t>(entries_.size()); }
  // Blobs counted once, and the index records.
  int64_t size_bytes() const { return size_bytes_; }

 private:
  struct Entry {
    Fingerprint key;
    std::vector<Digest> blobs;
  };

  struct Blob {
    int64_t uses = 0;
    bool is_there = false;  // false: forgotten
  };

  std::vector<Digest> Release(const std::vector<Digest>& blobs);

  std::list<Entry> order_;  // most recently used first
  absl::flat_hash_map<Fingerprint, std::list<Entry>::iterator> entries_;
  absl::flat_hash_map<Digest, Blob> blobs_;
  int64_t size_bytes_ = 0;
};

}  // namespace fuseline::cache
