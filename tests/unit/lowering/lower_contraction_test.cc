// Contractions and pooling as loops: they compute what the reference interpreter does.
#include <algorithm>
#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "common/ir/text_form.h"
#include "common/status/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/lowering/lower_graph.h"
#include "server/reference/reference_interpreter.h"
#include "tests/testing/status_matchers.h"
#include "tests/unit/lowering/loop_interpreter.h"

namespace fuseline::lowering {
namespace {

using testing::IsOk;

// Small integers, whose sums of products are exact.
std::vector<Tensor> SmallIntegers(const Graph& graph) {
  std::mt19937 random(11);
  std::vector<Tensor> out;
  for (ValueId id : graph.inputs) {
    Tensor t = Tensor::Allocate(graph.type(id).dtype, graph.type(id).shape());
    for (int64_t i = 0; i < t.element_count(); ++i) {
      const int value = static_cast<int>(random() % 9) - 4;
      t.SetDouble(i, t.dtype() == DType::kU8 || t.dtype() == DType::kBool ? std::abs(value) % 4 : value);
    }
    out.push_back(std::move(t));
  }
  return out;
}

struct Case {
  const char* inputs;
  const char* statement;  // gives %y
  double tolerance = 0;
};

void ExpectLoopsComputeTheGraph(const Case& c, const CompileOptions& options = {}) {
  const std::string text = StrCat("graph g(", c.inputs, ") {\n  %y = ", c.statement, "\n  return %y\n}\n");
  SCOPED_TRACE(text);
  const absl::StatusOr<Graph> graph = ParseGraph(text);
  ASSERT_THAT(graph.status(), IsOk());
  const std::vector<Tensor> inputs = SmallIntegers(*graph);
  const absl::StatusOr<std::vector<Tensor>> want = reference::Interpret(*graph, inputs, options);
  ASSERT_THAT(want.status(), IsOk());
  const absl::StatusOr<LoopProgram> loops = LowerGraph(*graph, options);
  ASSERT_THAT(loops.status(), IsOk());
  const absl::StatusOr<std::vector<Tensor>> got = RunLoopProgram(*loops, inputs);
  ASSERT_THAT(got.status(), IsOk()) << PrintLoopProgram(*loops);
  ASSERT_EQ((*got)[0].dtype(), (*want)[0].dtype());
  ASSERT_EQ((*got)[0].element_count(), (*want)[0].element_count());
  int wrong = 0;
  for (int64_t i = 0; i < (*want)[0].element_count() && wrong < 3; ++i) {
    const double a = (*got)[0].GetDouble(i), b = (*want)[0].GetDouble(i);
    const bool same = (std::isnan(a) && std::isnan(b)) || a == b || std::fabs(a - b) <= c.tolerance * std::fabs(b);
    EXPECT_TRUE(same) << "element " << i << ": " << a << ", not " << b << "\n" << PrintLoopProgram(*loops);
    wrong += !same;
  }
}

TEST(LowerContractionTest, MatrixProductsFollowNumPysRules) {
  const Case cases[] = {
      {"a: f32[3, 4], b: f32[4, 5]", "matmul(a, b)"},
      {"a: f32[4], b: f32[4, 5]", "matmul(a, b)"},
      {"a: f32[3, 4], b: f32[4]", "matmul(a, b)"},
      {"a: f32[4], b: f32[4]", "matmul(a, b)"},
      {"a: f32[2, 1, 3, 4], b: f32[5, 4, 2]", "matmul(a, b)"},
      {"a: f32[4], b: f32[3, 4, 2]", "matmul(a, b)"},
      {"a: f32[3, 2, 4], b: f32[4]", "matmul(a, b)"},
      {"a: f32[3, 0], b: f32[0, 2]", "matmul(a, b)"},
      {"a: f32[0, 3, 2], b: f32[2, 3]", "matmul(a, b)"},
      {"a: f32[1, 1], b: f32[1, 1]", "matmul(a, b)"},
      {"a: f64[3, 4], b: f64[4, 5]", "matmul(a, b)"},
      {"a: f16[3, 4], b: f16[4, 5]", "matmul(a, b) {dtype = f32}"},
      {"a: bf16[3, 40], b: bf16[40, 5]", "matmul(a, b)"},
      {"a: f8e4m3[3, 4], b: f8e4m3[4, 5]", "matmul(a, b) {dtype = bf16}"},
      {"a: i8[3, 40], b: i8[40, 5]", "matmul(a, b) {dtype = i32}"},
      {"a: i32[3, 4], b: i32[4, 5]", "matmul(a, b)"},
      {"x: f32[2, 3, 4], w: f32[5, 4]", "linear(x, w)"},
      {"x: f32[4], w: f32[5, 4], b: f32[5]", "linear(x, w, b)"},
      {"x: bf16[2, 33], w: bf16[5, 33], b: bf16[5]", "linear(x, w, b)"},
      {"x: u8[3, 4], w: u8[5, 4], b: i32[5]", "linear(x, w, b) {dtype = i32}"},
  };
  for (const Case& c : cases) {
    ExpectLoopsComputeTheGraph(c);
    CompileOptions eager;
    eager.numerics = Numerics::kEager;
    ExpectLoopsComputeTheGraph(c, eager);
  }
}

TEST(LowerContractionTest, EinsumTakesDiagonalsEllipsesAndManyOperands) {
  const Case cases[] = {
      {"a: f32[2, 3], b: f32[3, 4]", R"(einsum(a, b) {equation = "ij,jk->ik"})"},
      {"a: f32[2, 3], b: f32[3, 4]", R"(einsum(a, b) {equation = "ij, jk"})"},
      {"a: f32[2, 3], b: f32[3, 4]", R"(einsum(a, b) {equation = "ba,ac"})"},
      {"a: f32[3, 3]", R"(einsum(a) {equation = "ii->i"})"},
      {"a: f32[3, 3]", R"(einsum(a) {equation = "ii"})"},
      {"a: f32[2, 3]", R"(einsum(a) {equation = "ij->ji"})"},
      {"a: f32[2, 3, 4]", R"(einsum(a) {equation = "...j->j"})"},
      {"a: f32[2], b: f32[3]", R"(einsum(a, b) {equation = "i,j->ij"})"},
      {"a: f32[5, 2, 3], b: f32[1, 3, 4]", R"(einsum(a, b) {equation = "...ij,...jk->...ik"})"},
      {"a: f32[5, 2, 3], b: f32[3, 4]", R"(einsum(a, b) {equation = "...ij,jk"})"},
      {"a: f32[2, 3], b: f32[3, 4], c: f32[4, 5]", R"(einsum(a, b, c) {equation = "ij,jk,kl->il"})"},
      {"a: f16[2, 3], b: f16[3, 4], c: f16[4, 2]", R"(einsum(a, b, c) {equation = "ij,jk,ki->"})"},
      {"a: f32[2, 1], b: f32[3, 4]", R"(einsum(a, b) {equation = "ij,jk->ik"})"},
      {"a: f32[3, 3, 4], b: f32[4]", R"(einsum(a, b) {equation = "iij,j->i"})"},
      {"a: f32[2, 0], b: f32[0, 4]", R"(einsum(a, b) {equation = "ij,jk->ik"})"},
      {"a: i8[2, 3], b: i8[3, 4]", R"(einsum(a, b) {equation = "ij,jk->ki", dtype = i32})"},
  };
  for (const Case& c : cases) ExpectLoopsComputeTheGraph(c);
}

TEST(LowerContractionTest, ConvolutionsPadDilateAndGroup) {
  const Case cases[] = {
      {"x: f32[2, 3, 8], w: f32[4, 3, 3]", "conv(x, w)"},
      {"x: f32[2, 3, 8], w: f32[4, 3, 3], b: f32[4]", "conv(x, w, b) {padding = [1], strides = [2]}"},
      {"x: f32[1, 2, 5, 6], w: f32[3, 2, 3, 2]", "conv(x, w) {padding = [1, 0], dilation = [2, 1]}"},
      {"x: f32[1, 2, 5, 6], w: f32[3, 2, 3, 2]", "conv(x, w) {padding = [1, 0, 2, 1], strides = [1, 2]}"},
      {"x: f32[2, 4, 5, 5], w: f32[6, 2, 3, 3], b: f32[6]", "conv(x, w, b) {groups = 2, padding = [1]}"},
      {"x: f32[2, 4, 6], w: f32[4, 1, 3]", "conv(x, w) {groups = 4, padding = [2]}"},
      {"x: f32[1, 1, 3, 4, 5], w: f32[2, 1, 2, 2, 2]", "conv(x, w) {padding = [1], strides = [2, 1, 2]}"},
      {"x: f16[1, 2, 8], w: f16[2, 2, 1]", "conv(x, w)"},
      {"x: i8[1, 2, 8], w: i8[2, 2, 3]", "conv(x, w) {dtype = i32, padding = [1]}"},
      {"x: f32[0, 2, 8], w: f32[2, 2, 3]", "conv(x, w)"},
      {"x: f32[1, 0, 8], w: f32[2, 0, 3], b: f32[2]", "conv(x, w, b)"},
  };
  for (const Case& c : cases) ExpectLoopsComputeTheGraph(c);
}

TEST(LowerContractionTest, TransposedConvolutionsSpreadWhatTheyTake) {
  const Case cases[] = {
      {"x: f32[2, 3, 5], w: f32[3, 4, 3]", "conv_transpose(x, w)"},
      {"x: f32[2, 3, 5], w: f32[3, 4, 3], b: f32[4]", "conv_transpose(x, w, b) {strides = [2], padding = [1]}"},
      {"x: f32[1, 2, 4, 3], w: f32[2, 2, 3, 2]",
       "conv_transpose(x, w) {strides = [2, 3], output_padding = [1, 2], padding = [1, 0]}"},
      {"x: f32[1, 4, 4], w: f32[4, 2, 3], b: f32[4]", "conv_transpose(x, w, b) {groups = 2, dilation = [2]}"},
      {"x: f32[1, 2, 4, 3], w: f32[2, 1, 2, 2]", "conv_transpose(x, w) {padding = [0, 1, 1, 0], strides = [2]}"},
      {"x: f32[1, 1, 1], w: f32[1, 1, 1]", "conv_transpose(x, w) {strides = [4], output_padding = [3]}"},
  };
  for (const Case& c : cases) ExpectLoopsComputeTheGraph(c);
}

TEST(LowerContractionTest, PoolingTakesWindows) {
  const Case cases[] = {
      {"x: f32[2, 3, 8]", "max_pool(x) {kernel = [2]}"},
      {"x: f32[2, 7, 9]", "max_pool(x) {kernel = [3, 2], strides = [2, 1], padding = [1, 1]}"},
      {"x: f32[1, 9]", "max_pool(x) {kernel = [3], dilation = [2], padding = [1], strides = [2], ceil_mode = true}"},
      {"x: i8[1, 9]", "max_pool(x) {kernel = [3], padding = [1]}"},
      {"x: u8[1, 9]", "max_pool(x) {kernel = [3], padding = [1, 2]}"},
      {"x: f32[1, 2, 4, 5, 6]", "max_pool(x) {kernel = [2, 3, 2], padding = [1]}"},
      {"x: f32[2, 8]", "avg_pool(x) {kernel = [2]}", 1e-6},
      {"x: f32[2, 7, 9]", "avg_pool(x) {kernel = [3, 3], padding = [1], strides = [2]}", 1e-6},
      {"x: f32[2, 7, 9]", "avg_pool(x) {kernel = [3, 2], padding = [1], count_include_pad = false}", 1e-6},
      {"x: f32[2, 10, 9]", "avg_pool(x) {kernel = [3, 4], padding = [1], strides = [3], ceil_mode = true}", 1e-6},
      {"x: f32[2, 10]", "avg_pool(x) {kernel = [3], padding = [1], strides = [2], dilation = [3]}", 1e-6},
      {"x: f32[2, 10]", "avg_pool(x) {kernel = [3], padding = [2, 1], dilation = [3], count_include_pad = false}",
       1e-6},
      {"x: bf16[2, 8]", "avg_pool(x) {kernel = [3]}", 1e-2},
      {"x: f32[2, 8]", "lp_pool(x) {kernel = [3]}", 1e-6},
      {"x: f32[2, 8]", "lp_pool(x) {kernel = [3], p = 1, padding = [1]}", 1e-6},
      {"x: f32[2, 8]", "lp_pool(x) {kernel = [2], p = 3}", 1e-5},
      {"x: f32[2, 7, 9]", "adaptive_avg_pool(x) {output_size = [3, 4]}", 1e-6},
      {"x: f32[2, 8]", "adaptive_avg_pool(x) {output_size = [4]}", 1e-6},
      {"x: f32[2, 3]", "adaptive_avg_pool(x) {output_size = [7]}", 1e-6},
      {"x: f32[2, 3]", "adaptive_avg_pool(x) {output_size = [0]}"},
      {"x: f32[2, 5, 5]", "adaptive_avg_pool(x) {output_size = [1, 1]}", 1e-6},
  };
  for (const Case& c : cases) ExpectLoopsComputeTheGraph(c);
}

TEST(LowerContractionTest, AttentionMasksRowsAndGroupsHeads) {
  const Case cases[] = {
      {"q: f32[3, 4], k: f32[5, 4], v: f32[5, 2]", "attention(q, k, v)", 1e-5},
      {"q: f32[2, 3, 4], k: f32[2, 5, 4], v: f32[2, 5, 2]", "attention(q, k, v) {causal = true, scale = 0.25}", 1e-5},
      {"q: f32[1, 6, 3, 4], k: f32[1, 2, 5, 4], v: f32[1, 2, 5, 4]", "attention(q, k, v)", 1e-5},
      {"q: f32[1, 6, 3, 4], k: f32[1, 2, 5, 4], v: f32[1, 2, 5, 4], m: bool[6, 3, 5]", "attention(q, k, v, m)", 1e-5},
      {"q: f32[2, 3, 4], k: f32[2, 5, 4], v: f32[2, 5, 2], m: bool[3, 5]", "attention(q, k, v, m)", 1e-5},
      {"q: f32[2, 3, 4], k: f32[2, 5, 4], v: f32[2, 5, 2], m: f32[2, 1, 5]", "attention(q, k, v, m)", 1e-5},
      {"q: bf16[3, 4], k: bf16[5, 4], v: bf16[5, 2]", "attention(q, k, v)", 1e-2},
      {"q: f32[3, 4], k: f32[0, 4], v: f32[0, 2]", "attention(q, k, v)"},
  };
  for (const Case& c : cases) ExpectLoopsComputeTheGraph(c);
}

}  // namespace
}  // namespace fuseline::lowering
