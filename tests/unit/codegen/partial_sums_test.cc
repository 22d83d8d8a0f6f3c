// Under numerics = eager, the order in which a reduction combines follows from its own shape: how its kernel is
// scheduled must not change the number of partial sums.
#include "server/codegen/schedule/partial_sums.h"

#include <algorithm>
#include <string>
#include <vector>

#include "common/status/str_cat.h"
#include "gtest/gtest.h"
#include "tests/unit/codegen/plan_builder.h"

namespace fuseline::codegen {
namespace {

using lowering::Accumulation;

std::vector<ScheduledKernel> Schedule(const std::string& text, const Target& target, Numerics numerics, bool fuse) {
  CompileOptions options;
  options.numerics = numerics;
  options.fuse = fuse;
  return ScheduleAll(BuildPlan(text, target, options), target);
}

// Of each pinned reduction: its order, in words. Sorted.
std::vector<std::string> Orders(const std::vector<ScheduledKernel>& kernels) {
  std::vector<std::string> out;
  for (const ScheduledKernel& k : kernels) {
    for (const BodyReduction& r : k.body.reductions) {
      if (r.accumulation == Accumulation::kFree) continue;
      if (r.accumulation == Accumulation::kChained) {
        out.push_back("chained");
        continue;
      }
      EXPECT_NE(k.kind, ScheduledKernel::Kind::kTile);
      if (k.kind == ScheduledKernel::Kind::kRow && !k.body.reduced_vars().empty() && k.dims.block[0] > 1) {
        EXPECT_EQ(k.threads_per_row * k.lanes, k.partial_sums) << k.description;
      }
      // One sum alone is the same down a column and along a row.
      const char* kind = k.partial_sums == 1                        ? ""
                         : k.kind == ScheduledKernel::Kind::kColumn ? " of a column"
                                                                    : " of a row";
      out.push_back(StrCat(k.partial_sums, kind, " over ", k.body.reduced_count()));
    }
  }
  std::sort(out.begin(), out.end());
  return out;
}

TEST(PartialSumsTest, TheirNumberFollowsFromTheShape) {
  struct Case {
    const char* text;
    const char* cpu;
    const char* cuda;
  };
  const Case cases[] = {
      {"graph (x: f32[1000, 4096]) {\n  %s = sum(x) {dims = [1]}\n  return %s\n}", "64 of a row over 4096",
       "512 of a row over 4096"},
      {"graph (x: f16[1000, 100]) {\n  %s = sum(x) {dims = [1]}\n  return %s\n}", "16 of a row over 100",
       "16 of a row over 100"},
      {"graph (x: f64[1000, 7]) {\n  %s = prod(x) {dims = [1]}\n  return %s\n}", "1 over 7", "1 over 7"},
      {"graph (x: f32[512, 100000]) {\n  %s = sum(x) {dims = [0]}\n  return %s\n}", "1 over 512",
       "8 of a column over 512"},
      // Two dims that do not become one loop are one row.
      {"graph (x: f32[9, 700, 100]) {\n  %s = sum(x) {dims = [0, 2]}\n  return %s\n}", "64 of a row over 900",
       "128 of a row over 900"},
      {"graph (a: f32[64, 64], b: f32[64, 64]) {\n  %s = matmul(a, b)\n  return %s\n}", "chained", "chained"},
      {"graph (a: f32[2, 4096], b: f32[4096, 3]) {\n  %s = matmul(a, b)\n  return %s\n}", "64 of a row over 4096",
       "512 of a row over 4096"},
  };
  for (const Case& c : cases) {
    EXPECT_EQ(Orders(Schedule(c.text, Target::Cpu(), Numerics::kEager, true)), std::vector<std::string>{c.cpu})
        << c.text;
    EXPECT_EQ(Orders(Schedule(c.text, Target::Cuda(90), Numerics::kEager, true)), std::vector<std::string>{c.cuda})
        << c.text;
    EXPECT_TRUE(Orders(Schedule(c.text, Target::Cuda(90), Numerics::kFused, true)).empty()) << c.text;
  }
}

TEST(PartialSumsTest, WhatDoesNotShowInTheBitsIsFree) {
  for (const char* op : {"amax", "argmin", "any"}) {
    const std::string text = StrCat("graph (x: f32[64, 4096]) {\n  %s = ", op, "(x)\n  return %s\n}");
    EXPECT_TRUE(Orders(Schedule(text, Target::Cpu(), Numerics::kEager, true)).empty()) << text;
  }
  const char* integers = "graph (x: i32[64, 4096]) {\n  %s = sum(x) {dims = [1]}\n  return %s\n}";
  EXPECT_TRUE(Orders(Schedule(integers, Target::Cpu(), Numerics::kEager, true)).empty());
}

TEST(PartialSumsTest, FusionDoesNotChangeThem) {
  const char* texts[] = {
      // Would become tiles: the product of the two is a value of its own in op-by-op execution.
      "graph (x: f32[64, 1, 256], y: f32[1, 64, 256]) {\n  %p = mul(x, y)\n  %s = sum(%p) {dims = [2]}\n  return %s\n}",
      // Read along the kept dim, and stored in 16 bits: other lanes, another loop for them.
      "graph (x: f32[512, 96]) {\n  %t = transpose(x) {dim0 = 0, dim1 = 1}\n  %e = exp(%t)\n  %h = cast(%e) {dtype = "
      "f16}\n"
      "  %s = sum(%e) {dims = [1]}\n  return s = %s, h = %h\n}",
      // A reshape cuts the rows into loops that are not one.
      "graph (x: f32[40, 24, 50]) {\n  %t = transpose(x) {dim0 = 0, dim1 = 1}\n  %c = exp(%t)\n"
      "  %r = reshape(%c) {shape = [24, 2000]}\n  %s = sum(%r) {dims = [1]}\n  return s = %s\n}",
      // Long rows, split; columns, split.
      "graph (x: f32[2, 100, 1000]) {\n  %e = exp(x)\n  %s = sum(%e) {dims = [1, 2]}\n  return s = %s\n}",
      "graph (x: f32[40000, 30]) {\n  %e = exp(x)\n  %s = sum(%e) {dims = [0]}\n  %y = log(%s)\n  return s = %y\n}",
      // A factor that no longer depends on its rows.
      "graph (b: f32[64], w: f32[64, 64]) {\n  %o = full() {shape = [64, 64], value = 2.0, dtype = f32}\n"
      "  %a = mul(%o, b)\n  %y = matmul(%a, w)\n  %z = relu(%y)\n  return %z\n}",
      "graph (x: f16[8, 300]) {\n  %y = softmax(x) {dim = 1}\n  %n = rms_norm(%y)\n  return %n\n}",
      "graph (x: f32[2, 3, 9, 9]) {\n  %e = exp(x)\n  %p = avg_pool(%e) {kernel = [3, 3]}\n  return %p\n}",
  };
  for (const char* text : texts) {
    for (const Target& target : {Target::Cpu(), Target::Cuda(90)}) {
      const std::vector<std::string> alone = Orders(Schedule(text, target, Numerics::kEager, false));
      EXPECT_EQ(Orders(Schedule(text, target, Numerics::kEager, true)), alone) << target.ToString() << "\n" << text;
      EXPECT_FALSE(alone.empty()) << text;
    }
  }
}

}  // namespace
}  // namespace fuseline::codegen
