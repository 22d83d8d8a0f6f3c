#include "tests/unit/codegen/plan_builder.h"

#include <utility>

#include "common/ir/text_form.h"
#include "common/status/str_cat.h"
#include "gtest/gtest.h"
#include "server/fuser/fuse.h"
#include "server/lowering/lower_graph.h"
#include "tests/testing/status_matchers.h"

namespace fuseline::codegen {

using testing::IsOk;

BuiltPlan BuildPlan(const std::string& text, const Target& target, const CompileOptions& options) {
  BuiltPlan out;
  out.options = options;
  const absl::StatusOr<Graph> graph = ParseGraph(text);
  EXPECT_THAT(graph.status(), IsOk()) << text;
  absl::StatusOr<lowering::LoopProgram> loops = lowering::LowerGraph(*graph, options);
  EXPECT_THAT(loops.status(), IsOk()) << text;
  out.loops = *std::move(loops);
  fuser::FuseOptions fuse;
  fuse.fuse = options.fuse;
  fuse.cost = fuser::CostModelFor(target);
  absl::StatusOr<fuser::FusionPlan> plan = fuser::Fuse(out.loops, fuse);
  EXPECT_THAT(plan.status(), IsOk()) << text;
  out.fusion = *std::move(plan);
  return out;
}

std::vector<ScheduledKernel> ScheduleAll(const BuiltPlan& plan, const Target& target) {
  std::vector<ScheduledKernel> out;
  for (const fuser::FusionGroup& group : plan.fusion.groups) {
    absl::StatusOr<KernelBody> body = BuildKernelBody(plan.loops, group);
    EXPECT_THAT(body.status(), IsOk());
    absl::StatusOr<std::vector<ScheduledKernel>> kernels =
        ScheduleKernel(*std::move(body), group.split, target.is_cuda(), 0);
    EXPECT_THAT(kernels.status(), IsOk());
    for (ScheduledKernel& k : *kernels) {
      k.name = StrCat("k", out.size());
      out.push_back(std::move(k));
    }
  }
  return out;
}

std::vector<ScheduledKernel> ScheduleText(const std::string& text, const Target& target) {
  return ScheduleAll(BuildPlan(text, target), target);
}

}  // namespace fuseline::codegen
