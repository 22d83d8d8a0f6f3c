// Kernels by their source, in memory: what artifacts of one graph at many sizes share.
// Pipeline: KernelSource -> ReusingCompiler -> KernelMemory, else the compiler -> KernelImage.
// Units: bytes. Ownership: copies. Thread-safety: thread-safe. Tested by tests/unit/compiler/kernel_memory_test.cc
#pragma once

#include <atomic>
#include <cstdint>
#include <list>
#include <optional>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/synchronization/mutex.h"
#include "common/fingerprint/fingerprint.h"
#include "server/compiler/kernel_compiler.h"

namespace fuseline::compiler {

// The least recently used go first.
class KernelMemory {
 public:
  explicit KernelMemory(int64_t max_bytes) : max_bytes_(max_bytes) {}
  std::optional<KernelImage> Find(const Digest& source) ABSL_LOCKS_EXCLUDED(mutex_);
  void Insert(const Digest& source, const KernelImage& image) ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  using Entry = std::pair<Digest, KernelImage>;
  const int64_t max_bytes_;
  absl::Mutex mutex_;
  std::list<Entry> entries_ ABSL_GUARDED_BY(mutex_);  // newest first
  absl::flat_hash_map<Digest, std::list<Entry>::iterator> index_ ABSL_GUARDED_BY(mutex_);
  int64_t bytes_ ABSL_GUARDED_BY(mutex_) = 0;
};

// A compiler that looks into a memory first. Refers to both.
class ReusingCompiler final : public KernelCompiler {
 public:
  ReusingCompiler(KernelCompiler& compiler, KernelMemory& memory) : compiler_(compiler), memory_(memory) {}
  absl::Status Available() const override { return compiler_.Available(); }
  absl::StatusOr<KernelImage> CompileKernel(const KernelSource& source) override {
    return CompileUnlessStopped(source, {});
  }
  absl::StatusOr<KernelImage> CompileUnlessStopped(const KernelSource& source, const StopCheck& stop) override;
  std::string Identity() const override { return compiler_.Identity(); }
  // Kernels that were not compiled.
  int64_t reused() const { return reused_; }

 private:
  KernelCompiler& compiler_;
  KernelMemory& memory_;
  std::atomic<int64_t> reused_{0};
};

}  // namespace fuseline::compiler
