// Which kernels write over an operand, and what that does to the arena of whole plans.
#include "server/codegen/write_in_place.h"

#include <algorithm>
#include <string>
#include <vector>

#include "common/status/str_cat.h"
#include "gtest/gtest.h"
#include "server/codegen/generate_kernels.h"
#include "tests/testing/status_matchers.h"
#include "tests/unit/codegen/plan_builder.h"

namespace fuseline::codegen {
namespace {

using testing::IsOk;

GeneratedKernels Unfused(const std::string& text, const Target& target = Target::Cpu()) {
  CompileOptions options;
  options.fuse = false;
  const BuiltPlan plan = BuildPlan(text, target, options);
  absl::StatusOr<GeneratedKernels> kernels = GenerateKernels(plan.loops, plan.fusion, target, options);
  EXPECT_THAT(kernels.status(), IsOk()) << text;
  return *std::move(kernels);
}

// Bytes of the arena with a kernel for each op. Values of the graphs take 4 KiB, unless noted.
struct ArenaCase {
  const char* why;
  const char* statements;  // of x: f32[1024] and i: i32[1024]
  int64_t arena_bytes;
};

TEST(WriteInPlaceTest, ArenaOfUnfusedChains) {
  const ArenaCase cases[] = {
      {"a chain stays in one place", "%a = exp(x)\n  %b = neg(%a)\n  %c = sin(%b)\n  %y = abs(%c)", 4096},
      {"an operand read later stays", "%a = exp(x)\n  %b = neg(%a)\n  %c = sin(%b)\n  %y = add(%a, %c)", 2 * 4096},
      {"one of two operands is written over", "%a = exp(x)\n  %b = neg(x)\n  %c = add(%a, %b)\n  %y = sin(%c)",
       2 * 4096},
      {"an operand read twice at the same element", "%a = exp(x)\n  %b = mul(%a, %a)\n  %y = sin(%b)", 4096},
      {"another element is read", "%a = exp(x)\n  %f = flip(%a) {dims = [0]}\n  %b = neg(%f)\n  %y = sin(%b)",
       2 * 4096},
      {"both elements are read", "%a = exp(x)\n  %f = flip(%a) {dims = [0]}\n  %b = add(%a, %f)\n  %y = sin(%b)",
       2 * 4096},
      {"another dtype of the same size", "%a = exp(x)\n  %b = cast(%a) {dtype = i32}\n  %y = neg(%b)", 2 * 4096},
      {"another dtype of another size", "%a = exp(x)\n  %b = cast(%a) {dtype = f64}\n  %y = neg(%b)", 3 * 4096},
      {"a broadcast operand",
       "%a = exp(x)\n  %s = unsqueeze(%a) {dim = 1}\n  %b = add(%s, %a)\n"
       "  %m = amax(%b) {dims = [0]}\n  %y = neg(%m)",
       4096 + 1024 * 4096},
  };
  for (const ArenaCase& c : cases) {
    const GeneratedKernels k =
        Unfused(StrCat("graph g(x: f32[1024], i: i32[1024]) {\n  ", c.statements, "\n  return y = %y\n}\n"));
    EXPECT_EQ(k.plan.arena_bytes, c.arena_bytes) << c.why;
  }
}

TEST(WriteInPlaceTest, KernelReadsAndWritesThroughOnePointer) {
  for (const Target& target : {Target::Cpu(), Target::Cuda(90)}) {
    std::vector<ScheduledKernel> kernels =
        ScheduleText("graph g(x: f32[1024], w: f32[1024]) {\n  %y = add(x, w)\n  return y = %y\n}\n", target);
    ASSERT_EQ(kernels.size(), 1u);
    const TensorId x = kernels[0].body.params[0].tensor;
    const auto yes = [](TensorId) { return true; };
    const auto no = [](TensorId) { return false; };
    EXPECT_FALSE(WriteInPlace(kernels[0], no, yes).has_value());
    EXPECT_FALSE(WriteInPlace(kernels[0], yes, no).has_value());
    EXPECT_EQ(kernels[0].body.params.size(), 3u);
    const std::optional<TakenOver> taken = WriteInPlace(
        kernels[0], [&](TensorId t) { return t == x; }, yes);
    ASSERT_TRUE(taken.has_value());
    EXPECT_EQ(taken->operand, x);
    const KernelBody& body = kernels[0].body;
    ASSERT_EQ(body.params.size(), 2u);
    EXPECT_EQ(std::count_if(body.params.begin(), body.params.end(), [](const BodyParam& p) { return p.written; }), 1);
    int loads_of_written = 0;
    for (const BodyInstr& instr : body.instrs) {
      if (instr.kind == BodyInstr::Kind::kLoad && body.params[static_cast<size_t>(instr.param)].written)
        ++loads_of_written;
    }
    EXPECT_EQ(loads_of_written, 1);
  }
}

TEST(WriteInPlaceTest, ReportStillCountsBothTransfers) {
  const GeneratedKernels k =
      Unfused("graph g(x: f32[1024]) {\n  %a = exp(x)\n  %b = neg(%a)\n  %y = sin(%b)\n  return y = %y\n}\n");
  EXPECT_EQ(k.report.transfers_after(), 6);
  EXPECT_EQ(k.report.bytes_after(), 6 * 4096);
}

// 16 values of 4 GiB, of which a kernel for each op has two or three at a time.
TEST(WriteInPlaceTest, ChainOfLargeMatricesTakesWhatIsLiveAtATime) {
  std::string text = "graph g(x: f32[32768, 32768]) {\n";
  std::string value = "x";
  for (int k = 0; k < 8; ++k) {
    StrAppend(&text, "  %t", k, " = transpose(", value, ") {dim0 = 0, dim1 = 1}\n  %a", k, " = add(", value, ", %t", k,
              ")\n  %b", k, " = tanh(%a", k, ")\n");
    value = StrCat("%b", k);
  }
  StrAppend(&text, "  return y = ", value, "\n}\n");
  const int64_t matrix = int64_t{4} << 30;
  for (const Target& target : {Target::Cpu(), Target::Cuda(90)}) {
    const GeneratedKernels k = Unfused(text, target);
    EXPECT_EQ(k.plan.arena_bytes, 2 * matrix) << target.ToString();
  }
}

}  // namespace
}  // namespace fuseline::codegen
