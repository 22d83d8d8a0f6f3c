// Tested by tests/unit/server/executor_test.cc
#include "server/executor/executor.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <optional>
#include <thread>
#include <utility>

#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "common/launch/block_pool.h"
#include "common/launch/host_memory.h"
#include "common/status/error.h"
#include "common/status/status_macros.h"
#include "common/status/str_cat.h"
#include "server/executor/device_slot.h"
#include "server/executor/stored_tensor.h"
#include "server/executor/strided_layout.h"

namespace fuseline::executor {
namespace {

using Clock = std::chrono::steady_clock;

// Freed result buffers that are kept for the next results.
constexpr int64_t kMaxIdleResultBytes = 4ll << 30;
// Larger than any cache, small enough to measure at once.
constexpr int64_t kCopyRateBytes = 512ll << 20;
constexpr int64_t kCpuCopyRateBytes = 128ll << 20;
constexpr int kMaxBenchIterations = 1'000'000;
// A device where more of the inputs lie may have this many more executions before it than the least busy one.
constexpr int64_t kQueueForLocality = 4;
// An execution that has lost this many devices is not tried on the next: it is likelier the cause than unlucky.
constexpr int kMaxLostDevices = 2;

double MicrosBetween(Clock::time_point start, Clock::time_point end) {
  return std::chrono::duration<double, std::micro>(end - start).count();
}

std::string ShapeText(const Shape& shape) { return StrCat("[", absl::StrJoin(shape, ", "), "]"); }

absl::Status CheckInputs(const LaunchPlan& plan, const std::vector<Argument>& inputs) {
  if (inputs.size() != plan.inputs.size()) {
    return InvalidArgument(ErrorReason::kTensorMismatch, "inputs",
                           StrCat("the graph takes ", plan.inputs.size(), " inputs, got ", inputs.size()));
  }
  for (size_t i = 0; i < inputs.size(); ++i) {
    const PlanTensor& wanted = plan.inputs[i];
    const Argument& given = inputs[i];
    if (given.dtype() != wanted.dtype || given.shape() != wanted.shape) {
      return InvalidArgument(
          ErrorReason::kTensorMismatch, StrCat("inputs.", wanted.name),
          StrCat("input '", wanted.name, "': the graph takes ", DTypeName(wanted.dtype), ShapeText(wanted.shape),
                 ", got ", DTypeName(given.dtype()), ShapeText(given.shape())));
    }
    if (given.stored == nullptr && given.tensor.data() == nullptr && given.tensor.size_bytes() > 0) {
      return InvalidArgument(ErrorReason::kTensorMismatch, StrCat("inputs.", wanted.name),
                             StrCat("input '", wanted.name, "' has no data"));
    }
  }
  return absl::OkStatus();
}

bool IsAligned(const void* data, int64_t alignment_bytes) {
  return alignment_bytes <= 1 || reinterpret_cast<uintptr_t>(data) % static_cast<uintptr_t>(alignment_bytes) == 0;
}

// The device is left when this goes away.
class Turn {
 public:
  static absl::Status Take(DeviceSlot& slot, const ExecuteOptions& options) {
    return slot.queue().Enter(options.deadline, options.cancelled);
  }
  explicit Turn(DeviceSlot& slot) : slot_(slot) {}
  ~Turn() { slot_.queue().Leave(); }
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
  std::vector<Tensor> host_tensors;  // kept ones that are used in their place
  std::vector<std::shared_ptr<void>> output_blocks;

