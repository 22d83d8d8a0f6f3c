// Launch plans and reports: what is launched on which buffers, and what fusion saved.
#include "server/codegen/generate_kernels.h"

#include <set>
#include <string>
#include <vector>

#include "common/status/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/status_matchers.h"
#include "tests/unit/codegen/plan_builder.h"

namespace fuseline::codegen {
namespace {

using ::testing::ElementsAre;
using testing::IsOk;

GeneratedKernels Generate(const std::string& text, const Target& target = Target::Cuda(90),
                          const CompileOptions& options = {}) {
  const BuiltPlan plan = BuildPlan(text, target, options);
  absl::StatusOr<GeneratedKernels> kernels = GenerateKernels(plan.loops, plan.fusion, target, options);
  EXPECT_THAT(kernels.status(), IsOk()) << text;
  return *std::move(kernels);
}

constexpr const char* kSeed =
    "graph g(x: f32[1024, 1024], w: f32[1024], b: f32[1024]) {\n  %t0 = mul(x, w)\n  %t1 = add(%t0, b)\n  %t2 = "
    "sigmoid(%t1)\n  return %t2\n}\n";

TEST(GenerateKernelsTest, ReportOfTheSeedExample) {
  const GeneratedKernels k = Generate(kSeed);
  ASSERT_EQ(k.report.kernels.size(), 1u);
  EXPECT_EQ(k.report.kernels_before(), 3);
  EXPECT_EQ(k.report.transfers_before(), 8);
  EXPECT_EQ(k.report.transfers_after(), 4);
  EXPECT_EQ(k.report.intermediates_removed, 2);
  EXPECT_THAT(k.report.kernels[0].ops, ElementsAre("mul %t0", "add %t1", "sigmoid %t2"));
  EXPECT_EQ(k.report.kernels[0].bytes_read, 4 * (1024 * 1024 + 2 * 1024));
  EXPECT_EQ(k.report.kernels[0].bytes_written, 4 * 1024 * 1024);
  EXPECT_EQ(k.sources[0].entry, "fuseline_pointwise_mul_add_sigmoid_0");
}

TEST(GenerateKernelsTest, UnfusedReportSavesNothing) {
  CompileOptions options;
  options.fuse = false;
  const GeneratedKernels k = Generate(kSeed, Target::Cuda(90), options);
  EXPECT_EQ(k.report.kernels_before(), 3);
  EXPECT_EQ(k.report.kernels_after(), 3);
  EXPECT_EQ(k.report.transfers_after(), 8);
  EXPECT_EQ(k.report.intermediates_removed, 0);
  EXPECT_EQ(k.report.bytes_after(), k.report.bytes_before());
}

TEST(GenerateKernelsTest, EachOpIsCountedOnceThoughItIsComputedTwice) {
  const GeneratedKernels k = Generate(
      "graph g(x: f32[512, 512], z: f32[256, 512], b: f32[512]) {\n  %e = neg(b)\n  %p = add(x, %e)\n  %q = mul(z, "
      "%e)\n  return %p, %q\n}\n");
  EXPECT_EQ(k.report.kernels_before(), 3);
  EXPECT_EQ(k.report.kernels_after(), 2);
}

TEST(GenerateKernelsTest, RefusalsNameTheGraphsValues) {
  const GeneratedKernels k =
      Generate("graph g(x: f32[64, 64]) {\n  %s = sum(x) {dims = [1]}\n  %y = add(x, %s)\n  return %y\n}\n");
  ASSERT_EQ(k.report.refusals.size(), 1u);
  EXPECT_EQ(k.report.refusals[0].producer, "%s");
  EXPECT_EQ(k.report.refusals[0].consumer, "%y");
}

// Layers with parameters of their own, each added to what the one before gave.
std::string ResidualLayers(int layers) {
  std::string inputs = "x: bf16[512, 256]", body, value = "x";
  for (int k = 0; k < layers; ++k) {
    StrAppend(&inputs, ", w", k, ": bf16[256], m", k, ": bf16[256, 256]");
    StrAppend(&body, "  %n", k, " = rms_norm(", value, ", w", k, ") {dims = [-1]}\n  %l", k, " = linear(%n", k, ", m",
              k, ")\n  %g", k, " = silu(%l", k, ")\n  %y", k, " = add(", value, ", %g", k, ")\n");
    value = StrCat("%y", k);
  }
  return StrCat("graph g(", inputs, ") {\n", body, "  return y = ", value, "\n}\n");
}

TEST(GenerateKernelsTest, MoreLayersTakeNoMoreKernelsAndMemory) {
  for (const Target& target : {Target::Cpu(), Target::Cuda(90)}) {
    const GeneratedKernels few = Generate(ResidualLayers(4), target), many = Generate(ResidualLayers(48), target);
    EXPECT_EQ(many.sources.size(), few.sources.size()) << target.ToString();
    EXPECT_EQ(many.plan.arena_bytes, few.plan.arena_bytes) << target.ToString();
    EXPECT_GT(many.plan.steps.size(), 44u) << target.ToString();
  }
}

TEST(GenerateKernelsTest, RepeatedPartsShareAKernel) {
  // Layers that differ in nothing but their tensors, and are too dear to be computed again.
  std::string text = "graph g(x: f32[4096, 4096]) {\n";
  std::string value = "x";
  for (int i = 0; i < 4; ++i) {
    StrAppend(&text, "  %s", i, " = sum(", value, ") {dims = [1]}\n  %a", i, " = add(", value, ", %s", i, ")\n  %y", i,
              " = lgamma(%a", i, ")\n");
    value = StrCat("%y", i);
  }
  const GeneratedKernels k = Generate(StrCat(text, "  return ", value, "\n}\n"));
  EXPECT_LT(k.sources.size(), k.plan.steps.size());
  EXPECT_EQ(k.report.kernels.size(), k.plan.steps.size());
  std::set<std::string> entries;
  for (const KernelSource& s : k.sources) {
    EXPECT_TRUE(entries.insert(s.entry).second);
    EXPECT_NE(s.text.find(s.entry + "("), std::string::npos);
  }
}

TEST(GenerateKernelsTest, NamesOfLongKernelsAreBounded) {
  std::string text = "graph g(x: f32[64]) {\n";
  std::string value = "x";
  const char* ops[] = {"exp", "tanh", "sin",    "cos",   "atan",  "sinh",    "cosh",     "asinh",
                       "erf", "erfc", "lgamma", "log1p", "expm1", "sigmoid", "softsign", "mish"};
  for (const char* op : ops) {
    StrAppend(&text, "  %", op, "_ = ", op, "(", value, ")\n");
    value = StrCat("%", op, "_");
  }
  const GeneratedKernels k = Generate(StrCat(text, "  return ", value, "\n}\n"));
  EXPECT_LE(k.sources[0].entry.size(), 90u);
}

TEST(GenerateKernelsTest, EmptyTensorsNeedNoLaunch) {
  const GeneratedKernels k =
      Generate("graph g(x: f32[0, 4], y: f32[4]) {\n  %a = neg(x)\n  %b = neg(y)\n  return %a, %b\n}\n");
  EXPECT_EQ(k.plan.steps.size(), 1u);
  EXPECT_EQ(k.plan.outputs.size(), 2u);
}

TEST(GenerateKernelsTest, StridedInputsSpanTheirBuffer) {
  const GeneratedKernels k = Generate("graph g(x: f32[64, 32]{1, 64}) {\n  %a = neg(x)\n  return %a\n}\n");
  EXPECT_EQ(k.plan.buffers[0].size_bytes, 4 * 64 * 32);
  EXPECT_EQ(k.plan.inputs[0].strides, (Shape{1, 64}));
  EXPECT_EQ(k.plan.outputs[0].strides, (Shape{32, 1}));
}

TEST(GenerateKernelsTest, TooManyBlocksAreUnimplemented) {
  const std::string text = "graph g(x: f32[1099511627775]) {\n  %a = neg(x)\n  return %a\n}\n";
  const BuiltPlan plan = BuildPlan(text, Target::Cuda(90));
  EXPECT_THAT(GenerateKernels(plan.loops, plan.fusion, Target::Cuda(90), {}).status(),
              testing::StatusIs(absl::StatusCode::kUnimplemented, "too large for one launch"));
  const BuiltPlan cpu = BuildPlan(text, Target::Cpu());
  EXPECT_THAT(GenerateKernels(cpu.loops, cpu.fusion, Target::Cpu(), {}).status(), IsOk());
}

TEST(GenerateKernelsTest, StepsReadOnlyWhatIsWritten) {
  for (const char* text : {
           kSeed,
           "graph g(x: f32[16777216]) {\n  %s = sum(x)\n  %y = div(x, %s)\n  %m = amax(%y)\n  %z = sub(%y, %m)\n  "
           "return %z, %s\n}\n",
           "graph g(x: bf16[64, 64]) {\n  %s = sum(x) {dims = [1]}\n  %y = add(x, %s)\n  %c = constant() {dtype = "
           "bf16, shape = [2], data = [1.0, 2.0]}\n"
           "  %r = reshape(%y) {shape = [32, 64, 2]}\n  %z = mul(%r, %c)\n  %t = sum(%z) {dims = [0]}\n  return %z, "
           "%t\n}\n",
           "graph g(x: f32[1000001], y: f32[1000001]) {\n  %a = argmax(x)\n  %b = argmax(y)\n  return %a, %b\n}\n",
       }) {
    for (const Target& target : {Target::Cpu(), Target::Cuda(90)}) {
      for (bool fuse : {true, false}) {
        CompileOptions options;
        options.fuse = fuse;
        const BuiltPlan built = BuildPlan(text, target, options);
        const absl::StatusOr<GeneratedKernels> k = GenerateKernels(built.loops, built.fusion, target, options);
        ASSERT_THAT(k.status(), IsOk());
        SCOPED_TRACE(text);
        const LaunchPlan& plan = k->plan;
        // The written parameters are those named out…, or v… and partial… where they are first seen.
        std::vector<bool> filled(plan.buffers.size(), false);
        for (size_t b = 0; b < plan.buffers.size(); ++b) {
          filled[b] =
              plan.buffers[b].kind == PlanBuffer::Kind::kInput || plan.buffers[b].kind == PlanBuffer::Kind::kConstant;
        }
        ASSERT_EQ(k->report.kernels.size(), plan.steps.size());
        for (size_t s = 0; s < plan.steps.size(); ++s) {
          const PlanStep& step = plan.steps[s];
          ASSERT_LT(static_cast<size_t>(step.kernel), k->sources.size());
          int64_t unfilled = 0;
          for (int32_t b : step.buffers) unfilled += !filled[static_cast<size_t>(b)];
          // Everything that is not filled yet is written here: nothing is read too early, nothing written twice.
          // Save a result that lies where an operand was, so that there is a buffer less.
          const KernelReport& report = k->report.kernels[s];
          const int64_t in_place =
              report.tensors_read + report.tensors_written - static_cast<int64_t>(step.buffers.size());
          EXPECT_EQ(unfilled, report.tensors_written - in_place);
          EXPECT_LE(in_place, 1);
          for (int32_t b : step.buffers) filled[static_cast<size_t>(b)] = true;
        }
        for (size_t b = 0; b < filled.size(); ++b) EXPECT_TRUE(filled[b]) << b;
        std::set<int32_t> outputs;
        for (const PlanBuffer& b : plan.buffers) {
          if (b.kind == PlanBuffer::Kind::kOutput) {
            EXPECT_TRUE(outputs.insert(b.index).second);
          }
        }
        EXPECT_EQ(outputs.size(), plan.outputs.size());
      }
    }
  }
}

}  // namespace
}  // namespace fuseline::codegen
