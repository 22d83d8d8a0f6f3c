#include "server/fuser/contraction_sides.h"

#include <string>

#include "common/ir/text_form.h"
#include "gtest/gtest.h"
#include "server/lowering/lower_graph.h"
#include "tests/testing/status_matchers.h"

namespace fuseline::fuser {
namespace {

ContractionSides Sides(const std::string& inputs, const std::string& op) {
  const auto graph = ParseGraph("graph g(" + inputs + ") {\n  %y = " + op + "\n  return %y\n}");
  EXPECT_OK(graph) << op;
  const auto loops = lowering::LowerGraph(*graph, {});
  EXPECT_OK(loops) << op;
  return SidesOf(loops->nodes[0]);
}

TEST(ContractionSidesTest, LoopsOfOneFactorAloneAreItsSide) {
  const ContractionSides matmul = Sides("a: f32[2, 30, 4], b: f32[2, 4, 50]", "matmul(a, b)");
  EXPECT_TRUE(matmul.is_contraction());
  EXPECT_EQ(matmul.m, 30);
  EXPECT_EQ(matmul.n, 50);
  const ContractionSides conv = Sides("x: f32[2, 3, 8, 8], w: f32[7, 3, 3, 3]", "conv(x, w) {padding = [1]}");
  EXPECT_EQ(conv.m, 2 * 8 * 8);
  EXPECT_EQ(conv.n, 7);
}

TEST(ContractionSidesTest, OtherReductionsAreNone) {
  EXPECT_FALSE(Sides("a: f32[30, 4], b: f32[4]", "matmul(a, b)").is_contraction());
  EXPECT_FALSE(Sides("a: f32[30, 4]", "sum(a) {dims = [1]}").is_contraction());
  EXPECT_FALSE(Sides("a: f32[30, 4]", "max_pool(a) {kernel = [2]}").is_contraction());
  EXPECT_FALSE(Sides("a: f32[3, 8, 4], b: f32[3, 8, 4]", R"(einsum(a, b) {equation = "bij,bij->b"})").is_contraction());
}

TEST(ContractionSidesTest, TilesComputeFactorsOncePerEdge) {
  EXPECT_EQ((ContractionSides{128, 256}).computed_share(), 1.0 / 64);
  EXPECT_EQ((ContractionSides{128, 10}).computed_share(), 1.0 / 10);
  EXPECT_EQ((ContractionSides{2, 256}).computed_share(), 1.0);
  EXPECT_EQ(ContractionSides().computed_share(), 1.0);
}

}  // namespace
}  // namespace fuseline::fuser
