// Kernels of scans, scatters and sorts, and of what is read by index: how many there are, and on which buffers they
// run.
#include <algorithm>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/codegen/generate_kernels.h"
#include "tests/testing/status_matchers.h"
#include "tests/unit/codegen/plan_builder.h"

namespace fuseline::codegen {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::IsOk;
using ::testing::Not;

GeneratedKernels Generate(const std::string& inputs, const std::string& body, const Target& target) {
  const std::string text = "graph g(" + inputs + ") {\n" + body + "\n}\n";
  const BuiltPlan plan = BuildPlan(text, target, {});
  absl::StatusOr<GeneratedKernels> kernels = GenerateKernels(plan.loops, plan.fusion, target, {});
  EXPECT_THAT(kernels.status(), IsOk()) << text;
  return *std::move(kernels);
}

const Target kTargets[] = {Target::Cpu(), Target::Cuda(90)};

int CountBuffers(const LaunchPlan& plan, PlanBuffer::Kind kind) {
  return static_cast<int>(
      std::count_if(plan.buffers.begin(), plan.buffers.end(), [&](const PlanBuffer& b) { return b.kind == kind; }));
}

TEST(OrderedKernelTest, GatherFusesWithWhatItReadsAndWithItsReader) {
  for (const Target& target : kTargets) {
    const GeneratedKernels k = Generate("x: f32[64, 32], i: i64[100]",
                                        "  %d = mul(x, 2.0)\n  %g = index_select(%d, i) {dim = 0}\n  %e = exp(%g)\n"
                                        "  %s = sum(%e) {dims = [1]}\n  return %s",
                                        target);
    EXPECT_EQ(k.plan.steps.size(), 1u);
    ASSERT_EQ(k.plan.checks.size(), 1u);
    EXPECT_EQ(k.plan.checks[0].node, "%g");
    EXPECT_EQ(k.plan.checks[0].extent, 64);
    EXPECT_EQ(CountBuffers(k.plan, PlanBuffer::Kind::kChecks), 1);
  }
}

TEST(OrderedKernelTest, PlanWithoutIndicesHasNoChecks) {
  for (const Target& target : kTargets) {
    const GeneratedKernels k =
        Generate("x: f32[64]", "  %v, %i = sort(x)\n  %c = cumsum(%v) {dim = 0}\n  return %c", target);
    EXPECT_TRUE(k.plan.checks.empty());
    EXPECT_EQ(CountBuffers(k.plan, PlanBuffer::Kind::kChecks), 0);
  }
}

TEST(OrderedKernelTest, LossOfLogitsIsOneKernelPerRowAndOneForTheMean) {
  for (const Target& target : kTargets) {
    const GeneratedKernels k = Generate("x: f32[256, 1000], t: i64[256]",
                                        "  %l = cross_entropy(x, t) {reduction = \"none\"}\n  return %l", target);
    EXPECT_EQ(k.plan.steps.size(), 1u) << k.bodies;
  }
}

// The copy and the scatter share the output's memory; nothing else is allocated.
TEST(OrderedKernelTest, ScatterRunsInTheMemoryOfItsResult) {
  for (const Target& target : kTargets) {
    const GeneratedKernels k = Generate("x: f32[64, 32], i: i64[100, 32], s: f32[100, 32]",
                                        "  %p = scatter(x, i, s) {dim = 0}\n  return %p", target);
    ASSERT_EQ(k.plan.steps.size(), 2u);
    EXPECT_EQ(k.plan.arena_bytes, 0);
    for (const PlanStep& step : k.plan.steps) {
      EXPECT_EQ(std::count_if(step.buffers.begin(), step.buffers.end(),
                              [&](int32_t b) {
                                return k.plan.buffers[static_cast<size_t>(b)].kind == PlanBuffer::Kind::kOutput;
                              }),
                1);
    }
    EXPECT_THAT(k.report.kernels[1].schedule, HasSubstr("scatter in order"));
  }
}

// What a scan's operand is computed from is read by the scan itself.
TEST(OrderedKernelTest, ScanComputesItsOperand) {
  for (const Target& target : kTargets) {
    const GeneratedKernels k =
        Generate("x: f32[64, 32], w: f32[32]", "  %d = mul(x, w)\n  %c = cumsum(%d) {dim = 1}\n  return %c", target);
    EXPECT_EQ(k.plan.steps.size(), 1u);
  }
}

TEST(OrderedKernelTest, CpuWalksAlongTilesWhereRowsLieSideBySide) {
  const auto schedule = [](int dim) {
    return Generate("x: f32[64, 320]", "  %c = cumsum(x) {dim = " + std::to_string(dim) + "}\n  return %c",
                    Target::Cpu())
        .report.kernels[0]
        .schedule;
  };
  EXPECT_EQ(schedule(0), "scan in order, tiles of 64 rows");
  EXPECT_THAT(schedule(1), AllOf(HasSubstr("scan"), Not(HasSubstr("tiles"))));
}

TEST(OrderedKernelTest, CudaScansLongRowsWithABlockAndColumnsWithAThread) {
  const auto kernels = [](const char* shape, int dim, const char* op) {
    return Generate(std::string("x: f32") + shape,
                    std::string("  %c = ") + op + "(x) {dim = " + std::to_string(dim) + "}\n  return %c",
                    Target::Cuda(90));
  };
  const GeneratedKernels rows = kernels("[64, 300]", 1, "cumsum");
  EXPECT_EQ(rows.report.kernels[0].schedule, "scan, a block of 128 threads a row");
  EXPECT_THAT(rows.sources[0].text, HasSubstr("fl_block_prefix_sum_f32<128>"));
  EXPECT_EQ(rows.plan.steps[0].dims.grid[0], 64);
  EXPECT_EQ(kernels("[64, 30]", 1, "cumprod").report.kernels[0].schedule, "scan in order, a thread a row");
  EXPECT_EQ(kernels("[64, 300]", 0, "cumsum").report.kernels[0].schedule, "scan in order, a thread a row");
  EXPECT_EQ(kernels("[100000, 3]", 0, "cumsum").report.kernels[0].schedule, "scan, a block of 512 threads a row");
}

TEST(OrderedKernelTest, CpuSortHasKeysAndPositionsBeforeAndAfterAMerge) {
  const GeneratedKernels k = Generate("x: bf16[8, 100]", "  %v, %i = sort(x)\n  return %i", Target::Cpu());
  ASSERT_EQ(k.plan.steps.size(), 1u);
  EXPECT_EQ(CountBuffers(k.plan, PlanBuffer::Kind::kTemporary), 4);
  EXPECT_GE(k.plan.arena_bytes, 8 * 100 * 2 * (4 + 8));  // keys in f32
  EXPECT_THAT(k.sources[0].text, HasSubstr("fl_below_f32"));
}

TEST(OrderedKernelTest, CudaSortsShortRowsInSharedMemory) {
  const GeneratedKernels k = Generate("x: bf16[8, 2048]", "  %v, %i = sort(x)\n  return %i", Target::Cuda(90));
  ASSERT_EQ(k.plan.steps.size(), 1u);
  EXPECT_EQ(k.plan.steps[0].dims.grid[0], 8);
  EXPECT_EQ(k.plan.arena_bytes, 0);
}

// Tiles of 2048, two merges of which the second pairs runs of 4096, and the positions' places; the merges are launches
// of one kernel.
TEST(OrderedKernelTest, CudaSortsLongRowsInPasses) {
  const GeneratedKernels k = Generate("x: f32[3, 5000]", "  %v, %i = topk(x) {k = 10}\n  return %i", Target::Cuda(90));
  ASSERT_EQ(k.plan.steps.size(), 5u) << k.bodies;  // the last takes the first ten
  EXPECT_EQ(k.plan.steps[0].dims.grid[0], 3 * 3);
  EXPECT_EQ(k.plan.steps[1].kernel, k.plan.steps[2].kernel);
  EXPECT_NE(k.plan.steps[1].buffers, k.plan.steps[2].buffers);
  EXPECT_EQ(k.plan.steps[1].dims.grid[0], (3 * 5000 + 255) / 256);
  EXPECT_THAT(k.sources[0].text, HasSubstr("fl_better_max_f32"));
}

TEST(OrderedKernelTest, NothingIsLaunchedForNothing) {
  for (const Target& target : kTargets) {
    const GeneratedKernels k =
        Generate("x: f32[0, 3], y: f32[3, 0]",
                 "  %v, %i = sort(x) {dim = 0}\n  %c = cumsum(y) {dim = 1}\n  return %i, %c", target);
    EXPECT_TRUE(k.plan.steps.empty());
  }
}

}  // namespace
}  // namespace fuseline::codegen
