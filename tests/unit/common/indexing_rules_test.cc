// Type rules of indexing, scans, sorting and losses: the types they infer, and what they refuse.
#include <string>
#include <vector>

#include "common/ir/text_form.h"
#include "gtest/gtest.h"
#include "tests/testing/status_matchers.h"

namespace fuseline {
namespace {

using ::fuseline::testing::StatusIs;

absl::StatusOr<Graph> Parse(const std::string& inputs, const std::string& statement) {
  return ParseGraph("graph g(" + inputs + ") {\n  " + statement + "\n  return %r\n}");
}

TEST(IndexingRulesTest, ResultsHaveTheTypesOfTheirDefinition) {
  const struct {
    const char* inputs;
    const char* statement;
    const char* type;
  } kRows[] = {
      {"x: f32[2, 3], i: i32[2, 7]", "%r = gather(x, i) {dim = 1}", "f32[2, 7]"},
      {"x: f8e4m3[2, 3], i: u8[1, 7]", "%r = gather(x, i) {dim = -1}", "f8e4m3[1, 7]"},
      {"x: f32[2, 1, 3], i: i64[1, 5, 9]", "%r = take_along_dim(x, i) {dim = 2}", "f32[2, 5, 9]"},
      {"x: bool[2, 3], i: i64[0]", "%r = index_select(x, i) {dim = 0}", "bool[0, 3]"},
      {"x: f32[0, 3], i: i64[0]", "%r = index_select(x, i) {dim = 0}", "f32[0, 3]"},
      {"x: f16[9, 3], i: i64[4, 5]", "%r = embedding(x, i)", "f16[4, 5, 3]"},
      {"x: f32[2, 3, 4], i: i64[5, 2]", "%r = gather_nd(x, i)", "f32[5, 4]"},
      {"x: f32[2, 3, 4], i: i64[2, 6, 1]", "%r = gather_nd(x, i) {batch_dims = 1}", "f32[2, 6, 4]"},
      {"x: f32[2, 3], i: i64[1, 2], s: f32[1, 3]", "%r = scatter(x, i, s) {dim = 0}", "f32[2, 3]"},
      {"x: i8[2, 3], i: i64[5, 2]", "%r = scatter_add(x, i, 1) {dim = 0}", "i8[2, 3]"},
      {"x: f32[2, 3], i: i64[5], s: f32[2, 5]", "%r = index_add(x, i, s) {dim = 1}", "f32[2, 3]"},
      {"x: f32[2, 3], i: i64[5, 2], s: f32[5]", "%r = scatter_nd(x, i, s)", "f32[2, 3]"},
      {"x: i32[4]", "%r = cumsum(x) {dim = 0}", "i64[4]"},
      {"x: bool[4]", "%r = cumprod(x) {dim = 0, dtype = i32}", "i32[4]"},
      {"x: f16[4]", "%r = cumsum(x) {dim = 0, dtype = f32}", "f32[4]"},
      {"x: f16[4, 2]", "%v, %r = cummax(x) {dim = 0}", "i64[4, 2]"},
      {"x: bool[4, 2]", "%r, %i = sort(x)", "bool[4, 2]"},
      {"x: f32[4, 2]", "%r, %i = topk(x) {k = 3, dim = 0}", "f32[3, 2]"},
      {"x: f16[8, 5, 2], t: u8[8, 2]", "%r = cross_entropy(x, t)", "f16[]"},
      {"x: f16[8, 5, 2], t: u8[8, 2]", "%r = nll_loss(x, t) {reduction = \"none\"}", "f16[8, 2]"},
      {"x: f32[5], t: i64[], w: f32[5]", "%r = cross_entropy(x, t, w)", "f32[]"},
      {"x: f32[3, 1], t: f32[2]", "%r = kl_div(x, t) {reduction = \"none\"}", "f32[3, 2]"},
      {"x: f32[3]", "%r = huber_loss(x, 0.5)", "f32[]"},
  };
  for (const auto& row : kRows) {
    const auto graph = Parse(row.inputs, row.statement);
    ASSERT_OK(graph) << row.statement;
    EXPECT_EQ(graph->type(graph->outputs[0].value).ToString(), row.type) << row.statement << " of " << row.inputs;
  }
}

TEST(IndexingRulesTest, WhatDoesNotFitIsRefused) {
  const struct {
    const char* inputs;
    const char* statement;
    const char* message;
  } kRows[] = {
      {"x: f32[2, 3], i: f32[2, 3]", "%r = gather(x, i) {dim = 0}", "gather: the index must be of an integer dtype"},
      {"x: f32[2, 3], i: bool[2, 3]", "%r = gather(x, i) {dim = 0}", "integer dtype, not bool"},
      {"x: f32[2, 3], i: i64[3]", "%r = gather(x, i) {dim = 0}", "the index has rank 1, the operand rank 2"},
      {"x: f32[2, 3], i: i64[3, 3]", "%r = gather(x, i) {dim = 1}", "larger than the operand's [2, 3] in dim 0"},
      {"x: f32[2, 3], i: i64[2, 3]", "%r = gather(x, i) {dim = 2}", "out of range for rank 2"},
      {"x: f32[2, 3], i: i64[2, 3]", "%r = gather(x, i)", "attribute 'dim' is required"},
      {"x: f32[], i: i64[]", "%r = gather(x, i) {dim = 0}", "out of range for rank 0"},
      {"x: f32[0, 3], i: i64[1, 3]", "%r = gather(x, i) {dim = 0}", "into a dim of size 0"},
      {"x: f32[2, 0], i: i64[2, 1]", "%r = take_along_dim(x, i) {dim = 1}", "into a dim of size 0"},
      {"x: f32[2, 3], i: i64[3, 1]", "%r = take_along_dim(x, i) {dim = 1}", "do not broadcast"},
      {"x: f32[2, 3], i: i64[1, 1]", "%r = index_select(x, i) {dim = 0}", "the index must have one dim, not 2"},
      {"x: f32[0, 3], i: i64[1]", "%r = index_select(x, i) {dim = 0}", "into a dim of size 0"},
      {"x: f32[2], i: i64[1]", "%r = embedding(x, i)", "the table must have two dims, not 1"},
      {"x: f32[0, 2], i: i64[]", "%r = embedding(x, i)", "into a dim of size 0"},
      {"x: f32[2, 3], i: i64[5, 3]", "%r = gather_nd(x, i)", "the index's last dim is 3, and the operand has 2 dims"},
      {"x: f32[2, 3], i: i64[5, 0]", "%r = gather_nd(x, i)", "the index's last dim is 0"},
      {"x: f32[2, 3], i: i64[]", "%r = gather_nd(x, i)", "attribute 'batch_dims': 0 is out of range for ranks 2 and 0"},
      {"x: f32[2, 3], i: i64[3, 1]", "%r = gather_nd(x, i) {batch_dims = 1}", "differ in the first 1 dim"},
      {"x: f32[2, 3], i: i64[2, 1]", "%r = gather_nd(x, i) {batch_dims = -1}", "attribute 'batch_dims': -1"},
      {"x: f32[2, 3], i: i64[5, 3], s: f32[4, 3]", "%r = scatter(x, i, s) {dim = 0}",
       "the source has shape [4, 3], the index [5, 3]"},
      {"x: f32[2, 3], i: i64[1, 3], s: f16[1, 3]", "%r = scatter(x, i, s) {dim = 0}", "dtypes f32 and f16"},
      {"x: f32[2], i: i64[1]", "%r = scatter(x, i, 1) {dim = 0, reduction = \"mean\"}", "must be \"none\", \"add\""},
      {"x: bool[2], i: i64[1]", "%r = scatter_add(x, i, true) {dim = 0}", "not bool"},
      {"x: f32[2], i: i64[3], s: f32[2]", "%r = index_add(x, i, s) {dim = 0}", "the source has shape [2], not [3]"},
      {"x: f32[2, 3], i: i64[5, 1], s: f32[5, 2]", "%r = scatter_nd(x, i, s)",
       "the source has shape [5, 2], not [5, 3]"},
      {"x: f32[4]", "%r = cumsum(x) {dim = 1}", "out of range for rank 1"},
      {"x: f32[4]", "%r = cumsum(x) {dim = 0, dtype = i64}", "f32 is not summed in i64"},
      {"x: bool[4]", "%r, %i = cummax(x) {dim = 0}", "not bool"},
      {"x: f32[]", "%r, %i = sort(x)", "out of range for rank 0"},
      {"x: f8e5m2[4]", "%r, %i = sort(x)", "every dtype but the f8 types"},
      {"x: f32[4]", "%r, %i = topk(x) {k = 5}", "attribute 'k': 5 is out of range for a dim of size 4"},
      {"x: f32[4]", "%r, %i = topk(x) {k = -1}", "attribute 'k': -1"},
      {"x: f32[2, 3], t: i64[3]", "%r = cross_entropy(x, t)", "the target has shape [3], not [2]"},
      {"x: f32[2, 3], t: f32[2]", "%r = cross_entropy(x, t)", "the target must be of an integer dtype, not f32"},
      {"x: f32[2, 0], t: i64[2]", "%r = cross_entropy(x, t)", "there are no classes"},
      {"x: f32[], t: i64[]", "%r = nll_loss(x, t)", "must have a dim for the classes"},
      {"x: f32[2, 3], t: i64[2], w: f32[2]", "%r = nll_loss(x, t, w)", "the weight is f32[2], not f32[3]"},
      {"x: f32[2, 3], t: i64[2]", "%r = cross_entropy(x, t) {label_smoothing = 1.5}", "within [0, 1]"},
      {"x: f32[2, 3], t: i64[2]", "%r = cross_entropy(x, t) {reduction = \"max\"}", "must be \"mean\", \"sum\""},
      {"x: f32[2], t: f32[2]", "%r = smooth_l1_loss(x, t) {beta = -1.0}", "attribute 'beta' must not be negative"},
      {"x: f32[2], t: f32[2]", "%r = huber_loss(x, t) {delta = 0.0}", "attribute 'delta' must be positive"},
      {"x: f32[2], t: f32[2]", "%r = huber_loss(x, t) {delta = nan}", "attribute 'delta'"},
      {"x: i64[2], t: i64[2]", "%r = kl_div(x, t)", "not i64"},
  };
  for (const auto& row : kRows) {
    EXPECT_THAT(Parse(row.inputs, row.statement), StatusIs(absl::StatusCode::kInvalidArgument, row.message))
        << row.statement << " of " << row.inputs;
  }
}

// Shapes multiply: the loops of a scatter may be larger than any of its operands.
TEST(IndexingRulesTest, TheLoopsOfAScatterAreBounded) {
  EXPECT_THAT(Parse("x: f32[1, 1000000000], i: i64[1000000000, 1], s: f32[]", "%r = scatter_nd(x, i, s)"),
              StatusIs(absl::StatusCode::kInvalidArgument, "elements"));
  EXPECT_THAT(Parse("x: f32[1, 1000000000], i: i64[1000000000], s: f32[]", "%r = index_add(x, i, s) {dim = 0}"),
              StatusIs(absl::StatusCode::kInvalidArgument, "elements"));
  EXPECT_THAT(Parse("x: f32[2, 1000000000], i: i64[1000000000]", "%r = embedding(x, i)"),
              StatusIs(absl::StatusCode::kInvalidArgument, "elements"));
}

}  // namespace
}  // namespace fuseline
