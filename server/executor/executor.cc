// Tested by tests/unit/server/executor_test.cc
#include "server/executor/executor.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <thread>
#include <utility>

#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "common/launch/block_pool.h"
#include "common/status/error.h"
#include "common/status/status_macros.h"
#include "common/status/str_cat.h"
#include "server/executor/device_queue.h"
#include "server/executor/loaded_artifacts.h"
#include "server/executor/strided_layout.h"

namespace fuseline::executor {
namespace {

using Clock = std::chrono::steady_clock;

// Loaded artifacts of one device: a bound on modules, and on their bytes.
constexpr size_t kMaxLoadedArtifacts = 4096;
constexpr int64_t kMaxLoadedBytes = 2ll << 30;
// Freed result buffers that are kept for the next results.
constexpr int64_t kMaxIdleResultBytes = 4ll << 30;
// Larger than any cache, small enough to measure at once.
constexpr int64_t kCopyRateBytes = 512ll << 20;
constexpr int64_t kCpuCopyRateBytes = 128ll << 20;
constexpr int kMaxBenchIterations = 1'000'000;

double MicrosBetween(Clock::time_point start, Clock::time_point end) {
  return std::chrono::duration<double, std::micro>(end - start).count();
}

std::string ShapeText(const Shape& shape) { return StrCat("[", absl::StrJoin(shape, ", "), "]"); }

absl::Status CheckInputs(const LaunchPlan& plan, const std::vector<Tensor>& inputs) {
  if (inputs.size() != plan.inputs.size()) {
    return InvalidArgument(ErrorReason::kTensorMismatch, "inputs",
                           StrCat("the graph takes ", plan.inputs.size(), " inputs, got ", inputs.size()));
  }
  for (size_t i = 0; i < inputs.size(); ++i) {
    const PlanTensor& wanted = plan.inputs[i];
    const Tensor& given = inputs[i];
    if (given.dtype() != wanted.dtype || given.shape() != wanted.shape) {
      return InvalidArgument(
          ErrorReason::kTensorMismatch, StrCat("inputs.", wanted.name),
          StrCat("input '", wanted.name, "': the graph takes ", DTypeName(wanted.dtype), ShapeText(wanted.shape),
                 ", got ", DTypeName(given.dtype()), ShapeText(given.shape())));
    }
    if (given.data() == nullptr && given.size_bytes() > 0) {
      return InvalidArgument(ErrorReason::kTensorMismatch, StrCat("inputs.", wanted.name),
                             StrCat("input '", wanted.name, "' has no data"));
    }
  }
  return absl::OkStatus();
}

bool IsAligned(const void* data, int64_t alignment_bytes) {
  return alignment_bytes <= 1 || reinterpret_cast<uintptr_t>(data) % static_cast<uintptr_t>(alignment_bytes) == 0;
}

// One device with its queue.
struct DeviceSlot {
  DeviceSlot(std::unique_ptr<launch::Device> d, int max_queue)
      : device(std::move(d)), queue(max_queue), loaded(*device, kMaxLoadedArtifacts, kMaxLoadedBytes) {}

  const std::unique_ptr<launch::Device> device;
  DeviceQueue queue;
  LoadedArtifacts loaded;
  std::atomic<bool> healthy{true};
  std::atomic<int64_t> executions{0};

  bool is_cuda() const { return device->target().is_cuda(); }
  // A device whose context is lost gets no more work.
  absl::Status Watch(const absl::Status& status) {
    if (GetErrorReason(status) == ErrorReason::kNoHealthyDevice) healthy = false;
    return status;
  }
};

// The device is left when this goes away.
class Turn {
 public:
  static absl::Status Take(DeviceSlot& slot, const ExecuteOptions& options) {
    return slot.queue.Enter(options.deadline, options.cancelled);
  }
  explicit Turn(DeviceSlot& slot) : slot_(slot) {}
  ~Turn() { slot_.queue.Leave(); }
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;

