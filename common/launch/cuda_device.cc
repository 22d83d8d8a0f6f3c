// Tested by tests/unit/server/cuda_device_test.cc
#include <algorithm>
#include <map>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "common/artifact/index_checks.h"
#include "common/launch/cuda_context.h"
#include "common/launch/cuda_driver.h"
#include "common/launch/cuda_transfer.h"
#include "common/launch/launch_plan_runner.h"
#include "common/status/error.h"
#include "common/status/status_macros.h"
#include "common/status/str_cat.h"

namespace fuseline::launch {
namespace {

// Dynamic shared memory beyond this must be asked for.
constexpr int64_t kDefaultSharedBytes = 48 << 10;
constexpr int kCopyRuns = 11;
constexpr size_t kRunsAhead = 8;  // timed runs that are enqueued ahead: more than launching one more takes
constexpr int64_t kLeastFlushBytes = 256ll << 20;  // several times the largest L2 so far (50 MiB on Hopper)
constexpr int64_t kConstantAlignment = 256;

class LoadedCudaArtifact : public LoadedArtifact {
 public:
  // What launching a step needs besides addresses.
  struct Step {
    CuFunction function = nullptr;  // null for copies
    const PlanStep* plan = nullptr;
  };

  LoadedCudaArtifact(ArtifactPtr artifact, std::shared_ptr<CudaContext> context)
      : artifact_(std::move(artifact)), context_(std::move(context)) {}
  ~LoadedCudaArtifact() override {
    const CudaContext::Scope scope(*context_);
    context_->driver().StreamSynchronize(context_->stream());  // nothing may run while its code goes away
    for (CuModule module : modules_) context_->driver().ModuleUnload(module);
  }
  const Artifact& artifact() const override { return *artifact_; }
  const std::vector<Step>& steps() const { return steps_; }
  CuDevicePtr constant(int32_t index) const { return constants_[static_cast<size_t>(index)]; }

  absl::Status Init(CudaTransfer& transfer) {
    const CudaDriver& driver = context_->driver();
    const CudaContext::Scope scope(*context_);
    FUSELINE_RETURN_IF_ERROR(scope.status());
    std::vector<CuFunction> functions;
    std::map<std::string_view, CuModule> loaded;  // equal images are loaded once
    for (const KernelImage& kernel : artifact_->kernels) {
      if (kernel.format != ImageFormat::kCubin && kernel.format != ImageFormat::kPtx) {
        return Internal(StrCat("kernel '", kernel.entry, "' is neither a cubin nor ptx"));
      }
      CuModule& module = loaded[kernel.bytes];
      if (module == nullptr) {
        FUSELINE_RETURN_IF_ERROR(driver.Check(driver.ModuleLoadData(&module, kernel.bytes.c_str()),
                                              StrCat("load kernel '", kernel.entry, "'")));
        modules_.push_back(module);
      }
      FUSELINE_RETURN_IF_ERROR(
          driver.Check(driver.ModuleGetFunction(&functions.emplace_back(), module, kernel.entry.c_str()),
                       StrCat("find kernel '", kernel.entry, "'")));
    }
    for (const PlanStep& step : artifact_->plan.steps) {
      Step& launch = steps_.emplace_back();
      launch.plan = &step;
      if (step.kind != PlanStep::Kind::kLaunch) continue;
      launch.function = functions[static_cast<size_t>(step.kernel)];
      const KernelImage& kernel = artifact_->kernels[static_cast<size_t>(step.kernel)];
      FUSELINE_RETURN_IF_ERROR(AllowSharedMemory(kernel, step.dims, launch.function));
    }
    return InitConstants(transfer);
  }

 private:
  absl::Status AllowSharedMemory(const KernelImage& kernel, const LaunchDims& dims, CuFunction function) {
    const int64_t needed_bytes = dims.dynamic_shared_bytes + kernel.resources.static_shared_bytes;
    if (needed_bytes <= kDefaultSharedBytes) return absl::OkStatus();
    const int64_t most_bytes = context_->attribute(CudaDriver::kAttrMaxSharedOptin);
    if (needed_bytes > most_bytes) {
      return Internal(StrCat("kernel '", kernel.entry, "' needs ", needed_bytes,
                             " bytes of shared memory, the device has ", most_bytes));
    }
    // Several steps may launch the kernel: the largest counts.
    int64_t& allowed = allowed_[function];
    if (dims.dynamic_shared_bytes <= allowed) return absl::OkStatus();
    allowed = dims.dynamic_shared_bytes;
    const CudaDriver& driver = context_->driver();
    return driver.Check(driver.FuncSetAttribute(function, CudaDriver::kFuncMaxDynamicShared, static_cast<int>(allowed)),
                        StrCat("shared memory of kernel '", kernel.entry, "'"));
  }

