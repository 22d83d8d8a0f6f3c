#include "common/launch/cpu_artifact.h"

#include <string.h>

#include <algorithm>
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

constexpr int64_t kConstantAlignment = 64;

int64_t AlignedSize(const std::string& constant) {
  return (static_cast<int64_t>(constant.size()) + kConstantAlignment - 1) / kConstantAlignment * kConstantAlignment;
}

}  // namespace

absl::StatusOr<std::shared_ptr<LoadedCpuArtifact>> LoadedCpuArtifact::Load(ArtifactPtr artifact, BlockPool& pool) {
  std::shared_ptr<LoadedCpuArtifact> loaded(new LoadedCpuArtifact(std::move(artifact)));
  std::vector<Kernel> kernels;
  FUSELINE_RETURN_IF_ERROR(loaded->InitKernels(kernels));
  FUSELINE_RETURN_IF_ERROR(loaded->InitConstants(pool));
  loaded->InitSteps(kernels);
  return loaded;
}

absl::Status LoadedCpuArtifact::InitKernels(std::vector<Kernel>& kernels) {
  std::map<std::string_view, SharedObject*> loaded;  // equal kernels are loaded once
  for (const KernelImage& kernel : artifact_->kernels) {
    const std::string where = StrCat("kernel '", kernel.entry, "'");
    if (kernel.format != ImageFormat::kSharedObject) return Internal(StrCat(where, " is no shared object"));
    SharedObject*& object = loaded[kernel.bytes];
    if (object == nullptr) {
      auto result = SharedObject::Load(kernel.bytes);
      if (!result.ok()) return Wrap(result.status(), where);
      object = result->get();
      objects_.push_back(*std::move(result));
    }
    void* entry = object->FindSymbol(kernel.entry);
    if (entry == nullptr) return Internal(StrCat(where, " is not in its image"));
    kernels.push_back(reinterpret_cast<Kernel>(entry));
  }
  return absl::OkStatus();
}

absl::Status LoadedCpuArtifact::InitConstants(BlockPool& pool) {
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

void LoadedCpuArtifact::AddArgument(size_t buffer_index) {
  const PlanBuffer& buffer = artifact_->plan.buffers[buffer_index];
  const size_t argument = arguments_.size();
  arguments_.push_back(nullptr);
  switch (buffer.kind) {
    case PlanBuffer::Kind::kInput:
      inputs_.push_back({argument, static_cast<size_t>(buffer.index)});
      break;
    case PlanBuffer::Kind::kOutput:
      outputs_.push_back({argument, static_cast<size_t>(buffer.index)});
      break;
    case PlanBuffer::Kind::kConstant:
      arguments_[argument] = constants_[static_cast<size_t>(buffer.index)];
      break;
    case PlanBuffer::Kind::kTemporary:
      temporaries_.push_back({argument, static_cast<size_t>(buffer.arena_offset_bytes)});
      break;
    case PlanBuffer::Kind::kChecks:
      arguments_[argument] = noted_.data();
      break;
  }
}

void LoadedCpuArtifact::InitSteps(const std::vector<Kernel>& kernels) {
  const LaunchPlan& plan = artifact_->plan;
  noted_.assign(2 * plan.checks.size(), 0);
  for (const PlanStep& step : plan.steps) {
    Step& laid_out = steps_.emplace_back();
    laid_out.first_argument = arguments_.size();
    for (const int32_t b : step.buffers) AddArgument(static_cast<size_t>(b));
    if (step.kind == PlanStep::Kind::kCopy) {
      laid_out.items = plan.buffers[static_cast<size_t>(step.buffers[0])].size_bytes;
      continue;
    }
    laid_out.kernel = kernels[static_cast<size_t>(step.kernel)];
    laid_out.items = step.work_items;
    laid_out.grain = step.work_grain;
    if (!step.sizes.empty()) arguments_.push_back(const_cast<int64_t*>(step.sizes.data()));  // kernels only read them
  }
}

absl::Status LoadedCpuArtifact::Run(void* const* inputs, void* const* outputs, void* arena, CpuThreads& threads,
                                    const StopCheck& stop) const {
  for (const ArgumentSource& input : inputs_) arguments_[input.argument] = inputs[input.source];
  for (const ArgumentSource& output : outputs_) arguments_[output.argument] = outputs[output.source];
  for (const ArgumentSource& temporary : temporaries_)
    arguments_[temporary.argument] = static_cast<char*>(arena) + temporary.source;
  std::fill(noted_.begin(), noted_.end(), 0);
  for (const Step& step : steps_) {
    if (stop) FUSELINE_RETURN_IF_ERROR(stop());
    void* const* arguments = arguments_.data() + step.first_argument;
    if (step.kernel == nullptr) {
      FUSELINE_RETURN_IF_ERROR(threads.Copy(arguments[1], arguments[0], step.items, stop));
      continue;
    }
    FUSELINE_RETURN_IF_ERROR(threads.Run(step.items, step.grain, stop,
                                         [&](int64_t begin, int64_t end) { step.kernel(arguments, begin, end); }));
  }
  return IndexCheckStatus(artifact_->plan.checks, noted_);
}

}  // namespace fuseline::launch
