#include "common/case_file/random_inputs.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/status_matchers.h"

namespace fuseline {
namespace {

using ::fuseline::testing::StatusIs;

TEST(RandomInputsTest, EachInputHasItsOwnStreamOfTheSeed) {
  const std::vector<TensorType> types = {TensorType::Make(DType::kF32, {2, 3}), TensorType::Make(DType::kF32, {2, 3})};
  const auto inputs = MakeBenchmarkInputs(types, 5);
  ASSERT_OK(inputs);
  ASSERT_EQ(inputs->size(), 2u);
  EXPECT_EQ((*inputs)[0].shape(), (Shape{2, 3}));
  EXPECT_NE((*inputs)[0].bytes(), (*inputs)[1].bytes());
  EXPECT_EQ((*inputs)[1].bytes(), MakeRandomInput(types[1], 6, 0).bytes());
  const auto next = MakeBenchmarkInputs(types, 6);
  ASSERT_OK(next);
  EXPECT_EQ((*inputs)[1].bytes(), (*next)[0].bytes());
}

TEST(RandomInputsTest, IntegersAreSmallAndBoolsEither) {
  const Tensor integers = MakeRandomInput(TensorType::Make(DType::kI64, {1000}), 1, 0);
  const Tensor bools = MakeRandomInput(TensorType::Make(DType::kBool, {1000}), 1, 0);
  int64_t largest = 0;
  int64_t trues = 0;
  for (int64_t i = 0; i < 1000; ++i) {
    EXPECT_GE(integers.GetInt(i), 0);
    largest = std::max(largest, integers.GetInt(i));
    EXPECT_THAT(bools.GetInt(i), ::testing::AnyOf(0, 1));
    trues += bools.GetInt(i);
  }
  EXPECT_EQ(largest, 7);
  EXPECT_GT(trues, 400);
  EXPECT_LT(trues, 600);
}

TEST(RandomInputsTest, LargeInputsOfABenchmarkRepeat) {
  const auto inputs = MakeBenchmarkInputs({TensorType::Make(DType::kI8, {kBenchmarkInputPeriod + 100})}, 1);
  ASSERT_OK(inputs);
  const std::string_view bytes = (*inputs)[0].bytes();
  EXPECT_EQ(bytes.substr(static_cast<size_t>(kBenchmarkInputPeriod)), bytes.substr(0, 100));
}

TEST(RandomInputsTest, BytesOfAllInputsTogetherAreBounded) {
  const TensorType half = TensorType::Make(DType::kU8, {kMaxBenchmarkInputBytes / 2});
  const auto bytes = BenchmarkInputBytes({half, half});
  ASSERT_OK(bytes);
  EXPECT_EQ(*bytes, kMaxBenchmarkInputBytes);
  const TensorType one = TensorType::Make(DType::kU8, {1});
  EXPECT_THAT(BenchmarkInputBytes({half, half, one}), StatusIs(absl::StatusCode::kInvalidArgument, "limit"));
  EXPECT_THAT(MakeBenchmarkInputs({half, one, half}, 1), StatusIs(absl::StatusCode::kInvalidArgument, "limit"));
}

}  // namespace
}  // namespace fuseline