  void Add(std::shared_ptr<void> input_block) {
    inputs.push_back(input_block.get());
    input_blocks.push_back(std::move(input_block));
  }
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

absl::Status LostTensor(const StoredTensor& tensor) {
  const std::string name = tensor.name();
  return MakeError(absl::StatusCode::kUnavailable, ErrorReason::kNoHealthyDevice, name,
                   StrCat("tensor ", name.empty() ? "" : StrCat("'", name, "' "), "was lost with its device"));
}

// What a run of the plan takes on the device at most.
int64_t PlanBytes(const LaunchPlan& plan) {
  int64_t total = plan.arena_bytes;
  for (const auto* tensors : {&plan.inputs, &plan.outputs}) {
    for (const PlanTensor& tensor : *tensors) {
      const absl::StatusOr<int64_t> bytes = LaidOutBytes(tensor);
      if (bytes.ok() && *bytes <= INT64_MAX - total) total += *bytes;
    }
  }
  return total;
}

}  // namespace

std::vector<Argument> Arguments(const std::vector<Tensor>& tensors) {
  return std::vector<Argument>(tensors.begin(), tensors.end());
}

class Executor::Impl {
 public:
  explicit Impl(const ExecutorOptions& options)
      : host_pool_(launch::BlockPool::Create(kMaxIdleResultBytes, launch::HostMemoryLimitBytes())) {
    const int cores = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
    const int threads =
        options.cpu_threads > 0 ? options.cpu_threads : std::max(1, cores / std::max(1, options.cpu_devices));
    std::vector<std::unique_ptr<launch::Device>> devices;
    if (options.use_cuda) {
      devices = options.open_cuda ? options.open_cuda(why_no_cuda_) : launch::OpenCudaDevices(why_no_cuda_);
    } else {
      why_no_cuda_ = "CUDA devices are switched off";
    }
    for (int i = 0; i < options.cpu_devices; ++i) devices.push_back(launch::OpenCpuDevice(threads));
    for (std::unique_ptr<launch::Device>& device : devices) {
      const int ordinal = static_cast<int>(slots_.size());
      if (options.wrap_device) device = options.wrap_device(std::move(device), ordinal);
      slots_.push_back(
          std::make_unique<DeviceSlot>(std::move(device), ordinal, std::max(options.max_queue, 0), options.rebuild));
    }
  }

  std::vector<DeviceInfo> Devices() const {
    std::vector<DeviceInfo> infos;
    for (const auto& slot : slots_) infos.push_back(slot->Info());
    return infos;
  }

  absl::Status CanRun(const Target& target) const {
    std::string reasons;
    for (const auto& slot : slots_) {
      if (!slot->CanRun(target)) continue;
      const std::string reason = slot->health().reason();
      if (reason.empty()) return absl::OkStatus();
      StrAppend(&reasons, reasons.empty() ? "" : "; ", "device ", slot->ordinal(), ": ", reason);
    }
    if (!reasons.empty()) {
      return MakeError(absl::StatusCode::kUnavailable, ErrorReason::kNoHealthyDevice, target.ToString(),
                       StrCat("no device for target '", target.ToString(), "' is healthy: ", reasons));
    }
    return MakeError(absl::StatusCode::kFailedPrecondition, ErrorReason::kTargetNotAvailable, target.ToString(),
                     StrCat("no device here runs target '", target.ToString(), "': ", WhyNot(target)));
  }

  absl::StatusOr<Execution> Execute(const ArtifactPtr& artifact, const std::vector<Argument>& inputs,
                                    const ExecuteOptions& options) {
    FUSELINE_RETURN_IF_ERROR(CheckInputs(artifact->plan, inputs));
    if (!options.keep.empty() && options.keep.size() != artifact->plan.outputs.size()) {
      return InvalidArgument(ErrorReason::kOptionInvalid, "keep",
                             StrCat("the graph has ", artifact->plan.outputs.size(), " outputs, ", options.keep.size(),
                                    " are said to be kept or not"));
    }
    const Clock::time_point start = Clock::now();
    // A lost device costs its execution a second try elsewhere, since executions change nothing; one that only waited
    // for the device may move on as often as it likes.
    Attempt attempt;
    int lost_devices = 0;
    for (size_t tries = 0; tries <= 2 * slots_.size(); ++tries) {
      FUSELINE_ASSIGN_OR_RETURN(const size_t ordinal, Choose(artifact->target, options.device, inputs));
      attempt = ExecuteOn(*slots_[ordinal], artifact, inputs, options, start);
      if (!attempt.device_lost) break;
      if (attempt.began && ++lost_devices >= kMaxLostDevices) break;
      if (options.device >= 0) break;
    }
    return std::move(attempt.execution);
  }

