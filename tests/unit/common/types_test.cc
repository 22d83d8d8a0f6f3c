#include "common/ir/types.h"

#include <string>
#include <vector>

#include "common/ir/graph.h"
#include "common/ir/type_limits.h"
#include "gtest/gtest.h"
#include "tests/testing/status_matchers.h"

namespace fuseline {
namespace {

using ::fuseline::testing::StatusIs;
constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;

TEST(TypesTest, DTypeNamesReadBack) {
  for (int i = 1; i < kDTypeCount; ++i) {
    const auto dtype = static_cast<DType>(i);
    EXPECT_EQ(ParseDType(DTypeName(dtype)), dtype);
    EXPECT_NE(GetDTypeKind(dtype), DTypeKind::kInvalid);
  }
  EXPECT_EQ(ParseDType("invalid"), std::nullopt);
  EXPECT_EQ(ParseDType("F32"), std::nullopt);
  EXPECT_EQ(DTypeName(static_cast<DType>(200)), "invalid");
}

TEST(TypesTest, DTypesHaveSizesAndKinds) {
  const struct {
    DType dtype;
    int size;
    DTypeKind kind;
    DType compute;
  } kRows[] = {
      {DType::kF64, 8, DTypeKind::kFloat, DType::kF64},    {DType::kF32, 4, DTypeKind::kFloat, DType::kF32},
      {DType::kF16, 2, DTypeKind::kFloat, DType::kF32},    {DType::kBF16, 2, DTypeKind::kFloat, DType::kF32},
      {DType::kF8E4M3, 1, DTypeKind::kFloat, DType::kF32}, {DType::kF8E5M2, 1, DTypeKind::kFloat, DType::kF32},
      {DType::kI64, 8, DTypeKind::kInteger, DType::kI64},  {DType::kI32, 4, DTypeKind::kInteger, DType::kI32},
      {DType::kI16, 2, DTypeKind::kInteger, DType::kI16},  {DType::kI8, 1, DTypeKind::kInteger, DType::kI8},
      {DType::kU8, 1, DTypeKind::kInteger, DType::kU8},    {DType::kBool, 1, DTypeKind::kBool, DType::kBool},
  };
  for (const auto& row : kRows) {
    EXPECT_EQ(DTypeSizeBytes(row.dtype), row.size) << DTypeName(row.dtype);
    EXPECT_EQ(GetDTypeKind(row.dtype), row.kind) << DTypeName(row.dtype);
    EXPECT_EQ(ComputeDType(row.dtype), row.compute) << DTypeName(row.dtype);
  }
}

TEST(TypesTest, TypeKnowsItsCountAndText) {
  TensorType type = TensorType::Make(DType::kF16, {2, 3, 4});
  EXPECT_EQ(type.element_count(), 24);
  EXPECT_EQ(type.size_bytes(), 48);
  EXPECT_EQ(type.ToString(), "f16[2, 3, 4]");
  type.strides = std::vector<int64_t>{1, 2, 6};
  EXPECT_EQ(type.ToString(), "f16[2, 3, 4]{1, 2, 6}");
  EXPECT_EQ(TensorType::Make(DType::kI64, {}).ToString(), "i64[]");
  EXPECT_EQ(TensorType::Make(DType::kI64, {}).element_count(), 1);
  EXPECT_EQ(TensorType::Make(DType::kI64, {3, 0}).element_count(), 0);
}

TEST(TypesTest, SymbolicDimsCompareBySymbol) {
  TensorType type;
  type.dtype = DType::kF32;
  type.dims = {Dim::Symbol("n"), Dim(4)};
  EXPECT_FALSE(type.is_static());
  EXPECT_EQ(type.ToString(), "f32[n, 4]");
  TensorType other = type;
  other.dims[0].size = 7;  // meaningless while symbolic
  EXPECT_EQ(type, other);
  other.dims[0].symbol = "m";
  EXPECT_NE(type, other);
}

TEST(TypesTest, DenseStridesAreRowMajor) {
  EXPECT_EQ(DenseStrides({2, 3, 4}), (Shape{12, 4, 1}));
  EXPECT_EQ(DenseStrides({}), Shape{});
  EXPECT_EQ(DenseStrides({5, 0, 2}), (Shape{0, 2, 1}));
}

TEST(TypeLimitsTest, DenseStridesAreDropped) {
  const auto dropped = [](Shape shape, std::vector<int64_t> strides) {
    TensorType type = TensorType::Make(DType::kF32, shape);
    type.strides = std::move(strides);
    DropDenseStrides(type);
    return !type.strides.has_value();
  };
  EXPECT_TRUE(dropped({2, 3}, {3, 1}));
  EXPECT_TRUE(dropped({}, {}));
  EXPECT_TRUE(dropped({2, 0}, {0, 1}));
  EXPECT_FALSE(dropped({2, 3}, {1, 2}));
  EXPECT_FALSE(dropped({2, 3}, {4, 1}));
  EXPECT_FALSE(dropped({2, 3}, {3, 2}));
}

TEST(TypeLimitsTest, SizesAreBoundedWithoutOverflow) {
  GraphLimits limits;
  limits.max_elements = 1000;
  EXPECT_OK(CheckTensorType(TensorType::Make(DType::kF32, {10, 100}), limits));
  EXPECT_OK(CheckTensorType(TensorType::Make(DType::kF32, {0, 100}), limits));
  const int64_t kHuge = int64_t{1} << 62;
  for (const Shape& shape :
       {Shape{10, 101}, Shape{kHuge, kHuge}, Shape{0, kHuge, kHuge}, Shape{4, kHuge}, Shape{1001}}) {
    EXPECT_THAT(CheckTensorType(TensorType::Make(DType::kF32, shape), limits), StatusIs(kInvalid, "elements"));
  }
  EXPECT_THAT(CheckTensorType(TensorType::Make(DType::kF32, {-1}), limits), StatusIs(kInvalid, "negative"));
  EXPECT_THAT(CheckTensorType(TensorType::Make(DType::kF32, Shape(13, 1)), limits), StatusIs(kInvalid, "rank 13"));
  EXPECT_THAT(CheckTensorType(TensorType::Make(DType::kInvalid, {1}), limits), StatusIs(kInvalid, "dtype"));
}

TEST(TypeLimitsTest, StridesAreBoundedWithoutOverflow) {
  GraphLimits limits;
  limits.max_elements = 1000;
  const auto check = [&limits](Shape shape, std::vector<int64_t> strides) {
    TensorType type = TensorType::Make(DType::kF32, shape);
    type.strides = std::move(strides);
    return CheckTensorType(type, limits);
  };
  EXPECT_OK(check({10, 10}, {0, 1}));  // rows overlap: fine for reading
  EXPECT_OK(check({10, 10}, {1, 100}));
  EXPECT_THAT(check({10, 10}, {1, 112}), StatusIs(kInvalid, "span"));
  EXPECT_THAT(check({10, 10}, {1}), StatusIs(kInvalid, "1 strides for rank 2"));
  EXPECT_THAT(check({10, 10}, {-1, 1}), StatusIs(kInvalid, "negative"));
  EXPECT_THAT(check({3, 3}, {int64_t{1} << 62, int64_t{1} << 62}), StatusIs(kInvalid, "span"));
}

}  // namespace
}  // namespace fuseline
