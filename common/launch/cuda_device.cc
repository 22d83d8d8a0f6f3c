// Tested by tests/unit/server/cuda_device_test.cc
#include <algorithm>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "common/artifact/index_checks.h"
#include "common/launch/cuda_artifact.h"
#include "common/launch/cuda_context.h"
#include "common/launch/cuda_driver.h"
#include "common/launch/cuda_launch.h"
#include "common/launch/cuda_transfer.h"
#include "common/launch/launch_plan_runner.h"
#include "common/status/error.h"
#include "common/status/status_macros.h"
#include "common/status/str_cat.h"

namespace fuseline::launch {
namespace {

constexpr int kCopyRuns = 11;
constexpr size_t kRunsAhead = 8;  // timed runs that are enqueued ahead: more than launching one more takes
constexpr int64_t kLeastFlushBytes = 256ll << 20;  // several times the largest L2 so far (50 MiB on Hopper)

// Events with their destructor.
class EventList {
 public:
  EventList(const CudaContext& context, size_t count) : context_(context), events_(count, nullptr) {}
  ~EventList() {
    for (CuEvent event : events_) {
      if (event != nullptr) context_.driver().EventDestroy(event);
    }
  }
  EventList(const EventList&) = delete;
  EventList& operator=(const EventList&) = delete;
  absl::Status Init() {
    for (CuEvent& event : events_)
      FUSELINE_RETURN_IF_ERROR(context_.driver().Check(context_.driver().EventCreate(&event, 0), "cuEventCreate"));
    return absl::OkStatus();
  }
  absl::Status Record(size_t i) {
    return context_.driver().Check(context_.driver().EventRecord(events_[i], context_.stream()), "cuEventRecord");
  }
  absl::Status Wait(size_t i) {
    return context_.driver().Check(context_.driver().EventSynchronize(events_[i]), "cuEventSynchronize");
  }
  absl::StatusOr<double> Micros(size_t start, size_t end) {
    float millis = 0;
    FUSELINE_RETURN_IF_ERROR(context_.driver().Check(
        context_.driver().EventElapsedTime(&millis, events_[start], events_[end]), "cuEventElapsedTime"));
    return static_cast<double>(millis) * 1e3;
  }

 private:
  const CudaContext& context_;
  std::vector<CuEvent> events_;
};

class CudaDevice : public Device {
 public:
  explicit CudaDevice(std::shared_ptr<CudaContext> context)
      : context_(std::move(context)),
        target_(Target::Cuda(context_->attribute(CudaDriver::kAttrComputeMajor) * 10 +
                             context_->attribute(CudaDriver::kAttrComputeMinor))),
        transfer_(context_) {}

  std::string name() const override { return context_->name(); }
  Target target() const override { return target_; }
  int64_t memory_bytes() const override { return context_->memory_bytes(); }
  MemoryUsage memory_usage() const override { return {context_->used_bytes(), context_->reserved_bytes()}; }
  int driver_version() const override { return context_->driver().version; }
  bool CanRun(const Target& target) const override { return RunsCodeFor(target_, target); }

  absl::StatusOr<LoadedArtifactPtr> Load(ArtifactPtr artifact) override {
    if (!CanRun(artifact->target)) {
      return MakeError(
          absl::StatusCode::kFailedPrecondition, ErrorReason::kTargetNotAvailable, artifact->target.ToString(),
          StrCat("'", name(), "' (", target_.ToString(), ") can't run code for '", artifact->target.ToString(), "'"));
    }
    if (artifact->least_driver_version > context_->driver().version) {
      return MakeError(absl::StatusCode::kFailedPrecondition, ErrorReason::kTargetNotAvailable,
                       artifact->target.ToString(),
                       StrCat("the artifact needs a driver for CUDA ", artifact->least_driver_version,
                              ", this one is for ", context_->driver().version));
    }
    FUSELINE_ASSIGN_OR_RETURN(LoadedArtifactPtr loaded,
                              LoadedCudaArtifact::Load(std::move(artifact), context_, transfer_));
    return loaded;
  }

  absl::StatusOr<std::unique_ptr<PreparedLaunch>> Prepare(LoadedArtifactPtr artifact) override {
    return PreparedCudaLaunch::Prepare(std::static_pointer_cast<const LoadedCudaArtifact>(std::move(artifact)));
  }

  absl::StatusOr<std::shared_ptr<void>> Allocate(int64_t size_bytes) override { return context_->Allocate(size_bytes); }
  absl::Status CopyToDevice(void* device, const void* host, int64_t size_bytes) override {
    return transfer_.ToDevice(device, host, size_bytes);
  }
  absl::Status CopyToHost(void* host, const void* device, int64_t size_bytes) override {
    return transfer_.ToHost(host, device, size_bytes);
  }

