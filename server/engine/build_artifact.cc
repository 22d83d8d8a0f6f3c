// Tested by tests/unit/engine/engine_test.cc
#include "server/engine/build_artifact.h"

#include <map>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "common/ir/canonical.h"
#include "common/status/status_macros.h"
#include "server/codegen/kernel_template.h"
#include "server/fuser/fuse.h"
#include "server/lowering/lower_graph.h"

namespace fuseline {
namespace {

// Times the stages one after the other.
class StageClock {
 public:
  explicit StageClock(std::map<std::string, int64_t>& micros) : micros_(micros), last_(absl::Now()) {}
  void Finish(const char* stage) {
    const absl::Time now = absl::Now();
    micros_[stage] = absl::ToInt64Microseconds(now - last_);
    last_ = now;
  }

 private:
  std::map<std::string, int64_t>& micros_;
  absl::Time last_;
};

}  // namespace

absl::StatusOr<GeneratedCode> GenerateCode(const Graph& canonical, const Target& target, const CompileOptions& options,
                                           const compiler::StopCheck& stop) {
  const auto go_on = [&stop] { return stop ? stop() : absl::OkStatus(); };
  GeneratedCode out;
  StageClock clock(out.stage_micros);
  FUSELINE_ASSIGN_OR_RETURN(out.loops, lowering::LowerGraph(canonical, options));
  clock.Finish("lower");
  FUSELINE_RETURN_IF_ERROR(go_on());
  fuser::FuseOptions fuse;
  fuse.fuse = options.fuse;
  fuse.cost = fuser::CostModelFor(target);
  FUSELINE_ASSIGN_OR_RETURN(out.fusion, fuser::Fuse(out.loops, fuse));
  clock.Finish("fuse");
  FUSELINE_RETURN_IF_ERROR(go_on());
  FUSELINE_ASSIGN_OR_RETURN(out.kernels, codegen::GenerateKernels(out.loops, out.fusion, target, options));
  for (size_t i = 0; i < out.kernels.plan.inputs.size(); ++i)
    out.kernels.plan.inputs[i].name = canonical.value(canonical.inputs[i]).name;
  for (size_t o = 0; o < out.kernels.plan.outputs.size(); ++o) {
    PlanTensor& t = out.kernels.plan.outputs[o];
    t.name = canonical.outputs[o].name;
    // The loops may keep fewer dims (a reduction with keepdim): the elements and their order are the same.
    t.shape = canonical.type(canonical.outputs[o].value).shape();
    t.strides = DenseStrides(t.shape);
  }
  clock.Finish("generate");
  return out;
}

namespace {

// Other sizes of the same kind: a size of 0 or 1 is a kind of its own, and what a size can be divided by decides on
// vectors. `attempt` 0: each size times an odd number; 1: the next size with the same power of two in it.
SymbolSizes OtherSizes(const SymbolSizes& sizes, int attempt) {
  SymbolSizes out = sizes;
  int64_t factor = 3;
  for (auto& [symbol, size] : out) {
    if (size <= 1) continue;
    if (attempt == 0) {
      size = size > (int64_t{1} << 40) ? size : size * factor;
      factor += 2;
    } else {
      size += 2 * (size & -size);
    }
  }
  return out;
}

}  // namespace

void ShareKernelsAcrossSizes(const SymbolBinding& binding, const Target& target, const CompileOptions& options,
                             codegen::GeneratedKernels& kernels) {
  // How many pointers each kernel takes.
  std::vector<size_t> pointers(kernels.sources.size(), 0);
  for (const PlanStep& step : kernels.plan.steps) {
    if (step.kind == PlanStep::Kind::kLaunch) pointers[static_cast<size_t>(step.kernel)] = step.buffers.size();
  }
  std::vector<bool> shared(kernels.sources.size(), false);
  for (int attempt = 0; attempt < 2; ++attempt) {
    // An error here means that these sizes are none to compare with, no more.
    absl::StatusOr<Graph> graph = BindSymbols(*binding.graph, OtherSizes(binding.sizes, attempt), binding.limits);
    if (!graph.ok()) continue;
    absl::StatusOr<GeneratedCode> other = GenerateCode(Canonicalize(*graph), target, options);
    if (!other.ok() || other->kernels.sources.size() != kernels.sources.size() ||
        other->kernels.plan.steps.size() != kernels.plan.steps.size()) {
      continue;
    }
    for (size_t k = 0; k < kernels.sources.size(); ++k) {
      if (shared[k]) continue;
      std::optional<codegen::KernelTemplate> made =
          codegen::MakeKernelTemplate(kernels.sources[k], other->kernels.sources[k], pointers[k]);
      if (!made) continue;
      shared[k] = true;
      kernels.sources[k] = std::move(made->source);
      for (PlanStep& step : kernels.plan.steps) {
        if (step.kind == PlanStep::Kind::kLaunch && step.kernel == static_cast<int32_t>(k)) step.sizes = made->sizes;
      }
    }
  }
}

absl::StatusOr<Artifact> BuildArtifact(const Graph& canonical, const SymbolBinding& binding, const Target& target,
                                       const CompileOptions& options, compiler::KernelCompiler& compiler, int threads,
                                       const compiler::StopCheck& stop) {
  FUSELINE_ASSIGN_OR_RETURN(GeneratedCode code, GenerateCode(canonical, target, options, stop));
  if (binding.graph != nullptr) ShareKernelsAcrossSizes(binding, target, options, code.kernels);
  Artifact artifact;
  artifact.target = target;
  artifact.options = options;
  StageClock clock(code.stage_micros);
  FUSELINE_ASSIGN_OR_RETURN(artifact.kernels, compiler::CompileKernels(compiler, code.kernels.sources, threads, stop));
  clock.Finish("compile");
  // NVRTC 13's cubins need a driver of the same major version.
  artifact.least_driver_version = target.is_cuda() ? 13000 : 0;
  artifact.plan = std::move(code.kernels.plan);
  artifact.report = std::move(code.kernels.report);
  artifact.report.stage_micros = std::move(code.stage_micros);
  return artifact;
}

std::string PrintLaunchPlan(const LaunchPlan& plan, const std::vector<KernelSource>& kernels) {
  std::string out;
  const auto tensors = [&](const char* what, const std::vector<PlanTensor>& list) {
    for (const PlanTensor& t : list) {
      absl::StrAppend(&out, what, " ", t.name, ": ", TensorType::Make(t.dtype, t.shape).ToString(), "\n");
    }
  };
  tensors("input", plan.inputs);
  tensors("output", plan.outputs);
  for (size_t i = 0; i < plan.buffers.size(); ++i) {
    const PlanBuffer& b = plan.buffers[i];
    absl::StrAppend(&out, "buffer ", i, ": ");
    switch (b.kind) {
      case PlanBuffer::Kind::kInput:
        absl::StrAppend(&out, "input ", b.index);
        break;
      case PlanBuffer::Kind::kOutput:
        absl::StrAppend(&out, "output ", b.index);
        break;
      case PlanBuffer::Kind::kConstant:
        absl::StrAppend(&out, "constant ", b.index);
        break;
      case PlanBuffer::Kind::kTemporary:
        absl::StrAppend(&out, "arena at ", b.arena_offset_bytes);
        break;
      case PlanBuffer::Kind::kChecks:
        absl::StrAppend(&out, "index checks");
        break;
    }
    absl::StrAppend(&out, ", ", b.size_bytes, " bytes\n");
  }
  for (const PlanStep& s : plan.steps) {
    absl::StrAppend(&out, "launch ", kernels[static_cast<size_t>(s.kernel)].entry, "(", absl::StrJoin(s.buffers, ", "),
                    ")");
    if (s.work_items > 0) {
      absl::StrAppend(&out, " over ", s.work_items, " items, at least ", s.work_grain, " a thread\n");
    } else {
      absl::StrAppend(&out, " grid ", s.dims.grid[0], " block ", s.dims.block[0], "\n");
    }
  }
  absl::StrAppend(&out, "arena ", plan.arena_bytes, " bytes\n");
  return out;
}

}  // namespace fuseline
