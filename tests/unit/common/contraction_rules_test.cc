// Types of contractions and windows, and what is refused.
#include <string>

#include "common/ir/text_form.h"
#include "common/status/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/status_matchers.h"

namespace fuseline {
namespace {

using ::fuseline::testing::StatusIs;
constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;

absl::StatusOr<Graph> Parse(const std::string& inputs, const std::string& op) {
  return ParseGraph(StrCat("graph g(", inputs, ") {\n  %y = ", op, "\n  return %y\n}"));
}

TEST(ContractionRulesTest, ResultTypesFollowFromOperandsAndAttributes) {
  const struct {
    const char* inputs;
    const char* op;
    const char* type;
  } kRows[] = {
      {"a: f32[7, 1, 3, 4], b: f32[5, 4, 2]", "matmul(a, b)", "f32[7, 5, 3, 2]"},
      {"a: f32[4], b: f32[4]", "matmul(a, b)", "f32[]"},
      {"a: f16[2, 4], b: f16[4, 3]", "matmul(a, b) {dtype = f32}", "f32[2, 3]"},
      {"a: u8[2, 4], b: u8[4, 3]", "matmul(a, b) {dtype = i32}", "i32[2, 3]"},
      {"a: f8e5m2[2, 4], b: f8e5m2[4, 3]", "matmul(a, b) {dtype = f16}", "f16[2, 3]"},
      {"a: f32[2, 4], b: f32[3, 4]", "linear(a, b)", "f32[2, 3]"},
      {"a: f32[2, 3, 4], b: f32[9, 4, 5]", R"(einsum(a, b) {equation = "b...ij, ...jk"})", "f32[9, 2, 3, 5]"},
      {"x: f32[2, 4, 8, 9], w: f32[6, 2, 3, 3]", "conv(x, w) {groups = 2, strides = [2], padding = [1, 0, 1, 1]}",
       "f32[2, 6, 4, 4]"},
      {"x: f32[2, 4, 8], w: f32[4, 3, 3]", "conv_transpose(x, w) {strides = [2], groups = 2, output_padding = [1]}",
       "f32[2, 6, 18]"},
      {"x: f32[2, 9]", "max_pool(x) {kernel = [2]}", "f32[2, 4]"},
      {"x: f32[2, 9]", "max_pool(x) {kernel = [2], ceil_mode = true}", "f32[2, 5]"},
      {"x: f32[2, 4, 5]", "adaptive_avg_pool(x) {output_size = [3, 1]}", "f32[2, 3, 1]"},
      {"q: f32[2, 6, 3, 4], k: f32[2, 2, 5, 4], v: f32[2, 2, 5, 7]", "attention(q, k, v)", "f32[2, 6, 3, 7]"},
  };
  for (const auto& row : kRows) {
    const auto graph = Parse(row.inputs, row.op);
    ASSERT_OK(graph) << row.op;
    EXPECT_EQ(graph->type(graph->outputs[0].value).ToString(), row.type) << row.op;
  }
}

TEST(ContractionRulesTest, WhatDoesNotFitIsRefused) {
  const struct {
    const char* inputs;
    const char* op;
    const char* message;
  } kRows[] = {
      {"a: f32[2, 3], b: f32[4, 5]", "matmul(a, b)", "shapes [2, 3] and [4, 5] do not multiply: 3 columns and 4 rows"},
      {"a: f32[], b: f32[4, 5]", "matmul(a, b)", "operands must have a dim at least"},
      {"a: f16[2, 4], b: f32[4, 5]", "matmul(a, b)", "operands have dtypes f16 and f32: insert a cast"},
      {"a: bool[2, 4], b: bool[4, 5]", "matmul(a, b)", "takes floats and integers, not bool"},
      {"a: f8e4m3[2, 4], b: f8e4m3[4, 5]", "matmul(a, b)", "attribute 'dtype' must name the result's dtype"},
      {"a: i8[2, 4], b: i8[4, 5]", "matmul(a, b) {dtype = f32}", "products of i8 are not summed in f32"},
      {"a: f32[2, 4], b: f32[4, 5]", "matmul(a, b) {dtype = f8e4m3}", "attribute 'dtype'"},
      {"a: f32[3, 2, 4], b: f32[2, 4, 5]", "matmul(a, b)", "do not broadcast"},
      {"a: f32[2, 4], b: f32[5, 4], c: f32[4]", "linear(a, b, c)", "the bias is f32[4], not f32[5]"},
      {"a: f32[2, 4], b: f32[4, 5]", "linear(a, b)", "not [out, in]"},
      {"a: f32[2, 4], b: f32[4, 5]", R"(einsum(a, b) {equation = "ij,jk->iz"})", "label 'z' is in no operand"},
      {"a: f32[2, 4], b: f32[4, 5]", R"(einsum(a, b) {equation = "ij,jk->ii"})", "has label 'i' twice"},
      {"a: f32[2, 4], b: f32[4, 5]", R"(einsum(a, b) {equation = "ij->i"})", "1 terms for 2 operands"},
      {"a: f32[2, 4], b: f32[4, 5]", R"(einsum(a, b) {equation = "ijk,jk->i"})", "3 labels for an operand of rank 2"},
      {"a: f32[2, 4], b: f32[3, 5]", R"(einsum(a, b) {equation = "ij,jk->ik"})", "a label stands for sizes 4 and 3"},
      {"a: f32[2, 4], b: f32[4, 5]", R"(einsum(a, b) {equation = "i1,jk->ik"})", "'1' is neither a letter"},
      {"a: f32[2, 4]", R"(einsum(a) {equation = "......->"})", "nor a single"},
      {"x: f32[1, 2, 4], w: f32[3, 3, 3]", "conv(x, w)", "a weight f32[3, 3, 3] does not fit 2 channels in 1 groups"},
      {"x: f32[1, 2, 4], w: f32[3, 2, 5]", "conv(x, w)", "is larger than spatial dim 0 with its padding, 4"},
      {"x: f32[1, 2, 4], w: f32[3, 2, 0]", "conv(x, w)", "the kernel has size 0 in spatial dim 0"},
      {"x: f32[1, 2, 4], w: f32[3, 2, 3]", "conv(x, w) {groups = 0}", "attribute 'groups': 0 is not positive"},
      {"x: f32[1, 2, 4], w: f32[3, 2, 3]", "conv(x, w) {strides = [0]}",
       "attribute 'strides': 0 is not in [1, 1048576]"},
      {"x: f32[1, 2, 4], w: f32[3, 2, 3]", "conv(x, w) {padding = [-1]}",
       "attribute 'padding': -1 is not in [0, 1048576]"},
      {"x: f32[1, 2, 4], w: f32[3, 2, 3]", "conv(x, w) {dilation = [1, 1, 1]}", "has 3 numbers for 1 dims"},
      {"x: f32[2, 4], w: f32[3, 2]", "conv(x, w)", "with 1 to 3 spatial dims"},
      {"x: f32[1, 2, 4], w: f32[2, 3, 3]", "conv_transpose(x, w) {output_padding = [1]}",
       "is not less than the stride"},
      {"x: f32[1, 2, 1], w: f32[2, 3, 1]", "conv_transpose(x, w) {padding = [4]}", "gives a result of size -7"},
      {"x: f32[2, 4]", "max_pool(x) {kernel = [2, 2, 2]}", "attribute 'kernel' has 3 numbers for f32[2, 4]"},
      {"x: f32[2, 4]", "max_pool(x) {kernel = [5]}", "is larger than spatial dim 0"},
      {"x: i32[2, 4]", "avg_pool(x) {kernel = [2]}", "takes f64, f32, f16 and bf16, not i32"},
      {"x: f32[2, 4]", "lp_pool(x) {kernel = [2], p = 0.5}", "attribute 'p': 0.5 is not in [1, 1024]"},
      {"x: f32[2, 0]", "adaptive_avg_pool(x) {output_size = [2]}", "spatial dim 0 of f32[2, 0] is empty"},
      {"q: f32[3, 4], k: f32[5, 3], v: f32[5, 2]", "attention(q, k, v)", "not […, l, d], […, s, d] and […, s, e]"},
      {"q: f32[3, 4], k: f32[5, 4], v: f32[5, 2], m: f32[2, 5]", "attention(q, k, v, m)", "broadcast"},
      {"q: f32[3, 4], k: f32[5, 4], v: f32[5, 2], m: i32[3, 5]", "attention(q, k, v, m)", "not bool or f32"},
  };
  for (const auto& row : kRows) {
    EXPECT_THAT(Parse(row.inputs, row.op), StatusIs(kInvalid, row.message)) << row.op;
  }
}

TEST(ContractionRulesTest, HugeProductsAreBounded) {
  const struct {
    const char* inputs;
    const char* op;
    const char* message;
  } kRows[] = {
      {"a: f32[1099511627776], b: f32[1099511627776]", R"(einsum(a, b) {equation = "i,j->ij"})",
       "has more than 1099511627776 elements"},
      {"a: f32[1048576, 2], b: f32[2, 1048576]", R"(einsum(a, a, b) {equation = "ij,kj,jl->l"})",
       "the number of products is above the limit 2^60"},
      {"a: f32[1, 1, 1099511627776], b: f32[1, 1, 1]", "conv_transpose(a, b) {strides = [1048576]}",
       "has more than 1099511627776 elements"},
  };
  for (const auto& row : kRows) {
    EXPECT_THAT(Parse(row.inputs, row.op).status(), StatusIs(kInvalid, row.message)) << row.op;
  }
}

}  // namespace
}  // namespace fuseline
