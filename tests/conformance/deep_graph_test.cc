// Graphs as large as the limits allow go through every stage with neither recursion nor blow-up.
#include <string>

#include "common/ir/canonical.h"
#include "common/ir/graph_builder.h"
#include "common/ir/text_form.h"
#include "common/ir/verify_graph.h"
#include "common/status/str_cat.h"
#include "gtest/gtest.h"
#include "server/codegen/generate_kernels.h"
#include "server/fuser/fuse.h"
#include "server/lowering/lower_graph.h"
#include "tests/testing/status_matchers.h"

namespace fuseline {
namespace {

using testing::IsOk;

// x -> op -> op -> ... as text; the ops alternate, so that nothing folds.
std::string ChainText(int length, const std::string& type) {
  std::string text = StrCat("graph chain(x: ", type, ") {\n");
  std::string value = "x";
  for (int k = 0; k < length; ++k) {
    const std::string next = StrCat("%t", k);
    switch (k % 4) {
      case 0:
        StrAppend(&text, "  ", next, " = add(", value, ", 0.5)\n");
        break;
      case 1:
        StrAppend(&text, "  ", next, " = mul(", value, ", 0.75)\n");
        break;
      case 2:
        StrAppend(&text, "  ", next, " = neg(", value, ")\n");
        break;
      default:
        StrAppend(&text, "  ", next, " = tanh(", value, ")\n");
    }
    value = next;
  }
  return StrCat(text, "  return y = ", value, "\n}\n");
}

struct Compiled {
  size_t kernels = 0;
  size_t source_bytes = 0;
};

absl::StatusOr<Compiled> CompileText(const std::string& text, const Target& target) {
  absl::StatusOr<Graph> graph = ParseGraph(text);
  if (!graph.ok()) return graph.status();
  const CompileOptions options;
  absl::StatusOr<lowering::LoopProgram> loops = lowering::LowerGraph(Canonicalize(*graph), options);
  if (!loops.ok()) return loops.status();
  fuser::FuseOptions fuse;
  fuse.cost = fuser::CostModelFor(target);
  absl::StatusOr<fuser::FusionPlan> plan = fuser::Fuse(*loops, fuse);
  if (!plan.ok()) return plan.status();
  absl::StatusOr<codegen::GeneratedKernels> kernels = codegen::GenerateKernels(*loops, *plan, target, options);
  if (!kernels.ok()) return kernels.status();
  Compiled result;
  result.kernels = kernels->sources.size();
  for (const KernelSource& source : kernels->sources) result.source_bytes += source.text.size();
  return result;
}

TEST(DeepGraphTest, HundredThousandNodesPassParserVerifierAndCanonicalForm) {
  const std::string text = ChainText(100'000, "f32[64]");
  const absl::StatusOr<Graph> graph = ParseGraph(text);
  ASSERT_THAT(graph.status(), IsOk());
  EXPECT_EQ(graph->nodes.size(), 100'000u);
  const Graph canonical = Canonicalize(*graph);
  EXPECT_EQ(canonical.nodes.size(), 100'000u);
  EXPECT_EQ(CanonicalBytes(canonical), CanonicalBytes(Canonicalize(canonical)));
  const absl::StatusOr<Graph> again = ParseGraph(PrintGraph(*graph));
  ASSERT_THAT(again.status(), IsOk());
  EXPECT_EQ(PrintGraph(*again), PrintGraph(*graph));
}

TEST(DeepGraphTest, ChainOfTenThousandOpsBecomesKernels) {
  for (const Target& target : {Target::Cpu(), Target::Cuda(90)}) {
    SCOPED_TRACE(target.ToString());
    const absl::StatusOr<Compiled> compiled = CompileText(ChainText(10'000, "f32[1000]"), target);
    ASSERT_THAT(compiled.status(), IsOk());
    EXPECT_GE(compiled->kernels, 1u);
    EXPECT_LE(compiled->kernels, 10'000u / 8);  // it is fused
    EXPECT_LE(compiled->source_bytes, 20u << 20);
  }
}

TEST(DeepGraphTest, ValueAddedToItselfFortyTimesDoesNotGrowExponentially) {
  // x = x + x: as an expression tree, 2^40 leaves. With views between, each reader has an index map of its own.
  for (const char* view : {"", "flip", "transpose"}) {
    SCOPED_TRACE(view);
    std::string text = "graph doubling(x: f32[32, 32]) {\n";
    std::string value = "x";
    for (int k = 0; k < 40; ++k) {
      std::string other = value;
      if (*view != '\0') {
        other = StrCat("%v", k);
        StrAppend(&text, "  ", other, " = ", view, "(", value, ") ",
                  std::string_view(view) == "flip" ? "{dims = [0]}" : "{dim0 = 0, dim1 = 1}", "\n");
      }
      StrAppend(&text, "  %t", k, " = add(", value, ", ", other, ")\n");
      value = StrCat("%t", k);
    }
    StrAppend(&text, "  return y = ", value, "\n}\n");
    for (const Target& target : {Target::Cpu(), Target::Cuda(90)}) {
      SCOPED_TRACE(target.ToString());
      const absl::StatusOr<Compiled> compiled = CompileText(text, target);
      ASSERT_THAT(compiled.status(), IsOk());
      EXPECT_LE(compiled->source_bytes, 2u << 20);
    }
  }
}

TEST(DeepGraphTest, WideFanOutAndFanInStayLinear) {
  // One value read by 5,000 ops, which are summed one after the other.
  std::string text = "graph fan(x: f32[128]) {\n  %s0 = exp(x)\n";
  for (int k = 1; k <= 5'000; ++k) {
    StrAppend(&text, "  %m", k, " = mul(x, ", k, ".0)\n  %s", k, " = add(%s", k - 1, ", %m", k, ")\n");
  }
  StrAppend(&text, "  return y = %s5000\n}\n");
  const absl::StatusOr<Compiled> compiled = CompileText(text, Target::Cpu());
  ASSERT_THAT(compiled.status(), IsOk());
  EXPECT_LE(compiled->source_bytes, 20u << 20);
}

}  // namespace
}  // namespace fuseline
