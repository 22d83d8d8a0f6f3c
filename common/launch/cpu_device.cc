// Tested by tests/unit/server/cpu_device_test.cc
#include <string.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <thread>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "common/launch/block_pool.h"
#include "common/launch/cpu_artifact.h"
#include "common/launch/cpu_threads.h"
#include "common/launch/host_memory.h"
#include "common/launch/launch_plan_runner.h"
#include "common/launch/pointer_checks.h"
#include "common/status/error.h"
#include "common/status/status_macros.h"
#include "common/status/str_cat.h"

namespace fuseline::launch {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kCopyRuns = 7;
// What is written to empty the caches where the system does not say how large they are.
constexpr int64_t kLeastFlushBytes = 64ll << 20;
constexpr int64_t kMostFlushBytes = 1ll << 30;
constexpr int64_t kMostIdleBytes = 8ll << 30;

std::string ProcessorName() {
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);) {
    const size_t colon = line.find(':');
    if (line.starts_with("model name") && colon != std::string::npos && colon + 2 < line.size())
      return line.substr(colon + 2);
  }
  return "CPU";
}

double MicrosSince(Clock::time_point start) {
  return std::chrono::duration<double, std::micro>(Clock::now() - start).count();
}

class PreparedCpuLaunch : public PreparedLaunch {
 public:
  PreparedCpuLaunch(std::shared_ptr<const LoadedCpuArtifact> loaded, std::shared_ptr<CpuThreads> threads,
                    std::shared_ptr<BlockPool> pool)
      : loaded_(std::move(loaded)),
        threads_(std::move(threads)),
        pool_(std::move(pool)),
        pointers_(loaded_->artifact().plan) {}

  const Artifact& artifact() const override { return loaded_->artifact(); }

  absl::Status Launch(void* const* inputs, void* const* outputs, void* arena, void* stream) override {
    FUSELINE_RETURN_IF_ERROR(pointers_.Check(inputs, outputs, arena));
    absl::MutexLock lock(&threads_->mutex());
    if (arena == nullptr && artifact().plan.arena_bytes > 0) {
      FUSELINE_RETURN_IF_ERROR(NeedArena());
      arena = arena_.get();
    }
    return loaded_->Run(inputs, outputs, arena, *threads_, nullptr);
  }
  absl::Status PrepareStream(void* stream, bool own_arena) override {
    absl::MutexLock lock(&threads_->mutex());
    return own_arena && artifact().plan.arena_bytes > 0 ? NeedArena() : absl::OkStatus();
  }
  absl::Status Check(void* stream) override { return absl::OkStatus(); }  // Launch has told
  absl::Status ForgetStream(void* stream) override { return absl::OkStatus(); }
  bool Finish() override { return true; }

 private:
  absl::Status NeedArena() ABSL_EXCLUSIVE_LOCKS_REQUIRED(threads_->mutex()) {
    if (arena_ != nullptr) return absl::OkStatus();
    FUSELINE_ASSIGN_OR_RETURN(arena_, pool_->Allocate(artifact().plan.arena_bytes));
    return absl::OkStatus();
  }

  const std::shared_ptr<const LoadedCpuArtifact> loaded_;
  const std::shared_ptr<CpuThreads> threads_;
  const std::shared_ptr<BlockPool> pool_;
  const PointerChecks pointers_;
  std::shared_ptr<void> arena_;  // under the threads' lock
};

class CpuDevice : public Device {
 public:
  explicit CpuDevice(int threads)
      : name_(ProcessorName()),
        memory_bytes_(HostMemoryLimitBytes()),
        pool_(BlockPool::Create(std::min(kMostIdleBytes, memory_bytes_ / 4), HostMemoryLimitBytes())),
        threads_(std::make_shared<CpuThreads>(threads)) {}

  std::string name() const override { return name_; }
  Target target() const override { return Target::Cpu(); }
  int64_t memory_bytes() const override { return memory_bytes_; }
  bool CanRun(const Target& target) const override { return target == Target::Cpu(); }
  MemoryUsage memory_usage() const override {
    const int64_t used_bytes = pool_->used_bytes();
    return {used_bytes, used_bytes + pool_->idle_bytes()};
  }

  absl::StatusOr<LoadedArtifactPtr> Load(ArtifactPtr artifact) override {
    if (!CanRun(artifact->target)) {
      return MakeError(absl::StatusCode::kFailedPrecondition, ErrorReason::kTargetNotAvailable,
                       artifact->target.ToString(),
                       StrCat("a CPU can't run code for '", artifact->target.ToString(), "'"));
    }
    const std::string key = artifact->fingerprint.ToHex().substr(0, 8);
    absl::StatusOr<LoadedArtifactPtr> loaded = LoadedCpuArtifact::Load(std::move(artifact), *pool_);
    return loaded.ok() ? loaded : Wrap(loaded.status(), StrCat("artifact ", key));
  }

  absl::StatusOr<std::unique_ptr<PreparedLaunch>> Prepare(LoadedArtifactPtr artifact) override {
    return std::make_unique<PreparedCpuLaunch>(std::static_pointer_cast<const LoadedCpuArtifact>(std::move(artifact)),
                                               threads_, pool_);
  }

  absl::StatusOr<std::shared_ptr<void>> Allocate(int64_t size_bytes) override { return pool_->Allocate(size_bytes); }

