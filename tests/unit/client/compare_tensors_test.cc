#include "common/case_file/compare_tensors.h"

#include <cmath>
#include <limits>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace fuseline {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInf = std::numeric_limits<double>::infinity();

Tensor Floats(const std::vector<double>& values, DType dtype = DType::kF32) {
  Tensor tensor = Tensor::Allocate(dtype, {static_cast<int64_t>(values.size())});
  for (size_t i = 0; i < values.size(); ++i) tensor.SetDouble(static_cast<int64_t>(i), values[i]);
  return tensor;
}

Tensor Integers(const std::vector<int64_t>& values, DType dtype = DType::kI64) {
  Tensor tensor = Tensor::Allocate(dtype, {static_cast<int64_t>(values.size())});
  for (size_t i = 0; i < values.size(); ++i) tensor.SetInt(static_cast<int64_t>(i), values[i]);
  return tensor;
}

struct FloatRow {
  const char* what;
  double got;
  double want;
  Tolerance tolerance;
  bool passes;
};

TEST(CompareTensorsTest, OneFloatFollowsTheRule) {
  const Tolerance exact;
  const Tolerance strict_zero = {.negative_zero_matters = true};
  const Tolerance loose_strict_zero = {.rtol = 0.1, .atol = 0.1, .negative_zero_matters = true};
  const FloatRow rows[] = {
      {"equal", 1.5, 1.5, exact, true},
      {"different", 1.5, 1.25, exact, false},
      {"within atol", 1.5, 1.25, {.atol = 0.25}, true},
      {"over atol", 1.5, 1.25, {.atol = 0.24}, false},
      {"within rtol of want", 110, 100, {.rtol = 0.1}, true},
      {"rtol is of want, not of got", 100, 89, {.rtol = 0.1, .atol = 0}, false},
      {"rtol and atol add", 111, 100, {.rtol = 0.1, .atol = 1}, true},
      {"NaN equals NaN", kNan, kNan, exact, true},
      {"NaN for a number", kNan, 1, {.rtol = 1e9, .atol = 1e9}, false},
      {"a number for NaN", 1, kNan, {.rtol = 1e9, .atol = 1e9}, false},
      {"equal infinities", -kInf, -kInf, exact, true},
      {"opposite infinities", kInf, -kInf, {.rtol = 1, .atol = 1}, false},
      {"infinity for a number", kInf, 1, {.rtol = 1e9, .atol = 1e9}, false},
      {"a number for infinity", 3e38, kInf, {.rtol = 1, .atol = 1}, false},
      {"wanted 0 met by -0.0", -0.0, 0.0, strict_zero, true},
      {"wanted 0 met by 0", 0.0, 0.0, strict_zero, true},
      {"wanted -0.0 met by -0.0", -0.0, -0.0, strict_zero, true},
      {"wanted -0.0 not met by 0", 0.0, -0.0, strict_zero, false},
      {"wanted -0.0 not met by a value within tolerance", 0.05, -0.0, loose_strict_zero, false},
      {"wanted -0.0 met by 0 where the sign does not matter", 0.0, -0.0, exact, true},
  };
  for (const FloatRow& row : rows) {
    SCOPED_TRACE(row.what);
    const OutputComparison c = CompareTensors("y", Floats({row.got}), Floats({row.want}), row.tolerance);
    EXPECT_EQ(c.passed(), row.passes);
    EXPECT_EQ(c.mismatches, row.passes ? 0 : 1);
    EXPECT_EQ(c.elements, 1);
  }
}

TEST(CompareTensorsTest, IntegersMustBeEqualWhateverTheTolerance) {
  const Tolerance loose = {.rtol = 1, .atol = 100};
  EXPECT_EQ(CompareTensors("y", Integers({5, 6}), Integers({5, 7}), loose).mismatches, 1);
  EXPECT_TRUE(CompareTensors("y", Integers({5, 7}), Integers({5, 7}), loose).passed());
}

TEST(CompareTensorsTest, LargeIntegersThatAreOneDoubleDiffer) {
  const int64_t large = (int64_t{1} << 60) + 1;
  EXPECT_EQ(CompareTensors("y", Integers({large}), Integers({large - 1}), {}).mismatches, 1);
}

TEST(CompareTensorsTest, BoolIsComparedByTruth) {
  EXPECT_EQ(CompareTensors("y", Integers({1, 0}, DType::kBool), Integers({1, 1}, DType::kBool), {}).first_mismatch,
            "at [1]: got false, want true");
}

TEST(CompareTensorsTest, FirstMismatchNamesPositionAndValues) {
  Tensor got = Tensor::Allocate(DType::kF32, {2, 3});
  Tensor want = Tensor::Allocate(DType::kF32, {2, 3});
  for (int64_t i = 0; i < 6; ++i) {
    got.SetDouble(i, static_cast<double>(i));
    want.SetDouble(i, i >= 5 ? -0.5 : static_cast<double>(i));
  }
  const OutputComparison c = CompareTensors("y", got, want, {});
  EXPECT_EQ(c.first_mismatch, "at [1, 2]: got 5, want -0.5");
  EXPECT_EQ(c.mismatches, 1);
  EXPECT_DOUBLE_EQ(c.max_abs_error, 5.5);
  EXPECT_DOUBLE_EQ(c.max_rel_error, 11);
}

TEST(CompareTensorsTest, ErrorsWithinToleranceAreStillMeasured) {
  const OutputComparison c = CompareTensors("y", Floats({1.5, 0.25}), Floats({1, 0}), {.atol = 1});
  EXPECT_TRUE(c.passed());
  EXPECT_DOUBLE_EQ(c.max_abs_error, 0.5);
  EXPECT_DOUBLE_EQ(c.max_rel_error, 0.5);  // a wanted 0 has no relative error
}

TEST(CompareTensorsTest, OtherShapeOrDtypeIsAMismatchThatNamesBoth) {
  const OutputComparison shape = CompareTensors("y", Floats({1, 2}), Floats({1, 2, 3}), {.atol = 100});
  EXPECT_FALSE(shape.passed());
  EXPECT_EQ(shape.first_mismatch, "got a tensor of type f32[2], want f32[3]");
  const OutputComparison dtype = CompareTensors("y", Floats({1}, DType::kF64), Floats({1}), {.atol = 100});
  EXPECT_EQ(dtype.first_mismatch, "got a tensor of type f64[1], want f32[1]");
}

TEST(CompareTensorsTest, EmptyTensorsOfDifferentTypeDoNotPass) {
  EXPECT_FALSE(
      CompareTensors("y", Tensor::Allocate(DType::kF32, {0}), Tensor::Allocate(DType::kF32, {0, 2}), {}).passed());
  EXPECT_TRUE(CompareTensors("y", Tensor::Allocate(DType::kF32, {0}), Tensor::Allocate(DType::kF32, {0}), {}).passed());
}

TEST(CompareTensorsTest, TextTellsNeighboursApart) {
  const float one_up = std::nextafterf(1.0f, 2.0f);
  EXPECT_EQ(ElementText(Floats({one_up}), 0), "1.00000012");
  EXPECT_EQ(ElementText(Floats({-0.0}), 0), "-0.0");
  EXPECT_EQ(ElementText(Floats({-kInf}), 0), "-inf");
  EXPECT_EQ(ElementText(Floats({0.1}, DType::kF64), 0), "0.10000000000000001");
}

}  // namespace
}  // namespace fuseline
