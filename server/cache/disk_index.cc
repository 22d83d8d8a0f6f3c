#include "server/cache/disk_index.h"

#include <utility>

namespace fuseline::cache {
namespace {

// The key, the access time and the record's frame; each blob costs a digest besides.
constexpr int64_t kEntryBytes = 128;
constexpr int64_t kBlobReferenceBytes = 40;

int64_t RecordBytes(const std::vector<Digest>& blobs) {
  return kEntryBytes + kBlobReferenceBytes * static_cast<int64_t>(blobs.size());
}

}  // namespace

std::vector<Digest> DiskIndex::Add(const Fingerprint& key, const std::vector<Digest>& blobs) {
  // The new uses first: a blob that the old entry shares with the new one must stay.
  for (const Digest& blob : blobs) {
    if (++blobs_[blob] == 1) size_bytes_ += blob.size_bytes;
  }
  std::vector<Digest> unused = Remove(key);
  order_.push_front({key, blobs});
  entries_[key] = order_.begin();
  size_bytes_ += RecordBytes(blobs);
  return unused;
}

std::vector<Digest> DiskIndex::Remove(const Fingerprint& key) {
  const auto it = entries_.find(key);
  if (it == entries_.end()) return {};
  const std::vector<Digest> blobs = std::move(it->second->blobs);
  order_.erase(it->second);
  entries_.erase(it);
  size_bytes_ -= RecordBytes(blobs);
  return Release(blobs);
}

bool DiskIndex::Touch(const Fingerprint& key) {
  const auto it = entries_.find(key);
  if (it == entries_.end()) return false;
  order_.splice(order_.begin(), order_, it->second);
  return true;
}

void DiskIndex::ForgetBlob(const Digest& digest) {
  if (blobs_.erase(digest) != 0) size_bytes_ -= digest.size_bytes;
}

std::optional<Fingerprint> DiskIndex::LeastRecentlyUsed() const {
  if (order_.empty()) return std::nullopt;
  return order_.back().key;
}

std::vector<Digest> DiskIndex::Release(const std::vector<Digest>& blobs) {
  std::vector<Digest> unused;
  for (const Digest& blob : blobs) {
    const auto it = blobs_.find(blob);
    if (it == blobs_.end()) continue;  // forgotten
    if (--it->second > 0) continue;
    blobs_.erase(it);
    size_bytes_ -= blob.size_bytes;
    unused.push_back(blob);
  }
  return unused;
}

}  // namespace fuseline::cache
