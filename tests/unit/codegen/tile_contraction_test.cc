// Which kernels go by tiles, and how their loops are dealt out.
#include "server/codegen/schedule/tile_contraction.h"

#include <string>
#include <vector>

#include "common/status/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/codegen/plan_builder.h"

namespace fuseline::codegen {
namespace {

using Kind = ScheduledKernel::Kind;

std::vector<ScheduledKernel> Schedule(const std::string& inputs, const std::string& statements,
                                      const Target& target = Target::Cuda(90)) {
  return ScheduleText(StrCat("graph g(", inputs, ") {\n", statements, "\n}\n"), target);
}

TEST(TileContractionTest, ProductsWithPrologueAndEpilogueAreOneTiledKernel) {
  const struct {
    const char* inputs;
    const char* statements;
  } kRows[] = {
      {"a: f32[256, 64], b: f32[64, 256]", "%y = matmul(a, b)\nreturn %y"},
      {"x: f32[256, 64], w: f32[256, 64], c: f32[256]", "%t = linear(x, w, c)\n%y = relu(%t)\nreturn %y"},
      {"a: f32[64, 64], q: i8[64, 64]", "%b = cast(q) {dtype = f32}\n%y = matmul(a, %b)\nreturn %y"},
      {"x: f32[2, 8, 16, 16], w: f32[16, 8, 3, 3]", "%y = conv(x, w) {padding = [1]}\nreturn %y"},
      {"a: f64[40, 64], b: f64[64, 50]", "%y = matmul(a, b)\nreturn %y"},
      {"a: i8[40, 64], b: i8[64, 50]", "%y = matmul(a, b) {dtype = i32}\nreturn %y"},
  };
  for (const auto& row : kRows) {
    for (const Target& target : {Target::Cuda(90), Target::Cpu()}) {
      const std::vector<ScheduledKernel> kernels = Schedule(row.inputs, row.statements, target);
      ASSERT_EQ(kernels.size(), 1u) << row.statements;
      EXPECT_EQ(kernels[0].kind, Kind::kTile) << row.statements;
    }
  }
}

TEST(TileContractionTest, OtherReductionsKeepTheirSchedules) {
  const struct {
    const char* inputs;
    const char* statements;
  } kRows[] = {
      {"a: f32[256, 64], b: f32[64]", "%y = matmul(a, b)\nreturn %y"},
      {"a: f32[256, 64], b: f32[64, 3]", "%y = matmul(a, b)\nreturn %y"},
      {"a: f32[4, 4], b: f32[4, 4]", "%y = matmul(a, b)\nreturn %y"},
      {"a: f32[256, 64]", "%s = square(a)\n%y = sum(%s) {dims = [1]}\nreturn %y"},
      {"a: f32[256, 64]", "%y = softmax(a) {dim = 1}\nreturn %y"},
  };
  for (const auto& row : kRows) {
    for (const ScheduledKernel& k : Schedule(row.inputs, row.statements)) {
      EXPECT_NE(k.kind, Kind::kTile) << row.statements;
    }
  }
}

TEST(TileContractionTest, ReductionsStayOutOfAContractionsKernel) {
  const std::vector<ScheduledKernel> kernels =
      Schedule("a: f32[256, 64], b: f32[64, 256]", "%t = matmul(a, b)\n%y = softmax(%t) {dim = 1}\nreturn %y");
  ASSERT_EQ(kernels.size(), 2u);
  EXPECT_EQ(kernels[0].kind, Kind::kTile);
  EXPECT_EQ(kernels[1].kind, Kind::kRow);
  const std::vector<ScheduledKernel> two = Schedule("a: f32[256, 64], b: f32[64, 256], c: f32[64, 256]",
                                                    "%t = matmul(a, b)\n%u = matmul(a, c)\nreturn %t, %u");
  ASSERT_EQ(two.size(), 2u);
  for (const ScheduledKernel& k : two) EXPECT_EQ(k.kind, Kind::kTile);
}

TEST(TileContractionTest, BatchLoopsAreThoseOfBothFactors) {
  const std::vector<ScheduledKernel> kernels =
      Schedule("a: f32[5, 96, 64], b: f32[5, 64, 80]", "%y = matmul(a, b)\nreturn %y");
  ASSERT_EQ(kernels.size(), 1u);
  ASSERT_TRUE(kernels[0].tile.has_value());
  const TilePlan& plan = *kernels[0].tile;
  EXPECT_EQ(plan.batch, 5);
  EXPECT_EQ(plan.a.extent, 96);
  EXPECT_EQ(plan.b.extent, 80);
  EXPECT_EQ(plan.reduced, 64);
  EXPECT_EQ(kernels[0].dims.grid[0], plan.tile_count());
  EXPECT_EQ(kernels[0].dims.block[0], kTileThreads);
}

TEST(TileContractionTest, ColumnsLieAlongWhatIsStored) {
  const std::vector<ScheduledKernel> kernels =
      Schedule("x: f32[2, 8, 16, 16], w: f32[24, 8, 3, 3]", "%y = conv(x, w) {padding = [1]}\nreturn %y");
  ASSERT_TRUE(kernels[0].tile.has_value());
  EXPECT_EQ(kernels[0].tile->a.extent, 24);
  EXPECT_EQ(kernels[0].tile->b.extent, 2 * 16 * 16);
}

TEST(TileContractionTest, TilesShrinkUntilTheMachineIsFull) {
  const auto tile = [](int64_t size) {
    const auto kernels =
        Schedule(StrCat("a: f32[", size, ", 64], b: f32[64, ", size, "]"), "%y = matmul(a, b)\nreturn %y");
    return kernels[0].tile->tile_m;
  };
  EXPECT_EQ(tile(4096), 128);
  EXPECT_EQ(tile(1024), 64);
  EXPECT_EQ(tile(256), 32);
}

TEST(TileContractionTest, ThreadsAndChunksCoverATile) {
  for (int64_t size : {48, 300, 1100, 3000}) {
    for (const char* dtype : {"f32", "f64", "i8"}) {
      const auto kernels = Schedule(StrCat("a: ", dtype, "[", size, ", 64], b: ", dtype, "[64, ", size, "]"),
                                    "%y = matmul(a, b)\nreturn %y");
      const TilePlan& plan = *kernels[0].tile;
      EXPECT_EQ(plan.tile_m / plan.thread_m * (plan.tile_n / plan.thread_n), kTileThreads) << dtype << size;
      // Shared memory without asking for more than 48 KiB.
      EXPECT_LE((plan.tile_m + plan.tile_n + 2 * kTileChunk) * plan.tile_k * 8, 49152);
    }
  }
}

}  // namespace
}  // namespace fuseline::codegen