  absl::StatusOr<BenchResult> Bench(const ArtifactPtr& artifact, const std::vector<Tensor>& inputs, int warmup,
                                    int iterations, const ExecuteOptions& options) {
    if (iterations < 1 || iterations > kMaxBenchIterations || warmup < 0 || warmup > kMaxBenchIterations) {
      return InvalidArgument(ErrorReason::kOptionInvalid, "iterations",
                             StrCat("iterations must be 1 to ", kMaxBenchIterations, ", warm-up runs at most as many"));
    }
    const std::vector<Argument> arguments = Arguments(inputs);
    FUSELINE_RETURN_IF_ERROR(CheckInputs(artifact->plan, arguments));
    FUSELINE_ASSIGN_OR_RETURN(const size_t ordinal, Choose(artifact->target, options.device, arguments));
    DeviceSlot& slot = *slots_[ordinal];
    FUSELINE_ASSIGN_OR_RETURN(const auto use, DeviceSlot::Use::Begin(slot));
    FUSELINE_ASSIGN_OR_RETURN(const launch::LoadedArtifactPtr loaded, slot.Load(artifact));
    FUSELINE_RETURN_IF_ERROR(Turn::Take(slot, options));
    const Turn turn(slot);
    const launch::StopCheck stop = MakeStopCheck(options);
    if (stop) FUSELINE_RETURN_IF_ERROR(stop());
    FUSELINE_ASSIGN_OR_RETURN(Bindings bindings, Bind(slot, artifact->plan, arguments));
    BenchResult result;
    FUSELINE_ASSIGN_OR_RETURN(result.micros,
                              slot.Time(*loaded, bindings.inputs, bindings.outputs, warmup, iterations, stop));
    const absl::StatusOr<double> rate =
        slot.MeasureCopyRate(slot.uses_host_memory() ? kCpuCopyRateBytes : kCopyRateBytes);
    // A device whose memory is nearly full still has its times.
    if (rate.ok()) result.copy_bytes_per_second = *rate;
    result.device = static_cast<int32_t>(ordinal);
    return result;
  }

  absl::StatusOr<Tensor> Fetch(StoredTensor& tensor) {
    if (std::optional<Tensor> host = tensor.host(); host.has_value()) return *std::move(host);
    absl::Status status;
    for (const DeviceLifePtr& life : tensor.lives()) {
      for (const auto& slot : slots_) {
        const absl::StatusOr<std::unique_ptr<DeviceSlot::Use>> use = DeviceSlot::Use::Begin(*slot);
        if (!use.ok() || slot->health().life() != life) continue;
        const std::shared_ptr<void> copy = tensor.CopyOn(*life);
        if (copy == nullptr) continue;
        FUSELINE_ASSIGN_OR_RETURN(const std::shared_ptr<void> block, host_pool_->Allocate(tensor.size_bytes()));
        status = slot->CopyToHost(block.get(), copy.get(), tensor.size_bytes());
        if (status.ok()) {
          Tensor host = Tensor::Borrow(tensor.dtype(), tensor.shape(), block.get(), block);
          tensor.set_host(host);
          return host;
        }
        if (GetErrorReason(status) != ErrorReason::kNoHealthyDevice) return status;
      }
    }
    return LostTensor(tensor);
  }

  void Drain() {
    for (const auto& slot : slots_) slot->queue().BeginDrain();
    for (const auto& slot : slots_) slot->queue().Drain();
  }

 private:
  struct Attempt {
    absl::StatusOr<Execution> execution = absl::UnknownError("");
    bool device_lost = false;  // another device may do better
    bool began = false;        // it used the device when that was lost
  };

