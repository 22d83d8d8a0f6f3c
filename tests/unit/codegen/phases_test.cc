// Which pass computes what: softmax is the example, with its maximum, its sum and its store.
#include "server/codegen/schedule/phases.h"

#include <algorithm>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tests/testing/status_matchers.h"
#include "tests/unit/codegen/plan_builder.h"

namespace fuseline::codegen {
namespace {

KernelBody BodyOf(const std::string& text) {
  const BuiltPlan plan = BuildPlan(text, Target::Cuda(90));
  EXPECT_EQ(plan.fusion.groups.size(), 1u);
  absl::StatusOr<KernelBody> body = BuildKernelBody(plan.loops, plan.fusion.groups[0]);
  EXPECT_THAT(body.status(), testing::IsOk());
  return *std::move(body);
}

KernelBody Softmax() { return BodyOf("graph g(x: f32[64, 256]) {\n  %y = softmax(x) {dim = -1}\n  return %y\n}\n"); }

int32_t FirstOf(const KernelBody& body, BodyInstr::Kind kind, ScalarOp op = ScalarOp::kInput) {
  for (size_t i = 0; i < body.instrs.size(); ++i) {
    if (body.instrs[i].kind == kind && (kind != BodyInstr::Kind::kOp || body.instrs[i].scalar.op == op))
      return static_cast<int32_t>(i);
  }
  return -1;
}

bool Computes(const Phase& phase, int32_t instr) {
  return std::count(phase.instrs.begin(), phase.instrs.end(), instr) > 0;
}

// Operands must be there: computed in this phase before, by an earlier row phase, kept, or a constant.
void ExpectOperandsAreComputedFirst(const KernelBody& body, const PhasePlan& plan) {
  std::vector<bool> row_known(body.instrs.size(), false);
  std::vector<bool> kept_known(body.instrs.size(), false);
  for (const Phase& phase : plan.phases) {
    std::vector<bool> here(body.instrs.size(), false);
    const auto known = [&](int32_t id) {
      const size_t i = static_cast<size_t>(id);
      return here[i] || (body.instrs[i].full ? kept_known[i] : row_known[i]);
    };
    for (int32_t i : phase.instrs) {
      const BodyInstr& instr = body.instrs[static_cast<size_t>(i)];
      EXPECT_EQ(instr.full, !phase.row) << "s" << i;
      if (instr.kind == BodyInstr::Kind::kOp) {
        for (int32_t a : instr.scalar.args) {
          EXPECT_TRUE(a < 0 || known(a)) << "s" << i << " needs s" << a << " in pass " << phase.pass;
        }
      }
      here[static_cast<size_t>(i)] = true;
      if (phase.row) row_known[static_cast<size_t>(i)] = true;
    }
    for (int32_t r : phase.reductions) EXPECT_TRUE(known(body.reductions[static_cast<size_t>(r)].value));
    for (int32_t s : phase.stores) EXPECT_TRUE(known(body.stores[static_cast<size_t>(s)].value));
    for (int32_t k : plan.kept)
      kept_known[static_cast<size_t>(k)] = kept_known[static_cast<size_t>(k)] || here[static_cast<size_t>(k)];
  }
}

TEST(PhasesTest, RowPhasesStandBetweenPasses) {
  const KernelBody body = Softmax();
  const PhasePlan plan = BuildPhases(body, std::vector<bool>(body.instrs.size(), false));
  ASSERT_EQ(plan.phases.size(), 7u);  // row, pass, row, pass, row, pass, row
  for (size_t i = 0; i < plan.phases.size(); ++i) {
    EXPECT_EQ(plan.phases[i].row, i % 2 == 0);
    EXPECT_EQ(plan.phases[i].pass, static_cast<int32_t>(i / 2));
  }
  EXPECT_EQ(plan.phases[1].reductions, std::vector<int32_t>{0});
  EXPECT_EQ(plan.phases[3].reductions, std::vector<int32_t>{1});
  EXPECT_EQ(plan.phases[5].stores, std::vector<int32_t>{0});
  ExpectOperandsAreComputedFirst(body, plan);
}

TEST(PhasesTest, WithoutKeepingEachPassComputesAnew) {
  const KernelBody body = Softmax();
  const PhasePlan plan = BuildPhases(body, std::vector<bool>(body.instrs.size(), false));
  const int32_t load = FirstOf(body, BodyInstr::Kind::kLoad);
  const int32_t exp = FirstOf(body, BodyInstr::Kind::kOp, ScalarOp::kExp);
  for (size_t pass : {1, 3, 5}) EXPECT_TRUE(Computes(plan.phases[pass], load));
  EXPECT_FALSE(Computes(plan.phases[1], exp));
  EXPECT_TRUE(Computes(plan.phases[3], exp));
  EXPECT_TRUE(Computes(plan.phases[5], exp));
  EXPECT_TRUE(plan.kept.empty());
  const std::vector<int32_t> count = CountPasses(body);
  EXPECT_EQ(count[static_cast<size_t>(load)], 3);
  EXPECT_EQ(count[static_cast<size_t>(exp)], 2);
}

TEST(PhasesTest, KeptValuesAreComputedOnceAndStopTheirOperands) {
  const KernelBody body = Softmax();
  const int32_t load = FirstOf(body, BodyInstr::Kind::kLoad);
  const int32_t exp = FirstOf(body, BodyInstr::Kind::kOp, ScalarOp::kExp);
  std::vector<bool> may_keep(body.instrs.size(), false);
  may_keep[static_cast<size_t>(exp)] = true;
  const PhasePlan plan = BuildPhases(body, may_keep);
  EXPECT_EQ(plan.kept, std::vector<int32_t>{exp});
  EXPECT_TRUE(Computes(plan.phases[3], exp));
  EXPECT_FALSE(Computes(plan.phases[5], exp));
  EXPECT_FALSE(Computes(plan.phases[5], load));  // only the exponential needed it
  ExpectOperandsAreComputedFirst(body, plan);
}

TEST(PhasesTest, ValuesThatNoLaterPassUsesAreNotKept) {
  const KernelBody body =
      BodyOf("graph g(x: f32[64, 256]) {\n  %e = exp(x)\n  %s = sum(%e) {dims = [1]}\n  return %s\n}\n");
  const PhasePlan plan = BuildPhases(body, std::vector<bool>(body.instrs.size(), true));
  EXPECT_TRUE(plan.kept.empty());
  ExpectOperandsAreComputedFirst(body, plan);
}

TEST(PhasesTest, PointwiseBodiesHaveOneRowPhase) {
  const KernelBody body = BodyOf("graph g(x: f32[64]) {\n  %e = exp(x)\n  return %e\n}\n");
  const PhasePlan plan = BuildPhases(body, std::vector<bool>(body.instrs.size(), false));
  ASSERT_EQ(plan.phases.size(), 1u);
  EXPECT_TRUE(plan.phases[0].row);
  EXPECT_EQ(plan.phases[0].stores.size(), 1u);
  ExpectOperandsAreComputedFirst(body, plan);
}

TEST(PhasesTest, EveryStoreAndReductionHasOnePhase) {
  const KernelBody body = BodyOf(
      "graph g(x: f32[64, 256]) {\n  %m = amax(x) {dims = [1], keepdim = true}\n  %c = sub(x, %m)\n  %s = sum(%c) "
      "{dims = [1], keepdim = true}\n"
      "  %y = mul(%c, %s)\n  %t = sum(%y) {dims = [1]}\n  return %c, %y, %t, %m\n}\n");
  for (bool keep : {false, true}) {
    const PhasePlan plan = BuildPhases(body, std::vector<bool>(body.instrs.size(), keep));
    std::vector<int> stores(body.stores.size(), 0), reductions(body.reductions.size(), 0);
    for (const Phase& p : plan.phases) {
      for (int32_t s : p.stores) ++stores[static_cast<size_t>(s)];
      for (int32_t r : p.reductions) ++reductions[static_cast<size_t>(r)];
    }
    EXPECT_EQ(stores, std::vector<int>(body.stores.size(), 1));
    EXPECT_EQ(reductions, std::vector<int>(body.reductions.size(), 1));
    ExpectOperandsAreComputedFirst(body, plan);
  }
}

}  // namespace
}  // namespace fuseline::codegen
