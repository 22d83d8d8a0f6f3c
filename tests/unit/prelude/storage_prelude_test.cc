// Loads, stores and roundings of the 16- and 8-bit floats against a search among all values of the format; bitcasts.
#include <algorithm>

#include "tests/unit/prelude/prelude_fixture.h"

namespace fuseline::codegen {
namespace {

struct Format {
  const char* name;
  int bits, mantissa_bits, bias;
  bool has_infinity;  // e4m3 uses the top exponent for numbers; only the all-ones pattern is NaN
  bool saturates;
};

void PrintTo(const Format& format, std::ostream* out) { *out << format.name; }

double Decode(const Format& f, uint32_t pattern) {
  const int exponent_bits = f.bits - 1 - f.mantissa_bits;
  const uint32_t mantissa = pattern & ((1u << f.mantissa_bits) - 1);
  const int exponent = static_cast<int>(pattern >> f.mantissa_bits & ((1u << exponent_bits) - 1));
  const double sign = (pattern >> (f.bits - 1)) != 0 ? -1 : 1;
  const bool top = exponent == (1 << exponent_bits) - 1;
  if (top && f.has_infinity) return mantissa == 0 ? sign * INFINITY : NAN;
  if (top && mantissa == (1u << f.mantissa_bits) - 1) return NAN;
  if (exponent == 0) return sign * std::ldexp(mantissa, 1 - f.bias - f.mantissa_bits);
  return sign * std::ldexp(mantissa + (1u << f.mantissa_bits), exponent - f.bias - f.mantissa_bits);
}

// The pattern nearest to |x|, ties to the even one, by search.
class Rounder {
 public:
  explicit Rounder(const Format& format) : format_(format) {
    for (uint32_t p = 0; p < 1u << (format.bits - 1); ++p) {
      const double value = Decode(format, p);
      if (!std::isfinite(value)) break;
      values_.push_back(value);
    }
  }
  double Round(double x) const {
    if (std::isnan(x)) return NAN;
    const double size = std::fabs(x);
    const size_t above = static_cast<size_t>(std::lower_bound(values_.begin(), values_.end(), size) - values_.begin());
    double result;
    if (above == values_.size()) {
      // Without saturation: as if one more value followed, at the same distance.
      const double greatest = values_.back(), step = greatest - values_[values_.size() - 2];
      const bool beyond = size >= greatest + step / 2;  // the greatest pattern is odd, so that a tie goes up
      result = format_.saturates || !beyond ? greatest : INFINITY;
    } else if (values_[above] == size || above == 0) {
      result = values_[above];
    } else {
      const double up = values_[above] - size, down = size - values_[above - 1];  // exact: few bits apart
      const bool take_up = up < down || (up == down && above % 2 == 0);
      result = take_up ? values_[above] : values_[above - 1];
    }
    return std::copysign(result, x);
  }
  const std::vector<double>& values() const { return values_; }

 private:
  Format format_;
  std::vector<double> values_;
};

class StoragePreludeTest : public PreludeFixture, public ::testing::WithParamInterface<Format> {
 protected:
  std::vector<float> Load(const std::vector<uint32_t>& patterns) {
    const std::string name = std::string("fl_load_") + GetParam().name;
    if (GetParam().bits == 16)
      return Call<float, uint16_t>(name, std::vector<uint16_t>(patterns.begin(), patterns.end()));
    return Call<float, uint8_t>(name, std::vector<uint8_t>(patterns.begin(), patterns.end()));
  }
  std::vector<uint32_t> Store(const std::vector<float>& values) {
    const std::string name = std::string("fl_store_") + GetParam().name;
    if (GetParam().bits == 16) {
      const auto out = Call<uint16_t, float>(name, values);
      return {out.begin(), out.end()};
    }
    const auto out = Call<uint8_t, float>(name, values);
    return {out.begin(), out.end()};
  }

