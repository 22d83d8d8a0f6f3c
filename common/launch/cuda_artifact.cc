#include "common/launch/cuda_artifact.h"

#include <map>
#include <string>
#include <string_view>
#include <utility>

#include "common/artifact/index_checks.h"
#include "common/status/error.h"
#include "common/status/status_macros.h"
#include "common/status/str_cat.h"

namespace fuseline::launch {
namespace {

// Dynamic shared memory beyond this must be asked for.
constexpr int64_t kDefaultSharedBytes = 48 << 10;
constexpr int64_t kConstantAlignment = 256;

}  // namespace

absl::StatusOr<std::shared_ptr<LoadedCudaArtifact>> LoadedCudaArtifact::Load(ArtifactPtr artifact,
                                                                             std::shared_ptr<CudaContext> context,
                                                                             CudaTransfer& transfer) {
  std::shared_ptr<LoadedCudaArtifact> loaded(new LoadedCudaArtifact(std::move(artifact), std::move(context)));
  FUSELINE_RETURN_IF_ERROR(loaded->Init(transfer));
  return loaded;
}

LoadedCudaArtifact::~LoadedCudaArtifact() {
  const CudaContext::Scope scope(*context_);
  context_->driver().StreamSynchronize(context_->stream());  // nothing may run while its code goes away
  for (CuModule module : modules_) context_->driver().ModuleUnload(module);
}

absl::Status LoadedCudaArtifact::Init(CudaTransfer& transfer) {
  const CudaContext::Scope scope(*context_);
  FUSELINE_RETURN_IF_ERROR(scope.status());
  absl::MutexLock lock(&mutex_);
  std::vector<CuFunction> functions;
  FUSELINE_RETURN_IF_ERROR(InitModules(functions));
  FUSELINE_RETURN_IF_ERROR(InitConstants(transfer));
  InitAddresses();
  return InitSteps(functions);
}

absl::Status LoadedCudaArtifact::InitModules(std::vector<CuFunction>& functions) {
  const CudaDriver& driver = context_->driver();
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
  return absl::OkStatus();
}

absl::Status LoadedCudaArtifact::InitConstants(CudaTransfer& transfer) {
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
    FUSELINE_RETURN_IF_ERROR(transfer.ToDevice(place, constants[c].data(), static_cast<int64_t>(constants[c].size())));
  }
  return absl::OkStatus();
}

void LoadedCudaArtifact::InitAddresses() {
  const std::vector<PlanBuffer>& buffers = artifact_->plan.buffers;
  addresses_.assign(buffers.size(), 0);
  for (size_t b = 0; b < buffers.size(); ++b) {
    switch (buffers[b].kind) {
      case PlanBuffer::Kind::kInput:
        inputs_.push_back({b, static_cast<size_t>(buffers[b].index)});
        break;
      case PlanBuffer::Kind::kOutput:
        outputs_.push_back({b, static_cast<size_t>(buffers[b].index)});
        break;
      case PlanBuffer::Kind::kConstant:
        addresses_[b] = constants_[static_cast<size_t>(buffers[b].index)];
        break;
      case PlanBuffer::Kind::kTemporary:
        temporaries_.push_back({b, static_cast<size_t>(buffers[b].arena_offset_bytes)});
        break;
      case PlanBuffer::Kind::kChecks:
        checks_.push_back(b);
        break;
    }
  }
}

