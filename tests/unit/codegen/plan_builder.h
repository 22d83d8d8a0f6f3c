// From graph text to loops, fusion plan and scheduled kernels, for tests that look at a later stage.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/target/compile_options.h"
#include "common/target/target.h"
#include "server/codegen/schedule/scheduled_kernel.h"
#include "server/fuser/fusion_plan.h"
#include "server/lowering/loop_program.h"

namespace fuseline::codegen {

struct BuiltPlan {
  lowering::LoopProgram loops;
  fuser::FusionPlan fusion;
  CompileOptions options;
};

// A failure of a stage is a failure of the test.
BuiltPlan BuildPlan(const std::string& text, const Target& target, const CompileOptions& options = {});
// All kernels of the plan, named k0, k1, …
std::vector<ScheduledKernel> ScheduleAll(const BuiltPlan& plan, const Target& target);
std::vector<ScheduledKernel> ScheduleText(const std::string& text, const Target& target);

}  // namespace fuseline::codegen
