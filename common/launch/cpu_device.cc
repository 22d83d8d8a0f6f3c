// Tested by tests/unit/server/cpu_device_test.cc
#include <string.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <map>
#include <thread>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/synchronization/mutex.h"
#include "common/artifact/index_checks.h"
#include "common/launch/block_pool.h"
#include "common/launch/host_memory.h"
#include "common/launch/launch_plan_runner.h"
#include "common/launch/parallel_for.h"
#include "common/launch/shared_object.h"
#include "common/launch/stoppable_loop.h"
#include "common/status/error.h"
#include "common/status/status_macros.h"
#include "common/status/str_cat.h"

namespace fuseline::launch {
namespace {

using Clock = std::chrono::steady_clock;
using CpuKernel = void (*)(void* const* buffers, int64_t begin, int64_t end);

// Below this a copy is not worth waking a thread: at 10 GB/s, 256 KiB take 26 us, a wake-up 5 to 10 us.
constexpr int64_t kCopyGrainBytes = 256 << 10;
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

class LoadedCpuArtifact : public LoadedArtifact {
 public:
  explicit LoadedCpuArtifact(ArtifactPtr artifact) : artifact_(std::move(artifact)) {}
  const Artifact& artifact() const override { return *artifact_; }

  // Loads the kernels and lays out the constants.
  absl::Status Init(BlockPool& pool) {
    const std::string key = artifact_->fingerprint.ToHex().substr(0, 8);
    std::map<std::string_view, SharedObject*> loaded;  // equal kernels are loaded once
    for (const KernelImage& kernel : artifact_->kernels) {
      if (kernel.format != ImageFormat::kSharedObject) {
        return Internal(StrCat("artifact ", key, ": kernel '", kernel.entry, "' is no shared object"));
      }
      SharedObject*& object = loaded[kernel.bytes];
      if (object == nullptr) {
        auto result = SharedObject::Load(kernel.bytes);
        if (!result.ok()) return Wrap(result.status(), StrCat("artifact ", key, ": kernel '", kernel.entry, "'"));
        object = result->get();
        objects_.push_back(*std::move(result));
      }
      void* entry = object->FindSymbol(kernel.entry);
      if (entry == nullptr)
        return Internal(StrCat("artifact ", key, ": kernel '", kernel.entry, "' is not in its image"));
      entries_.push_back(reinterpret_cast<CpuKernel>(entry));
    }
    int64_t total_bytes = 0;
    for (const std::string& constant : artifact_->plan.constants) total_bytes += AlignedSize(constant);
    if (total_bytes == 0) {
      constants_.assign(artifact_->plan.constants.size(), nullptr);
      return absl::OkStatus();
    }
    FUSELINE_ASSIGN_OR_RETURN(constant_block_, pool.Allocate(total_bytes));
    char* place = static_cast<char*>(constant_block_.get());
    for (const std::string& constant : artifact_->plan.constants) {
      memcpy(place, constant.data(), constant.size());
      constants_.push_back(place);
      place += AlignedSize(constant);
    }
    return absl::OkStatus();
  }

  CpuKernel entry(int32_t kernel) const { return entries_[static_cast<size_t>(kernel)]; }
  void* constant(int32_t index) const { return constants_[static_cast<size_t>(index)]; }

 private:
  static constexpr int64_t kConstantAlignment = 64;
  static int64_t AlignedSize(const std::string& constant) {
    return (static_cast<int64_t>(constant.size()) + kConstantAlignment - 1) / kConstantAlignment * kConstantAlignment;
  }

  const ArtifactPtr artifact_;
  std::vector<std::unique_ptr<SharedObject>> objects_;
  std::vector<CpuKernel> entries_;  // by kernel
  std::shared_ptr<void> constant_block_;
  std::vector<void*> constants_;  // by index
};

class CpuDevice : public Device {
 public:
  explicit CpuDevice(int threads)
      : name_(ProcessorName()),
        memory_bytes_(HostMemoryLimitBytes()),
        pool_(BlockPool::Create(std::min(kMostIdleBytes, memory_bytes_ / 4), HostMemoryLimitBytes())),
        parallel_for_(threads) {}

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
    auto loaded = std::make_shared<LoadedCpuArtifact>(std::move(artifact));
    FUSELINE_RETURN_IF_ERROR(loaded->Init(*pool_));
    return LoadedArtifactPtr(std::move(loaded));
  }

