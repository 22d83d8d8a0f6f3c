// VerifyFusionPlan: a plan that breaks one constraint is refused with the constraint's number.
#include "server/fuser/fusion_plan.h"

#include <functional>
#include <utility>

#include "common/ir/text_form.h"
#include "gtest/gtest.h"
#include "server/fuser/fuse.h"
#include "server/lowering/lower_graph.h"
#include "tests/testing/status_matchers.h"

namespace fuseline::fuser {
namespace {

using testing::IsOk;
using testing::StatusIs;

class FusionPlanTest : public ::testing::Test {
 protected:
  // Groups: {s = sum(x)}, {y = add(x, s)}.
  void SetUp() override {
    const absl::StatusOr<Graph> graph =
        ParseGraph("graph g(x: f32[64, 64]) {\n  %s = sum(x) {dims = [1]}\n  %y = add(x, %s)\n  return %y, %s\n}\n");
    ASSERT_THAT(graph.status(), IsOk());
    absl::StatusOr<LoopProgram> loops = lowering::LowerGraph(*graph, {});
    ASSERT_THAT(loops.status(), IsOk());
    loops_ = *std::move(loops);
    absl::StatusOr<FusionPlan> plan = Fuse(loops_, {});
    ASSERT_THAT(plan.status(), IsOk());
    plan_ = *std::move(plan);
    ASSERT_EQ(plan_.groups.size(), 2u);
    ASSERT_TRUE(plan_.groups[0].is_reduction());
  }

  LoopProgram loops_;
  FusionPlan plan_;
};

TEST_F(FusionPlanTest, PlanOfTheFuserPasses) { EXPECT_THAT(VerifyFusionPlan(loops_, plan_), IsOk()); }

TEST_F(FusionPlanTest, EachBrokenConstraintIsNamed) {
  const struct {
    const char* constraint;
    const char* what;
    std::function<void(FusionPlan&)> break_it;
  } cases[] = {
      {"F1", "a group that reads what a later one stores", [](FusionPlan& p) { std::swap(p.groups[0], p.groups[1]); }},
      {"F1", "a group that reads what nothing stores", [](FusionPlan& p) { p.groups[0].stored.clear(); }},
      {"F2", "an output that nothing stores", [](FusionPlan& p) { p.groups[1].stored.clear(); }},
      {"F2", "a tensor stored twice",
       [](FusionPlan& p) {
         p.groups[1].stored = {p.groups[0].stored[0], p.groups[1].stored[0]};
       }},
      {"F3", "a tensor of another size than the loops",
       [](FusionPlan& p) {
         p.groups[1].domain = {32, 64};
       }},
      {"F4", "a reduction over other rows",
       [](FusionPlan& p) {
         p.groups[0].domain = {32, 128};
       }},
      {"F4", "a reduction in a pointwise group",
       [](FusionPlan& p) {
         p.groups[0].reduced = {false, false};
       }},
  };
  for (const auto& c : cases) {
    FusionPlan plan = plan_;
    c.break_it(plan);
    EXPECT_THAT(VerifyFusionPlan(loops_, plan), StatusIs(absl::StatusCode::kInternal, c.constraint)) << c.what;
  }
}

// (F2) speaks of every tensor that a group reads; one that is missing from `loads` is not looked for.
TEST_F(FusionPlanTest, ReadThatIsNotListedIsRefused) {
  plan_.groups[1].loads.clear();
  EXPECT_THAT(VerifyFusionPlan(loops_, plan_), StatusIs(absl::StatusCode::kInternal, "F2"));
}

// A stored tensor whose loop is not in the group would be read from the buffer that it is to be written to.
TEST_F(FusionPlanTest, StoredTensorThatTheGroupDoesNotComputeIsRefused) {
  plan_.groups[1].nodes.clear();
  EXPECT_THAT(VerifyFusionPlan(loops_, plan_), StatusIs(absl::StatusCode::kInternal, "F2"));
}

TEST_F(FusionPlanTest, RowsAndReducedExtentsAreCounted) {
  EXPECT_EQ(plan_.groups[0].row_count(), 64);
  EXPECT_EQ(plan_.groups[0].reduced_count(), 64);
  EXPECT_EQ(plan_.groups[1].row_count(), 4096);
  EXPECT_EQ(plan_.groups[1].reduced_count(), 1);
  EXPECT_FALSE(plan_.groups[1].is_reduction());
}

TEST_F(FusionPlanTest, TextNamesTensorsOpsAndRefusals) {
  EXPECT_EQ(PrintFusionPlan(loops_, plan_),
            "group 0: reduction over [64, r64]\n  reads x\n  s = sum\n  writes s\n"
            "group 1: pointwise over [64, 64]\n  reads x, s\n  y = add\n  writes y\n"
            "not fused: s -> y: it reads other rows or elements than the kernel has at hand\n");
}

}  // namespace
}  // namespace fuseline::fuser