  absl::Status Run(const LoadedArtifact& artifact, absl::Span<void* const> inputs, absl::Span<void* const> outputs,
                   const StopCheck& stop) override {
    const auto& loaded = static_cast<const LoadedCudaArtifact&>(artifact);
    const LaunchPlan& plan = loaded.artifact().plan;
    FUSELINE_RETURN_IF_ERROR(CheckCounts(plan, inputs, outputs));
    const CudaContext::Scope scope(*context_);
    FUSELINE_RETURN_IF_ERROR(scope.status());
    absl::MutexLock lock(&mutex_);
    FUSELINE_ASSIGN_OR_RETURN(const std::shared_ptr<void> arena, AllocateArena(plan));
    FUSELINE_ASSIGN_OR_RETURN(const std::shared_ptr<void> noted, AllocateChecks(plan));
    FUSELINE_RETURN_IF_ERROR(
        loaded.Enqueue(inputs.data(), outputs.data(), arena.get(), ToCuda(noted.get()), context_->stream(), stop));
    return ReadChecks(plan, noted.get());
  }

  absl::Status Synchronize() override { return context_->Synchronize(); }

  // After an error that loses a context, CUDA answers every call of the process with that error, also on other devices
  // and in new contexts (seen with CUDA 13.0): only another process can start over.
  absl::Status Reset() override {
    const absl::Status status = context_->Synchronize();
    return status.ok() ? status : Wrap(status, "CUDA is lost in this process, which has to be started again");
  }

  absl::StatusOr<std::vector<double>> Time(const LoadedArtifact& artifact, absl::Span<void* const> inputs,
                                           absl::Span<void* const> outputs, int warmup, int iterations,
                                           bool flush_cache, const StopCheck& stop) override {
    const auto& loaded = static_cast<const LoadedCudaArtifact&>(artifact);
    const LaunchPlan& plan = loaded.artifact().plan;
    FUSELINE_RETURN_IF_ERROR(CheckCounts(plan, inputs, outputs));
    const CudaContext::Scope scope(*context_);
    FUSELINE_RETURN_IF_ERROR(scope.status());
    std::shared_ptr<void> flush_block;
    const int64_t flush_bytes =
        std::max<int64_t>(kLeastFlushBytes, 4 * int64_t{context_->attribute(CudaDriver::kAttrL2CacheBytes)});
    if (flush_cache) {
      FUSELINE_ASSIGN_OR_RETURN(flush_block, context_->Allocate(flush_bytes));
    }
    const size_t count = static_cast<size_t>(std::max(iterations, 0));
    EventList events(*context_, 2 * count);
    FUSELINE_RETURN_IF_ERROR(events.Init());
    absl::MutexLock lock(&mutex_);
    FUSELINE_ASSIGN_OR_RETURN(const std::shared_ptr<void> arena, AllocateArena(plan));
    FUSELINE_ASSIGN_OR_RETURN(const std::shared_ptr<void> noted, AllocateChecks(plan));
    const auto launch = [&] {
      return loaded.Enqueue(inputs.data(), outputs.data(), arena.get(), ToCuda(noted.get()), context_->stream(), stop);
    };
    for (int i = 0; i < warmup; ++i) {
      if (stop && static_cast<size_t>(i) % kRunsAhead == 0) FUSELINE_RETURN_IF_ERROR(context_->Synchronize());
      FUSELINE_RETURN_IF_ERROR(launch());
    }
    for (size_t i = 0; i < count; ++i) {
      // So that a stop leaves no more than these to be waited for.
      if (stop && i >= kRunsAhead) FUSELINE_RETURN_IF_ERROR(events.Wait(2 * (i - kRunsAhead) + 1));
      if (flush_cache) {
        const CudaDriver& driver = context_->driver();
        FUSELINE_RETURN_IF_ERROR(driver.Check(
            driver.MemsetD8Async(ToCuda(flush_block.get()), 0, static_cast<size_t>(flush_bytes), context_->stream()),
            "flush the L2"));
      }
      FUSELINE_RETURN_IF_ERROR(events.Record(2 * i));
      FUSELINE_RETURN_IF_ERROR(launch());
      FUSELINE_RETURN_IF_ERROR(events.Record(2 * i + 1));
    }
    FUSELINE_RETURN_IF_ERROR(context_->Synchronize());
    FUSELINE_RETURN_IF_ERROR(ReadChecks(plan, noted.get()));
    std::vector<double> micros(count);
    for (size_t i = 0; i < count; ++i) {
      FUSELINE_ASSIGN_OR_RETURN(micros[i], events.Micros(2 * i, 2 * i + 1));
    }
    return micros;
  }

