#include "tests/cuda_host/host_cuda_runner.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "common/artifact/index_checks.h"
#include "common/status/error.h"
#include "common/status/status_macros.h"
#include "common/status/str_cat.h"
#include "server/executor/strided_layout.h"

namespace fuseline::cuda_host {
namespace {

constexpr int kPoison = 0xa5;

std::string BufferName(const LaunchPlan& plan, size_t buffer) {
  const PlanBuffer& b = plan.buffers[buffer];
  switch (b.kind) {
    case PlanBuffer::Kind::kInput:
      return StrCat("input '", plan.inputs[static_cast<size_t>(b.index)].name, "'");
    case PlanBuffer::Kind::kOutput:
      return StrCat("output '", plan.outputs[static_cast<size_t>(b.index)].name, "'");
    case PlanBuffer::Kind::kTemporary:
      return StrCat("temporary (buffer ", buffer, ")");
    case PlanBuffer::Kind::kConstant:
      return StrCat("constant ", b.index);
    case PlanBuffer::Kind::kChecks:
      return "the index checks";
  }
  return StrCat("buffer ", buffer);
}

// The least element that a kernel sees a buffer as, in bytes.
std::vector<int64_t> ElementBytes(const HostProgram& program) {
  constexpr int64_t kMost = 16;
  std::vector<int64_t> out(program.plan.buffers.size(), kMost);
  for (const PlanStep& step : program.plan.steps) {
    if (step.kind != PlanStep::Kind::kLaunch) {
      for (const int32_t b : step.buffers) out[static_cast<size_t>(b)] = 1;
      continue;
    }
    const HostKernel& kernel = *program.kernels[static_cast<size_t>(step.kernel)];
    for (size_t i = 0; i < std::min(step.buffers.size(), kernel.params.size()); ++i) {
      int64_t& bytes = out[static_cast<size_t>(step.buffers[i])];
      bytes = std::min<int64_t>(bytes, kernel.params[i].element_bytes);
    }
  }
  return out;
}

}  // namespace

absl::StatusOr<std::vector<Tensor>> HostCudaRunner::Run(const HostProgram& program, const std::vector<Tensor>& inputs,
                                                        const ThreadOrder& order) {
  const LaunchPlan& plan = program.plan;
  if (inputs.size() != plan.inputs.size())
    return Internal(StrCat("the plan has ", plan.inputs.size(), " inputs, ", inputs.size(), " tensors were given"));
  memory_.Reset();
  MemoryCheck check;
  const std::vector<int64_t> element_bytes = ElementBytes(program);
  std::vector<MemoryRegion> regions;
  const int64_t* noted = nullptr;
  for (size_t b = 0; b < plan.buffers.size(); ++b) {
    const PlanBuffer& buffer = plan.buffers[b];
    FUSELINE_ASSIGN_OR_RETURN(void* const memory, memory_.Take(static_cast<size_t>(buffer.size_bytes)));
    const bool is_filled = buffer.kind == PlanBuffer::Kind::kInput || buffer.kind == PlanBuffer::Kind::kConstant;
    if (buffer.kind == PlanBuffer::Kind::kInput) {
      const auto index = static_cast<size_t>(buffer.index);
      FUSELINE_ASSIGN_OR_RETURN(const int64_t bytes, executor::LaidOutBytes(plan.inputs[index]));
      if (bytes != buffer.size_bytes)
        return Internal(StrCat(BufferName(plan, b), " takes ", bytes, " bytes, the plan says ", buffer.size_bytes));
      if (bytes > 0) FUSELINE_RETURN_IF_ERROR(executor::LayOut(plan.inputs[index], inputs[index].data(), memory));
    } else if (buffer.kind == PlanBuffer::Kind::kConstant) {
      const std::string& bytes = plan.constants[static_cast<size_t>(buffer.index)];
      if (static_cast<int64_t>(bytes.size()) != buffer.size_bytes)
        return Internal(
            StrCat(BufferName(plan, b), " has ", bytes.size(), " bytes, the plan says ", buffer.size_bytes));
      std::memcpy(memory, bytes.data(), bytes.size());
    } else if (buffer.kind == PlanBuffer::Kind::kChecks) {
      if (buffer.size_bytes != ChecksBytes(plan)) return Internal("the index checks have the wrong size");
      noted = static_cast<const int64_t*>(memory);
      std::memset(memory, 0, static_cast<size_t>(buffer.size_bytes));
    } else {
      std::memset(memory, kPoison, static_cast<size_t>(buffer.size_bytes));
    }
    const bool is_checks = buffer.kind == PlanBuffer::Kind::kChecks;
    regions.emplace_back(BufferName(plan, b), memory, buffer.size_bytes, element_bytes[b], !is_filled,
                         is_filled || is_checks);
    if (is_checks) regions.back().AllowRaces();
  }
  for (size_t s = 0; s < plan.steps.size(); ++s) {
    const PlanStep& step = plan.steps[s];
    if (step.kind != PlanStep::Kind::kLaunch)
      return Internal(StrCat("step ", s, ": the host build runs launches only"));
    std::vector<void*> arguments;
    std::vector<MemoryRegion*> touched;
    for (const int32_t b : step.buffers) {
      MemoryRegion& region = regions[static_cast<size_t>(b)];
      arguments.push_back(region.begin());
      if (std::find(touched.begin(), touched.end(), &region) != touched.end())
        return Internal(StrCat("step ", s, " is given ", region.name(), " twice, its pointers are __restrict__"));
      touched.push_back(&region);
    }
    FUSELINE_RETURN_IF_ERROR(scheduler_.Launch(*program.kernels[static_cast<size_t>(step.kernel)], arguments, step.dims,
                                               order, touched, check));
  }
  if (noted != nullptr) {
    FUSELINE_RETURN_IF_ERROR(IndexCheckStatus(plan.checks, absl::MakeConstSpan(noted, 2 * plan.checks.size())));
  }
  std::vector<Tensor> outputs(plan.outputs.size());
  for (size_t o = 0; o < outputs.size(); ++o)
    outputs[o] = Tensor::Allocate(plan.outputs[o].dtype, plan.outputs[o].shape);
  std::vector<bool> is_found(outputs.size(), false);
  for (size_t b = 0; b < plan.buffers.size(); ++b) {
    if (plan.buffers[b].kind != PlanBuffer::Kind::kOutput) continue;
    const auto o = static_cast<size_t>(plan.buffers[b].index);
    if (outputs[o].size_bytes() != regions[b].bytes())
      return Internal(
          StrCat(regions[b].name(), " takes ", outputs[o].size_bytes(), " bytes, the plan says ", regions[b].bytes()));
    if (const int64_t byte = check.FirstUnwritten(regions[b]); byte >= 0)
      return Internal(StrCat(regions[b].name(), ": no kernel writes byte ", byte, " of ", regions[b].bytes()));
    if (regions[b].bytes() > 0)
      std::memcpy(outputs[o].data(), regions[b].begin(), static_cast<size_t>(regions[b].bytes()));
    is_found[o] = true;
  }
  for (size_t o = 0; o < outputs.size(); ++o) {
    if (!is_found[o] && outputs[o].size_bytes() > 0)
      return Internal(StrCat("output '", plan.outputs[o].name, "' has no buffer"));
  }
  return outputs;
}

}  // namespace fuseline::cuda_host