  std::string WhyNot(const Target& target) const {
    if (target.is_cuda() && !why_no_cuda_.empty()) return why_no_cuda_;
    if (slots_.empty()) return "there are no devices";
    std::vector<std::string> names;
    for (const auto& slot : slots_) names.push_back(slot->target().ToString());
    names.erase(std::unique(names.begin(), names.end()), names.end());
    return StrCat("the devices here are for ", absl::StrJoin(names, ", "));
  }

  // The wanted device; else, of the healthy ones with short queues, the one where most bytes of the inputs lie, and of
  // those the one with the shortest queue.
  absl::StatusOr<size_t> Choose(const Target& target, int32_t wanted, const std::vector<Argument>& inputs) {
    if (wanted >= 0) {
      const size_t ordinal = static_cast<size_t>(wanted);
      if (ordinal >= slots_.size()) return WrongDevice(target, StrCat("there is no device ", wanted));
      if (!slots_[ordinal]->CanRun(target))
        return WrongDevice(target, StrCat("device ", wanted, " can't run target '", target.ToString(), "'"));
      return ordinal;
    }
    FUSELINE_RETURN_IF_ERROR(CanRun(target));
    struct Candidate {
      size_t ordinal;
      int64_t depth;
    };
    std::vector<Candidate> candidates;
    // Among equals another one each time.
    const size_t first = next_.fetch_add(1, std::memory_order_relaxed);
    int64_t least_depth = INT64_MAX;
    for (size_t i = 0; i < slots_.size(); ++i) {
      const size_t ordinal = (first + i) % slots_.size();
      if (!slots_[ordinal]->CanRun(target) || !slots_[ordinal]->health().healthy()) continue;
      candidates.push_back({ordinal, slots_[ordinal]->queue().depth()});
      least_depth = std::min(least_depth, candidates.back().depth);
    }
    if (candidates.empty()) {
      return MakeError(absl::StatusCode::kUnavailable, ErrorReason::kNoHealthyDevice, target.ToString(),
                       "the last healthy device was lost");
    }
    const Candidate* best = nullptr;
    int64_t best_bytes = 0;
    for (const Candidate& candidate : candidates) {
      if (candidate.depth > least_depth + kQueueForLocality) continue;
      const int64_t bytes = candidates.size() == 1 ? 0 : BytesOn(*slots_[candidate.ordinal], inputs);
      if (best == nullptr || bytes > best_bytes || (bytes == best_bytes && candidate.depth < best->depth)) {
        best = &candidate;
        best_bytes = bytes;
      }
    }
    return best->ordinal;
  }

  // Of the kept inputs.
  static int64_t BytesOn(const DeviceSlot& slot, const std::vector<Argument>& inputs) {
    if (slot.uses_host_memory()) return 0;
    int64_t bytes = 0;
    DeviceLifePtr life;
    for (const Argument& input : inputs) {
      if (input.stored == nullptr) continue;
      if (life == nullptr) life = slot.health().life();
      if (input.stored->CopyOn(*life) != nullptr) bytes += input.stored->size_bytes();
    }
    return bytes;
  }