  absl::StatusOr<double> MeasureCopyRate(int64_t size_bytes) override {
    if (size_bytes <= 0) return Internal("the size of a copy must be positive");
    FUSELINE_ASSIGN_OR_RETURN(const std::shared_ptr<void> from, context_->Allocate(size_bytes));
    FUSELINE_ASSIGN_OR_RETURN(const std::shared_ptr<void> to, context_->Allocate(size_bytes));
    const CudaDriver& driver = context_->driver();
    const CudaContext::Scope scope(*context_);
    FUSELINE_RETURN_IF_ERROR(scope.status());
    EventList events(*context_, 2 * kCopyRuns);
    FUSELINE_RETURN_IF_ERROR(events.Init());
    const size_t bytes = static_cast<size_t>(size_bytes);
    const auto copy = [&] {
      return driver.Check(driver.MemcpyDtoDAsync(ToCuda(to.get()), ToCuda(from.get()), bytes, context_->stream()),
                          "copy on the device");
    };
    absl::MutexLock lock(&mutex_);
    FUSELINE_RETURN_IF_ERROR(
        driver.Check(driver.MemsetD8Async(ToCuda(from.get()), 1, bytes, context_->stream()), "copy on the device"));
    FUSELINE_RETURN_IF_ERROR(copy());
    for (size_t i = 0; i < kCopyRuns; ++i) {
      FUSELINE_RETURN_IF_ERROR(events.Record(2 * i));
      FUSELINE_RETURN_IF_ERROR(copy());
      FUSELINE_RETURN_IF_ERROR(events.Record(2 * i + 1));
    }
    FUSELINE_RETURN_IF_ERROR(context_->Synchronize());
    std::vector<double> micros(kCopyRuns);
    for (size_t i = 0; i < kCopyRuns; ++i) {
      FUSELINE_ASSIGN_OR_RETURN(micros[i], events.Micros(2 * i, 2 * i + 1));
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

  // Memory for the temporaries. Released in the stream's order, so right after the launches is early enough.
  absl::StatusOr<std::shared_ptr<void>> AllocateArena(const LaunchPlan& plan) {
    if (plan.arena_bytes <= 0) return nullptr;
    return context_->Allocate(plan.arena_bytes);
  }

  // Where the kernels note indices that are out of range: zeros, in the stream's order. Null for a plan without checks.
  absl::StatusOr<std::shared_ptr<void>> AllocateChecks(const LaunchPlan& plan) {
    if (plan.checks.empty()) return nullptr;
    FUSELINE_ASSIGN_OR_RETURN(std::shared_ptr<void> noted, context_->Allocate(ChecksBytes(plan)));
    const CudaDriver& driver = context_->driver();
    FUSELINE_RETURN_IF_ERROR(driver.Check(
        driver.MemsetD8Async(ToCuda(noted.get()), 0, static_cast<size_t>(ChecksBytes(plan)), context_->stream()),
        "clear the index checks"));
    return noted;
  }

  // Waits for the stream.
  absl::Status ReadChecks(const LaunchPlan& plan, const void* noted) {
    if (plan.checks.empty()) return absl::OkStatus();
    std::vector<int64_t> host(2 * plan.checks.size(), 0);
    FUSELINE_RETURN_IF_ERROR(transfer_.ToHost(host.data(), noted, ChecksBytes(plan)));
    return IndexCheckStatus(plan.checks, host);
  }

  const std::shared_ptr<CudaContext> context_;
  const Target target_;
  CudaTransfer transfer_;
  absl::Mutex mutex_;  // the steps of one run follow each other on the stream
};

}  // namespace

int CountCudaDevices(std::string& why) {
  const absl::StatusOr<std::shared_ptr<const CudaDriver>> driver = LoadCudaDriver();
  if (!driver.ok()) {
    why = std::string(driver.status().message());
    return 0;
  }
  int count = 0;
  if (const absl::Status status = (*driver)->Check((*driver)->DeviceGetCount(&count), "cuDeviceGetCount");
      !status.ok()) {
    why = std::string(status.message());
    return 0;
  }
  if (count <= 0) why = "the NVIDIA driver shows no GPU";
  return std::max(count, 0);
}

absl::StatusOr<std::unique_ptr<Device>> OpenCudaDevice(int ordinal, CudaTenancy tenancy) {
  FUSELINE_ASSIGN_OR_RETURN(std::shared_ptr<const CudaDriver> driver, LoadCudaDriver());
  int count = 0;
  FUSELINE_RETURN_IF_ERROR(driver->Check(driver->DeviceGetCount(&count), "cuDeviceGetCount"));
  if (ordinal < 0 || ordinal >= count) {
    return MakeError(absl::StatusCode::kFailedPrecondition, ErrorReason::kTargetNotAvailable, "cuda",
                     StrCat("there is no GPU ", ordinal, ": the NVIDIA driver shows ", count));
  }
  FUSELINE_ASSIGN_OR_RETURN(std::shared_ptr<CudaContext> context,
                            CudaContext::Open(std::move(driver), ordinal, tenancy));
  return std::make_unique<CudaDevice>(std::move(context));
}

std::vector<std::unique_ptr<Device>> OpenCudaDevices(std::string& why) {
  std::vector<std::unique_ptr<Device>> devices;
  const int count = CountCudaDevices(why);
  for (int ordinal = 0; ordinal < count; ++ordinal) {
    absl::StatusOr<std::unique_ptr<Device>> device = OpenCudaDevice(ordinal);
    if (device.ok()) {
      devices.push_back(*std::move(device));
    } else {
      StrAppend(&why, why.empty() ? "" : "; ", "GPU ", ordinal, ": ", std::string(device.status().message()));
    }
  }
  return devices;
}

}  // namespace fuseline::launch
