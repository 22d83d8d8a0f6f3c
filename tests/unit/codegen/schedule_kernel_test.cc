// Loops mapped to the machine: which schedule representative shapes get, and what must hold of every one.
#include <algorithm>
#include <cstdlib>
#include <set>
#include <string>
#include <vector>

#include "common/status/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/codegen/schedule/scheduled_kernel.h"
#include "tests/testing/status_matchers.h"
#include "tests/unit/codegen/plan_builder.h"
#include "tests/unit/lowering/loop_interpreter.h"

namespace fuseline::codegen {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;
using Kind = ScheduledKernel::Kind;

ScheduledKernel Only(const std::string& text, const Target& target = Target::Cuda(90)) {
  std::vector<ScheduledKernel> kernels = ScheduleText(text, target);
  EXPECT_EQ(kernels.size(), 1u) << text;
  return std::move(kernels[0]);
}

std::string Rows(const char* dtype, int64_t rows, int64_t columns, const char* statements) {
  return StrCat("graph g(x: ", dtype, "[", rows, ", ", columns, "]) {\n", statements, "\n}\n");
}
constexpr const char* kSoftmax = "%y = softmax(x) {dim = -1}\nreturn %y";
constexpr const char* kRowSum = "%y = sum(x) {dims = [1]}\nreturn %y";
constexpr const char* kColumnSum = "%y = sum(x) {dims = [0]}\nreturn %y";
constexpr const char* kNeg = "%y = neg(x)\nreturn %y";

TEST(ScheduleKernelTest, LanesFillSixteenBytesWhereTheExtentAllows) {
  const struct {
    const char* dtype;
    int64_t columns;
    int32_t lanes;
  } cases[] = {{"f32", 1024, 4}, {"bf16", 1024, 8}, {"f64", 1024, 2}, {"i8", 1024, 16},
               {"bf16", 12, 4},  {"f32", 6, 2},     {"f32", 7, 1},    {"i8", 1, 1}};
  for (const auto& c : cases) {
    // A broadcast row keeps the two loops apart.
    const ScheduledKernel k = Only(StrCat("graph g(x: ", c.dtype, "[33, ", c.columns, "], w: ", c.dtype, "[", c.columns,
                                          "]) {\n%y = mul(x, w)\nreturn %y\n}\n"));
    EXPECT_EQ(k.kind, Kind::kPointwise);
    EXPECT_EQ(k.lanes, c.lanes) << c.dtype << " of " << c.columns;
  }
}

TEST(ScheduleKernelTest, LanesOfMixedWidthsTakeAtMostTwoAccesses) {
  const ScheduledKernel k =
      Only("graph g(x: i8[1024]) {\n%c = cast(x) {dtype = f32}\n%y = mul(%c, 0.5)\nreturn %y\n}\n");
  EXPECT_EQ(k.lanes, 8);  // 8 bytes of i8, 32 of f32
}

TEST(ScheduleKernelTest, StridedAndFlippedLoadsAreNotVectors) {
  const ScheduledKernel flipped =
      Only("graph g(x: f32[1024]) {\n%f = flip(x) {dims = [0]}\n%y = neg(%f)\nreturn %y\n}\n");
  EXPECT_EQ(std::count(flipped.vector_load.begin(), flipped.vector_load.end(), true), 0);
  EXPECT_EQ(std::count(flipped.vector_store.begin(), flipped.vector_store.end(), true), flipped.lanes > 1 ? 1 : 0);
  const ScheduledKernel shifted =
      Only("graph g(x: f32[1025]) {\n%s = slice(x) {starts = [1], ends = [1025]}\n%y = neg(%s)\nreturn %y\n}\n");
  EXPECT_EQ(std::count(shifted.vector_load.begin(), shifted.vector_load.end(), true), 0);
  const ScheduledKernel strided = Only("graph g(x: f32[64, 64]{65, 1}) {\n%y = neg(x)\nreturn %y\n}\n");
  EXPECT_EQ(std::count(strided.vector_load.begin(), strided.vector_load.end(), true), 0);
  const ScheduledKernel aligned = Only("graph g(x: f32[64, 64]{68, 1}) {\n%y = neg(x)\nreturn %y\n}\n");
  EXPECT_EQ(std::count(aligned.vector_load.begin(), aligned.vector_load.end(), true), 1);
}

TEST(ScheduleKernelTest, RowsThatFitAreHeldOnChip) {
  for (int64_t columns : {128, 1024, 4096, 8192}) {
    const ScheduledKernel k = Only(Rows("bf16", 4096, columns, kSoftmax));
    EXPECT_EQ(k.kind, Kind::kRow);
    EXPECT_TRUE(k.persistent) << columns;
    EXPECT_THAT(k.description, StartsWith("persistent row"));
    EXPECT_FALSE(k.phases.kept.empty());
    // The threads of a row cover it.
    EXPECT_GE(static_cast<int64_t>(k.threads_per_row) * k.chunks * k.lanes, columns);
  }
}

TEST(ScheduleKernelTest, RowsThatDoNotFitAreLoopedOver) {
  const ScheduledKernel k = Only(Rows("f32", 4096, 262144, kSoftmax));
  EXPECT_EQ(k.kind, Kind::kRow);
  EXPECT_FALSE(k.persistent);
  EXPECT_THAT(k.description, StartsWith("looped row"));
  EXPECT_TRUE(k.phases.kept.empty());
}

TEST(ScheduleKernelTest, ReductionsOfOuterDimsWalkColumns) {
  const ScheduledKernel k = Only(Rows("f32", 64, 65536, kColumnSum));
  EXPECT_EQ(k.kind, Kind::kColumn);
  EXPECT_EQ(k.lanes, 4);
  EXPECT_FALSE(k.body.reduced[static_cast<size_t>(k.vector_var)]);
  const ScheduledKernel cpu = Only(Rows("f32", 64, 65536, kColumnSum), Target::Cpu());
  EXPECT_EQ(cpu.kind, Kind::kColumn);
  EXPECT_EQ(cpu.description, "column, tiles of 64 columns");
}

TEST(ScheduleKernelTest, SplitReductionsBecomeTwoKernels) {
  const std::vector<ScheduledKernel> kernels =
      ScheduleText("graph g(x: f32[16777216]) {\n%y = sum(x)\nreturn %y\n}\n", Target::Cuda(90));
  ASSERT_EQ(kernels.size(), 2u);
  EXPECT_THAT(kernels[0].description, StartsWith("split into 512 pieces: "));
  EXPECT_THAT(kernels[1].description, StartsWith("combine 512 pieces: "));
}

TEST(ScheduleKernelTest, IndicesAreWideWhereTheyMustBe) {
  EXPECT_FALSE(Only(Rows("f32", 32768, 32768, kNeg)).wide_index);
  EXPECT_TRUE(Only(Rows("f32", 65536, 32768, kNeg)).wide_index);
  // One row of a large strided input: few elements, far apart.
  EXPECT_TRUE(Only("graph g(x: f32[4, 8]{1073741824, 1}) {\n%y = neg(x)\nreturn %y\n}\n").wide_index);
}

// Division and remainder have small results, but their numerators are computed in the same type. Here 3145728 * d0
// reaches 7.5e9.
TEST(ScheduleKernelTest, IndicesAreWideWhereANumeratorIs) {
  const ScheduledKernel k = Only(
      "graph g(x: f32[7]) {\n%b = broadcast_to(x) {shape = [1073741824, 7]}\n%r = reshape(%b) {shape = [7516192768]}\n"
      "%s = slice(%r) {starts = [0], ends = [7516192768], steps = [3145728]}\n%y = neg(%s)\nreturn %y\n}\n");
  EXPECT_TRUE(k.wide_index);
}

// A value stored in another order than the loops of the group that it joined: its own loops need no division.
TEST(ScheduleKernelTest, DISABLED_TransposedStoreTakesTheLoopsOfWhatIsStored) {
  const ScheduledKernel k = Only(
      "graph g(x: f32[100, 48], y: f32[48, 100]) {\n%n = neg(x)\n%p = permute(%n) {dims = [1, 0]}\n%s = mul(%p, "
      "y)\nreturn %s\n}\n");
  for (const BodyInstr& i : k.body.instrs)
    EXPECT_EQ(i.offset.ToString().find('%'), std::string::npos) << i.offset.ToString();
}

const char* const kRepresentative[] = {
    "graph g(x: f32[1000]) {\n%y = neg(x)\nreturn %y\n}\n",
    "graph g(x: bf16[33, 24], w: bf16[24], b: f32[33, 1]) {\n%m = mul(x, w)\n%c = cast(%m) {dtype = f32}\n%y = add(%c, "
    "b)\nreturn %y, %m\n}\n",
    "graph g(x: f32[10, 12, 14]) {\n%p = permute(x) {dims = [0, 2, 1]}\n%y = exp(%p)\nreturn %y\n}\n",
    "graph g(x: f32[64, 1000]) {\n%y = softmax(x) {dim = -1}\nreturn %y\n}\n",
    "graph g(x: f32[64, 1000]) {\n%y = softmax(x) {dim = 0}\nreturn %y\n}\n",
    "graph g(x: bf16[16, 48, 8, 8], w: bf16[48], b: bf16[48]) {\n%y = group_norm(x, w, b) {groups = 6}\nreturn %y\n}\n",
    "graph g(x: f32[100000]) {\n%e = exp(x)\n%y = sum(%e)\nreturn %y, %e\n}\n",
    "graph g(x: bf16[20001, 24]) {\n%y = sum(x) {dims = [0]}\n%a = argmax(x) {dim = 0}\nreturn %y, %a\n}\n",
    "graph g(x: f32[6, 35]) {\n%n = neg(x)\n%p = permute(%n) {dims = [1, 0]}\n%r = reshape(%p) {shape = [10, 21]}\n%s "
    "= sum(%r) {dims = [1]}\nreturn %s\n}\n",
    "graph g(x: f32[3, 5]) {\n%s = slice(x) {starts = [1], ends = [5], dims = [1]}\n%y = mul(%s, 2.0)\nreturn %y\n}\n",
    "graph g(x: f32[]) {\n%y = exp(x)\nreturn %y\n}\n",
    "graph g(x: f32[1, 1]) {\n%y = sum(x)\nreturn %y\n}\n",
    "graph g(x: f32[5, 0]) {\n%y = sum(x) {dims = [1]}\nreturn %y\n}\n",
};

template <typename Visit>
void ForEachPoint(const std::vector<int64_t>& extents, Visit visit) {
  std::vector<int64_t> at(extents.size(), 0);
  for (int64_t n = 0; n < 4000; ++n) {  // the first few thousand
    visit(at);
    size_t d = extents.size();
    while (d > 0 && ++at[d - 1] >= extents[d - 1]) at[--d] = 0;
    if (d == 0) return;
  }
}

TEST(ScheduleKernelTest, EveryVectorAccessIsAlignedAndContiguous) {
  for (const char* text : kRepresentative) {
    for (const ScheduledKernel& k : ScheduleText(text, Target::Cuda(90))) {
      const auto check = [&](const IndexExpr& offset) {
        ForEachPoint(k.body.extents, [&](const std::vector<int64_t>& point) {
          if (point[static_cast<size_t>(k.vector_var)] % k.lanes != 0) return;
          std::vector<int64_t> at = point;
          const int64_t base = lowering::EvaluateIndex(offset, at);
          ASSERT_EQ(base % k.lanes, 0) << text << offset.ToString();
          for (int64_t lane = 1; lane < k.lanes; ++lane) {
            ++at[static_cast<size_t>(k.vector_var)];
            ASSERT_EQ(lowering::EvaluateIndex(offset, at), base + lane) << text << offset.ToString();
          }
        });
      };
      for (size_t i = 0; i < k.vector_load.size(); ++i) {
        if (k.vector_load[i]) check(k.body.instrs[i].offset);
      }
      for (size_t s = 0; s < k.vector_store.size(); ++s) {
        if (k.vector_store[s]) check(k.body.stores[s].offset);
      }
    }
  }
}

TEST(ScheduleKernelTest, EveryScheduleKeepsWithinTheMachine) {
  for (const char* text : kRepresentative) {
    for (const ScheduledKernel& k : ScheduleText(text, Target::Cuda(90))) {
      SCOPED_TRACE(StrCat(text, k.description));
      EXPECT_GE(k.dims.block[0], 1);
      EXPECT_LE(k.dims.block[0], 1024);
      EXPECT_GE(k.dims.grid[0], k.body.row_count() == 0 ? 0 : 1);
      EXPECT_EQ(k.threads_per_row & (k.threads_per_row - 1), 0);
      if (k.vector_var >= 0) {
        EXPECT_EQ(k.body.extents[static_cast<size_t>(k.vector_var)] % k.lanes, 0);
      }
      if (k.kind == Kind::kRow) {
        EXPECT_EQ(k.dims.block[0], static_cast<int64_t>(k.threads_per_row) * k.rows_per_block);
        EXPECT_GE(k.dims.grid[0] * k.rows_per_block, k.body.row_count());
      }
      if (k.kind == Kind::kColumn) {
        EXPECT_GE(k.dims.grid[0] * k.rows_per_block * k.lanes, k.body.row_count());
      }
      if (k.kind == Kind::kPointwise) {
        EXPECT_GE(k.dims.grid[0] * k.dims.block[0] * k.lanes, k.body.row_count());
      }
      // Row loops first, reduced ones after, the vector loop last of its kind.
      for (size_t i = 1; i < k.body.reduced.size(); ++i) EXPECT_LE(k.body.reduced[i - 1], k.body.reduced[i]);
      if (k.vector_var >= 0) {
        const size_t next = static_cast<size_t>(k.vector_var) + 1;
        EXPECT_TRUE(next == k.body.reduced.size() || k.body.reduced[next] != k.body.reduced[next - 1]);
      }
    }
    for (const ScheduledKernel& k : ScheduleText(text, Target::Cpu())) {
      SCOPED_TRACE(StrCat(text, k.description));
      EXPECT_GE(k.work_grain, 1);
      EXPECT_GE(k.work_items, k.body.row_count() == 0 ? 0 : 1);
      EXPECT_LE(k.work_items, std::max<int64_t>(k.body.row_count(), 1));
    }
  }
}

}  // namespace
}  // namespace fuseline::codegen