  Attempt ExecuteOn(DeviceSlot& slot, const ArtifactPtr& artifact, const std::vector<Argument>& inputs,
                    const ExecuteOptions& options, Clock::time_point start) {
    Attempt attempt;
    const absl::StatusOr<std::unique_ptr<DeviceSlot::Use>> use = DeviceSlot::Use::Begin(slot);
    if (!use.ok()) {
      attempt.execution = use.status();
      attempt.device_lost = true;
      return attempt;
    }
    const absl::StatusOr<launch::LoadedArtifactPtr> loaded = slot.Load(artifact);
    attempt.began = true;
    if (!loaded.ok()) {
      attempt.execution = loaded.status();
      attempt.device_lost = !slot.health().healthy();
      return attempt;
    }
    if (absl::Status status = Turn::Take(slot, options); !status.ok()) {
      attempt.began = false;
      attempt.device_lost = GetErrorReason(status) == ErrorReason::kNoHealthyDevice;
      attempt.execution = std::move(status);
      return attempt;
    }
    const Turn turn(slot);
    const Clock::time_point begin = Clock::now();
    const launch::StopCheck stop = MakeStopCheck(options);
    absl::StatusOr<Execution> execution = RunOn(slot, **loaded, inputs, options.keep, stop);
    // Copies of kept tensors make way for a run: first as many as it takes, then all.
    for (const int64_t wanted_bytes : {PlanBytes(artifact->plan), int64_t{INT64_MAX}}) {
      if (execution.ok() || GetErrorReason(execution.status()) != ErrorReason::kDeviceMemory) break;
      if (slot.DropIdleCopies(wanted_bytes, StoredOf(inputs)) == 0) break;
      execution = RunOn(slot, **loaded, inputs, options.keep, stop);
    }
    const double queue_micros = MicrosBetween(start, begin);
    const double run_micros = MicrosBetween(begin, Clock::now());
    slot.CountRun(queue_micros * 1e-6, run_micros * 1e-6, execution.status());
    // A kept tensor that is lost has the same reason as a lost device.
    attempt.device_lost =
        GetErrorReason(execution.status()) == ErrorReason::kNoHealthyDevice && !slot.health().healthy();
    if (execution.ok()) {
      execution->device = slot.ordinal();
      execution->queue_micros = queue_micros;
      execution->run_micros = run_micros;
    }
    attempt.execution = std::move(execution);
    return attempt;
  }

  static std::vector<StoredTensor*> StoredOf(const std::vector<Argument>& inputs) {
    std::vector<StoredTensor*> tensors;
    for (const Argument& input : inputs) {
      if (input.stored != nullptr) tensors.push_back(input.stored.get());
    }
    return tensors;
  }

  absl::StatusOr<Execution> RunOn(DeviceSlot& slot, const launch::LoadedArtifact& loaded,
                                  const std::vector<Argument>& inputs, const std::vector<bool>& keep,
                                  const launch::StopCheck& stop) {
    const LaunchPlan& plan = loaded.artifact().plan;
    if (stop) FUSELINE_RETURN_IF_ERROR(stop());
    FUSELINE_ASSIGN_OR_RETURN(Bindings bindings, Bind(slot, plan, inputs));
    FUSELINE_RETURN_IF_ERROR(slot.Run(loaded, bindings.inputs, bindings.outputs, stop));
    Execution execution;
    bool synchronized = slot.uses_host_memory();
    for (size_t i = 0; i < plan.outputs.size(); ++i) {
      const PlanTensor& output = plan.outputs[i];
      std::shared_ptr<void> block = bindings.output_blocks[i];
      if (!keep.empty()) execution.kept.emplace_back();
      if (!keep.empty() && keep[i]) {
        execution.kept.back() =
            slot.uses_host_memory()
                ? StoreOnHost(Tensor::Borrow(output.dtype, output.shape, block.get(), block))
                : std::make_shared<StoredTensor>(output.dtype, output.shape, slot.health().life(), block);
        execution.outputs.push_back(Tensor::Borrow(output.dtype, output.shape, nullptr, nullptr));
        continue;
      }
      if (!slot.uses_host_memory()) {
        if (stop) FUSELINE_RETURN_IF_ERROR(stop());
        FUSELINE_ASSIGN_OR_RETURN(const int64_t size_bytes, LaidOutBytes(output));
        FUSELINE_ASSIGN_OR_RETURN(block, host_pool_->Allocate(size_bytes));
        FUSELINE_RETURN_IF_ERROR(slot.CopyToHost(block.get(), bindings.outputs[i], size_bytes));
        synchronized = synchronized || size_bytes > 0;
      }
      execution.outputs.push_back(Tensor::Borrow(output.dtype, output.shape, block.get(), block));
    }
    // What goes wrong in a kernel must be this run's error, not the next one's.
    if (!synchronized) FUSELINE_RETURN_IF_ERROR(slot.Synchronize());
    for (const StoredTensorPtr& kept : execution.kept) {
      if (kept != nullptr && !slot.uses_host_memory()) slot.NoteCopy(kept);
    }
    return execution;
  }

