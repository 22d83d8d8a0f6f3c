// resize: the type rule, the reference against values worked out by hand or published with ONNX's operator, and the
// loops against the reference.
#include <cmath>
#include <string>
#include <vector>

#include "common/ir/text_form.h"
#include "common/status/str_cat.h"
#include "gtest/gtest.h"
#include "server/lowering/lower_graph.h"
#include "server/reference/reference_interpreter.h"
#include "tests/testing/status_matchers.h"
#include "tests/unit/lowering/loop_interpreter.h"

namespace fuseline::lowering {
namespace {

using testing::IsOk;
using testing::StatusIs;

struct Results {
  std::vector<double> reference, loops;
  size_t nodes = 0;
};

// x holds 1, 2, 3, …
Results Resize(const std::string& type, const std::string& attrs) {
  const std::string text = StrCat("graph g(x: ", type, ") {\n  %r = resize(x) {", attrs, "}\n  return %r\n}\n");
  const absl::StatusOr<Graph> graph = ParseGraph(text);
  EXPECT_THAT(graph.status(), IsOk()) << text;
  if (!graph.ok()) return {};
  Tensor x = Tensor::Allocate(graph->type(0).dtype, graph->type(0).shape());
  for (int64_t i = 0; i < x.element_count(); ++i) x.SetDouble(i, static_cast<double>(i + 1));
  const auto want = reference::Interpret(*graph, {x}, {});
  const auto loops = LowerGraph(*graph, {});
  EXPECT_THAT(want.status(), IsOk()) << text;
  EXPECT_THAT(loops.status(), IsOk()) << text;
  if (!want.ok() || !loops.ok()) return {};
  const auto got = RunLoopProgram(*loops, {x});
  EXPECT_THAT(got.status(), IsOk()) << text;
  if (!got.ok()) return {};
  Results results;
  results.nodes = loops->nodes.size();
  for (int64_t i = 0; i < (*want)[0].element_count(); ++i) {
    results.reference.push_back((*want)[0].GetDouble(i));
    results.loops.push_back((*got)[0].GetDouble(i));
  }
  return results;
}

void ExpectNear(const std::vector<double>& got, const std::vector<double>& want, const std::string& what) {
  ASSERT_EQ(got.size(), want.size()) << what;
  for (size_t i = 0; i < want.size(); ++i) EXPECT_NEAR(got[i], want[i], 2e-6 * (1 + std::fabs(want[i]))) << what << i;
}

// The examples of ONNX's documentation of Resize, whose x is [[1, 2, 3, 4], …] or [[1, 2], [3, 4]].
TEST(LowerResizeTest, PublishedExamplesAreMet) {
  const struct {
    const char* type;
    const char* attrs;
    std::vector<double> want;
  } cases[] = {
      {"f32[2, 2]", "sizes = [4, 6], scales = [2.0, 3.0]", {1, 1, 1, 2, 2, 2, 1, 1, 1, 2, 2, 2,
                                                            3, 3, 3, 4, 4, 4, 3, 3, 3, 4, 4, 4}},
      {"f32[2, 4]", "sizes = [1, 2], scales = [0.6, 0.6]", {1, 3}},
      {"f32[2, 2]",
       "sizes = [4, 4], mode = \"linear\"",
       {1, 1.25, 1.75, 2, 1.5, 1.75, 2.25, 2.5, 2.5, 2.75, 3.25, 3.5, 3, 3.25, 3.75, 4}},
      {"f32[2, 2]",
       "sizes = [4, 4], mode = \"linear\", coordinate_transformation_mode = \"align_corners\"",
       {1, 4 / 3.0, 5 / 3.0, 2, 5 / 3.0, 2, 7 / 3.0, 8 / 3.0, 7 / 3.0, 8 / 3.0, 3, 10 / 3.0, 3, 10 / 3.0, 11 / 3.0, 4}},
      {"f32[2, 4]", "sizes = [1, 2], scales = [0.6, 0.6], mode = \"linear\"", {2.6666665, 4.3333331}},
      {"f32[2, 4]",
       "sizes = [1, 2], scales = [0.6, 0.6], mode = \"linear\", coordinate_transformation_mode = \"align_corners\"",
       {1, 4}},
  };
  for (const auto& c : cases) ExpectNear(Resize(c.type, c.attrs).reference, c.want, c.attrs);
}

TEST(LowerResizeTest, CubicReproducesALineInside) {
  const Results r = Resize("f64[8]", "sizes = [16], mode = \"cubic\", cubic_coeff_a = -0.5");
  for (size_t o = 4; o < 12; ++o) EXPECT_NEAR(r.reference[o], 1 + (static_cast<double>(o) + 0.5) / 2 - 0.5, 1e-12);
}

TEST(LowerResizeTest, LoopsComputeWhatTheReferenceDoes) {
  for (const char* type : {"f32[3, 5]", "f64[4, 4]", "f32[1, 7]"}) {
    for (const char* mode : {"nearest", "linear", "cubic"}) {
      for (const char* transform :
           {"half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "align_corners", "asymmetric"}) {
        for (const char* sizes : {"[6, 7]", "[2, 3]", "[3, 1]", "[1, 12], scales = [0.4, 1.7]"}) {
          const std::string attrs = StrCat("sizes = ", sizes, ", mode = \"", mode,
                                           "\", coordinate_transformation_mode = \"", transform, "\"");
          const Results r = Resize(type, attrs);
          ExpectNear(r.loops, r.reference, StrCat(type, attrs));
        }
      }
    }
    for (const char* rounding : {"round_prefer_floor", "round_prefer_ceil", "floor", "ceil"}) {
      for (const char* transform : {"half_pixel", "align_corners", "asymmetric"}) {
        const std::string attrs = StrCat("sizes = [8, 4], nearest_mode = \"", rounding,
                                         "\", coordinate_transformation_mode = \"", transform, "\"");
        const Results r = Resize(type, attrs);
        EXPECT_EQ(r.loops, r.reference) << attrs;
      }
    }
    const Results r = Resize(type, "sizes = [8, 4], mode = \"cubic\", exclude_outside = true");
    ExpectNear(r.loops, r.reference, "exclude_outside");
  }
}

TEST(LowerResizeTest, EveryDTypeIsTakenByNearest) {
  for (const char* type : {"u8[3]", "bool[3]", "f8e4m3[3]", "bf16[3]", "i64[3]"}) {
    const Results r = Resize(type, "sizes = [7], nearest_mode = \"ceil\"");
    EXPECT_EQ(r.loops, r.reference) << type;
    EXPECT_EQ(r.reference.size(), 7u) << type;
  }
}

TEST(LowerResizeTest, EmptyResultsAreTaken) {
  EXPECT_TRUE(Resize("f32[2, 3]", "sizes = [0, 6], mode = \"cubic\"").loops.empty());
  EXPECT_TRUE(Resize("f32[0, 3]", "sizes = [0, 6]").loops.empty());
}

TEST(LowerResizeTest, WhatItCannotDoIsRefused) {
  const struct {
    const char* attrs;
    const char* message;
  } cases[] = {
      {"sizes = [4]", "one size for each of the 2 dims"},
      {"sizes = [4, -1]", "negative size"},
      {"sizes = [4, 4], mode = \"area\"", "attribute 'mode' must be one of"},
      {"sizes = [4, 4], coordinate_transformation_mode = \"tf_crop_and_resize\"", "must be one of"},
      {"sizes = [4, 4], nearest_mode = \"up\"", "attribute 'nearest_mode' must be one of"},
      {"sizes = [4, 4], scales = [2.0]", "one number for each of the 2 dims"},
      {"sizes = [4, 4], scales = [2.0, nan]", "is not 0 or between"},
      {"sizes = [4, 4], scales = [-1.0, 2.0]", "is not 0 or between"},
      {"sizes = [4, 4], mode = \"linear\"", "takes f64, f32, f16 and bf16, not i32"},
  };
  for (const auto& c : cases) {
    const auto graph =
        ParseGraph(StrCat("graph g(x: i32[2, 2]) {\n  %r = resize(x) {", c.attrs, "}\n  return %r\n}\n"));
    EXPECT_THAT(graph.status(), StatusIs(absl::StatusCode::kInvalidArgument, c.message)) << c.attrs;
  }
}

}  // namespace
}  // namespace fuseline::lowering