 private:
  DeviceSlot& slot_;
};

// What a run works on: addresses in signature order, and the owners of their memory.
struct Bindings {
  std::vector<void*> inputs;
  std::vector<void*> outputs;
  std::vector<std::shared_ptr<void>> input_blocks;
  std::vector<std::shared_ptr<void>> output_blocks;
};

absl::Status WrongDevice(const Target& target, const std::string& message) {
  return MakeError(absl::StatusCode::kFailedPrecondition, ErrorReason::kTargetNotAvailable, target.ToString(), message);
}

launch::StopCheck MakeStopCheck(const ExecuteOptions& options) {
  if (options.deadline == absl::InfiniteFuture()) return options.cancelled;
  return [&options]() -> absl::Status {
    if (options.cancelled) FUSELINE_RETURN_IF_ERROR(options.cancelled());
    if (absl::Now() < options.deadline) return absl::OkStatus();
    return MakeError(absl::StatusCode::kDeadlineExceeded, ErrorReason::kCancelled, "",
                     "the deadline passed during the execution");
  };
}

}  // namespace

std::vector<Argument> Arguments(const std::vector<Tensor>& tensors) {
  return std::vector<Argument>(tensors.begin(), tensors.end());
}

class Executor::Impl {
 public:
  explicit Impl(const ExecutorOptions& options) : host_pool_(launch::BlockPool::Create(kMaxIdleResultBytes)) {
    const int cores = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
    const int max_queue = std::max(options.max_queue, 0);
    if (options.use_cuda) {
      for (auto& device : launch::OpenCudaDevices(why_no_cuda_))
        slots_.push_back(std::make_unique<DeviceSlot>(std::move(device), max_queue));
    } else {
      why_no_cuda_ = "CUDA devices are switched off";
    }
    const int threads =
        options.cpu_threads > 0 ? options.cpu_threads : std::max(1, cores / std::max(1, options.cpu_devices));
    for (int i = 0; i < options.cpu_devices; ++i) {
      slots_.push_back(std::make_unique<DeviceSlot>(launch::OpenCpuDevice(threads), max_queue));
    }
  }

  std::vector<DeviceInfo> Devices() const {
    std::vector<DeviceInfo> infos;
    for (const auto& slot : slots_) {
      DeviceInfo& info = infos.emplace_back();
      info.ordinal = static_cast<int32_t>(infos.size()) - 1;
      info.name = slot->device->name();
      info.target = slot->device->target();
      info.memory_bytes = slot->device->memory_bytes();
      info.healthy = slot->healthy;
      info.executions = slot->executions;
      info.queue_depth = slot->queue.depth();
    }
    return infos;
  }

  absl::Status CanRun(const Target& target) const {
    bool found = false;
    for (const auto& slot : slots_) {
      if (!slot->device->CanRun(target)) continue;
      if (slot->healthy) return absl::OkStatus();
      found = true;
    }
    if (found) {
      return MakeError(absl::StatusCode::kUnavailable, ErrorReason::kNoHealthyDevice, target.ToString(),
                       StrCat("no device for target '", target.ToString(), "' is healthy"));
    }
    return MakeError(absl::StatusCode::kFailedPrecondition, ErrorReason::kTargetNotAvailable, target.ToString(),
                     StrCat("no device here runs target '", target.ToString(), "': ", WhyNot(target)));
  }

  absl::StatusOr<Execution> Execute(const ArtifactPtr& artifact, const std::vector<Tensor>& inputs,
                                    const ExecuteOptions& options) {
    FUSELINE_RETURN_IF_ERROR(CheckInputs(artifact->plan, inputs));
    const Clock::time_point start = Clock::now();
    // A lost device costs its execution a second try elsewhere, since executions change nothing. One try for each
    // device at most.
    absl::StatusOr<Execution> execution = absl::UnknownError("");
    for (size_t attempt = 0; attempt < std::max<size_t>(slots_.size(), 1); ++attempt) {
      FUSELINE_ASSIGN_OR_RETURN(const size_t ordinal, Choose(artifact->target, options.device));
      execution = ExecuteOn(ordinal, artifact, inputs, options, start);
      if (execution.ok() || GetErrorReason(execution.status()) != ErrorReason::kNoHealthyDevice || options.device >= 0)
        break;
    }
    return execution;
  }

  absl::StatusOr<BenchResult> Bench(const ArtifactPtr& artifact, const std::vector<Tensor>& inputs, int warmup,
                                    int iterations) {
    if (iterations < 1 || iterations > kMaxBenchIterations || warmup < 0 || warmup > kMaxBenchIterations) {
      return InvalidArgument(ErrorReason::kOptionInvalid, "iterations",
                             StrCat("iterations must be 1 to ", kMaxBenchIterations, ", warm-up runs at most as many"));
    }
    FUSELINE_RETURN_IF_ERROR(CheckInputs(artifact->plan, inputs));
    FUSELINE_ASSIGN_OR_RETURN(const size_t ordinal, Choose(artifact->target, -1));
    DeviceSlot& slot = *slots_[ordinal];
    FUSELINE_ASSIGN_OR_RETURN(const launch::LoadedArtifactPtr loaded, slot.loaded.Get(artifact));
    FUSELINE_RETURN_IF_ERROR(Turn::Take(slot, {}));
    const Turn turn(slot);
    FUSELINE_ASSIGN_OR_RETURN(Bindings bindings, Bind(slot, artifact->plan, inputs));
    BenchResult result;
    auto micros =
        slot.device->Time(*loaded, bindings.inputs, bindings.outputs, warmup, iterations, /*flush_cache=*/true, nullptr);
    if (!micros.ok()) return slot.Watch(micros.status());
    result.micros = *std::move(micros);
    auto rate = slot.device->MeasureCopyRate(slot.is_cuda() ? kCopyRateBytes : kCpuCopyRateBytes);
    // A device whose memory is nearly full still has its times.
    if (rate.ok()) result.copy_bytes_per_second = *rate;
    result.device = static_cast<int32_t>(ordinal);
    return result;
  }