  absl::Status CopyToDevice(void* device, const void* host, int64_t size_bytes) override {
    absl::MutexLock lock(&threads_->mutex());
    return threads_->Copy(device, host, size_bytes, nullptr);
  }
  absl::Status CopyToHost(void* host, const void* device, int64_t size_bytes) override {
    absl::MutexLock lock(&threads_->mutex());
    return threads_->Copy(host, device, size_bytes, nullptr);
  }

  absl::Status Run(const LoadedArtifact& artifact, absl::Span<void* const> inputs, absl::Span<void* const> outputs,
                   const StopCheck& stop) override {
    const auto& loaded = static_cast<const LoadedCpuArtifact&>(artifact);
    FUSELINE_RETURN_IF_ERROR(CheckCounts(loaded.artifact().plan, inputs, outputs));
    absl::MutexLock lock(&threads_->mutex());
    return RunOnce(loaded, inputs, outputs, stop);
  }

  absl::Status Synchronize() override { return absl::OkStatus(); }  // Run has waited

  absl::StatusOr<std::vector<double>> Time(const LoadedArtifact& artifact, absl::Span<void* const> inputs,
                                           absl::Span<void* const> outputs, int warmup, int iterations,
                                           bool flush_cache, const StopCheck& stop) override {
    const auto& loaded = static_cast<const LoadedCpuArtifact&>(artifact);
    FUSELINE_RETURN_IF_ERROR(CheckCounts(loaded.artifact().plan, inputs, outputs));
    std::shared_ptr<void> flush_block;
    const int64_t flush_bytes = FlushBytes();
    if (flush_cache) {
      FUSELINE_ASSIGN_OR_RETURN(flush_block, pool_->Allocate(flush_bytes));
    }
    std::vector<double> micros;
    absl::MutexLock lock(&threads_->mutex());
    for (int i = 0; i < warmup + iterations; ++i) {
      if (stop) FUSELINE_RETURN_IF_ERROR(stop());
      if (flush_cache) memset(flush_block.get(), i & 0xff, static_cast<size_t>(flush_bytes));
      const Clock::time_point start = Clock::now();
      FUSELINE_RETURN_IF_ERROR(RunOnce(loaded, inputs, outputs, stop));
      if (i >= warmup) micros.push_back(MicrosSince(start));
    }
    return micros;
  }

  absl::StatusOr<double> MeasureCopyRate(int64_t size_bytes) override {
    if (size_bytes <= 0) return Internal("the size of a copy must be positive");
    FUSELINE_ASSIGN_OR_RETURN(const std::shared_ptr<void> from, pool_->Allocate(size_bytes));
    FUSELINE_ASSIGN_OR_RETURN(const std::shared_ptr<void> to, pool_->Allocate(size_bytes));
    absl::MutexLock lock(&threads_->mutex());
    memset(from.get(), 1, static_cast<size_t>(size_bytes));
    FUSELINE_RETURN_IF_ERROR(threads_->Copy(to.get(), from.get(), size_bytes, nullptr));
    std::vector<double> micros;
    for (int i = 0; i < kCopyRuns; ++i) {
      const Clock::time_point start = Clock::now();
      FUSELINE_RETURN_IF_ERROR(threads_->Copy(to.get(), from.get(), size_bytes, nullptr));
      micros.push_back(MicrosSince(start));
    }
    std::nth_element(micros.begin(), micros.begin() + kCopyRuns / 2, micros.end());
    return 2.0 * static_cast<double>(size_bytes) / (micros[kCopyRuns / 2] * 1e-6);
  }

 private:
  static absl::Status CheckCounts(const LaunchPlan& plan, absl::Span<void* const> inputs,
                                  absl::Span<void* const> outputs) {
    if (inputs.size() == plan.inputs.size() && outputs.size() == plan.outputs.size()) return absl::OkStatus();
    return Internal(StrCat("the plan takes ", plan.inputs.size(), " inputs and ", plan.outputs.size(), " outputs, got ",
                           inputs.size(), " and ", outputs.size()));
  }

  absl::Status RunOnce(const LoadedCpuArtifact& loaded, absl::Span<void* const> inputs, absl::Span<void* const> outputs,
                       const StopCheck& stop) ABSL_EXCLUSIVE_LOCKS_REQUIRED(threads_->mutex()) {
    std::shared_ptr<void> arena;
    if (loaded.artifact().plan.arena_bytes > 0) {
      FUSELINE_ASSIGN_OR_RETURN(arena, pool_->Allocate(loaded.artifact().plan.arena_bytes));
    }
    return loaded.Run(inputs.data(), outputs.data(), arena.get(), *threads_, stop);
  }

  static int64_t FlushBytes() {
    return std::clamp<int64_t>(2 * int64_t{sysconf(_SC_LEVEL3_CACHE_SIZE)}, kLeastFlushBytes, kMostFlushBytes);
  }

  const std::string name_;
  const int64_t memory_bytes_;
  const std::shared_ptr<BlockPool> pool_;
  const std::shared_ptr<CpuThreads> threads_;
};

}  // namespace

std::unique_ptr<Device> OpenCpuDevice(int threads) {
  if (threads <= 0) threads = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  return std::make_unique<CpuDevice>(threads);
}

}  // namespace fuseline::launch
