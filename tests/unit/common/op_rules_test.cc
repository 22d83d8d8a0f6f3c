// The shared pieces of type rules in common/ir/op_rules.cc.
#include <cmath>
#include <limits>
#include <vector>

#include "common/ir/number_text.h"
#include "common/ir/op_table.h"
#include "gtest/gtest.h"
#include "tests/testing/status_matchers.h"

namespace fuseline {
namespace {

using ::fuseline::testing::StatusIs;
constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;

TEST(OpRulesTest, ShapesBroadcastAsNumPysDo) {
  const struct {
    std::vector<Shape> shapes;
    Shape result;
  } kRows[] = {
      {{{2, 3}, {3}}, {2, 3}},
      {{{}, {4}}, {4}},
      {{{}}, {}},
      {{{1}, {0}}, {0}},
      {{{0}, {1}}, {0}},
      {{{5, 1, 3}, {4, 1}}, {5, 4, 3}},
      {{{1, 1}, {7, 1}, {8}}, {7, 8}},
  };
  for (const auto& row : kRows) {
    const absl::StatusOr<Shape> result = BroadcastShapes(row.shapes);
    ASSERT_OK(result);
    EXPECT_EQ(*result, row.result);
  }
}

TEST(OpRulesTest, ShapesThatDoNotBroadcastAreNamed) {
  EXPECT_THAT(BroadcastShapes(std::vector<Shape>{{3}, {4}}), StatusIs(kInvalid, "shapes [3] and [4] do not broadcast"));
  EXPECT_THAT(BroadcastShapes(std::vector<Shape>{{0}, {2}}), StatusIs(kInvalid, "shapes [0] and [2]"));
  EXPECT_THAT(BroadcastShapes(std::vector<Shape>{{1}, {2, 3}, {2, 4}}), StatusIs(kInvalid, "shapes [2, 3] and [2, 4]"));
}

TEST(OpRulesTest, DimsAreNormalised) {
  const std::vector<int64_t> dims = {-1, 0};
  ASSERT_OK(NormalizeDims(&dims, 3));
  EXPECT_EQ(*NormalizeDims(&dims, 3), (std::vector<int64_t>{0, 2}));
  EXPECT_EQ(*NormalizeDims(nullptr, 3), (std::vector<int64_t>{0, 1, 2}));
  EXPECT_EQ(*NormalizeDims(nullptr, 0), std::vector<int64_t>{});
  const std::vector<int64_t> none;
  EXPECT_EQ(*NormalizeDims(&none, 3), none);
  EXPECT_EQ(*NormalizeDim(-3, 3), 0);
}

TEST(OpRulesTest, BadDimsAreRefused) {
  const std::vector<int64_t> repeated = {1, -1};
  EXPECT_THAT(NormalizeDims(&repeated, 2), StatusIs(kInvalid, "dim 1 is repeated"));
  for (int64_t dim :
       {int64_t{2}, int64_t{-3}, std::numeric_limits<int64_t>::min(), std::numeric_limits<int64_t>::max()}) {
    EXPECT_THAT(NormalizeDim(dim, 2), StatusIs(kInvalid, "out of range for rank 2"));
  }
  EXPECT_THAT(NormalizeDim(0, 0), StatusIs(kInvalid, "out of range for rank 0"));
}

Literal Bool(bool value) {
  Literal literal;
  literal.kind = Literal::Kind::kBool;
  literal.i = value;
  return literal;
}

TEST(OpRulesTest, LiteralsFitOrDoNot) {
  const struct {
    const char* text;
    DType dtype;
    bool fits;
  } kRows[] = {
      {"255", DType::kU8, true},
      {"256", DType::kU8, false},
      {"-1", DType::kU8, false},
      {"-128", DType::kI8, true},
      {"128", DType::kI8, false},
      {"32767", DType::kI16, true},
      {"32768", DType::kI16, false},
      {"2147483647", DType::kI32, true},
      {"2147483648", DType::kI32, false},
      {"9223372036854775807", DType::kI64, true},
      {"1.5", DType::kI32, false},
      {"2.0", DType::kI32, true},
      {"300.0", DType::kU8, false},
      {"-0.0", DType::kI32, false},
      {"1e18", DType::kI64, true},
      {"1e19", DType::kI64, false},
      {"-9223372036854775808.0", DType::kI64, true},
      {"nan", DType::kI32, false},
      {"inf", DType::kI64, false},
      {"inf", DType::kF16, true},
      {"nan", DType::kF8E4M3, true},
      {"1e300", DType::kF32, false},
      {"1e300", DType::kF64, true},
      {"3.4028235e38", DType::kF32, true},
      {"65519", DType::kF16, true},
      {"65520", DType::kF16, false},
      {"-1e10", DType::kF16, false},
      {"3.4e38", DType::kBF16, false},
      {"0.1", DType::kBF16, true},
      {"3", DType::kF32, true},
      {"1", DType::kBool, false},
      {"0.0", DType::kBool, false},
      {"1", DType::kInvalid, false},
  };
  for (const auto& row : kRows) {
    const absl::StatusOr<Literal> literal = ParseNumber(row.text);
    ASSERT_OK(literal);
    EXPECT_EQ(CheckLiteral(*literal, row.dtype).ok(), row.fits) << row.text << " as " << DTypeName(row.dtype);
  }
  EXPECT_THAT(CheckLiteral(*ParseNumber("1.5"), DType::kI32), StatusIs(kInvalid, "literal 1.5 does not fit i32"));
}

TEST(OpRulesTest, BooleansFitBoolAlone) {
  EXPECT_OK(CheckLiteral(Bool(true), DType::kBool));
  EXPECT_THAT(CheckLiteral(Bool(true), DType::kI32), StatusIs(kInvalid, "literal true does not fit i32"));
  EXPECT_THAT(CheckLiteral(Bool(false), DType::kF32), StatusIs(kInvalid, "literal false does not fit f32"));
}

TEST(OpRulesTest, AccessorsReadAttributes) {
  const AttrMap attrs = {
      {"i", int64_t{3}}, {"f", 1.5}, {"b", true}, {"d", DType::kF16}, {"l", std::vector<int64_t>{1, 2}}};
  const GraphLimits limits;
  const InferArgs args{{}, attrs, limits};
  EXPECT_TRUE(args.HasAttr("i"));
  EXPECT_FALSE(args.HasAttr("x"));
  EXPECT_EQ(args.Int("i"), 3);
  EXPECT_EQ(args.Number("i"), 3.0);
  EXPECT_EQ(args.Number("f"), 1.5);
  EXPECT_EQ(args.Number("b"), 1.0);
  EXPECT_TRUE(args.Bool("b"));
  EXPECT_EQ(args.Type("d"), DType::kF16);
  EXPECT_EQ(args.Ints("l"), (std::vector<int64_t>{1, 2}));
  EXPECT_EQ(args.Int("x"), 0);
  EXPECT_EQ(args.Ints("x"), std::vector<int64_t>{});
}

}  // namespace
}  // namespace fuseline