  void Drain() {
    for (const auto& slot : slots_) slot->queue.Drain();
  }

 private:
  std::string WhyNot(const Target& target) const {
    if (target.is_cuda() && !why_no_cuda_.empty()) return why_no_cuda_;
    if (slots_.empty()) return "there are no devices";
    std::vector<std::string> names;
    for (const auto& slot : slots_) names.push_back(slot->device->target().ToString());
    names.erase(std::unique(names.begin(), names.end()), names.end());
    return StrCat("the devices here are for ", absl::StrJoin(names, ", "));
  }

  // The wanted device, or the healthy one with the shortest queue.
  absl::StatusOr<size_t> Choose(const Target& target, int32_t wanted) {
    if (wanted >= 0) {
      const size_t ordinal = static_cast<size_t>(wanted);
      if (ordinal >= slots_.size()) return WrongDevice(target, StrCat("there is no device ", wanted));
      if (!slots_[ordinal]->device->CanRun(target))
        return WrongDevice(target, StrCat("device ", wanted, " can't run target '", target.ToString(), "'"));
      if (!slots_[ordinal]->healthy) {
        return MakeError(absl::StatusCode::kUnavailable, ErrorReason::kNoHealthyDevice, target.ToString(),
                         StrCat("device ", wanted, " is not healthy"));
      }
      return ordinal;
    }
    FUSELINE_RETURN_IF_ERROR(CanRun(target));
    // Among equals another one each time.
    const size_t first = next_.fetch_add(1, std::memory_order_relaxed);
    size_t best = slots_.size();
    int64_t best_depth = 0;
    for (size_t i = 0; i < slots_.size(); ++i) {
      const size_t ordinal = (first + i) % slots_.size();
      if (!slots_[ordinal]->device->CanRun(target) || !slots_[ordinal]->healthy) continue;
      const int64_t depth = slots_[ordinal]->queue.depth();
      if (best == slots_.size() || depth < best_depth) {
        best = ordinal;
        best_depth = depth;
      }
    }
    if (best == slots_.size()) {
      return MakeError(absl::StatusCode::kUnavailable, ErrorReason::kNoHealthyDevice, target.ToString(),
                       "the last healthy device was lost");
    }
    return best;
  }

  absl::StatusOr<Execution> ExecuteOn(size_t ordinal, const ArtifactPtr& artifact, const std::vector<Tensor>& inputs,
                                      const ExecuteOptions& options, Clock::time_point start) {
    DeviceSlot& slot = *slots_[ordinal];
    absl::StatusOr<launch::LoadedArtifactPtr> loaded = slot.loaded.Get(artifact);
    if (!loaded.ok()) return slot.Watch(loaded.status());
    FUSELINE_RETURN_IF_ERROR(Turn::Take(slot, options));
    const Turn turn(slot);
    const Clock::time_point begin = Clock::now();
    absl::StatusOr<std::vector<Tensor>> outputs = RunOn(slot, **loaded, inputs, MakeStopCheck(options));
    if (!outputs.ok()) return slot.Watch(outputs.status());
    ++slot.executions;
    Execution execution;
    execution.outputs = *std::move(outputs);
    execution.device = static_cast<int32_t>(ordinal);
    execution.queue_micros = MicrosBetween(start, begin);
    execution.run_micros = MicrosBetween(begin, Clock::now());
    return execution;
  }

  absl::StatusOr<std::vector<Tensor>> RunOn(DeviceSlot& slot, const launch::LoadedArtifact& loaded,
                                            const std::vector<Tensor>& inputs, const launch::StopCheck& stop) {
    const LaunchPlan& plan = loaded.artifact().plan;
    if (stop) FUSELINE_RETURN_IF_ERROR(stop());
    FUSELINE_ASSIGN_OR_RETURN(Bindings bindings, Bind(slot, plan, inputs));
    FUSELINE_RETURN_IF_ERROR(slot.device->Run(loaded, bindings.inputs, bindings.outputs, stop));
    std::vector<Tensor> outputs;
    for (size_t i = 0; i < plan.outputs.size(); ++i) {
      const PlanTensor& output = plan.outputs[i];
      std::shared_ptr<void> block = bindings.output_blocks[i];
      if (slot.is_cuda()) {
        if (stop) FUSELINE_RETURN_IF_ERROR(stop());
        FUSELINE_ASSIGN_OR_RETURN(const int64_t size_bytes, LaidOutBytes(output));
        FUSELINE_ASSIGN_OR_RETURN(block, host_pool_->Allocate(size_bytes));
        FUSELINE_RETURN_IF_ERROR(slot.device->CopyToHost(block.get(), bindings.outputs[i], size_bytes));
      }
      outputs.push_back(Tensor::Borrow(output.dtype, output.shape, block.get(), block));
    }
    if (plan.outputs.empty()) FUSELINE_RETURN_IF_ERROR(slot.device->Synchronize());
    return outputs;
  }

