// Integer and bool functions against formulas in 128 bits.
#include <algorithm>

#include "tests/unit/prelude/prelude_fixture.h"

namespace fuseline::codegen {
namespace {

__extension__ typedef __int128 Wide;
__extension__ typedef unsigned __int128 UnsignedWide;

template <class T>
class IntegerPreludeTest : public PreludeFixture {
 protected:
  static std::string Name(const std::string& op) {
    const char* suffix = std::is_same_v<T, uint8_t> ? "u8"
                         : sizeof(T) == 8           ? "i64"
                         : sizeof(T) == 4           ? "i32"
                         : sizeof(T) == 2           ? "i16"
                                                    : "i8";
    return "fl_" + op + "_" + suffix;
  }
  std::vector<T> Binary(const std::string& op) { return Call<T, T, T>(Name(op), a, b); }

  // All pairs for 8 bits; for others all pairs of edges and neighbours of powers of two, and random ones.
  void SetUp() override {
    PreludeFixture::SetUp();
    std::vector<T> edges;
    if (sizeof(T) == 1) {
      for (int i = 0; i < 256; ++i) edges.push_back(static_cast<T>(i));
    } else {
      for (int bit = 0; bit < static_cast<int>(sizeof(T)) * 8; ++bit) {
        const uint64_t power = uint64_t{1} << bit;
        for (uint64_t v : {power - 1, power, power + 1}) {
          edges.push_back(static_cast<T>(v));
          edges.push_back(static_cast<T>(0 - v));
        }
      }
      std::sort(edges.begin(), edges.end());
      edges.erase(std::unique(edges.begin(), edges.end()), edges.end());
    }
    for (T x : edges) {
      for (T y : edges) {
        a.push_back(x);
        b.push_back(y);
      }
    }
    std::mt19937_64 random(7);
    for (int i = 0; i < 20000; ++i) {
      a.push_back(static_cast<T>(random()));
      b.push_back(static_cast<T>(static_cast<int64_t>(random()) >> (random() % 64)));
    }
  }

