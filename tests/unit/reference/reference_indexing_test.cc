// Indexing, scans, ordering and losses of the reference interpreter, against results worked out by hand.
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "common/ir/text_form.h"
#include "common/status/error.h"
#include "gtest/gtest.h"
#include "server/reference/reference_interpreter.h"
#include "tests/testing/status_matchers.h"

namespace fuseline {
namespace {

using ::fuseline::testing::StatusIs;

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;

struct Input {
  const char* type;  // "f32[2, 3]"
  std::vector<double> values;
};

struct Row {
  std::string statement;  // "%y = gather(a, b) {dim = 0}", of inputs a, b, …
  std::vector<Input> inputs;
  std::vector<double> want;  // of %y
};

absl::StatusOr<std::vector<double>> Evaluate(const std::string& statement, const std::vector<Input>& inputs) {
  std::string text = "graph g(";
  for (size_t i = 0; i < inputs.size(); ++i) {
    text += (i > 0 ? ", " : "") + std::string(1, static_cast<char>('a' + i)) + ": " + inputs[i].type;
  }
  text += ") {\n  " + statement + "\n  return %y\n}";
  absl::StatusOr<Graph> graph = ParseGraph(text);
  if (!graph.ok()) return graph.status();
  std::vector<Tensor> tensors;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const TensorType& type = graph->type(graph->inputs[i]);
    Tensor t = Tensor::Allocate(type.dtype, type.shape());
    EXPECT_EQ(static_cast<size_t>(t.element_count()), inputs[i].values.size()) << statement;
    for (size_t k = 0; k < inputs[i].values.size(); ++k) t.SetDouble(static_cast<int64_t>(k), inputs[i].values[k]);
    tensors.push_back(std::move(t));
  }
  const auto results = reference::Interpret(*graph, tensors, {});
  if (!results.ok()) return results.status();
  std::vector<double> values;
  for (int64_t k = 0; k < (*results)[0].element_count(); ++k) values.push_back((*results)[0].GetDouble(k));
  return values;
}

void ExpectRows(const std::vector<Row>& rows, double tolerance = 0) {
  for (const Row& row : rows) {
    SCOPED_TRACE(row.statement);
    const auto got = Evaluate(row.statement, row.inputs);
    ASSERT_OK(got);
    ASSERT_EQ(got->size(), row.want.size());
    for (size_t k = 0; k < row.want.size(); ++k) {
      if (std::isnan(row.want[k])) {
        EXPECT_TRUE(std::isnan((*got)[k])) << k;
      } else if (std::isinf(row.want[k])) {
        EXPECT_EQ((*got)[k], row.want[k]) << k;
      } else {
        EXPECT_NEAR((*got)[k], row.want[k], tolerance * std::abs(row.want[k])) << k;
      }
    }
  }
}

TEST(ReferenceIndexingTest, ElementsAreReadWhereTheIndexSays) {
  const Input x = {"f32[2, 3]", {1, 2, 3, 4, 5, 6}};
  ExpectRows({
      {"%y = gather(a, b) {dim = 1}", {x, {"i64[2, 2]", {2, 0, -1, -3}}}, {3, 1, 6, 4}},
      {"%y = gather(a, b) {dim = 0}", {x, {"i32[1, 2]", {1, 0}}}, {4, 2}},
      {"%y = gather(a, b) {dim = -1}", {x, {"u8[1, 4]", {0, 1, 2, 1}}}, {1, 2, 3, 2}},
      {"%y = take_along_dim(a, b) {dim = 1}", {x, {"i64[1, 1]", {-1}}}, {3, 6}},
      {"%y = take_along_dim(a, b) {dim = 1}", {{"i32[1, 3]", {7, 8, 9}}, {"i16[2, 2]", {0, 1, 2, 2}}}, {7, 8, 9, 9}},
      {"%y = index_select(a, b) {dim = 1}", {x, {"i64[2]", {-1, 0}}}, {3, 1, 6, 4}},
      {"%y = index_select(a, b) {dim = 0}", {x, {"i64[0]", {}}}, {}},
      {"%y = embedding(a, b)", {x, {"i64[2, 1]", {1, 0}}}, {4, 5, 6, 1, 2, 3}},
      {"%y = embedding(a, b)", {x, {"i64[]", {-1}}}, {4, 5, 6}},
      {"%y = gather_nd(a, b)", {x, {"i64[2, 2]", {0, 1, -1, -1}}}, {2, 6}},
      {"%y = gather_nd(a, b)", {x, {"i64[1]", {1}}}, {4, 5, 6}},
      {"%y = gather_nd(a, b) {batch_dims = 1}", {x, {"i64[2, 1]", {2, 0}}}, {3, 4}},
  });
}

TEST(ReferenceIndexingTest, ElementsAreWrittenInTheIndexOrder) {
  const Input x = {"f32[3]", {10, 20, 30}};
  ExpectRows({
      {"%y = scatter(a, b, c) {dim = 0}", {x, {"i64[3]", {0, 0, -1}}, {"f32[3]", {1, 2, 3}}}, {2, 20, 3}},
      {"%y = scatter(a, b, c) {dim = 0, reduction = \"mul\"}",
       {x, {"i64[3]", {0, 0, 2}}, {"f32[4]", {2, 3, 4, 5}}},
       {60, 20, 120}},
      {"%y = scatter(a, b, c) {dim = 0, reduction = \"max\"}",
       {x, {"i64[2]", {0, 1}}, {"f32[2]", {kNan, 3}}},
       {kNan, 20, 30}},
      {"%y = scatter(a, b, c) {dim = 0, reduction = \"min\"}",
       {{"i8[2]", {5, -5}}, {"i64[2]", {0, 1}}, {"i8[2]", {3, 3}}},
       {3, -5}},
      {"%y = scatter(a, b, 7) {dim = 0}", {x, {"i64[1]", {1}}}, {10, 7, 30}},
      {"%y = scatter_add(a, b, c) {dim = 0}", {x, {"i64[3]", {0, 0, 1}}, {"f32[3]", {1, 2, 3}}}, {13, 23, 30}},
      {"%y = scatter_add(a, b, c) {dim = 0}", {{"u8[1]", {250}}, {"i64[2]", {0, 0}}, {"u8[2]", {5, 6}}}, {5}},
      // 2048 + 1 is 2048 in f16, but 2048 + 1 + 1 is 2050.
      {"%y = scatter_add(a, b, c) {dim = 0}", {{"f16[1]", {2048}}, {"i64[2]", {0, 0}}, {"f16[2]", {1, 1}}}, {2050}},
      {"%y = index_add(a, b, c) {dim = 1}",
       {{"f32[2, 2]", {0, 1, 2, 3}}, {"i64[3]", {1, 1, 0}}, {"f32[2, 3]", {1, 2, 3, 4, 5, 6}}},
       {3, 4, 8, 12}},
      {"%y = scatter_nd(a, b, c)",
       {{"f32[2, 2]", {0, 1, 2, 3}}, {"i64[2, 1]", {1, 1}}, {"f32[2, 2]", {5, 6, 7, 8}}},
       {0, 1, 7, 8}},
      {"%y = scatter_nd(a, b, c) {reduction = \"add\"}",
       {{"f32[2, 2]", {0, 1, 2, 3}}, {"i64[2, 2]", {0, 0, 1, -1}}, {"f32[2]", {5, 6}}},
       {5, 1, 2, 9}},
  });
}

TEST(ReferenceIndexingTest, AnIndexOutOfRangeIsAnErrorOfTheCall) {
  for (const char* statement : {"%y = index_select(a, b) {dim = 0}", "%y = gather(a, b) {dim = 0}",
                                "%y = scatter(a, b, 1) {dim = 0}", "%y = take_along_dim(a, b) {dim = 0}"}) {
    for (double index : {3.0, -4.0}) {
      const auto got = Evaluate(statement, {{"f32[3]", {1, 2, 3}}, {"i64[1]", {index}}});
      EXPECT_THAT(got, StatusIs(kInvalid, index > 0 ? "node '%y': index 3 is out of range for size 3"
                                                    : "node '%y': index -4 is out of range for size 3"));
      EXPECT_EQ(GetErrorReason(got.status()), ErrorReason::kIndexOutOfRange);
    }
  }
}

TEST(ReferenceOrderedTest, ScansRunAlongTheirDim) {
  const Input x = {"f32[2, 3]", {1, 2, 3, 4, 5, 6}};
  ExpectRows({
      {"%y = cumsum(a) {dim = 1}", {x}, {1, 3, 6, 4, 9, 15}},
      {"%y = cumsum(a) {dim = 0}", {x}, {1, 2, 3, 5, 7, 9}},
      {"%y = cumsum(a) {dim = 1, exclusive = true}", {x}, {0, 1, 3, 0, 4, 9}},
      {"%y = cumsum(a) {dim = 1, reverse = true}", {x}, {6, 5, 3, 15, 11, 6}},
      {"%y = cumsum(a) {dim = 1, reverse = true, exclusive = true}", {x}, {5, 3, 0, 11, 6, 0}},
      {"%y = cumprod(a) {dim = -1}", {x}, {1, 2, 6, 4, 20, 120}},
      {"%y = cumsum(a) {dim = 0}", {{"bool[3]", {1, 1, 0}}}, {1, 2, 2}},
      {"%y = cumsum(a) {dim = 0, dtype = i8}", {{"i8[2]", {100, 100}}}, {100, -56}},
      {"%y, %i = cummax(a) {dim = 0}", {{"f32[5]", {1, 3, 3, kNan, 9}}}, {1, 3, 3, kNan, kNan}},
      {"%v, %y = cummax(a) {dim = 0}", {{"f32[6]", {1, 3, 3, kNan, 9, kNan}}}, {0, 1, 1, 3, 3, 3}},
  });
}

TEST(ReferenceOrderedTest, SortingIsStableAndNanIsTheGreatest) {
  const Input x = {"f32[6]", {2, kNan, -kInf, 2, kNan, 0}};
  ExpectRows({
      {"%y, %i = sort(a)", {x}, {-kInf, 0, 2, 2, kNan, kNan}},
      {"%v, %y = sort(a)", {x}, {2, 5, 0, 3, 1, 4}},
      {"%v, %y = sort(a) {descending = true}", {x}, {1, 4, 0, 3, 5, 2}},
      {"%v, %y = sort(a)", {{"f32[4]", {0, -0.0, 0, -0.0}}}, {0, 1, 2, 3}},
      {"%y, %i = sort(a) {dim = 0}", {{"i8[2, 2]", {3, -1, 1, 0}}}, {1, -1, 3, 0}},
      {"%y, %i = topk(a) {k = 2}", {x}, {kNan, kNan}},
      {"%v, %y = topk(a) {k = 3, largest = false}", {x}, {2, 5, 0}},
      {"%v, %y = topk(a) {k = 1, dim = 0}", {{"bool[3, 2]", {0, 1, 1, 0, 1, 1}}}, {1, 0}},
      {"%y, %i = topk(a) {k = 0}", {x}, {}},
  });
}

TEST(ReferenceLossesTest, LossesGiveTheirDefinitions) {
  const Input logits = {"f64[2, 2]", {0, std::log(3.0), 0, 0}};
  const double p = std::log(4.0 / 3.0), half = std::log(2.0);
  ExpectRows(
      {
          {"%y = cross_entropy(a, b)", {logits, {"i64[2]", {1, 0}}}, {(p + half) / 2}},
          {"%y = cross_entropy(a, b) {reduction = \"none\"}", {logits, {"i32[2]", {-1, -100}}}, {p, 0}},
          {"%y = cross_entropy(a, b)", {logits, {"i64[2]", {-100, 1}}}, {half}},
          {"%y = cross_entropy(a, b)", {logits, {"i64[2]", {-100, -100}}}, {kNan}},
          {"%y = cross_entropy(a, b) {ignore_index = 1, reduction = \"sum\"}", {logits, {"i64[2]", {1, 0}}}, {half}},
          {"%y = cross_entropy(a, b, c)", {logits, {"i64[2]", {1, 0}}, {"f64[2]", {1, 3}}}, {(3 * p + half) / 4}},
          {"%y = cross_entropy(a, b) {label_smoothing = 0.5, reduction = \"none\"}",
           {logits, {"i64[2]", {1, 0}}},
           {0.5 * p + 0.25 * (p + std::log(4.0)), half}},
          {"%y = cross_entropy(a, b)", {{"f64[2]", {0, 0}}, {"i64[]", {1}}}, {half}},
          {"%y = nll_loss(a, b) {reduction = \"none\"}",
           {{"f64[1, 2, 2]", {-1, -2, -3, -4}}, {"i64[1, 2]", {1, 0}}},
           {3, 2}},
          {"%y = kl_div(a, b) {reduction = \"none\"}", {{"f64[2]", {1, 2}}, {"f64[2]", {0, 1}}}, {0, -2}},
          {"%y = kl_div(a, b) {reduction = \"batchmean\", log_target = true}",
           {{"f64[1, 2]", {1, 2}}, {"f64[1, 2]", {0, 0}}},
           {-3}},
          {"%y = smooth_l1_loss(a, b) {reduction = \"none\", beta = 2}",
           {{"f64[3]", {1, 2, -3}}, {"f64[]", {0}}},
           {0.25, 1, 2}},
          {"%y = smooth_l1_loss(a, b) {beta = 0}", {{"f64[2]", {1, -3}}, {"f64[]", {0}}}, {2}},
          {"%y = huber_loss(a, b) {reduction = \"sum\", delta = 2}", {{"f64[2]", {1, -3}}, {"f64[]", {0}}}, {4.5}},
      },
      1e-15);
}

}  // namespace
}  // namespace fuseline