  // Every value of the format, every midpoint, and their neighbours in F; special and random values.
  template <class F>
  std::vector<F> RoundingInputs(const Rounder& rounder) {
    std::vector<F> out = SpecialFloats<F>();
    const std::vector<double>& values = rounder.values();
    for (size_t i = 0; i + 1 < values.size(); ++i) {
      for (double v : {values[i], (values[i] + values[i + 1]) / 2}) {
        const F at = static_cast<F>(v);
        for (F x : {at, std::nextafter(at, F(INFINITY)), std::nextafter(at, F(-INFINITY))}) {
          out.push_back(x);
          out.push_back(-x);
        }
      }
    }
    const double greatest = values.back(), step = greatest - values[values.size() - 2];
    for (double v : {greatest, greatest + step / 4, greatest + step / 2, greatest + step}) {
      const F at = static_cast<F>(v);
      for (F x : {at, std::nextafter(at, F(INFINITY)), std::nextafter(at, F(0))}) {
        out.push_back(x);
        out.push_back(-x);
      }
    }
    const std::vector<F> random = RandomFloats<F>(200000, 9);
    out.insert(out.end(), random.begin(), random.end());
    return out;
  }
};

void ExpectFloat(float got, double want, const std::string& what, double x) {
  if (std::isnan(want)) {
    ASSERT_TRUE(std::isnan(got)) << what << "(" << x << ") = " << got;
  } else {
    ASSERT_EQ(std::bit_cast<uint32_t>(got), std::bit_cast<uint32_t>(static_cast<float>(want)))
        << what << "(" << x << ") = " << got << ", want " << want;
  }
}

TEST_P(StoragePreludeTest, LoadDecodesEveryPatternAndStoreGivesItBack) {
  std::vector<uint32_t> patterns;
  for (uint32_t p = 0; p < 1u << GetParam().bits; ++p) patterns.push_back(p);
  const std::vector<float> loaded = Load(patterns);
  const std::vector<uint32_t> stored = Store(loaded);
  for (uint32_t p : patterns) {
    ExpectFloat(loaded[p], Decode(GetParam(), p), "load", p);
    if (std::isnan(loaded[p])) {
      ASSERT_TRUE(std::isnan(Decode(GetParam(), stored[p]))) << p;
    } else if (std::isinf(loaded[p]) && GetParam().saturates) {
      ASSERT_EQ(stored[p], p - 1);
    } else {
      ASSERT_EQ(stored[p], p);
    }
  }
}

TEST_P(StoragePreludeTest, RoundAndStoreFromF32TakeTheNearestValue) {
  const Rounder rounder(GetParam());
  const std::vector<float> inputs = RoundingInputs<float>(rounder);
  const std::vector<float> rounded = Call<float, float>(std::string("fl_round_") + GetParam().name + "_f32", inputs);
  const std::vector<uint32_t> stored = Store(inputs);
  for (size_t i = 0; i < inputs.size(); ++i) {
    const double want = rounder.Round(inputs[i]);
    ExpectFloat(rounded[i], want, "round", inputs[i]);
    ExpectFloat(static_cast<float>(Decode(GetParam(), stored[i])), want, "store", inputs[i]);
  }
}

TEST_P(StoragePreludeTest, RoundFromF64RoundsOnce) {
  const Rounder rounder(GetParam());
  const std::vector<double> inputs = RoundingInputs<double>(rounder);
  const std::vector<float> rounded = Call<float, double>(std::string("fl_round_") + GetParam().name + "_f64", inputs);
  for (size_t i = 0; i < inputs.size(); ++i) ExpectFloat(rounded[i], rounder.Round(inputs[i]), "round", inputs[i]);
}

INSTANTIATE_TEST_SUITE_P(Formats, StoragePreludeTest,
                         ::testing::Values(Format{"f16", 16, 10, 15, true, false},
                                           Format{"bf16", 16, 7, 127, true, false},
                                           Format{"f8e4m3", 8, 3, 7, false, true},
                                           Format{"f8e5m2", 8, 2, 15, true, true}),
                         [](const auto& info) { return std::string(info.param.name); });

using BitcastPreludeTest = PreludeFixture;

TEST_F(BitcastPreludeTest, KeepsBits) {
  const std::vector<float> floats = {1.0f, -0.0f, INFINITY, 1e-45f, -3.5f};
  const auto ints = Call<int32_t, float>("fl_bitcast_f32_to_i32", floats);
  const auto doubles = Call<double, int64_t>("fl_bitcast_i64_to_f64", std::vector<int64_t>{0x3ff0000000000000, 1});
  for (size_t i = 0; i < floats.size(); ++i) EXPECT_EQ(ints[i], std::bit_cast<int32_t>(floats[i]));
  EXPECT_EQ((Call<float, int32_t>("fl_bitcast_i32_to_f32", ints)), floats);
  EXPECT_EQ(doubles, (std::vector<double>{1.0, 0x1p-1074}));
  EXPECT_EQ((Call<int64_t, double>("fl_bitcast_f64_to_i64", doubles)), (std::vector<int64_t>{0x3ff0000000000000, 1}));
}

TEST_F(BitcastPreludeTest, SmallFloatsAreInComputeForm) {
  EXPECT_EQ((Call<int16_t, float>("fl_bitcast_f16_to_i16", {1.0f, -2.0f})),
            (std::vector<int16_t>{0x3c00, static_cast<int16_t>(0xc000)}));
  EXPECT_EQ((Call<int16_t, float>("fl_bitcast_bf16_to_i16", {1.0f, -2.0f})),
            (std::vector<int16_t>{0x3f80, static_cast<int16_t>(0xc000)}));
  EXPECT_EQ((Call<float, int16_t>("fl_bitcast_i16_to_f16", {0x3c00, 1})), (std::vector<float>{1.0f, 0x1p-24f}));
  EXPECT_EQ((Call<float, float>("fl_bitcast_bf16_to_f16", {1.0f})), (std::vector<float>{1.875f}));
  EXPECT_EQ((Call<uint8_t, float>("fl_bitcast_f8e4m3_to_u8", {448.0f, -1.0f})), (std::vector<uint8_t>{0x7e, 0xb8}));
  EXPECT_EQ((Call<float, uint8_t>("fl_bitcast_u8_to_f8e5m2", {0x7b, 0xbc})), (std::vector<float>{57344.0f, -1.0f}));
  EXPECT_EQ((Call<int8_t, uint8_t>("fl_bitcast_u8_to_i8", {0x7b, 0xbc})), (std::vector<int8_t>{0x7b, -68}));
}

}  // namespace
}  // namespace fuseline::codegen