  absl::Status InitConstants(CudaTransfer& transfer) {
    const std::vector<std::string>& constants = artifact_->plan.constants;
    int64_t total_bytes = 0;
    std::vector<int64_t> offsets;
    for (const std::string& constant : constants) {
      offsets.push_back(total_bytes);
      total_bytes +=
          (static_cast<int64_t>(constant.size()) + kConstantAlignment - 1) / kConstantAlignment * kConstantAlignment;
    }
    if (constants.empty()) return absl::OkStatus();
    FUSELINE_ASSIGN_OR_RETURN(constant_block_, context_->Allocate(total_bytes));
    for (size_t c = 0; c < constants.size(); ++c) {
      char* place = static_cast<char*>(constant_block_.get()) + offsets[c];
      constants_.push_back(ToCuda(place));
      FUSELINE_RETURN_IF_ERROR(
          transfer.ToDevice(place, constants[c].data(), static_cast<int64_t>(constants[c].size())));
    }
    return absl::OkStatus();
  }

  const ArtifactPtr artifact_;
  const std::shared_ptr<CudaContext> context_;
  // Fixed after Init.
  std::vector<CuModule> modules_;
  std::vector<Step> steps_;
  std::map<CuFunction, int64_t> allowed_;  // dynamic shared bytes asked for
  std::shared_ptr<void> constant_block_;
  std::vector<CuDevicePtr> constants_;
};

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
    auto loaded = std::make_shared<LoadedCudaArtifact>(std::move(artifact), context_);
    FUSELINE_RETURN_IF_ERROR(loaded->Init(transfer_));
    return LoadedArtifactPtr(std::move(loaded));
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
    FUSELINE_ASSIGN_OR_RETURN(Addresses addresses, Resolve(loaded, inputs, outputs));
    const CudaContext::Scope scope(*context_);
    FUSELINE_RETURN_IF_ERROR(scope.status());
    absl::MutexLock lock(&mutex_);
    const LaunchPlan& plan = loaded.artifact().plan;
    FUSELINE_ASSIGN_OR_RETURN(const std::shared_ptr<void> arena, AllocateArena(plan, addresses));
    FUSELINE_ASSIGN_OR_RETURN(const std::shared_ptr<void> noted, AllocateChecks(plan, addresses));
    FUSELINE_RETURN_IF_ERROR(Launch(loaded, addresses, stop));
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
    FUSELINE_ASSIGN_OR_RETURN(Addresses addresses, Resolve(loaded, inputs, outputs));
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
    FUSELINE_ASSIGN_OR_RETURN(const std::shared_ptr<void> arena, AllocateArena(loaded.artifact().plan, addresses));
    FUSELINE_ASSIGN_OR_RETURN(const std::shared_ptr<void> noted, AllocateChecks(loaded.artifact().plan, addresses));
    for (int i = 0; i < warmup; ++i) {
      if (stop && static_cast<size_t>(i) % kRunsAhead == 0) FUSELINE_RETURN_IF_ERROR(context_->Synchronize());
      FUSELINE_RETURN_IF_ERROR(Launch(loaded, addresses, stop));
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
      FUSELINE_RETURN_IF_ERROR(Launch(loaded, addresses, stop));
      FUSELINE_RETURN_IF_ERROR(events.Record(2 * i + 1));
    }
    FUSELINE_RETURN_IF_ERROR(context_->Synchronize());
    FUSELINE_RETURN_IF_ERROR(ReadChecks(loaded.artifact().plan, noted.get()));
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
  // Device addresses of a plan's buffers; temporaries get theirs in AllocateArena.
  using Addresses = std::vector<CuDevicePtr>;

  static absl::StatusOr<Addresses> Resolve(const LoadedCudaArtifact& loaded, absl::Span<void* const> inputs,
                                           absl::Span<void* const> outputs) {
    const LaunchPlan& plan = loaded.artifact().plan;
    if (inputs.size() != plan.inputs.size() || outputs.size() != plan.outputs.size()) {
      return Internal(StrCat("the plan takes ", plan.inputs.size(), " inputs and ", plan.outputs.size(),
                             " outputs, got ", inputs.size(), " and ", outputs.size()));
    }
    Addresses addresses(plan.buffers.size(), 0);
    for (size_t b = 0; b < addresses.size(); ++b) {
      const PlanBuffer& buffer = plan.buffers[b];
      switch (buffer.kind) {
        case PlanBuffer::Kind::kInput:
          addresses[b] = ToCuda(inputs[static_cast<size_t>(buffer.index)]);
          break;
        case PlanBuffer::Kind::kOutput:
          addresses[b] = ToCuda(outputs[static_cast<size_t>(buffer.index)]);
          break;
        case PlanBuffer::Kind::kConstant:
          addresses[b] = loaded.constant(buffer.index);
          break;
        case PlanBuffer::Kind::kTemporary:
        case PlanBuffer::Kind::kChecks:
          break;
      }
    }
    return addresses;
  }