  // Puts the inputs where the device reads them, laid out as the plan says, and allocates the outputs. On a CPU a
  // tensor that lies right is used in its place.
  absl::StatusOr<Bindings> Bind(DeviceSlot& slot, const LaunchPlan& plan, const std::vector<Tensor>& inputs) {
    Bindings bindings;
    for (size_t i = 0; i < inputs.size(); ++i) {
      const PlanTensor& input = plan.inputs[i];
      const bool dense = IsDense(input.shape, input.strides);
      void* data = const_cast<void*>(inputs[i].data());
      if (!slot.is_cuda() && dense && IsAligned(data, input.alignment_bytes)) {
        bindings.inputs.push_back(data);
        continue;
      }
      auto bytes = LaidOutBytes(input);
      if (!bytes.ok()) return Wrap(bytes.status(), StrCat("input '", input.name, "'"));
      FUSELINE_ASSIGN_OR_RETURN(std::shared_ptr<void> block, slot.device->Allocate(*bytes));
      if (!slot.is_cuda()) {
        FUSELINE_RETURN_IF_ERROR(LayOut(input, data, block.get()));
      } else if (dense) {
        FUSELINE_RETURN_IF_ERROR(slot.device->CopyToDevice(block.get(), data, *bytes));
      } else {
        FUSELINE_ASSIGN_OR_RETURN(const std::shared_ptr<void> staged, host_pool_->Allocate(*bytes));
        FUSELINE_RETURN_IF_ERROR(LayOut(input, data, staged.get()));
        FUSELINE_RETURN_IF_ERROR(slot.device->CopyToDevice(block.get(), staged.get(), *bytes));
      }
      bindings.inputs.push_back(block.get());
      bindings.input_blocks.push_back(std::move(block));
    }
    for (const PlanTensor& output : plan.outputs) {
      FUSELINE_ASSIGN_OR_RETURN(const int64_t bytes, LaidOutBytes(output));
      FUSELINE_ASSIGN_OR_RETURN(std::shared_ptr<void> block, slot.device->Allocate(bytes));
      bindings.outputs.push_back(block.get());
      bindings.output_blocks.push_back(std::move(block));
    }
    return bindings;
  }

  // Fixed after construction.
  const std::shared_ptr<launch::BlockPool> host_pool_;  // results of devices with memory of their own
  std::string why_no_cuda_;
  std::vector<std::unique_ptr<DeviceSlot>> slots_;  // CUDA devices first
  std::atomic<size_t> next_{0};
};

absl::StatusOr<std::unique_ptr<Executor>> Executor::Create(const ExecutorOptions& options) {
  if (options.cpu_devices < 0 || options.cpu_devices > 1024 || options.cpu_threads < 0 || options.cpu_threads > 1024) {
    return InvalidArgument(ErrorReason::kOptionInvalid, "cpu_devices",
                           "the numbers of CPU devices and threads must be 0 to 1024");
  }
  return std::unique_ptr<Executor>(new Executor(std::make_unique<Impl>(options)));
}

Executor::Executor(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Executor::~Executor() { impl_->Drain(); }
std::vector<DeviceInfo> Executor::Devices() const { return impl_->Devices(); }
absl::Status Executor::CanRun(const Target& target) const { return impl_->CanRun(target); }
absl::StatusOr<Execution> Executor::Execute(const ArtifactPtr& artifact, const std::vector<Argument>& inputs,
                                            const ExecuteOptions& options) {
  std::vector<Tensor> tensors;
  for (const Argument& input : inputs) tensors.push_back(input.tensor);
  return impl_->Execute(artifact, tensors, options);
}
absl::StatusOr<Tensor> Executor::Fetch(const StoredTensorPtr& tensor) { return Unimplemented("", "kept tensors"); }
absl::StatusOr<BenchResult> Executor::Bench(const ArtifactPtr& artifact, const std::vector<Tensor>& inputs, int warmup,
                                            int iterations, const ExecuteOptions& options) {
  return impl_->Bench(artifact, inputs, warmup, iterations);
}
void Executor::Drain() { impl_->Drain(); }

}  // namespace fuseline::executor