absl::Status LoadedCudaArtifact::InitSteps(const std::vector<CuFunction>& functions) {
  const LaunchPlan& plan = artifact_->plan;
  std::map<CuFunction, int64_t> allowed_bytes;  // dynamic shared memory asked for
  for (const PlanStep& step : plan.steps) {
    Step launch;
    if (step.kind == PlanStep::Kind::kCopy) {
      launch.from = static_cast<size_t>(step.buffers[0]);
      launch.to = static_cast<size_t>(step.buffers[1]);
      launch.copy_bytes = static_cast<size_t>(plan.buffers[launch.from].size_bytes);
      if (launch.copy_bytes > 0) steps_.push_back(launch);
      continue;
    }
    launch.kernel = step.kernel;
    launch.function = functions[static_cast<size_t>(step.kernel)];
    FUSELINE_RETURN_IF_ERROR(AllowSharedMemory(step, launch.function, allowed_bytes[launch.function]));
    for (int axis = 0; axis < 3; ++axis) {
      launch.grid[axis] = static_cast<unsigned>(step.dims.grid[axis]);
      launch.block[axis] = static_cast<unsigned>(step.dims.block[axis]);
    }
    launch.dynamic_shared_bytes = static_cast<unsigned>(step.dims.dynamic_shared_bytes);
    launch.first_param = params_.size();
    for (const int32_t b : step.buffers) params_.push_back(&addresses_[static_cast<size_t>(b)]);
    for (const int64_t& n : step.sizes) params_.push_back(const_cast<int64_t*>(&n));  // the driver only reads it
    steps_.push_back(launch);
  }
  return absl::OkStatus();
}

// Several steps may launch the kernel: the largest counts.
absl::Status LoadedCudaArtifact::AllowSharedMemory(const PlanStep& step, CuFunction function, int64_t& allowed_bytes) {
  const KernelImage& kernel = artifact_->kernels[static_cast<size_t>(step.kernel)];
  const int64_t dynamic_bytes = step.dims.dynamic_shared_bytes;
  const int64_t needed_bytes = dynamic_bytes + kernel.resources.static_shared_bytes;
  if (needed_bytes <= kDefaultSharedBytes) return absl::OkStatus();
  const int64_t most_bytes = context_->attribute(CudaDriver::kAttrMaxSharedOptin);
  if (needed_bytes > most_bytes) {
    return Internal(StrCat("kernel '", kernel.entry, "' needs ", needed_bytes,
                           " bytes of shared memory, the device has ", most_bytes));
  }
  if (dynamic_bytes <= allowed_bytes) return absl::OkStatus();
  allowed_bytes = dynamic_bytes;
  const CudaDriver& driver = context_->driver();
  return driver.Check(
      driver.FuncSetAttribute(function, CudaDriver::kFuncMaxDynamicShared, static_cast<int>(dynamic_bytes)),
      StrCat("shared memory of kernel '", kernel.entry, "'"));
}

absl::Status LoadedCudaArtifact::Enqueue(void* const* inputs, void* const* outputs, const void* arena,
                                         CuDevicePtr checks, CuStream stream, const StopCheck& stop) const {
  const CudaDriver& driver = context_->driver();
  absl::MutexLock lock(&mutex_);
  for (const BufferSource& input : inputs_) addresses_[input.buffer] = ToCuda(inputs[input.source]);
  for (const BufferSource& output : outputs_) addresses_[output.buffer] = ToCuda(outputs[output.source]);
  if (arena_ != ToCuda(arena)) {
    arena_ = ToCuda(arena);
    for (const BufferSource& temporary : temporaries_) addresses_[temporary.buffer] = arena_ + temporary.source;
  }
  for (const size_t buffer : checks_) addresses_[buffer] = checks;
  for (const Step& step : steps_) {
    if (stop) FUSELINE_RETURN_IF_ERROR(stop());
    const int result = step.function == nullptr
                           ? driver.MemcpyDtoDAsync(addresses_[step.to], addresses_[step.from], step.copy_bytes, stream)
                           : driver.LaunchKernel(step.function, step.grid[0], step.grid[1], step.grid[2], step.block[0],
                                                 step.block[1], step.block[2], step.dynamic_shared_bytes, stream,
                                                 params_.data() + step.first_param, nullptr);
    if (result != CudaDriver::kSuccess) return StepError(result, step);
  }
  return absl::OkStatus();
}

absl::Status LoadedCudaArtifact::StepError(int result, const Step& step) const {
  return context_->driver().Check(
      result, step.function == nullptr
                  ? std::string("copy on the device")
                  : StrCat("launch kernel '", artifact_->kernels[static_cast<size_t>(step.kernel)].entry, "'"));
}

}  // namespace fuseline::launch
