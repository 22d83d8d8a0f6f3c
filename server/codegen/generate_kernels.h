// Turns a fusion plan into kernel sources, a launch plan and a report.
// Pipeline: FusionPlan, Target -> GenerateKernels -> KernelSource[], LaunchPlan, ArtifactReport.
// Thread-safety: a pure function. Errors: INTERNAL for a bug; UNIMPLEMENTED where a limit of the launch plan is passed.
// Tested by tests/unit/codegen/generate_kernels_test.cc
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/artifact/artifact.h"
#include "common/target/compile_options.h"
#include "common/target/target.h"
#include "server/codegen/kernel_source.h"
#include "server/fuser/fusion_plan.h"
#include "server/lowering/loop_program.h"

namespace fuseline::codegen {

struct GeneratedKernels {
  std::vector<KernelSource> sources;  // the distinct kernels; PlanStep::kernel refers to them
  LaunchPlan plan;                    // names of inputs and outputs are filled in by the caller
  ArtifactReport report;
  std::string bodies;  // kernel bodies as text, for golden files
};

absl::StatusOr<GeneratedKernels> GenerateKernels(const lowering::LoopProgram& program, const fuser::FusionPlan& plan,
                                                 const Target& target, const CompileOptions& options);

}  // namespace fuseline::codegen
