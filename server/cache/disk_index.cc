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
  for (const Digest& digest : blobs) {
    Blob& blob = blobs_[digest];
    ++blob.uses;
    if (!blob.is_there) size_bytes_ += digest.size_bytes;
    blob.is_there = true;
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

void DiskIndex::Reserve(size_t entries) {
  entries_.reserve(entries);
  blobs_.reserve(entries);
}

bool DiskIndex::HasBlob(const Digest& digest) const {
  const auto it = blobs_.find(digest);
  return it != blobs_.end() && it->second.is_there;
}

// Its users stay counted: one of them must not release what another has brought anew.
void DiskIndex::ForgetBlob(const Digest& digest) {
  const auto it = blobs_.find(digest);
  if (it == blobs_.end() || !it->second.is_there) return;
  it->second.is_there = false;
  size_bytes_ -= digest.size_bytes;
}

std::optional<Fingerprint> DiskIndex::LeastRecentlyUsed() const {
  if (order_.empty()) return std::nullopt;
  return order_.back().key;
}

std::vector<Fingerprint> DiskIndex::Oldest(size_t most,
                                           const std::function<bool(const Fingerprint&)>& is_wanted) const {
  std::vector<Fingerprint> keys;
  for (auto it = order_.rbegin(); it != order_.rend() && keys.size() < most && is_wanted(it->key); ++it)
    keys.push_back(it->key);
  return keys;
}

std::vector<Digest> DiskIndex::Release(const std::vector<Digest>& blobs) {
  std::vector<Digest> unused;
  for (const Digest& digest : blobs) {
    const auto it = blobs_.find(digest);
    if (it == blobs_.end() || --it->second.uses > 0) continue;
    if (it->second.is_there) {
      size_bytes_ -= digest.size_bytes;
      unused.push_back(digest);
    }
    blobs_.erase(it);
  }
  return unused;
}

}  // namespace fuseline::cache
