#include "server/compiler/kernel_memory.h"

#include "absl/strings/str_cat.h"
#include "common/status/status_macros.h"

namespace fuseline::compiler {
namespace {

int64_t SizeOf(const KernelImage& image) {
  return static_cast<int64_t>(sizeof(KernelImage) + image.bytes.size() + image.source.size() + image.entry.size());
}

}  // namespace

std::optional<KernelImage> KernelMemory::Find(const Digest& source) {
  absl::MutexLock lock(&mutex_);
  const auto it = index_.find(source);
  if (it == index_.end()) return std::nullopt;
  entries_.splice(entries_.begin(), entries_, it->second);
  return it->second->second;
}

void KernelMemory::Insert(const Digest& source, const KernelImage& image) {
  absl::MutexLock lock(&mutex_);
  if (index_.contains(source)) return;
  entries_.emplace_front(source, image);
  index_[source] = entries_.begin();
  bytes_ += SizeOf(image);
  while (bytes_ > max_bytes_ && !entries_.empty()) {
    bytes_ -= SizeOf(entries_.back().second);
    index_.erase(entries_.back().first);
    entries_.pop_back();
  }
}

absl::StatusOr<KernelImage> ReusingCompiler::CompileUnlessStopped(const KernelSource& source, const StopCheck& stop) {
  const Digest digest = ComputeDigest(absl::StrCat(source.entry, "\n", source.target.ToString(), "\n",
                                                   source.fast_math ? "fast" : "exact", "\n", source.text));
  if (std::optional<KernelImage> image = memory_.Find(digest)) {
    ++reused_;
    return *std::move(image);
  }
  FUSELINE_ASSIGN_OR_RETURN(KernelImage image, compiler_.CompileUnlessStopped(source, stop));
  memory_.Insert(digest, image);
  return image;
}

}  // namespace fuseline::compiler