  absl::StatusOr<std::shared_ptr<void>> Allocate(int64_t size_bytes) override { return pool_->Allocate(size_bytes); }

  absl::Status CopyToDevice(void* device, const void* host, int64_t size_bytes) override {
    absl::MutexLock lock(&mutex_);
    return CopyBytes(device, host, size_bytes);
  }
  absl::Status CopyToHost(void* host, const void* device, int64_t size_bytes) override {
    absl::MutexLock lock(&mutex_);
    return CopyBytes(host, device, size_bytes);
  }

  absl::Status Run(const LoadedArtifact& artifact, absl::Span<void* const> inputs, absl::Span<void* const> outputs,
                   const StopCheck& stop) override {
    const auto& loaded = static_cast<const LoadedCpuArtifact&>(artifact);
    FUSELINE_ASSIGN_OR_RETURN(const std::vector<void*> buffers, ResolveBuffers(loaded, inputs, outputs));
    absl::MutexLock lock(&mutex_);
    return RunSteps(loaded, buffers, stop);
  }

  absl::Status Synchronize() override { return absl::OkStatus(); }  // Run has waited

  absl::StatusOr<std::vector<double>> Time(const LoadedArtifact& artifact, absl::Span<void* const> inputs,
                                           absl::Span<void* const> outputs, int warmup, int iterations,
                                           bool flush_cache, const StopCheck& stop) override {
    const auto& loaded = static_cast<const LoadedCpuArtifact&>(artifact);
    FUSELINE_ASSIGN_OR_RETURN(const std::vector<void*> buffers, ResolveBuffers(loaded, inputs, outputs));
    std::shared_ptr<void> flush_block;
    const int64_t flush_bytes = FlushBytes();
    if (flush_cache) {
      FUSELINE_ASSIGN_OR_RETURN(flush_block, pool_->Allocate(flush_bytes));
    }
    std::vector<double> micros;
    absl::MutexLock lock(&mutex_);
    for (int i = 0; i < warmup + iterations; ++i) {
      if (stop) FUSELINE_RETURN_IF_ERROR(stop());
      if (flush_cache) memset(flush_block.get(), i & 0xff, static_cast<size_t>(flush_bytes));
      const Clock::time_point start = Clock::now();
      FUSELINE_RETURN_IF_ERROR(RunSteps(loaded, buffers, stop));
      if (i >= warmup) micros.push_back(MicrosSince(start));
    }
    return micros;
  }

  absl::StatusOr<double> MeasureCopyRate(int64_t size_bytes) override {
    if (size_bytes <= 0) return Internal("the size of a copy must be positive");
    FUSELINE_ASSIGN_OR_RETURN(const std::shared_ptr<void> from, pool_->Allocate(size_bytes));
    FUSELINE_ASSIGN_OR_RETURN(const std::shared_ptr<void> to, pool_->Allocate(size_bytes));
    absl::MutexLock lock(&mutex_);
    memset(from.get(), 1, static_cast<size_t>(size_bytes));
    FUSELINE_RETURN_IF_ERROR(CopyBytes(to.get(), from.get(), size_bytes));
    std::vector<double> micros;
    for (int i = 0; i < kCopyRuns; ++i) {
      const Clock::time_point start = Clock::now();
      FUSELINE_RETURN_IF_ERROR(CopyBytes(to.get(), from.get(), size_bytes));
      micros.push_back(MicrosSince(start));
    }
    std::nth_element(micros.begin(), micros.begin() + kCopyRuns / 2, micros.end());
    return 2.0 * static_cast<double>(size_bytes) / (micros[kCopyRuns / 2] * 1e-6);
  }

