#include "common/tensor/tensor.h"

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>

#include "common/tensor/float_formats.h"
#include "gtest/gtest.h"
#include "tests/testing/status_matchers.h"

namespace fuseline {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

struct EncodingCase {
  DType dtype;
  double value;
  uint16_t bits;
};

TEST(TensorTest, SmallFloatsAreEncodedAsTheirFormatsSay) {
  const EncodingCase cases[] = {
      {DType::kF16, 1.0, 0x3c00},
      {DType::kF16, -2.0, 0xc000},
      {DType::kF16, 65504, 0x7bff},
      {DType::kF16, 65519.99, 0x7bff},
      {DType::kF16, 65520, 0x7c00},
      {DType::kF16, -kInf, 0xfc00},
      {DType::kF16, 0x1p-24, 0x0001},
      {DType::kF16, 0x1p-25, 0x0000},
      {DType::kF16, 0x1.8p-25, 0x0001},
      {DType::kF16, 0x1p-14, 0x0400},
      {DType::kF16, 0x1.ffcp-15, 0x03ff + 1},
      {DType::kF16, -0.0, 0x8000},
      {DType::kF16, 2049, 0x6800},
      {DType::kF16, 2051, 0x6802},
      {DType::kBF16, 1.0, 0x3f80},
      {DType::kBF16, 257, 0x4380},
      {DType::kBF16, 259, 0x4382},
      {DType::kBF16, 0x1p-133, 0x0001},
      {DType::kBF16, 3.4e38, 0x7f80},
      {DType::kF8E4M3, 448, 0x7e},
      {DType::kF8E4M3, 1e9, 0x7e},
      {DType::kF8E4M3, -kInf, 0xfe},
      {DType::kF8E4M3, 0x1p-9, 0x01},
      {DType::kF8E4M3, 1.0, 0x38},
      {DType::kF8E5M2, 57344, 0x7b},
      {DType::kF8E5M2, 1e9, 0x7b},
      {DType::kF8E5M2, 1.0, 0x3c},
      {DType::kF8E5M2, 0x1p-16, 0x01},
  };
  for (const EncodingCase& c : cases) {
    EXPECT_EQ(EncodeSmallFloat(c.dtype, c.value), c.bits) << DTypeName(c.dtype) << " " << c.value;
  }
}

TEST(TensorTest, EveryBitPatternSurvivesDecodingAndEncoding) {
  for (const DType dtype : {DType::kF16, DType::kBF16, DType::kF8E4M3, DType::kF8E5M2}) {
    for (uint32_t bits = 0; bits < (DTypeSizeBytes(dtype) == 2 ? 0x10000u : 0x100u); ++bits) {
      const double value = DecodeSmallFloat(dtype, static_cast<uint16_t>(bits));
      if (std::isnan(value)) {
        EXPECT_TRUE(std::isnan(DecodeSmallFloat(dtype, EncodeSmallFloat(dtype, value))));
        continue;
      }
      if (dtype == DType::kF8E5M2 && std::isinf(value)) continue;  // saturates
      ASSERT_EQ(EncodeSmallFloat(dtype, value), bits) << DTypeName(dtype);
      ASSERT_EQ(RoundToSmallFloat(dtype, value), value);
    }
  }
}

// Halfway values go to the even neighbour, anything else to the nearer one.
TEST(TensorTest, RoundingIsToNearestEven) {
  for (const DType dtype : {DType::kF16, DType::kBF16, DType::kF8E4M3, DType::kF8E5M2}) {
    const uint16_t last = dtype == DType::kF16      ? 0x7bff
                          : dtype == DType::kBF16   ? 0x7f7f
                          : dtype == DType::kF8E4M3 ? 0x7e
                                                    : 0x7b;
    for (uint16_t bits = 0; bits < last; ++bits) {
      const double low = DecodeSmallFloat(dtype, bits), high = DecodeSmallFloat(dtype, static_cast<uint16_t>(bits + 1));
      const double middle = (low + high) / 2;
      ASSERT_EQ(RoundToSmallFloat(dtype, middle), bits % 2 == 0 ? low : high) << DTypeName(dtype) << " " << bits;
      ASSERT_EQ(RoundToSmallFloat(dtype, std::nextafter(middle, -kInf)), low);
      ASSERT_EQ(RoundToSmallFloat(dtype, std::nextafter(middle, kInf)), high);
      ASSERT_EQ(RoundToSmallFloat(dtype, -middle), bits % 2 == 0 ? -low : -high);
    }
  }
}

TEST(TensorTest, FloatsStoredAsIntegersTruncateAndSaturate) {
  struct Case {
    DType dtype;
    double value;
    int64_t want;
  };
  const Case cases[] = {{DType::kI32, 2.9, 2},
                        {DType::kI32, -2.9, -2},
                        {DType::kI32, 3e9, std::numeric_limits<int32_t>::max()},
                        {DType::kI32, -kInf, std::numeric_limits<int32_t>::min()},
                        {DType::kI32, kNan, 0},
                        {DType::kI64, 1e19, std::numeric_limits<int64_t>::max()},
                        {DType::kI64, -1e19, std::numeric_limits<int64_t>::min()},
                        {DType::kI16, 40000, 32767},
                        {DType::kI8, -129, -128},
                        {DType::kU8, -1, 0},
                        {DType::kU8, 256, 255},
                        {DType::kBool, 0.5, 1},
                        {DType::kBool, kNan, 1},
                        {DType::kBool, -0.0, 0}};
  for (const Case& c : cases) {
    Tensor t = Tensor::Allocate(c.dtype, {});
    t.SetDouble(0, c.value);
    EXPECT_EQ(t.GetInt(0), c.want) << DTypeName(c.dtype) << " " << c.value;
  }
}

TEST(TensorTest, IntegersWrapBetweenWidths) {
  Tensor t = Tensor::Allocate(DType::kI8, {2});
  t.SetInt(0, 200);
  t.SetInt(1, -129);
  EXPECT_EQ(t.GetInt(0), -56);
  EXPECT_EQ(t.GetInt(1), 127);
}

TEST(TensorTest, I64RoundsToF32Once) {
  Tensor t = Tensor::Allocate(DType::kF32, {});
  t.SetInt(0, (int64_t{1} << 53) + (int64_t{1} << 29) + 1);  // by way of double it would tie and round down
  EXPECT_EQ(t.GetDouble(0), static_cast<double>(static_cast<float>((int64_t{1} << 53) + (int64_t{1} << 29) + 1)));
  EXPECT_EQ(t.GetDouble(0), 0x1.000002p53);
}

TEST(TensorTest, StorageIsAlignedAlsoWhenEmpty) {
  for (const Shape& shape : {Shape{}, Shape{0}, Shape{3, 0, 7}, Shape{1000}}) {
    Tensor t = Tensor::Allocate(DType::kF32, shape);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(t.data()) % 64, 0u);
    EXPECT_EQ(t.size_bytes(), ElementCount(shape) * 4);
  }
}

TEST(TensorTest, BytesOfTheWrongSizeAreRefused) {
  EXPECT_THAT(Tensor::FromBytes(DType::kF32, {2}, "1234567"),
              testing::StatusIs(absl::StatusCode::kInvalidArgument, "8 bytes, not 7"));
  const auto t = Tensor::FromBytes(DType::kU8, {3}, "abc");
  ASSERT_OK(t);
  EXPECT_EQ(t->GetInt(2), 'c');
}

TEST(TensorTest, BorrowedStorageLivesAsLongAsTheTensor) {
  auto owner = std::make_shared<std::vector<float>>(3, 2.5f);
  const std::weak_ptr<std::vector<float>> watch = owner;
  Tensor t = Tensor::Borrow(DType::kF32, {3}, owner->data(), owner);
  owner.reset();
  EXPECT_FALSE(watch.expired());
  EXPECT_EQ(t.GetDouble(1), 2.5);
  t = Tensor();
  EXPECT_TRUE(watch.expired());
}

}  // namespace
}  // namespace fuseline
