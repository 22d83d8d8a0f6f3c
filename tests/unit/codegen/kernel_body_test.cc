// What groups become as straight-line code over loops; every schedule of it computes what the reference interpreter
// does.
#include "server/codegen/kernel_body.h"

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "common/ir/text_form.h"
#include "common/status/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/reference/reference_interpreter.h"
#include "tests/testing/status_matchers.h"
#include "tests/unit/codegen/body_interpreter.h"
#include "tests/unit/codegen/plan_builder.h"
#include "tests/unit/lowering/loop_interpreter.h"

namespace fuseline::codegen {
namespace {

using ::testing::HasSubstr;
using testing::IsOk;

// Small integers: sums and products are exact in any order.
std::vector<Tensor> SmallIntegers(const Graph& graph) {
  std::mt19937 random(11);
  std::vector<Tensor> out;
  for (ValueId id : graph.inputs) {
    Tensor t = Tensor::Allocate(graph.type(id).dtype, graph.type(id).shape());
    for (int64_t i = 0; i < t.element_count(); ++i)
      t.SetDouble(i, static_cast<double>(static_cast<int>(random() % 7) - 3));
    out.push_back(std::move(t));
  }
  return out;
}

std::string Values(const Tensor& t) {
  std::string out;
  for (int64_t i = 0; i < t.element_count(); ++i) StrAppend(&out, i ? " " : "", t.GetDouble(i));
  return out;
}

void ExpectEveryScheduleComputesTheGraph(const std::string& text, const CompileOptions& numerics = {}) {
  const absl::StatusOr<Graph> graph = ParseGraph(text);
  ASSERT_THAT(graph.status(), IsOk()) << text;
  const std::vector<Tensor> inputs = SmallIntegers(*graph);
  const absl::StatusOr<std::vector<Tensor>> want = reference::Interpret(*graph, inputs, numerics);
  ASSERT_THAT(want.status(), IsOk()) << text;
  for (const Target& target : {Target::Cpu(), Target::Cuda(90)}) {
    for (bool fuse : {true, false}) {
      CompileOptions options = numerics;
      options.fuse = fuse;
      const BuiltPlan plan = BuildPlan(text, target, options);
      const absl::StatusOr<std::vector<Tensor>> got = RunScheduledPlan(plan.loops, plan.fusion, target, inputs);
      const std::string where = StrCat(text, "target ", target.ToString(), fuse ? "\n" : ", unfused\n",
                                       PrintFusionPlan(plan.loops, plan.fusion));
      ASSERT_THAT(got.status(), IsOk()) << where;
      for (size_t o = 0; o < want->size(); ++o) ASSERT_EQ(Values((*got)[o]), Values((*want)[o])) << where;
    }
  }
}

// Over every vector of four neighbours, element by element.
TEST(KernelBodyTest, IndexIsTheSameForLanesWhereItsValuesAre) {
  const std::vector<int64_t> extents = {6, 24};
  const IndexExpr row = IndexExpr::Var(0), at = IndexExpr::Var(1);
  const auto sum = [](const IndexExpr& a, int64_t c) { return a + IndexExpr::Const(c); };
  const struct {
    IndexExpr index;
    bool same;
  } cases[] = {
      {row, true},
      {IndexExpr::Const(3), true},
      {at, false},
      {FloorDiv(at, 4, extents), true},
      {FloorDiv(at, 8, extents) * 3 + row, true},
      {FloorDiv(at, 2, extents), false},
      {FloorDiv(at, 6, extents), false},
      {FloorDiv(sum(at, 4), 8, extents), true},
      {FloorDiv(sum(at, 1), 8, extents), false},
      {FloorDiv(at + row * 4, 8, extents), true},
      {FloorDiv(at + row * 3, 8, extents), false},
      {FloorDiv(at * 2, 8, extents), true},
      {FloorDiv(sum(at * 2, 1), 8, extents), true},
      {FloorDiv(sum(at * 2, 2), 8, extents), false},
      {FloorDiv(sum(at * -1, 23), 4, extents), true},
      {Mod(at, 8, extents), false},
      {Mod(FloorDiv(at, 4, extents), 3, extents), true},
  };
  for (const auto& c : cases) {
    const bool found = SameForLanes(c.index, 1, 4);
    bool holds = true;
    for (int64_t r = 0; r < extents[0]; ++r) {
      for (int64_t v = 0; v < extents[1]; ++v) {
        holds = holds && lowering::EvaluateIndex(c.index, {r, v}) == lowering::EvaluateIndex(c.index, {r, v / 4 * 4});
      }
    }
    EXPECT_EQ(holds, c.same) << c.index.ToString();
    EXPECT_TRUE(holds || !found) << c.index.ToString();
    // A stride that runs down is not looked into.
    if (!(c.index == FloorDiv(sum(at * -1, 23), 4, extents))) {
      EXPECT_EQ(found, c.same) << c.index.ToString();
    }
  }
}

// Likewise, for all limits of a few values.
TEST(KernelBodyTest, BoundIsTheSameForLanesWhereNoLimitSeparatesThem) {
  const std::vector<int64_t> extents = {6, 24};
  const IndexExpr row = IndexExpr::Var(0), at = IndexExpr::Var(1);
  const IndexExpr values[] = {at,
                              at + IndexExpr::Const(-8),
                              at + row * 24,
                              at + row * 3,
                              at * 2 + IndexExpr::Const(1),
                              FloorDiv(at, 8, extents) * 8 + at,
                              FloorDiv(at, 4, extents)};
  int same = 0, aligned = 0;
  for (const IndexExpr& value : values) {
    for (int64_t low = -9; low <= 30; ++low) {
      for (const int64_t high : {low + 1, low + 4, low + 11, int64_t{1000}}) {
        const lowering::IndexBound bound = {value, low, high};
        const auto within = [&](int64_t r, int64_t v) {
          const int64_t x = lowering::EvaluateIndex(value, {r, v});
          return x >= low && x < high;
        };
        bool holds = true;
        for (int64_t r = 0; r < extents[0]; ++r) {
          for (int64_t v = 0; v < extents[1]; ++v) holds = holds && within(r, v) == within(r, v / 4 * 4);
        }
        const bool found = SameForLanes(bound, 1, 4, extents);
        EXPECT_TRUE(holds || !found) << value.ToString() << " in [" << low << ", " << high << ")";
        same += found ? 1 : 0;
        if (value == at && low % 4 == 0 && high % 4 == 0) {
          EXPECT_TRUE(found) << low << " to " << high;
          ++aligned;
        }
      }
    }
  }
  EXPECT_GT(same, 100);
  EXPECT_GT(aligned, 5);
}

TEST(KernelBodyTest, PointwiseChainsWithViews) {
  for (const char* text : {
           "graph g(x: f32[8, 12], w: f32[12], b: f32[12]) {\n  %m = mul(x, w)\n  %a = add(%m, b)\n  return %a\n}\n",
           "graph g(x: f32[4, 6], y: f32[8, 3]) {\n  %n = neg(x)\n  %r = reshape(%n) {shape = [8, 3]}\n  %s = mul(%r, "
           "y)\n  return %s\n}\n",
           "graph g(x: f32[10, 6], y: f32[6, 10]) {\n  %n = neg(x)\n  %p = permute(%n) {dims = [1, 0]}\n  %s = mul(%p, "
           "y)\n  return %s, %n\n}\n",
           "graph g(x: f32[6, 35]) {\n  %n = neg(x)\n  %p = permute(%n) {dims = [1, 0]}\n  %r = reshape(%p) {shape = "
           "[10, 21]}\n"
           "  %q = neg(%r)\n  %t = permute(%q) {dims = [1, 0]}\n  %u = mul(%t, %t)\n  return %u\n}\n",
           "graph g(x: f32[40]) {\n  %n = neg(x)\n  %s = slice(%n) {starts = [39], ends = [2], steps = [-3]}\n  %m = "
           "mul(%s, 2.0)\n  return %m\n}\n",
           "graph g(x: f32[7, 5]) {\n  %n = neg(x)\n  %f = flip(%n) {dims = [0]}\n  %a = add(%n, %f)\n  return %a, "
           "%n\n}\n",
           "graph g(x: f32[12]) {\n  %n = neg(x)\n  %b = broadcast_to(%n) {shape = [5, 12]}\n  %r = reshape(%b) {shape "
           "= [4, 15]}\n  %m = mul(%r, 2.0)\n  return %m\n}\n",
           "graph g(x: f32[]) {\n  %n = neg(x)\n  return %n\n}\n",
           "graph g(x: f32[0, 3]) {\n  %n = neg(x)\n  return %n\n}\n",
       }) {
    ExpectEveryScheduleComputesTheGraph(text);
  }
}

TEST(KernelBodyTest, ReductionsWithWhatStandsBeforeAndAfter) {
  for (const char* text : {
           "graph g(x: f32[6, 20]) {\n  %s = sum(x) {dims = [1], keepdim = true}\n  %y = sub(x, %s)\n  %t = sum(%y) "
           "{dims = [1]}\n  return %y, %t\n}\n",
           "graph g(x: f32[6, 20]) {\n  %s = sum(x) {dims = [0], keepdim = true}\n  %y = sub(x, %s)\n  %t = amax(%y) "
           "{dims = [0]}\n  return %y, %t\n}\n",
           "graph g(x: f32[3, 4, 5]) {\n  %n = neg(x)\n  %s = sum(%n) {dims = [1]}\n  %m = mul(%s, 2.0)\n  return "
           "%m\n}\n",
           "graph g(x: f32[3, 4, 5]) {\n  %s = sum(x) {dims = [0, 2]}\n  %m = amax(x) {dims = [0, 2]}\n  %d = sub(%m, "
           "%s)\n  return %d\n}\n",
           "graph g(x: f32[4, 6]) {\n  %r = reshape(x) {shape = [2, 12]}\n  %s = sum(%r) {dims = [1]}\n  return "
           "%s\n}\n",
           "graph g(x: f32[6, 4]) {\n  %p = permute(x) {dims = [1, 0]}\n  %n = neg(%p)\n  %s = sum(%n) {dims = [1]}\n  "
           "%t = sum(%n) {dims = [0]}\n  return %s, %t\n}\n",
           "graph g(x: f32[5]) {\n  %b = broadcast_to(x) {shape = [3, 5]}\n  %s = sum(%b) {dims = [0]}\n  return "
           "%s\n}\n",
           "graph g(x: f32[4, 1]) {\n  %s = sum(x) {dims = [1]}\n  %m = mul(%s, 3.0)\n  return %m\n}\n",
           "graph g(x: f32[4, 0]) {\n  %s = sum(x) {dims = [1]}\n  %m = add(%s, 3.0)\n  return %m\n}\n",
           "graph g(x: f32[8, 8]) {\n  %s = sum(x) {dims = [1]}\n  %y = add(x, %s)\n  %m = amax(%y) {dims = [0]}\n  "
           "return %y, %m\n}\n",
           "graph g(x: f32[6, 10]) {\n  %m = argmax(x) {dim = 1}\n  %n = argmin(x) {dim = 0}\n  %f = argmax(x)\n  "
           "return %m, %n, %f\n}\n",
       }) {
    ExpectEveryScheduleComputesTheGraph(text);
  }
}

TEST(KernelBodyTest, SplitReductionsWithShortLastPieces) {
  for (const char* text : {
           "graph g(x: f32[70001]) {\n  %n = neg(x)\n  %s = sum(%n)\n  %y = mul(%s, 2.0)\n  return %y\n}\n",
           "graph g(x: f32[70001]) {\n  %n = neg(x)\n  %m = amax(%n)\n  %a = argmax(%n)\n  return %m, %a, %n\n}\n",
           "graph g(x: f32[9001, 4]) {\n  %s = sum(x) {dims = [0]}\n  return %s\n}\n",
           "graph g(x: f32[2, 40000, 2]) {\n  %s = sum(x) {dims = [1]}\n  %a = argmin(x) {dim = 1}\n  return %s, "
           "%a\n}\n",
           "graph g(x: f32[70000]) {\n  %s = sum(x)\n  %y = sub(x, %s)\n  return %y\n}\n",
       }) {
    ExpectEveryScheduleComputesTheGraph(text);
  }
}

TEST(KernelBodyTest, RoundingFollowsTheNumerics) {
  CompileOptions eager;
  eager.numerics = Numerics::kEager;
  const std::string text =
      "graph g(x: bf16[8, 16], w: bf16[16]) {\n  %m = mul(x, w)\n  %a = add(%m, 0.1)\n  %b = mul(%a, 1.3)\n  return "
      "%b, %a\n}\n";
  ExpectEveryScheduleComputesTheGraph(text, eager);
  const auto roundings = [](const std::string& s) {
    int n = 0;
    for (size_t at = s.find("round"); at != std::string::npos; at = s.find("round", at + 1)) ++n;
    return n;
  };
  const auto body = [&](const CompileOptions& options) {
    const BuiltPlan plan = BuildPlan(text, Target::Cuda(90), options);
    EXPECT_EQ(plan.fusion.groups.size(), 1u);
    absl::StatusOr<KernelBody> b = BuildKernelBody(plan.loops, plan.fusion.groups[0]);
    EXPECT_THAT(b.status(), IsOk());
    return PrintKernelBody(*b);
  };
  EXPECT_LT(roundings(body({})), roundings(body(eager)));
}

TEST(KernelBodyTest, StoredSixteenBitValueIsRoundedForItsReaders) {
  // a is returned, so b sees it rounded; without that it stays in f32.
  const auto reads_of_round = [](const char* returned) {
    const BuiltPlan plan =
        BuildPlan(StrCat("graph g(x: bf16[64]) {\n  %a = mul(x, x)\n  %b = mul(%a, x)\n  return ", returned, "\n}\n"),
                  Target::Cuda(90));
    absl::StatusOr<KernelBody> body = BuildKernelBody(plan.loops, plan.fusion.groups[0]);
    EXPECT_THAT(body.status(), IsOk());
    int n = 0;
    for (const BodyInstr& i : body->instrs) {
      if (i.kind != BodyInstr::Kind::kOp || i.scalar.op != ScalarOp::kMul) continue;
      for (int32_t a : i.scalar.args)
        n += a >= 0 && body->instrs[static_cast<size_t>(a)].scalar.op == ScalarOp::kRound16;
    }
    return n;
  };
  EXPECT_EQ(reads_of_round("%b"), 0);
  EXPECT_EQ(reads_of_round("%b, %a"), 1);
}

TEST(KernelBodyTest, PassesFollowTheReductions) {
  const BuiltPlan plan =
      BuildPlan("graph g(x: f32[64, 256]) {\n  %y = softmax(x) {dim = -1}\n  return %y\n}\n", Target::Cuda(90));
  ASSERT_EQ(plan.fusion.groups.size(), 1u);
  absl::StatusOr<KernelBody> body = BuildKernelBody(plan.loops, plan.fusion.groups[0]);
  ASSERT_THAT(body.status(), IsOk());
  ASSERT_EQ(body->reductions.size(), 2u);
  EXPECT_EQ(body->reductions[0].pass, 0);
  EXPECT_EQ(body->reductions[1].pass, 1);
  EXPECT_EQ(body->passes, 3);
  ASSERT_EQ(body->stores.size(), 1u);
  EXPECT_TRUE(body->stores[0].full);
  EXPECT_EQ(body->stores[0].pass, 2);
  int loads = 0;
  for (const BodyInstr& i : body->instrs) loads += i.kind == BodyInstr::Kind::kLoad;
  EXPECT_EQ(loads, 1);  // x is read by every pass, and is one instruction
}

TEST(KernelBodyTest, CommonDemandsAreComputedOnce) {
  const BuiltPlan plan = BuildPlan(
      "graph g(x: f32[64]) {\n  %a = exp(x)\n  %b = mul(%a, %a)\n  %c = add(%a, %b)\n  return %c\n}\n", Target::Cpu());
  absl::StatusOr<KernelBody> body = BuildKernelBody(plan.loops, plan.fusion.groups[0]);
  ASSERT_THAT(body.status(), IsOk());
  EXPECT_EQ(PrintKernelBody(*body),
            "loops [d0<64], passes 0\n  s0: f32 row @0 = load in0[d0]\n  s1: f32 row @0 = exp s0\n  s2: f32 row @0 = "
            "mul s1 s1\n"
            "  s3: f32 row @0 = add s1 s2\n  store out0[d0] = s3 row @0\n");
}

TEST(KernelBodyTest, ReshapesInsideAGroupBecomeStrides) {
  const BuiltPlan plan = BuildPlan(
      "graph g(x: f32[8, 24], w: f32[4]) {\n  %n = neg(x)\n  %r = reshape(%n) {shape = [8, 6, 4]}\n  %m = mul(%r, w)\n"
      "  %s = reshape(%m) {shape = [8, 24]}\n  %y = add(%s, x)\n  return %y\n}\n",
      Target::Cpu());
  ASSERT_EQ(plan.fusion.groups.size(), 1u);
  absl::StatusOr<KernelBody> body = BuildKernelBody(plan.loops, plan.fusion.groups[0]);
  ASSERT_THAT(body.status(), IsOk());
  const std::string text = PrintKernelBody(*body);
  EXPECT_EQ(text.find('%'), std::string::npos) << text;
  EXPECT_EQ(text.find('/'), std::string::npos) << text;
}

TEST(KernelBodyTest, CollapsedLoopsAreThoseThatIndicesDistinguish) {
  const auto extents = [](const char* text) {
    const BuiltPlan plan = BuildPlan(text, Target::Cuda(90));
    absl::StatusOr<KernelBody> body = BuildKernelBody(plan.loops, plan.fusion.groups[0]);
    EXPECT_THAT(body.status(), IsOk());
    CollapseLoops(*body);
    return body->extents;
  };
  EXPECT_THAT(extents("graph g(x: f32[4, 1, 6, 5]) {\n  %n = neg(x)\n  return %n\n}\n"), ::testing::ElementsAre(120));
  EXPECT_THAT(extents("graph g(x: f32[4, 6, 5], w: f32[5]) {\n  %n = mul(x, w)\n  return %n\n}\n"),
              ::testing::ElementsAre(24, 5));
  EXPECT_THAT(extents("graph g(x: f32[4, 6, 5], w: f32[6, 1]) {\n  %n = mul(x, w)\n  return %n\n}\n"),
              ::testing::ElementsAre(4, 6, 5));
  EXPECT_THAT(extents("graph g(x: f32[4, 6, 5]) {\n  %n = sum(x) {dims = [1]}\n  return %n\n}\n"),
              ::testing::ElementsAre(4, 5, 6));
  EXPECT_THAT(extents("graph g(x: f32[1, 1]) {\n  %n = neg(x)\n  return %n\n}\n"), ::testing::ElementsAre());
}

TEST(KernelBodyTest, DeadInstructionsAndParametersGo) {
  const BuiltPlan plan = BuildPlan(
      "graph g(x: f32[8], y: f32[8]) {\n  %a = neg(x)\n  %b = mul(%a, y)\n  return %a, %b\n}\n", Target::Cpu());
  absl::StatusOr<KernelBody> body = BuildKernelBody(plan.loops, plan.fusion.groups[0]);
  ASSERT_THAT(body.status(), IsOk());
  ASSERT_EQ(body->stores.size(), 2u);
  ASSERT_EQ(body->params.size(), 4u);
  body->stores.pop_back();  // b, and with it y
  RemoveDeadCode(*body);
  EXPECT_EQ(body->params.size(), 2u);
  EXPECT_EQ(body->instrs.size(), 2u);
  EXPECT_EQ(body->params[static_cast<size_t>(body->stores[0].param)].written, true);
}

TEST(KernelBodyTest, ReductionReadAtAnotherRowIsRefused) {
  const BuiltPlan plan = BuildPlan(
      "graph g(x: f32[8, 8]) {\n  %s = sum(x) {dims = [1]}\n  %y = add(x, %s)\n  return %y\n}\n", Target::Cpu());
  ASSERT_EQ(plan.fusion.groups.size(), 2u);
  fuser::FusionGroup both = plan.fusion.groups[0];
  both.nodes.push_back(plan.fusion.groups[1].nodes[0]);
  both.stored = plan.fusion.groups[1].stored;
  EXPECT_THAT(BuildKernelBody(plan.loops, both).status(),
              testing::StatusIs(absl::StatusCode::kInternal, "reduction 's' is read at another row"));
}

// Instructions of the largest body of a graph.
size_t LargestBody(const std::string& text) {
  const BuiltPlan plan = BuildPlan(text, Target::Cuda(90));
  size_t largest = 0;
  for (const fuser::FusionGroup& g : plan.fusion.groups) {
    absl::StatusOr<KernelBody> body = BuildKernelBody(plan.loops, g);
    EXPECT_THAT(body.status(), IsOk());
    largest = std::max(largest, body->instrs.size());
  }
  return largest;
}

// A value that is read at k neighbouring places is computed k times, and each of those reads its own neighbours: n
// loops become n * n / 2 operations (in two dims n^3 / 3), for each element. Joining and taking over a group's loops do
// not count that.
TEST(KernelBodyTest, ChainOfStencilsGivesBodiesOfBoundedSize) {
  std::string text = "graph g(x: f32[4096]) {\n";
  std::string value = "x";
  for (int i = 0; i < 100; ++i) {
    StrAppend(&text, "  %a", i, " = slice(", value, ") {starts = [0], ends = [", 4095 - i, "]}\n  %b", i, " = slice(",
              value, ") {starts = [1], ends = [", 4096 - i, "]}\n  %t", i, " = add(%a", i, ", %b", i, ")\n");
    value = StrCat("%t", i);
  }
  EXPECT_LE(LargestBody(StrCat(text, "  return ", value, "\n}\n")), 1000u);
}

TEST(KernelBodyTest, SumsOfPermutedCopiesGiveBodiesOfBoundedSize) {
  std::string text = "graph g(x: f32[2, 2, 2, 2, 2, 2, 2, 2]) {\n";
  std::string value = "x";
  for (int i = 0; i < 10; ++i) {
    std::vector<int> dims = {0, 1, 2, 3, 4, 5, 6, 7};
    std::swap(dims[static_cast<size_t>(i % 7)], dims[static_cast<size_t>(i % 7 + 1)]);
    std::string list;
    for (int d : dims) StrAppend(&list, list.empty() ? "" : ", ", d);
    StrAppend(&text, "  %p", i, " = permute(", value, ") {dims = [", list, "]}\n  %t", i, " = add(", value, ", %p", i,
              ")\n");
    value = StrCat("%t", i);
  }
  EXPECT_LE(LargestBody(StrCat(text, "  return ", value, "\n}\n")), 500u);
}

// Each read is below kMaxIndexNodes / 2, but they are composed over the whole group: the text grows fourfold with every
// second step.
TEST(KernelBodyTest, ChainOfReshapesThatDoNotSimplifyGivesIndicesOfBoundedSize) {
  std::string text = "graph g(x: f32[6, 35]) {\n";
  std::string value = "x";
  for (int i = 0; i < 12; ++i) {
    StrAppend(&text, "  %n", i, " = neg(", value, ")\n  %p", i, " = permute(%n", i, ") {dims = [1, 0]}\n  %r", i,
              " = reshape(%p", i, ") {shape = ", i % 2 == 0 ? "[10, 21]" : "[6, 35]", "}\n");
    value = StrCat("%r", i);
  }
  const BuiltPlan plan = BuildPlan(StrCat(text, "  %y = neg(", value, ")\n  return %y\n}\n"), Target::Cuda(90));
  for (const fuser::FusionGroup& g : plan.fusion.groups) {
    absl::StatusOr<KernelBody> body = BuildKernelBody(plan.loops, g);
    ASSERT_THAT(body.status(), IsOk());
    for (const BodyInstr& i : body->instrs) EXPECT_LE(i.offset.node_count(), 4 * lowering::kMaxIndexNodes);
  }
}

}  // namespace
}  // namespace fuseline::codegen
