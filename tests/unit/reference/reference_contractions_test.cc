// Contractions, pooling and attention of the reference interpreter, against results worked out by hand.
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "common/ir/text_form.h"
#include "gtest/gtest.h"
#include "server/reference/reference_interpreter.h"
#include "tests/testing/status_matchers.h"

namespace fuseline {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

struct Input {
  const char* type;  // "f32[2, 3]"
  std::vector<double> values;
};
struct Row {
  std::string op;  // of inputs a, b, …
  std::vector<Input> inputs;
  std::vector<double> want;
};

void ExpectRows(const std::vector<Row>& rows, double tolerance = 0) {
  for (const Row& row : rows) {
    SCOPED_TRACE(row.op);
    std::string text = "graph g(";
    for (size_t i = 0; i < row.inputs.size(); ++i) {
      text += (i > 0 ? ", " : "") + std::string(1, static_cast<char>('a' + i)) + ": " + row.inputs[i].type;
    }
    const absl::StatusOr<Graph> graph = ParseGraph(text + ") {\n  %y = " + row.op + "\n  return %y\n}");
    ASSERT_OK(graph);
    std::vector<Tensor> tensors;
    for (size_t i = 0; i < row.inputs.size(); ++i) {
      const TensorType& type = graph->type(graph->inputs[i]);
      Tensor t = Tensor::Allocate(type.dtype, type.shape());
      ASSERT_EQ(static_cast<size_t>(t.element_count()), row.inputs[i].values.size());
      for (size_t k = 0; k < row.inputs[i].values.size(); ++k) {
        t.SetDouble(static_cast<int64_t>(k), row.inputs[i].values[k]);
      }
      tensors.push_back(std::move(t));
    }
    const auto results = reference::Interpret(*graph, tensors, {});
    ASSERT_OK(results);
    ASSERT_EQ(static_cast<size_t>((*results)[0].element_count()), row.want.size());
    for (size_t k = 0; k < row.want.size(); ++k) {
      const double got = (*results)[0].GetDouble(static_cast<int64_t>(k));
      if (std::isnan(row.want[k])) {
        EXPECT_TRUE(std::isnan(got)) << k << ": " << got;
      } else if (std::isinf(row.want[k])) {
        EXPECT_EQ(got, row.want[k]) << k;
      } else {
        EXPECT_NEAR(got, row.want[k], tolerance) << k;
      }
    }
  }
}

TEST(ReferenceContractionsTest, MatrixProductsByHand) {
  const Input two = {"f32[2, 2]", {1, 2, 3, 4}}, other = {"f32[2, 2]", {5, 6, 7, 8}};
  ExpectRows({
      {"matmul(a, b)", {two, other}, {19, 22, 43, 50}},
      {"matmul(a, b)", {{"f32[2]", {1, 2}}, other}, {19, 22}},
      {"matmul(a, b)", {two, {"f32[2]", {5, 7}}}, {19, 43}},
      {"matmul(a, b)", {{"f32[2]", {1, 2}}, {"f32[2]", {3, 4}}}, {11}},
      {"matmul(a, b)", {{"f32[2, 1, 1]", {2, 3}}, {"f32[1, 2]", {10, 20}}}, {20, 40, 30, 60}},
      {"matmul(a, b)", {{"f32[1, 0]", {}}, {"f32[0, 2]", {}}}, {0, 0}},
      {"matmul(a, b)", {{"i8[1, 2]", {100, 100}}, {"i8[2, 1]", {2, 1}}}, {300 - 256}},
      {"matmul(a, b) {dtype = i32}", {{"i8[1, 2]", {100, 100}}, {"i8[2, 1]", {2, 1}}}, {300}},
      {"linear(a, b, c)",
       {{"f32[2]", {1, 2}}, {"f32[3, 2]", {1, 0, 0, 1, 1, 1}}, {"f32[3]", {10, 20, 30}}},
       {11, 22, 33}},
  });
}

TEST(ReferenceContractionsTest, EinsumByHand) {
  const Input two = {"f32[2, 2]", {1, 2, 3, 4}}, other = {"f32[2, 2]", {5, 6, 7, 8}};
  ExpectRows({
      {R"(einsum(a) {equation = "ii"})", {two}, {5}},
      {R"(einsum(a) {equation = "ii->i"})", {two}, {1, 4}},
      {R"(einsum(a) {equation = "ij->ji"})", {two}, {1, 3, 2, 4}},
      {R"(einsum(a, b) {equation = "ij,jk"})", {two, other}, {19, 22, 43, 50}},
      {R"(einsum(a, b) {equation = "ij,ij->"})", {two, other}, {5 + 12 + 21 + 32}},
      {R"(einsum(a, b) {equation = "i,j->ij"})", {{"f32[2]", {1, 2}}, {"f32[2]", {3, 4}}}, {3, 4, 6, 8}},
      {R"(einsum(a, b) {equation = "...i,i->..."})", {two, {"f32[2]", {1, 10}}}, {21, 43}},
      // j is summed before the third factor: -1 times -inf, and no 0 times -inf.
      {R"(einsum(a, b, c) {equation = "ij,jk,kl->il"})",
       {{"f32[1, 1]", {1}}, {"f32[2, 1]", {0, -1}}, {"f32[1, 1]", {-kInf}}},
       {kInf}},
      {R"(einsum(a, b, a) {equation = "i,ij,j->"})", {{"f32[2]", {1, 2}}, two}, {1 + 4 + 6 + 16}},
  });
}

TEST(ReferenceContractionsTest, ConvolutionsByHand) {
  const Input x = {"f32[1, 1, 3]", {1, 2, 3}}, w = {"f32[1, 1, 2]", {1, 10}};
  ExpectRows({
      {"conv(a, b)", {x, w}, {21, 32}},
      {"conv(a, b) {padding = [1]}", {x, w}, {10, 21, 32, 3}},
      {"conv(a, b) {padding = [0, 1]}", {x, w}, {21, 32, 3}},
      {"conv(a, b) {strides = [2], padding = [1]}", {x, w}, {10, 32}},
      {"conv(a, b) {dilation = [2]}", {x, w}, {31}},
      {"conv(a, b, c)", {x, w, {"f32[1]", {100}}}, {121, 132}},
      {"conv(a, b) {groups = 2}", {{"f32[1, 2, 1]", {3, 4}}, {"f32[2, 1, 1]", {10, 100}}}, {30, 400}},
      {"conv_transpose(a, b)", {x, w}, {1, 12, 23, 30}},
      {"conv_transpose(a, b) {strides = [2]}", {x, w}, {1, 10, 2, 20, 3, 30}},
      {"conv_transpose(a, b) {strides = [2], padding = [1], output_padding = [1]}", {x, w}, {10, 2, 20, 3, 30}},
      {"conv_transpose(a, b) {dilation = [2]}", {x, w}, {1, 2, 13, 20, 30}},
  });
}

TEST(ReferenceContractionsTest, PoolingByHand) {
  const Input x = {"f32[5]", {1, 5, 2, 4, 3}};
  ExpectRows(
      {
          {"max_pool(a) {kernel = [2]}", {x}, {5, 4}},
          {"max_pool(a) {kernel = [2], ceil_mode = true}", {x}, {5, 4, 3}},
          {"max_pool(a) {kernel = [2], strides = [1]}", {x}, {5, 5, 4, 4}},
          {"max_pool(a) {kernel = [3], strides = [2], padding = [1]}", {x}, {5, 5, 4}},
          {"max_pool(a) {kernel = [2], dilation = [3]}", {{"f32[6]", {1, 5, 2, 4, 3, 0}}}, {4, 2}},
          {"max_pool(a) {kernel = [2]}", {{"f32[4]", {-kInf, -kInf, kNan, 1}}}, {-kInf, kNan}},
          {"max_pool(a) {kernel = [2], padding = [1]}", {{"i8[2]", {-5, -6}}}, {-5, -6}},
          {"avg_pool(a) {kernel = [2]}", {x}, {3, 3}},
          {"avg_pool(a) {kernel = [2], padding = [1]}", {x}, {0.5, 3.5, 3.5}},
          {"avg_pool(a) {kernel = [2], padding = [1], count_include_pad = false}", {x}, {1, 3.5, 3.5}},
          {"avg_pool(a) {kernel = [2], ceil_mode = true}", {x}, {3, 3, 3}},
          {"lp_pool(a) {kernel = [2], p = 1.0}", {{"f32[2]", {-3, 4}}}, {7}},
          {"lp_pool(a) {kernel = [2]}", {{"f32[2]", {-3, 4}}}, {5}},
          {"adaptive_avg_pool(a) {output_size = [2]}", {x}, {8.0 / 3, 3}},
          {"adaptive_avg_pool(a) {output_size = [1]}", {x}, {3}},
      },
      1e-6);
}

TEST(ReferenceContractionsTest, AttentionByHand) {
  const Input zeros = {"f32[2, 1]", {0, 0}}, keys = {"f32[2, 1]", {1, 2}}, values = {"f32[2, 1]", {10, 20}};
  const double weight = std::exp(3.0) / (std::exp(3.0) + std::exp(6.0));  // of the first key, for a query of 3
  ExpectRows(
      {
          {"attention(a, b, c)", {zeros, keys, values}, {15, 15}},
          {"attention(a, b, c) {causal = true}", {zeros, keys, values}, {10, 15}},
          {"attention(a, b, c)", {{"f32[1, 1]", {3}}, keys, values}, {10 * weight + 20 * (1 - weight)}},
          {"attention(a, b, c) {scale = 0.0}", {{"f32[1, 1]", {3}}, keys, values}, {15}},
          {"attention(a, b, c, d)", {zeros, keys, values, {"bool[2, 2]", {0, 0, 0, 1}}}, {0, 20}},
          {"attention(a, b, c, d)", {zeros, keys, values, {"f32[2]", {0, -kInf}}}, {10, 10}},
          {"attention(a, b, c)", {zeros, {"f32[0, 1]", {}}, {"f32[0, 1]", {}}}, {0, 0}},
          // Two query heads to a head of keys.
          {"attention(a, b, c)",
           {{"f32[4, 1, 1]", {0, 0, 0, 0}}, {"f32[2, 1, 1]", {1, 1}}, {"f32[2, 1, 1]", {10, 20}}},
           {10, 10, 20, 20}},
      },
      1e-5);
}

}  // namespace
}  // namespace fuseline
