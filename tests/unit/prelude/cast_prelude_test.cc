// Casts between all compute types against a plain definition, in long double or 64-bit integers.
#include <algorithm>

#include "tests/unit/prelude/prelude_fixture.h"

namespace fuseline::codegen {
namespace {

template <class T>
struct Suffix;
template <>
struct Suffix<float> {
  static constexpr const char* kName = "f32";
};
template <>
struct Suffix<double> {
  static constexpr const char* kName = "f64";
};
template <>
struct Suffix<int64_t> {
  static constexpr const char* kName = "i64";
};
template <>
struct Suffix<int32_t> {
  static constexpr const char* kName = "i32";
};
template <>
struct Suffix<int16_t> {
  static constexpr const char* kName = "i16";
};
template <>
struct Suffix<int8_t> {
  static constexpr const char* kName = "i8";
};
template <>
struct Suffix<uint8_t> {
  static constexpr const char* kName = "u8";
};

template <class From, class To>
To PlainCast(From x) {
  if constexpr (std::is_floating_point_v<From> && std::is_integral_v<To>) {
    if (std::isnan(x)) return 0;
    const long double whole = std::trunc(static_cast<long double>(x));
    if (whole <= static_cast<long double>(std::numeric_limits<To>::min())) return std::numeric_limits<To>::min();
    if (whole >= static_cast<long double>(std::numeric_limits<To>::max())) return std::numeric_limits<To>::max();
    return static_cast<To>(whole);
  } else {
    return static_cast<To>(x);
  }
}

template <class From>
class CastPreludeTest : public PreludeFixture {
 protected:
  std::vector<From> Inputs() {
    std::vector<From> out;
    if constexpr (std::is_floating_point_v<From>) {
      out = SpecialFloats<From>();
      const std::vector<From> random = RandomFloats<From>(100000, 5);
      out.insert(out.end(), random.begin(), random.end());
      // The borders of every integer type.
      for (double border :
           {0.0, 127.0, 128.0, 255.0, 256.0, 32767.0, 32768.0, 2147483647.0, 2147483648.0, 9223372036854775808.0}) {
        for (double sign : {1.0, -1.0}) {
          const From at = static_cast<From>(border * sign);
          for (From v : {at, std::nextafter(at, From(0)), std::nextafter(at, From(2) * at), at + From(0.5),
                         at - From(0.5), at + From(1), at - From(1)}) {
            out.push_back(v);
          }
        }
      }
    } else {
      std::mt19937_64 random(6);
      for (int i = 0; i < 100000; ++i)
        out.push_back(static_cast<From>(static_cast<int64_t>(random()) >> (random() % 64)));
      for (int bit = 0; bit < 64; ++bit) {
        for (int64_t d : {-1, 0, 1}) out.push_back(static_cast<From>((uint64_t{1} << bit) + static_cast<uint64_t>(d)));
      }
    }
    return out;
  }

  template <class To>
  void CheckTo() {
    const std::vector<From> inputs = Inputs();
    const std::string name = std::string("fl_cast_") + Suffix<From>::kName + "_to_" + Suffix<To>::kName;
    const std::vector<To> got = Call<To, From>(name, inputs);
    for (size_t i = 0; i < inputs.size(); ++i) {
      const To want = PlainCast<From, To>(inputs[i]);
      if (want != want && got[i] != got[i]) continue;
      ASSERT_EQ(got[i], want) << name << "(" << +inputs[i] << ")";
    }
  }
};

using CastTypes = ::testing::Types<float, double, int64_t, int32_t, int16_t, int8_t, uint8_t>;
TYPED_TEST_SUITE(CastPreludeTest, CastTypes);

TYPED_TEST(CastPreludeTest, ToEveryTypeFollowsTheRules) {
  this->template CheckTo<float>();
  this->template CheckTo<double>();
  this->template CheckTo<int64_t>();
  this->template CheckTo<int32_t>();
  this->template CheckTo<int16_t>();
  this->template CheckTo<int8_t>();
  this->template CheckTo<uint8_t>();
}

TYPED_TEST(CastPreludeTest, ToBoolIsNonZeroAndFromBoolIsZeroOrOne) {
  const std::vector<TypeParam> inputs = this->Inputs();
  const std::string suffix = Suffix<TypeParam>::kName;
  const auto got = this->template Call<uint8_t, TypeParam>("fl_cast_" + suffix + "_to_bool", inputs);
  for (size_t i = 0; i < inputs.size(); ++i) ASSERT_EQ(got[i], inputs[i] != 0) << +inputs[i];
  EXPECT_EQ((this->template Call<TypeParam, uint8_t>("fl_cast_bool_to_" + suffix, std::vector<uint8_t>{0, 1})),
            (std::vector<TypeParam>{0, 1}));
}

}  // namespace
}  // namespace fuseline::codegen
