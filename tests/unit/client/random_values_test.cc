#include "common/case_file/random_values.h"

#include <cmath>
#include <cstring>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace fuseline {
namespace {

// Case files and bug reports name seeds: these values must never change.
TEST(RandomValuesTest, WordsAreTheSameForever) {
  EXPECT_EQ(RandomWord(0, 0), 0xE220A8397B1DCDAFu);
  EXPECT_NE(RandomWord(0, 1), RandomWord(1, 0));
  Tensor normal = Tensor::Allocate(DType::kF64, {1});
  FillNormal(normal, 7);
  uint64_t sum = 0;
  for (uint64_t j = 0; j < 4; ++j) {
    for (int shift : {0, 21, 42}) sum += (RandomWord(7, j) >> shift) & 0x1FFFFF;
  }
  EXPECT_EQ(normal.GetDouble(0), (static_cast<double>(sum) + 6) / 2097152 - 6);
}

TEST(RandomValuesTest, NormalHasMeanZeroAndDeviationOne) {
  Tensor t = Tensor::Allocate(DType::kF32, {100000});
  FillNormal(t, 3);
  double sum = 0;
  double squares = 0;
  for (int64_t i = 0; i < t.element_count(); ++i) {
    sum += t.GetDouble(i);
    squares += t.GetDouble(i) * t.GetDouble(i);
  }
  EXPECT_NEAR(sum / 1e5, 0, 0.02);
  EXPECT_NEAR(squares / 1e5, 1, 0.02);
}

TEST(RandomValuesTest, UniformStaysInItsRange) {
  Tensor t = Tensor::Allocate(DType::kF64, {10000});
  FillUniform(t, 3, -2, 5);
  double least = 10;
  double most = -10;
  for (int64_t i = 0; i < t.element_count(); ++i) {
    least = std::min(least, t.GetDouble(i));
    most = std::max(most, t.GetDouble(i));
  }
  EXPECT_GE(least, -2);
  EXPECT_LT(least, -1.9);
  EXPECT_LT(most, 5);
  EXPECT_GT(most, 4.9);
}

TEST(RandomValuesTest, IntegersReachEveryValueOfTheRangeAndNoOther) {
  Tensor t = Tensor::Allocate(DType::kI32, {1000});
  FillRandomInt(t, 11, -2, 3);
  int counts[5] = {};
  for (int64_t i = 0; i < t.element_count(); ++i) {
    ASSERT_GE(t.GetInt(i), -2);
    ASSERT_LT(t.GetInt(i), 3);
    ++counts[t.GetInt(i) + 2];
  }
  for (const int count : counts) EXPECT_GT(count, 100);
}

TEST(RandomValuesTest, WholeRangeOfI64DoesNotOverflow) {
  Tensor t = Tensor::Allocate(DType::kI64, {100});
  FillRandomInt(t, 1, std::numeric_limits<int64_t>::min(), std::numeric_limits<int64_t>::max());
  int negative = 0;
  for (int64_t i = 0; i < 100; ++i) negative += t.GetInt(i) < 0;
  EXPECT_GT(negative, 20);
  EXPECT_LT(negative, 80);
}

TEST(RandomValuesTest, PeriodRepeatsThePrefix) {
  Tensor whole = Tensor::Allocate(DType::kBF16, {10});
  Tensor periodic = Tensor::Allocate(DType::kBF16, {10});
  FillNormal(whole, 5);
  FillNormal(periodic, 5, 4);
  for (int64_t i = 0; i < 10; ++i) EXPECT_EQ(periodic.GetDouble(i), whole.GetDouble(i % 4)) << i;
}

TEST(RandomValuesTest, EmptyTensorIsLeftAlone) {
  Tensor t = Tensor::Allocate(DType::kF32, {0, 3});
  FillNormal(t, 5, 4);
  EXPECT_EQ(t.element_count(), 0);
}

}  // namespace
}  // namespace fuseline