  // Memory for the temporaries, and their addresses. Released in the stream's order, so right after the launches is
  // early enough.
  absl::StatusOr<std::shared_ptr<void>> AllocateArena(const LaunchPlan& plan, Addresses& addresses) {
    if (plan.arena_bytes <= 0) return nullptr;
    FUSELINE_ASSIGN_OR_RETURN(std::shared_ptr<void> arena, context_->Allocate(plan.arena_bytes));
    for (size_t b = 0; b < addresses.size(); ++b) {
      if (plan.buffers[b].kind != PlanBuffer::Kind::kTemporary) continue;
      addresses[b] = ToCuda(arena.get()) + static_cast<CuDevicePtr>(plan.buffers[b].arena_offset_bytes);
    }
    return arena;
  }

  // Where the kernels note indices that are out of range: zeros, in the stream's order. Null for a plan without checks.
  absl::StatusOr<std::shared_ptr<void>> AllocateChecks(const LaunchPlan& plan, Addresses& addresses) {
    if (plan.checks.empty()) return nullptr;
    FUSELINE_ASSIGN_OR_RETURN(std::shared_ptr<void> noted, context_->Allocate(ChecksBytes(plan)));
    const CudaDriver& driver = context_->driver();
    FUSELINE_RETURN_IF_ERROR(driver.Check(
        driver.MemsetD8Async(ToCuda(noted.get()), 0, static_cast<size_t>(ChecksBytes(plan)), context_->stream()),
        "clear the index checks"));
    for (size_t b = 0; b < addresses.size(); ++b) {
      if (plan.buffers[b].kind == PlanBuffer::Kind::kChecks) addresses[b] = ToCuda(noted.get());
    }
    return noted;
  }

  // Waits for the stream.
  absl::Status ReadChecks(const LaunchPlan& plan, const void* noted) {
    if (plan.checks.empty()) return absl::OkStatus();
    std::vector<int64_t> host(2 * plan.checks.size(), 0);
    FUSELINE_RETURN_IF_ERROR(transfer_.ToHost(host.data(), noted, ChecksBytes(plan)));
    return IndexCheckStatus(plan.checks, host);
  }

  // The context is current.
  absl::Status Launch(const LoadedCudaArtifact& loaded, Addresses& addresses, const StopCheck& stop)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    const LaunchPlan& plan = loaded.artifact().plan;
    const CudaDriver& driver = context_->driver();
    std::vector<void*> params;
    for (const LoadedCudaArtifact::Step& step : loaded.steps()) {
      if (stop) FUSELINE_RETURN_IF_ERROR(stop());
      const std::vector<int32_t>& buffers = step.plan->buffers;
      if (step.function == nullptr) {
        const int64_t size_bytes = plan.buffers[static_cast<size_t>(buffers[0])].size_bytes;
        if (size_bytes == 0) continue;
        FUSELINE_RETURN_IF_ERROR(
            driver.Check(driver.MemcpyDtoDAsync(addresses[static_cast<size_t>(buffers[1])],
                                                addresses[static_cast<size_t>(buffers[0])],
                                                static_cast<size_t>(size_bytes), context_->stream()),
                         "copy on the device"));
        continue;
      }
      params.clear();
      for (const int32_t b : buffers) params.push_back(&addresses[static_cast<size_t>(b)]);
      for (const int64_t& n : step.plan->sizes) params.push_back(const_cast<int64_t*>(&n));  // the driver only reads it
      const LaunchDims& d = step.plan->dims;
      const int result = driver.LaunchKernel(
          step.function, static_cast<unsigned>(d.grid[0]), static_cast<unsigned>(d.grid[1]),
          static_cast<unsigned>(d.grid[2]), static_cast<unsigned>(d.block[0]), static_cast<unsigned>(d.block[1]),
          static_cast<unsigned>(d.block[2]), static_cast<unsigned>(d.dynamic_shared_bytes), context_->stream(),
          params.data(), nullptr);
      if (result != CudaDriver::kSuccess) {
        return driver.Check(
            result,
            StrCat("launch kernel '", loaded.artifact().kernels[static_cast<size_t>(step.plan->kernel)].entry, "'"));
      }
    }
    return absl::OkStatus();
  }

  const std::shared_ptr<CudaContext> context_;
  const Target target_;
  CudaTransfer transfer_;
  absl::Mutex mutex_;  // the steps of one run follow each other on the stream
};

}  // namespace

bool RunsCodeFor(const Target& device, const Target& code) {
  if (!device.is_cuda() || !code.is_cuda()) return device == code;
  if (code.arch_specific) return code.sm == device.sm;
  return code.sm / 10 == device.sm / 10 && code.sm <= device.sm;
}

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

absl::StatusOr<std::unique_ptr<Device>> OpenCudaDevice(int ordinal) {
  FUSELINE_ASSIGN_OR_RETURN(std::shared_ptr<const CudaDriver> driver, LoadCudaDriver());
  FUSELINE_ASSIGN_OR_RETURN(std::shared_ptr<CudaContext> context, CudaContext::Open(std::move(driver), ordinal));
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