  std::vector<T> a, b;
};

using IntegerTypes = ::testing::Types<int64_t, int32_t, int16_t, int8_t, uint8_t>;
TYPED_TEST_SUITE(IntegerPreludeTest, IntegerTypes);

Wide FloorDiv(Wide a, Wide b) { return a / b - (a % b != 0 && (a < 0) != (b < 0)); }

TYPED_TEST(IntegerPreludeTest, ArithmeticWraps) {
  using T = TypeParam;
  const auto add = this->Binary("add"), sub = this->Binary("sub"), mul = this->Binary("mul");
  const auto neg = this->template Call<T, T>(this->Name("neg"), this->a),
             abs = this->template Call<T, T>(this->Name("abs"), this->a);
  for (size_t i = 0; i < this->a.size(); ++i) {
    const Wide x = this->a[i], y = this->b[i];
    ASSERT_EQ(add[i], static_cast<T>(x + y));
    ASSERT_EQ(sub[i], static_cast<T>(x - y));
    ASSERT_EQ(mul[i], static_cast<T>(x * y));
    ASSERT_EQ(neg[i], static_cast<T>(-x));
    ASSERT_EQ(abs[i], static_cast<T>(x < 0 ? -x : x));
  }
}

TYPED_TEST(IntegerPreludeTest, DivisionsRoundAsNamedAndNeverTrap) {
  using T = TypeParam;
  const auto floor_div = this->Binary("floor_div"), trunc_div = this->Binary("trunc_div");
  const auto remainder = this->Binary("remainder"), fmod = this->Binary("fmod");
  for (size_t i = 0; i < this->a.size(); ++i) {
    const Wide x = this->a[i], y = this->b[i];
    if (y == 0) continue;  // unspecified; that it was computed at all is the test
    const int64_t shown_x = this->a[i], shown_y = this->b[i];
    ASSERT_EQ(floor_div[i], static_cast<T>(FloorDiv(x, y))) << shown_x << " " << shown_y;
    ASSERT_EQ(trunc_div[i], static_cast<T>(x / y)) << shown_x << " " << shown_y;
    ASSERT_EQ(remainder[i], static_cast<T>(x - FloorDiv(x, y) * y)) << shown_x << " " << shown_y;
    ASSERT_EQ(fmod[i], static_cast<T>(x % y)) << shown_x << " " << shown_y;
  }
}

TYPED_TEST(IntegerPreludeTest, PowWrapsAndTruncatesNegativeExponents) {
  using T = TypeParam;
  const auto pow = this->Binary("pow");
  for (size_t i = 0; i < this->a.size(); ++i) {
    const int64_t x = this->a[i], y = this->b[i];
    uint64_t want = 1;
    if (y < 0) {
      want = x == 1 ? 1 : x == -1 ? (y % 2 != 0 ? ~uint64_t{0} : 1) : 0;
    } else if (y < 300) {
      for (int64_t j = 0; j < y; ++j) want *= static_cast<uint64_t>(x);
    } else {
      // x^y = x^(y mod 2^62) modulo 2^64 for odd x; an even x has long become 0.
      want = x % 2 == 0 ? 0 : 1;
      uint64_t square = static_cast<uint64_t>(x);
      for (int bit = 0; bit < 62 && x % 2 != 0; ++bit, square *= square) {
        if ((y >> bit & 1) != 0) want *= square;
      }
    }
    ASSERT_EQ(pow[i], static_cast<T>(want)) << x << "^" << y;
  }
}

TYPED_TEST(IntegerPreludeTest, ShiftsByTheWidthOrMoreGiveZeroOrTheSign) {
  using T = TypeParam;
  const auto left = this->Binary("shift_left"), right = this->Binary("shift_right");
  const int width = static_cast<int>(sizeof(T)) * 8;
  for (size_t i = 0; i < this->a.size(); ++i) {
    const int64_t x = this->a[i], y = this->b[i];
    const bool inside = y >= 0 && y < width;
    ASSERT_EQ(left[i], inside ? static_cast<T>(static_cast<UnsignedWide>(x) << y) : T{0}) << x << " << " << y;
    ASSERT_EQ(right[i], inside ? static_cast<T>(x >> y) : static_cast<T>(x < 0 ? -1 : 0)) << x << " >> " << y;
  }
}

TYPED_TEST(IntegerPreludeTest, OrderAndBits) {
  using T = TypeParam;
  const auto maximum = this->Binary("maximum"), minimum = this->Binary("minimum"), fmax = this->Binary("fmax"),
             fmin = this->Binary("fmin");
  const auto bit_and = this->Binary("bit_and"), bit_or = this->Binary("bit_or"), bit_xor = this->Binary("bit_xor");
  const auto bit_not = this->template Call<T, T>(this->Name("bit_not"), this->a);
  std::vector<std::vector<uint8_t>> compared;
  for (const char* op : {"eq", "ne", "lt", "le", "gt", "ge"}) {
    compared.push_back(this->template Call<uint8_t, T, T>(this->Name(op), this->a, this->b));
  }
  for (size_t i = 0; i < this->a.size(); ++i) {
    const T x = this->a[i], y = this->b[i];
    ASSERT_EQ(maximum[i], std::max(x, y));
    ASSERT_EQ(minimum[i], std::min(x, y));
    ASSERT_EQ(fmax[i], std::max(x, y));
    ASSERT_EQ(fmin[i], std::min(x, y));
    ASSERT_EQ(bit_and[i], static_cast<T>(x & y));
    ASSERT_EQ(bit_or[i], static_cast<T>(x | y));
    ASSERT_EQ(bit_xor[i], static_cast<T>(x ^ y));
    ASSERT_EQ(bit_not[i], static_cast<T>(~x));
    const bool want[] = {x == y, x != y, x<y, x <= y, x> y, x >= y};
    for (int j = 0; j < 6; ++j) ASSERT_EQ(compared[j][i], want[j]) << j;
  }
}

using BoolPreludeTest = PreludeFixture;

TEST_F(BoolPreludeTest, TruthTables) {
  using Bools = std::vector<uint8_t>;
  // Enough repetitions for the vectorised body.
  Bools a, b, c;
  for (int i = 0; i < 256; ++i) {
    a.push_back(i & 1);
    b.push_back(i >> 1 & 1);
    c.push_back(i >> 2 & 1);
  }
  struct Row {
    const char* name;
    bool (*want)(bool, bool);
  };
  const Row rows[] = {
      {"logical_and", [](bool x, bool y) { return x && y; }}, {"logical_or", [](bool x, bool y) { return x || y; }},
      {"logical_xor", [](bool x, bool y) { return x != y; }}, {"bit_and", [](bool x, bool y) { return x && y; }},
      {"bit_or", [](bool x, bool y) { return x || y; }},      {"bit_xor", [](bool x, bool y) { return x != y; }},
      {"maximum", [](bool x, bool y) { return x || y; }},     {"minimum", [](bool x, bool y) { return x && y; }},
      {"eq", [](bool x, bool y) { return x == y; }},          {"ne", [](bool x, bool y) { return x != y; }},
      {"lt", [](bool x, bool y) { return !x && y; }},         {"le", [](bool x, bool y) { return !x || y; }},
      {"gt", [](bool x, bool y) { return x && !y; }},         {"ge", [](bool x, bool y) { return x || !y; }}};
  for (const Row& row : rows) {
    const Bools got = Call<uint8_t, uint8_t, uint8_t>(std::string("fl_") + row.name + "_bool", a, b);
    for (size_t i = 0; i < a.size(); ++i)
      ASSERT_EQ(got[i], row.want(a[i], b[i])) << row.name << " " << int{a[i]} << " " << int{b[i]};
  }
  const Bools logical_not = Call<uint8_t, uint8_t>("fl_logical_not_bool", a),
              bit_not = Call<uint8_t, uint8_t>("fl_bit_not_bool", a);
  const Bools select = Call<uint8_t, uint8_t, uint8_t, uint8_t>("fl_select_bool", c, a, b);
  for (size_t i = 0; i < a.size(); ++i) {
    ASSERT_EQ(logical_not[i], !a[i]);
    ASSERT_EQ(bit_not[i], !a[i]);
    ASSERT_EQ(select[i], c[i] ? a[i] : b[i]);
  }
  EXPECT_EQ((Call<uint8_t, uint8_t>("fl_load_bool", Bools{0, 1, 2, 255})), (Bools{0, 1, 1, 1}));
  EXPECT_EQ((Call<uint8_t, uint8_t>("fl_store_bool", Bools{0, 1})), (Bools{0, 1}));
}

}  // namespace
}  // namespace fuseline::codegen
