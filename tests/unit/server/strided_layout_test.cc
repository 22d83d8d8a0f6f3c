#include "server/executor/strided_layout.h"

#include <cstdint>
#include <limits>
#include <numeric>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tests/testing/status_matchers.h"

namespace fuseline::executor {
namespace {

using ::fuseline::testing::IsOk;
using ::fuseline::testing::StatusIs;

PlanTensor Input(Shape shape, std::vector<int64_t> strides, DType dtype = DType::kI32) {
  return {"x", dtype, std::move(shape), std::move(strides), 16};
}

TEST(IsDenseTest, StridesOfDimsOfSizeOneAndEmptyTensorsDoNotMatter) {
  EXPECT_TRUE(IsDense({2, 3}, {3, 1}));
  EXPECT_TRUE(IsDense({2, 3}, {}));
  EXPECT_TRUE(IsDense({}, {}));
  EXPECT_TRUE(IsDense({1, 3}, {99, 1}));
  EXPECT_TRUE(IsDense({2, 0}, {7, 7}));
  EXPECT_FALSE(IsDense({2, 3}, {1, 2}));
  EXPECT_FALSE(IsDense({2, 3}, {4, 1}));
  EXPECT_FALSE(IsDense({2}, {0}));
}

struct LayoutCase {
  Shape shape;
  std::vector<int64_t> strides;
  std::vector<int32_t> expected;  // of the elements 1, 2, 3, … in row-major order
};

class LayOutTest : public ::testing::TestWithParam<LayoutCase> {};

TEST_P(LayOutTest, ElementsLieWhereTheStridesSay) {
  const LayoutCase& c = GetParam();
  const PlanTensor input = Input(c.shape, c.strides);
  const auto bytes = LaidOutBytes(input);
  ASSERT_THAT(bytes, IsOk());
  ASSERT_EQ(*bytes, static_cast<int64_t>(c.expected.size() * 4));
  std::vector<int32_t> dense(static_cast<size_t>(ElementCount(c.shape)));
  std::iota(dense.begin(), dense.end(), 1);
  std::vector<int32_t> laid_out(c.expected.size(), -1);
  ASSERT_THAT(LayOut(input, dense.data(), laid_out.data()), IsOk());
  EXPECT_EQ(laid_out, c.expected);
}

INSTANTIATE_TEST_SUITE_P(Strides, LayOutTest,
                         ::testing::Values(LayoutCase{{2, 3}, {3, 1}, {1, 2, 3, 4, 5, 6}},
                                           LayoutCase{{2, 3}, {1, 2}, {1, 4, 2, 5, 3, 6}},
                                           LayoutCase{{2, 2}, {4, 1}, {1, 2, 0, 0, 3, 4}},
                                           LayoutCase{{3}, {2}, {1, 0, 2, 0, 3}}, LayoutCase{{3}, {0}, {3}},
                                           LayoutCase{{2, 0, 3}, {1, 1, 1}, {}}, LayoutCase{{}, {}, {1}},
                                           LayoutCase{{2, 1, 2}, {2, 50, 1}, {1, 2, 3, 4}},
                                           LayoutCase{{2, 2, 2}, {1, 2, 4}, {1, 5, 3, 7, 2, 6, 4, 8}}));

TEST(LayOutTest, EveryElementSizeIsMoved) {
  for (const DType dtype : {DType::kU8, DType::kF16, DType::kF32, DType::kF64}) {
    const PlanTensor input = Input({2, 2}, {1, 2}, dtype);
    const size_t bytes = static_cast<size_t>(DTypeSizeBytes(dtype));
    std::string dense;
    for (const char c : {'a', 'b', 'c', 'd'}) dense.append(bytes, c);
    std::string laid_out(4 * bytes, '.');
    ASSERT_THAT(LayOut(input, dense.data(), laid_out.data()), IsOk());
    std::string expected;
    for (const char c : {'a', 'c', 'b', 'd'}) expected.append(bytes, c);
    EXPECT_EQ(laid_out, expected) << DTypeName(dtype);
  }
}

TEST(LaidOutBytesTest, SizesThatOverflowOrDoNotFitAreErrors) {
  const int64_t big = std::numeric_limits<int64_t>::max() / 2;
  EXPECT_THAT(LaidOutBytes(Input({3}, {big})), StatusIs(absl::StatusCode::kInternal, "'x'"));
  EXPECT_THAT(LaidOutBytes(Input({big, 3}, {})), StatusIs(absl::StatusCode::kInternal, "'x'"));
  EXPECT_THAT(LaidOutBytes(Input({2}, {big})), StatusIs(absl::StatusCode::kInternal, "bytes"));
  EXPECT_THAT(LaidOutBytes(Input({2, 2}, {1})), StatusIs(absl::StatusCode::kInternal, "rank"));
  EXPECT_THAT(LaidOutBytes(Input({2}, {-1})), StatusIs(absl::StatusCode::kInternal, "negative"));
}

}  // namespace
}  // namespace fuseline::executor
