// Which loops share a kernel: each case is a graph and the groups that it becomes.
#include "server/fuser/fuse.h"

#include <time.h>

#include <algorithm>
#include <string>
#include <vector>

#include "common/ir/canonical.h"
#include "common/ir/text_form.h"
#include "common/status/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/lowering/lower_graph.h"
#include "tests/testing/status_matchers.h"

namespace fuseline::fuser {
namespace {

using ::testing::HasSubstr;
using testing::IsOk;

LoopProgram Lower(const std::string& text) {
  const absl::StatusOr<Graph> graph = ParseGraph(text);
  EXPECT_THAT(graph.status(), IsOk()) << text;
  absl::StatusOr<LoopProgram> loops = lowering::LowerGraph(*graph, {});
  EXPECT_THAT(loops.status(), IsOk()) << text;
  return *std::move(loops);
}

FuseOptions OptionsFor(const Target& target) {
  FuseOptions options;
  options.cost = CostModelFor(target);
  return options;
}

FusionPlan FuseFor(const LoopProgram& loops, const FuseOptions& options = OptionsFor(Target::Cuda(90))) {
  absl::StatusOr<FusionPlan> plan = Fuse(loops, options);
  EXPECT_THAT(plan.status(), IsOk());
  return *std::move(plan);
}

// One line for each group: "reduction [4, r8]: amax sub exp sum; 1 in, 1 out".
std::string Summary(const LoopProgram& loops, const FusionPlan& plan) {
  std::string out;
  for (const FusionGroup& g : plan.groups) {
    StrAppend(&out, g.split ? "split " : "", g.is_reduction() ? "reduction [" : "pointwise [");
    for (size_t d = 0; d < g.domain.size(); ++d) StrAppend(&out, d ? ", " : "", g.reduced[d] ? "r" : "", g.domain[d]);
    StrAppend(&out, "]:");
    for (LoopNodeId n : g.nodes) StrAppend(&out, " ", loops.node(n).label);
    StrAppend(&out, "; ", g.loads.size(), " in, ", g.stored.size(), " out\n");
  }
  return out;
}

std::string Plan(const std::string& text, const FuseOptions& options = OptionsFor(Target::Cuda(90))) {
  const LoopProgram loops = Lower(text);
  return Summary(loops, FuseFor(loops, options));
}

std::string Refusals(const std::string& text) {
  const LoopProgram loops = Lower(text);
  const FusionPlan plan = FuseFor(loops);
  std::string out;
  for (const FusionRefusalNote& r : plan.refusals) {
    StrAppend(&out, loops.tensor(r.producer).name, " -> ", loops.tensor(r.consumer).name, ": ", r.reason, "\n");
  }
  return out;
}

TEST(FuseTest, ChainsBecomeOneKernel) {
  EXPECT_EQ(Plan("graph g(x: f32[1024, 1024], w: f32[1024], b: f32[1024]) {\n  %m = mul(x, w)\n  %a = add(%m, b)\n  %s "
                 "= sigmoid(%a)\n"
                 "  return %s\n}\n"),
            "pointwise [1024, 1024]: mul add sigmoid; 3 in, 1 out\n");
}

TEST(FuseTest, DiamondsBecomeOneKernel) {
  EXPECT_EQ(Plan("graph g(x: f32[64]) {\n  %a = exp(x)\n  %b = neg(%a)\n  %c = abs(%a)\n  %d = mul(%b, %c)\n  return "
                 "%d, %a\n}\n"),
            "pointwise [64]: exp neg abs mul; 1 in, 2 out\n");
}

TEST(FuseTest, ViewsBetweenDoNotSplitAChain) {
  EXPECT_EQ(Plan("graph g(x: f32[4, 6], y: f32[8, 3]) {\n  %n = neg(x)\n  %r = reshape(%n) {shape = [8, 3]}\n  %s = "
                 "mul(%r, y)\n  return %s\n}\n"),
            "pointwise [4, 6]: neg mul; 2 in, 1 out\n");
  EXPECT_EQ(Plan("graph g(x: f32[64, 32], y: f32[32, 64]) {\n  %n = neg(x)\n  %p = permute(%n) {dims = [1, 0]}\n  %s = "
                 "mul(%p, y)\n  return %s\n}\n"),
            "pointwise [64, 32]: neg mul; 2 in, 1 out\n");
  EXPECT_EQ(Plan("graph g(x: f32[64]) {\n  %n = neg(x)\n  %s = slice(%n) {starts = [8], ends = [24]}\n  %e = exp(%s)\n "
                 " return %e\n}\n"),
            "pointwise [16]: neg exp; 1 in, 1 out\n");
}

TEST(FuseTest, NormalisationsBecomeOneKernel) {
  const struct {
    const char* text;
    const char* first_words;  // of the plan
  } cases[] = {
      {"graph g(x: f32[4096, 1024]) {\n  %y = softmax(x) {dim = -1}\n  return %y\n}\n", "reduction [4096, r1024]:"},
      {"graph g(x: f32[4096, 1024]) {\n  %y = log_softmax(x) {dim = -1}\n  return %y\n}\n", "reduction [4096, r1024]:"},
      {"graph g(x: bf16[4096, 1024], w: bf16[1024], b: bf16[1024]) {\n  %y = layer_norm(x, w, b) {dims = [-1]}\n  "
       "return %y\n}\n",
       "reduction [4096, r1024]:"},
      {"graph g(x: bf16[4096, 1024], w: bf16[1024]) {\n  %y = rms_norm(x, w) {dims = [-1]}\n  return %y\n}\n",
       "reduction [4096, r1024]:"},
      {"graph g(x: f32[8, 64, 16, 16], w: f32[64], b: f32[64]) {\n  %y = group_norm(x, w, b) {groups = 8}\n  return "
       "%y\n}\n",
       "reduction ["},
      {"graph g(x: f32[64, 128], w: f32[128], b: f32[128]) {\n  %y, %m, %v = batch_norm_train(x, w, b)\n  return %y, "
       "%m, %v\n}\n",
       "reduction [r64, 128]:"},
  };
  for (const auto& c : cases) {
    const std::string plan = Plan(c.text);
    EXPECT_EQ(std::count(plan.begin(), plan.end(), '\n'), 1) << c.text << plan << Refusals(c.text);
    EXPECT_EQ(plan.rfind(c.first_words, 0), 0u) << plan;
  }
}

TEST(FuseTest, NormalisationTakesInWhatStandsBeforeAndAfter) {
  const std::string plan = Plan(
      "graph g(x: bf16[4096, 1024], r: bf16[4096, 1024], w: bf16[1024], b: bf16[1024]) {\n  %h = add(x, r)\n"
      "  %n = layer_norm(%h, w, b) {dims = [-1]}\n  %g = gelu(%n)\n  return %g, %h\n}\n");
  EXPECT_EQ(std::count(plan.begin(), plan.end(), '\n'), 1) << plan;
  EXPECT_THAT(plan, HasSubstr("; 4 in, 2 out"));
}

// Layout ops, random numbers and casts cost no kernel of their own, on either side.
TEST(FuseTest, LayoutOpsShareAKernelWithTheirNeighbours) {
  for (const char* text : {
           "graph g(x: f32[64, 100], y: f32[64, 28]) {\n  %a = exp(x)\n  %c = concat(%a, y) {dim = 1}\n  %d = "
           "tanh(%c)\n  return %d\n}\n",
           "graph g(x: f32[64, 1000], y: f32[64, 280]) {\n  %a = exp(x)\n  %c = concat(%a, y) {dim = 1}\n  %s = "
           "softmax(%c) {dim = 1}\n  return %s\n}\n",
           "graph g(x: f32[64, 1000]) {\n  %a = exp(x)\n  %p = pad(%a) {low = [0, 12], high = [0, 12]}\n  %s = "
           "sum(%p) {dims = [1]}\n  return %s\n}\n",
           "graph g(x: f32[8, 128, 128]) {\n  %o = full() {shape = [128, 128], value = 1.0, dtype = f32}\n  %t = "
           "tril(%o)\n  %m = gt(%t, 0.0)\n  %w = where(%m, x, -inf)\n  %y = softmax(%w) {dim = 2}\n  return %y\n}\n",
           "graph g(t: i64[64], x: f32[64, 1000]) {\n  %h = one_hot(t) {classes = 1000, dtype = f32}\n  %l = "
           "log_softmax(x) {dim = 1}\n  %p = mul(%h, %l)\n  %s = sum(%p) {dims = [1]}\n  return %s\n}\n",
           "graph g(x: f32[64, 1000], seed: i64[2], r: f32[64, 1000]) {\n  %d = dropout(x, seed) {p = 0.1}\n  %a = "
           "add(%d, r)\n  %y = layer_norm(%a) {dims = [1]}\n  return %y\n}\n",
           "graph g(x: f32[1, 3, 32, 32], y: f32[1, 3, 64, 64]) {\n  %g = relu(x)\n  %u = resize(%g) {sizes = [1, 3, "
           "64, 64]}\n  %a = add(%u, y)\n  return %a\n}\n",
           "graph g(x: f32[3, 32, 32]) {\n  %g = exp(x)\n  %u = pad(%g) {low = [0, 2, 2], high = [0, 2, 2], mode = "
           "\"reflect\"}\n  %a = mul(%u, 2.0)\n  return %a\n}\n",
       }) {
    const LoopProgram loops = Lower(text);
    const FusionPlan plan = FuseFor(loops);
    EXPECT_EQ(plan.groups.size(), 1u) << text << Summary(loops, plan);
  }
}

TEST(FuseTest, SiblingsOverOneInputShareAKernel) {
  EXPECT_EQ(Plan("graph g(x: f32[1024]) {\n  %s = sin(x)\n  %c = cos(x)\n  return %s, %c\n}\n"),
            "pointwise [1024]: sin cos; 1 in, 2 out\n");
}

TEST(FuseTest, IndependentOpsWithoutASharedInputStayApart) {
  EXPECT_EQ(Plan("graph g(x: f32[1024], y: f32[1024]) {\n  %s = sin(x)\n  %c = cos(y)\n  return %s, %c\n}\n"),
            "pointwise [1024]: cos; 1 in, 1 out\npointwise [1024]: sin; 1 in, 1 out\n");
}

TEST(FuseTest, OperandsThatOneReaderAloneNeedsMoveToItsKernel) {
  // Too dear to be computed twice.
  const std::string chains = "  %a = exp(x)\n  %b = tanh(%a)\n  %c = exp(y)\n  %d = tanh(%c)\n";
  const std::string header = "graph g(x: f32[1024, 1024], y: f32[1024, 1024]) {\n";
  EXPECT_EQ(Plan(header + chains + "  %e = add(%b, %d)\n  return %e\n}", OptionsFor(Target::Cpu())),
            "pointwise [1024, 1024]: exp tanh exp tanh add; 2 in, 1 out\n");
  EXPECT_EQ(Plan(header + chains + "  %s = sum(%b) {dims = [1], keepdim = true}\n  %f = div(%b, %s)\n" +
                     "  %e = mul(%d, %f)\n  return %e\n}",
                 OptionsFor(Target::Cpu())),
            "reduction [1024, r1024]: exp tanh exp tanh sum div mul; 2 in, 1 out\n");
  // What is returned too stays where it is.
  EXPECT_THAT(Plan(header + chains + "  %e = add(%b, %d)\n  return %e, %b, %d\n}", OptionsFor(Target::Cpu())),
              HasSubstr("exp tanh; 1 in, 1 out"));
}

TEST(FuseTest, ReductionsOverOneReadShareAKernel) {
  EXPECT_EQ(Plan("graph g(x: f32[1024, 512]) {\n  %s = sum(x) {dims = [1]}\n  %m = amax(x) {dims = [1]}\n  return %s, "
                 "%m\n}\n"),
            "reduction [1024, r512]: sum amax; 1 in, 2 out\n");
}

TEST(FuseTest, ReductionsOverOtherDimsStayApart) {
  const std::string text =
      "graph g(x: f32[1024, 512]) {\n  %n = exp(x)\n  %s = sum(%n) {dims = [1]}\n  %m = amax(%n) {dims = [0]}\n  "
      "return %s, %m\n}\n";
  EXPECT_EQ(Plan(text),
            "reduction [1024, r512]: exp sum; 1 in, 1 out\nsplit reduction [r1024, 512]: exp amax; 1 in, 1 out\n");
  EXPECT_EQ(Refusals(text), "n -> m: reductions over different dims\n");
}

TEST(FuseTest, ReductionOfAReductionStaysApart) {
  const std::string text =
      "graph g(x: f32[1024, 512]) {\n  %s = sum(x) {dims = [1]}\n  %m = amax(%s)\n  return %m\n}\n";
  const std::string plan = Plan(text);
  EXPECT_EQ(std::count(plan.begin(), plan.end(), '\n'), 2) << plan;
  EXPECT_THAT(Refusals(text), HasSubstr("s -> m: "));
}

TEST(FuseTest, ResultsOfOtherRowsAreNotAtHand) {
  // Every element of y needs the sum of another row.
  const std::string text = "graph g(x: f32[64, 64]) {\n  %s = sum(x) {dims = [1]}\n  %y = add(x, %s)\n  return %y\n}\n";
  EXPECT_EQ(Plan(text), "reduction [64, r64]: sum; 1 in, 1 out\npointwise [64, 64]: add; 2 in, 1 out\n");
  EXPECT_EQ(Refusals(text), "s -> y: it reads other rows or elements than the kernel has at hand\n");
}

TEST(FuseTest, FewLongRowsAreSplit) {
  EXPECT_EQ(Plan("graph g(x: f32[16777216]) {\n  %e = exp(x)\n  %s = sum(%e)\n  %l = log(%s)\n  return %l\n}\n"),
            "split reduction [r16777216]: exp sum log; 1 in, 1 out\n");
  EXPECT_EQ(Plan("graph g(x: f32[65536, 32]) {\n  %s = sum(x) {dims = [0]}\n  return %s\n}\n"),
            "split reduction [r65536, 32]: sum; 1 in, 1 out\n");
  EXPECT_EQ(Plan("graph g(x: f32[4096, 1024]) {\n  %s = sum(x) {dims = [1]}\n  return %s\n}\n"),
            "reduction [4096, r1024]: sum; 1 in, 1 out\n");
}

TEST(FuseTest, ElementsThatNeedASplitResultWaitForTheNextKernel) {
  const std::string text = "graph g(x: f32[16777216]) {\n  %s = sum(x)\n  %y = div(x, %s)\n  return %y\n}\n";
  EXPECT_EQ(Plan(text), "split reduction [r16777216]: sum; 1 in, 1 out\npointwise [16777216]: div; 2 in, 1 out\n");
  EXPECT_EQ(Refusals(text),
            "s -> y: the reduction is split over several blocks: its result is known only in the next kernel\n");
}

TEST(FuseTest, CheapBroadcastProducersAreComputedAgain) {
  // neg(b) is a row; it is computed in the kernel of each of its readers rather than stored.
  EXPECT_EQ(Plan("graph g(x: f32[512, 512], z: f32[256, 512], b: f32[512]) {\n  %e = neg(b)\n  %p = add(x, %e)\n  %q = "
                 "mul(z, %e)\n"
                 "  return %p, %q\n}\n"),
            "pointwise [512, 512]: neg add; 2 in, 1 out\npointwise [256, 512]: neg mul; 2 in, 1 out\n");
}

TEST(FuseTest, ExpensiveBroadcastProducersAreStored) {
  const std::string plan = Plan(
      "graph g(x: f32[4096, 8192], b: f32[8192]) {\n  %a = lgamma(b)\n  %c = lgamma(%a)\n  %d = lgamma(%c)\n  %e = "
      "lgamma(%d)\n"
      "  %p = add(x, %e)\n  return %p\n}\n");
  EXPECT_EQ(plan,
            "pointwise [8192]: lgamma lgamma lgamma lgamma; 1 in, 1 out\npointwise [4096, 8192]: add; 2 in, 1 out\n");
}

TEST(FuseTest, ReturnedValuesOfAnotherShapeAreStoredByTheirOwnKernel) {
  const std::string text =
      "graph g(x: f32[512, 512], b: f32[512]) {\n  %e = neg(b)\n  %p = add(x, %e)\n  return %p, %e\n}\n";
  EXPECT_EQ(Plan(text), "pointwise [512]: neg; 1 in, 1 out\npointwise [512, 512]: add; 2 in, 1 out\n");
  EXPECT_THAT(Refusals(text), HasSubstr("e -> p: the value is returned and is of another shape than the loops"));
}

TEST(FuseTest, UnfusedPlansHaveAGroupForEachLoop) {
  FuseOptions options = OptionsFor(Target::Cuda(90));
  options.fuse = false;
  const LoopProgram loops =
      Lower("graph g(x: f32[64, 128]) {\n  %y = softmax(x) {dim = -1}\n  %z = neg(%y)\n  return %z\n}\n");
  const FusionPlan plan = FuseFor(loops, options);
  ASSERT_EQ(plan.groups.size(), loops.nodes.size());
  for (size_t g = 0; g < plan.groups.size(); ++g) {
    EXPECT_THAT(plan.groups[g].nodes, ::testing::ElementsAre(static_cast<LoopNodeId>(g)));
    EXPECT_EQ(plan.groups[g].stored.size(), 1u);
  }
  EXPECT_TRUE(plan.refusals.empty());
}

TEST(FuseTest, EveryRefusalHasAReason) {
  const LoopProgram loops = Lower(
      "graph g(x: f32[64, 64], z: f32[4, 64, 64]) {\n  %s = sum(x) {dims = [1]}\n  %y = add(x, %s)\n  %m = amax(%y) "
      "{dims = [0]}\n"
      "  %q = mul(z, %y)\n  %r = sum(%q) {dims = [0, 1]}\n  return %y, %m, %q, %r\n}\n");
  const FusionPlan plan = FuseFor(loops);
  EXPECT_FALSE(plan.refusals.empty());
  for (const FusionRefusalNote& r : plan.refusals) {
    EXPECT_FALSE(r.reason.empty());
    EXPECT_EQ(loops.tensor(r.producer).kind, lowering::LoopTensor::Kind::kComputed);
    EXPECT_EQ(loops.tensor(r.consumer).kind, lowering::LoopTensor::Kind::kComputed);
  }
}

TEST(FuseTest, KernelsStayBelowTheirLargestSize) {
  std::string text = "graph g(x: f32[64]) {\n";
  std::string value = "x";
  for (int i = 0; i < 1000; ++i) {
    StrAppend(&text, "  %t", i, " = add(", value, ", ", i, ".5)\n");
    value = StrCat("%t", i);
  }
  const LoopProgram loops = Lower(StrCat(text, "  return ", value, "\n}\n"));
  const FusionPlan plan = FuseFor(loops);
  EXPECT_EQ(plan.groups.size(), 4u);
  for (const FusionGroup& g : plan.groups) EXPECT_LE(g.nodes.size(), 256u + 32u);
  EXPECT_EQ(plan.refusals[0].reason, "the kernel has reached its largest size");
}

// Else a chain of softmaxes over one row is a kernel of a hundred thousand bytes that the compiler works on for
// minutes.
TEST(FuseTest, KernelsStayBelowTheirLargestNumberOfDependentReductions) {
  std::string text = "graph g(x: f32[256, 512]) {\n  %v0 = softmax(x) {dim = 1}\n";
  for (int i = 1; i < 20; ++i) StrAppend(&text, "  %v", i, " = softmax(%v", i - 1, ") {dim = 1}\n");
  text += "  return %v19\n}\n";
  const LoopProgram loops = Lower(text);
  const FusionPlan plan = FuseFor(loops);
  EXPECT_EQ(plan.groups.size(), 5u) << Summary(loops, plan);
  for (const FusionGroup& g : plan.groups) {
    const auto reductions =
        std::count_if(g.nodes.begin(), g.nodes.end(), [&](LoopNodeId n) { return loops.node(n).is_reduction(); });
    EXPECT_EQ(reductions, 8);
  }
  EXPECT_THAT(Refusals(text), HasSubstr("as many reductions"));
}

// Those that do not wait for each other share their passes.
TEST(FuseTest, IndependentReductionsOfAKernelAreNotCounted) {
  std::string text = "graph g(x: f32[256, 512]) {\n";
  std::string results;
  for (int i = 0; i < 12; ++i) {
    StrAppend(&text, "  %m", i, " = mul(x, ", i + 1, ".0)\n  %v", i, " = sum(%m", i, ") {dims = [1]}\n");
    StrAppend(&results, i ? ", %v" : "%v", i);
  }
  EXPECT_EQ(FuseFor(Lower(text + "  return " + results + "\n}\n")).groups.size(), 1u);
}

TEST(FuseTest, KernelsStayBelowTheirLargestNumberOfTensors) {
  std::string inputs, text;
  for (int i = 0; i < 100; ++i) StrAppend(&inputs, i ? ", " : "", "x", i, ": f32[64]");
  std::string value = "x0";
  for (int i = 1; i < 100; ++i) {
    StrAppend(&text, "  %t", i, " = add(", value, ", x", i, ")\n");
    value = StrCat("%t", i);
  }
  const LoopProgram loops = Lower(StrCat("graph g(", inputs, ") {\n", text, "  return ", value, "\n}\n"));
  const FusionPlan plan = FuseFor(loops);
  for (const FusionGroup& g : plan.groups) EXPECT_LE(g.loads.size() + g.stored.size(), 48u);
  EXPECT_EQ(plan.refusals[0].reason, "the kernel would have too many tensors");
}

// Groups of a long concat are cheap to compute again, but not all in one kernel.
TEST(FuseTest, KernelsOfALongConcatStayBelowTheirLargestNumberOfTensors) {
  std::string inputs, operands;
  for (int k = 0; k < 300; ++k) {
    StrAppend(&inputs, k ? ", " : "", "x", k, ": f32[4]");
    StrAppend(&operands, k ? ", " : "", "x", k);
  }
  const LoopProgram loops = Lower(StrCat("graph g(", inputs, ") {\n  %c = concat(", operands,
                                         ") {dim = 0}\n  %y = mul(%c, 2.0)\n  return %y\n}\n"));
  for (const FusionGroup& g : FuseFor(loops).groups) EXPECT_LE(g.loads.size() + g.stored.size(), 48u);
}

TEST(FuseTest, EmptyTensorsAreGroupedWithoutReductionOverNothing) {
  EXPECT_EQ(Plan("graph g(x: f32[0, 4]) {\n  %a = neg(x)\n  return %a\n}\n"), "pointwise [0, 4]: neg; 1 in, 1 out\n");
  EXPECT_EQ(Plan("graph g(x: f32[4, 0]) {\n  %a = sum(x) {dims = [1]}\n  %b = neg(%a)\n  return %b\n}\n"),
            "reduction [4, r0]: sum neg; 1 in, 1 out\n");
}

TEST(FuseTest, TheSamePlanComesOutEveryTime) {
  const std::string text =
      "graph g(x: f32[512, 512], b: f32[512]) {\n  %e = neg(b)\n  %f = abs(b)\n  %h = mul(%e, %f)\n  %p = add(x, %h)\n "
      " %s = sum(%p) {dims = [0]}\n"
      "  %q = sub(x, %f)\n  %m = amax(%q) {dims = [1]}\n  return %s, %m, %q\n}\n";
  const std::string first = Plan(text);
  for (int i = 0; i < 5; ++i) EXPECT_EQ(Plan(text), first);
}

// Seconds to fuse, measured twice, the better one.
// Of the processor, which other programs do not lengthen as they do the clock's.
double ThreadSeconds() {
  timespec now = {};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

double SecondsToFuse(const LoopProgram& loops) {
  double best = 1e9;
  for (int i = 0; i < 2; ++i) {
    const double start = ThreadSeconds();
    FuseFor(loops);
    best = std::min(best, ThreadSeconds() - start);
  }
  return best;
}

TEST(FuseTest, TwentyThousandOpsTakeLinearTime) {
  const auto chain = [](int n) {
    std::string text = "graph g(x: f32[64]) {\n";
    std::string value = "x";
    for (int i = 0; i < n; ++i) {
      StrAppend(&text, "  %t", i, " = add(", value, ", 0.5)\n");
      value = StrCat("%t", i);
    }
    return StrCat(text, "  return ", value, "\n}\n");
  };
  const double small = SecondsToFuse(Lower(chain(5000)));
  const double large = SecondsToFuse(Lower(chain(20000)));
  EXPECT_LT(large, 2.0);
  EXPECT_LT(large, 12 * small + 0.05);  // 4 if linear, 16 if quadratic
}

TEST(FuseTest, ReaderOfTwoGroupsJoinsTheLater) {
  // The sum needs no other group, so it runs first, and what reads both stays with the exponential.
  const std::string text =
      "graph g(x: f32[4096, 1024], b: f32[512, 1024]) {\n  %e = exp(x)\n  %s = sum(b) {dims = [0]}\n  %y = mul(%e, "
      "%s)\n  return %y\n}\n";
  EXPECT_EQ(Plan(text), "reduction [r512, 1024]: sum; 1 in, 1 out\npointwise [4096, 1024]: exp mul; 2 in, 1 out\n");
}

// Each step is two loops in a group of its own, which reads x.
std::string GroupsInARow(int n) {
  std::string text = "graph g(x: f32[64, 64], b: f32[64]) {\n";
  std::string value = "b";
  for (int i = 0; i < n; ++i) {
    StrAppend(&text, "  %y", i, " = add(x, ", value, ")\n  %s", i, " = sum(%y", i, ") {dims = [1]}\n");
    value = StrCat("%s", i);
  }
  return StrCat(text, "  return ", value, "\n}\n");
}

// Each step is a group of its own, to run right after the first.
std::string GroupsSideBySide(int n) {
  std::string text = StrCat("graph g(x: f32[", n, "], z: f32[16777216]) {\n  %s = sum(z)\n");
  std::string returned;
  for (int i = 0; i < n; ++i) {
    StrAppend(&text, "  %v", i, " = slice(x) {starts = [0], ends = [", i + 1, "]}\n  %a", i, " = add(%v", i, ", %s)\n");
    StrAppend(&returned, i ? ", " : "", "%a", i);
  }
  return StrCat(text, "  return ", returned, "\n}\n");
}

// Each new loop looks through all the groups that read one of its tensors, and groups are numbered anew once in some
// thirty insertions.
TEST(FuseTest, ManyGroupsTakeLinearTime) {
  for (const auto& text : {GroupsInARow, GroupsSideBySide}) {
    // Both are larger than the caches.
    const double small = SecondsToFuse(Lower(text(10000)));
    const double large = SecondsToFuse(Lower(text(40000)));
    // 4 if linear, 16 if quadratic.
    EXPECT_LT(large, 8 * small + 0.05) << "10,000: " << small << " s, 40,000: " << large << " s";
  }
}

// "Where a value is stored, every reader sees the stored value": a group that computes a stored 16-bit value again sees
// it unrounded. The pass goes from the last group to the first, so a later group does not know yet that an earlier one
// will have the value stored.
TEST(FuseTest, StoredSixteenBitValueIsNotComputedAgain) {
  const LoopProgram loops = Lower(
      "graph g(x: bf16[1024, 1024], z: bf16[16, 1024, 1024]) {\n  %m = mul(x, 0.3)\n  %a = add(%m, 0.7)\n  %t = "
      "mul(%a, 1.1)\n"
      "  %v = mul(z, %t)\n  %r = amax(%v)\n  %u = mul(%t, %r)\n  %n = sub(%u, %r)\n  return %v, %n\n}\n");
  const FusionPlan plan = FuseFor(loops);
  for (const FusionGroup& g : plan.groups) {
    for (TensorId t : g.stored) {
      if (!IsHalf(loops.tensor(t).dtype)) continue;
      for (const FusionGroup& other : plan.groups) {
        if (&other == &g) continue;
        EXPECT_EQ(std::count(other.nodes.begin(), other.nodes.end(), loops.tensor(t).producer), 0)
            << loops.tensor(t).name << "\n"
            << PrintFusionPlan(loops, plan);
      }
    }
  }
}

}  // namespace
}  // namespace fuseline::fuser