  // Puts the inputs where the device reads them, laid out as the plan says, and allocates the outputs. Where the device
  // uses the host's memory a tensor that lies right is used in its place.
  absl::StatusOr<Bindings> Bind(DeviceSlot& slot, const LaunchPlan& plan, const std::vector<Argument>& inputs) {
    Bindings bindings;
    for (size_t i = 0; i < inputs.size(); ++i) {
      absl::Status status = BindInput(slot, plan.inputs[i], inputs[i], bindings);
      if (!status.ok()) return Wrap(status, StrCat("input '", plan.inputs[i].name, "'"));
    }
    for (const PlanTensor& output : plan.outputs) {
      FUSELINE_ASSIGN_OR_RETURN(const int64_t bytes, LaidOutBytes(output));
      FUSELINE_ASSIGN_OR_RETURN(std::shared_ptr<void> block, slot.Allocate(bytes));
      bindings.outputs.push_back(block.get());
      bindings.output_blocks.push_back(std::move(block));
    }
    return bindings;
  }

  absl::Status BindInput(DeviceSlot& slot, const PlanTensor& input, const Argument& argument, Bindings& bindings) {
    const bool dense = IsDense(input.shape, input.strides);
    const bool stays = argument.stored != nullptr && dense && !slot.uses_host_memory();
    if (stays) {
      if (std::shared_ptr<void> copy = argument.stored->CopyOn(*slot.health().life()); copy != nullptr) {
        slot.NoteCopy(argument.stored);
        bindings.Add(std::move(copy));
        return absl::OkStatus();
      }
    }
    Tensor host = argument.tensor;
    if (argument.stored != nullptr) {
      FUSELINE_ASSIGN_OR_RETURN(host, Fetch(*argument.stored));
    }
    const void* const data = std::as_const(host).data();
    if (slot.uses_host_memory() && dense && IsAligned(data, input.alignment_bytes)) {
      bindings.inputs.push_back(const_cast<void*>(data));
      if (argument.stored != nullptr) bindings.host_tensors.push_back(std::move(host));
      return absl::OkStatus();
    }
    FUSELINE_ASSIGN_OR_RETURN(const int64_t bytes, LaidOutBytes(input));
    FUSELINE_ASSIGN_OR_RETURN(std::shared_ptr<void> block, slot.Allocate(bytes));
    if (slot.uses_host_memory()) {
      FUSELINE_RETURN_IF_ERROR(LayOut(input, data, block.get()));
    } else if (dense) {
      FUSELINE_RETURN_IF_ERROR(slot.CopyToDevice(block.get(), data, bytes));
    } else {
      FUSELINE_ASSIGN_OR_RETURN(const std::shared_ptr<void> staged, host_pool_->Allocate(bytes));
      FUSELINE_RETURN_IF_ERROR(LayOut(input, data, staged.get()));
      FUSELINE_RETURN_IF_ERROR(slot.CopyToDevice(block.get(), staged.get(), bytes));
    }
    if (stays) {
      argument.stored->AddCopy(slot.health().life(), block);
      slot.NoteCopy(argument.stored);
    }
    bindings.Add(std::move(block));
    return absl::OkStatus();
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
  return impl_->Execute(artifact, inputs, options);
}
absl::StatusOr<Tensor> Executor::Fetch(const StoredTensorPtr& tensor) {
  if (tensor == nullptr) return Internal("there is no tensor to fetch");
  return impl_->Fetch(*tensor);
}
absl::StatusOr<BenchResult> Executor::Bench(const ArtifactPtr& artifact, const std::vector<Tensor>& inputs, int warmup,
                                            int iterations, const ExecuteOptions& options) {
  return impl_->Bench(artifact, inputs, warmup, iterations, options);
}
void Executor::Drain() { impl_->Drain(); }

}  // namespace fuseline::executor