 private:
  // Plan buffers to addresses; temporaries, which get theirs in RunSteps, are left null.
  static absl::StatusOr<std::vector<void*>> ResolveBuffers(const LoadedCpuArtifact& loaded,
                                                           absl::Span<void* const> inputs,
                                                           absl::Span<void* const> outputs) {
    const LaunchPlan& plan = loaded.artifact().plan;
    if (inputs.size() != plan.inputs.size() || outputs.size() != plan.outputs.size()) {
      return Internal(StrCat("the plan takes ", plan.inputs.size(), " inputs and ", plan.outputs.size(),
                             " outputs, got ", inputs.size(), " and ", outputs.size()));
    }
    std::vector<void*> buffers(plan.buffers.size(), nullptr);
    for (size_t b = 0; b < buffers.size(); ++b) {
      const PlanBuffer& buffer = plan.buffers[b];
      switch (buffer.kind) {
        case PlanBuffer::Kind::kInput:
          buffers[b] = inputs[static_cast<size_t>(buffer.index)];
          break;
        case PlanBuffer::Kind::kOutput:
          buffers[b] = outputs[static_cast<size_t>(buffer.index)];
          break;
        case PlanBuffer::Kind::kConstant:
          buffers[b] = loaded.constant(buffer.index);
          break;
        case PlanBuffer::Kind::kTemporary:
        case PlanBuffer::Kind::kChecks:
          break;
      }
    }
    return buffers;
  }

  absl::Status RunSteps(const LoadedCpuArtifact& loaded, std::vector<void*> buffers, const StopCheck& stop)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    const LaunchPlan& plan = loaded.artifact().plan;
    std::shared_ptr<void> arena;
    if (plan.arena_bytes > 0) {
      FUSELINE_ASSIGN_OR_RETURN(arena, pool_->Allocate(plan.arena_bytes));
      for (size_t b = 0; b < buffers.size(); ++b) {
        if (plan.buffers[b].kind != PlanBuffer::Kind::kTemporary) continue;
        buffers[b] = static_cast<char*>(arena.get()) + plan.buffers[b].arena_offset_bytes;
      }
    }
    std::vector<int64_t> noted(2 * plan.checks.size(), 0);
    for (size_t b = 0; b < buffers.size() && !noted.empty(); ++b) {
      if (plan.buffers[b].kind == PlanBuffer::Kind::kChecks) buffers[b] = noted.data();
    }
    std::vector<void*> arguments;
    for (const PlanStep& step : plan.steps) {
      if (stop) FUSELINE_RETURN_IF_ERROR(stop());
      arguments.clear();
      for (const int32_t b : step.buffers) arguments.push_back(buffers[static_cast<size_t>(b)]);
      if (!step.sizes.empty()) arguments.push_back(const_cast<int64_t*>(step.sizes.data()));  // kernels only read them
      switch (step.kind) {
        case PlanStep::Kind::kLaunch: {
          const CpuKernel kernel = loaded.entry(step.kernel);
          FUSELINE_RETURN_IF_ERROR(RunLoop(step.work_items, step.work_grain, stop,
                                           [&](int64_t begin, int64_t end) { kernel(arguments.data(), begin, end); }));
          break;
        }
        case PlanStep::Kind::kCopy:
          FUSELINE_RETURN_IF_ERROR(CopyBytes(arguments[1], arguments[0],
                                             plan.buffers[static_cast<size_t>(step.buffers[0])].size_bytes, stop));
          break;
      }
    }
    return IndexCheckStatus(plan.checks, noted);
  }

  // On all threads, in slices that can be stopped between.
  absl::Status RunLoop(int64_t items, int64_t grain, const StopCheck& stop,
                       absl::FunctionRef<void(int64_t begin, int64_t end)> body) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    StoppableLoop loop(stop);
    parallel_for_.Run(items, grain, [&](int64_t begin, int64_t end) { loop.Run(begin, end, grain, body); });
    return stop ? loop.status() : absl::OkStatus();
  }

  absl::Status CopyBytes(void* to, const void* from, int64_t size_bytes, const StopCheck& stop = nullptr)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (size_bytes <= 0 || to == from) return absl::OkStatus();
    return RunLoop(size_bytes, kCopyGrainBytes, stop, [&](int64_t begin, int64_t end) {
      memcpy(static_cast<char*>(to) + begin, static_cast<const char*>(from) + begin, static_cast<size_t>(end - begin));
    });
  }

  static int64_t FlushBytes() {
    return std::clamp<int64_t>(2 * int64_t{sysconf(_SC_LEVEL3_CACHE_SIZE)}, kLeastFlushBytes, kMostFlushBytes);
  }

  const std::string name_;
  const int64_t memory_bytes_;
  const std::shared_ptr<BlockPool> pool_;
  absl::Mutex mutex_;  // one run at a time: all threads work on it
  ParallelFor parallel_for_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace

std::unique_ptr<Device> OpenCpuDevice(int threads) {
  if (threads <= 0) threads = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  return std::make_unique<CpuDevice>(threads);
}

}  // namespace fuseline::launch
