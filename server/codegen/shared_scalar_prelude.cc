// Tested by tests/unit/prelude/integer_prelude_test.cc and cast_prelude_test.cc, on both targets.
#include "server/codegen/shared_scalar_prelude.h"

namespace fuseline::codegen {
namespace {

// Selects rather than branches throughout, so that loops vectorise on the CPU and warps do not diverge.
constexpr PreludeTemplate kTemplates[] = {
    // Arithmetic. Integers wrap by way of unsigned types.
    {"fl_add_@S", kFloats, kNoType, "FL_FN @T fl_add_@S(@T a, @T b) { return a + b; }"},
    {"fl_sub_@S", kFloats, kNoType, "FL_FN @T fl_sub_@S(@T a, @T b) { return a - b; }"},
    {"fl_mul_@S", kFloats, kNoType, "FL_FN @T fl_mul_@S(@T a, @T b) { return a * b; }"},
    {"fl_neg_@S", kFloats, kNoType, "FL_FN @T fl_neg_@S(@T a) { return -a; }"},
    {"fl_div_@S", kFloats, kNoType, "FL_FN @T fl_div_@S(@T a, @T b) { return a / b; }"},
    {"fl_quotient_@S", kFloats, kNoType, "FL_FN @T fl_quotient_@S(@T a, @T b) { return a / b; }"},
    {"fl_add_@S", kInts, kNoType, "FL_FN @T fl_add_@S(@T a, @T b) { return (@T)((@U)a + (@U)b); }"},
    {"fl_sub_@S", kInts, kNoType, "FL_FN @T fl_sub_@S(@T a, @T b) { return (@T)((@U)a - (@U)b); }"},
    {"fl_mul_@S", kInts, kNoType, "FL_FN @T fl_mul_@S(@T a, @T b) { return (@T)((@U)a * (@U)b); }"},
    {"fl_neg_@S", kInts, kNoType, "FL_FN @T fl_neg_@S(@T a) { return (@T)((@U)0 - (@U)a); }"},
    {"fl_abs_@S", kInts, kNoType, "FL_FN @T fl_abs_@S(@T a) { return a < 0 ? (@T)((@U)0 - (@U)a) : a; }"},

    // Integer division. A divisor of 0 (any result, no trap) or -1 (the least value wraps) is replaced by 1.
    {"fl_trunc_div_@S", kSignedInts, kNoType,
     R"(FL_FN @T fl_trunc_div_@S(@T a, @T b) {
  const @T d = b == 0 || b == -1 ? (@T)1 : b;
  const @T q = (@T)(a / d);
  return b == -1 ? (@T)((@U)0 - (@U)a) : q;
})"},
    {"fl_floor_div_@S", kSignedInts, kNoType,
     R"(FL_FN @T fl_floor_div_@S(@T a, @T b) {
  const @T d = b == 0 || b == -1 ? (@T)1 : b;
  const @T q = (@T)(a / d);
  const @T m = (@T)(a - q * d);
  const @T f = (@T)(q - (m != 0 && (m < 0) != (d < 0) ? 1 : 0));
  return b == -1 ? (@T)((@U)0 - (@U)a) : f;
})"},
    {"fl_fmod_@S", kSignedInts, kNoType,
     R"(FL_FN @T fl_fmod_@S(@T a, @T b) {
  const @T d = b == 0 || b == -1 ? (@T)1 : b;
  return (@T)(a % d);
})"},
    {"fl_remainder_@S", kSignedInts, kNoType,
     R"(FL_FN @T fl_remainder_@S(@T a, @T b) {
  const @T d = b == 0 || b == -1 ? (@T)1 : b;
  const @T m = (@T)(a % d);
  return (@T)(m + (m != 0 && (m < 0) != (d < 0) ? d : (@T)0));
})"},
    {"fl_trunc_div_@S", kU8, kNoType, "FL_FN @T fl_trunc_div_@S(@T a, @T b) { return (@T)(a / (b == 0 ? 1 : b)); }"},
    {"fl_floor_div_@S", kU8, kNoType, "FL_FN @T fl_floor_div_@S(@T a, @T b) { return (@T)(a / (b == 0 ? 1 : b)); }"},
    {"fl_fmod_@S", kU8, kNoType, "FL_FN @T fl_fmod_@S(@T a, @T b) { return (@T)(a % (b == 0 ? 1 : b)); }"},
    {"fl_remainder_@S", kU8, kNoType, "FL_FN @T fl_remainder_@S(@T a, @T b) { return (@T)(a % (b == 0 ? 1 : b)); }"},

    // A position that must lie within [-extent, extent); check[0] notes that one did not, check[1] which. Threads may
    // overwrite each other's: any of them will do.
    {"fl_check_index", kNoType, kNoType,
     R"(FL_FN long long fl_check_index(long long i, long long extent, long long* check) {
  const long long at = i < 0 ? i + extent : i;
  if (at >= 0 && at < extent) return at;
  check[1] = i;
  check[0] = 1;
  return 0;
})"},

    // Division of floats with an integral quotient, from the exact remainder: a / b itself may round up to the next
    // integer.
    // (a - m) / b is integral but for its own rounding, which the rounding to an integer removes. f32 goes by way of
    // f64, where it is
    // exact for every quotient that f32 tells from its neighbours.
    {"fl_exact_quotient_f32", kNoType, kNoType,
     R"(FL_FN double fl_exact_quotient_f32(float a, float b, float m) {
  return fl_round_f64(((double)a - (double)m) / (double)b);
})"},
    {"fl_exact_quotient_f64", kNoType, kNoType,
     "FL_FN double fl_exact_quotient_f64(double a, double b, double m) { return fl_round_f64((a - m) / b); }"},
    {"fl_trunc_div_@S", kFloats, kNoType,
     R"(FL_FN @T fl_trunc_div_@S(@T a, @T b) {
  const @T exact = (@T)fl_exact_quotient_@S(a, b, fl_fmod_@S(a, b));
  const @T plain = a / b;
  return b == 0 || !fl_is_finite_@S(a) ? plain : fl_copysign_@S(exact, plain);
})"},
    {"fl_floor_div_@S", kFloats, kNoType,
     R"(FL_FN @T fl_floor_div_@S(@T a, @T b) {
  const @T m = fl_fmod_@S(a, b);
  const double t = fl_exact_quotient_@S(a, b, m);
  const @T q = (@T)(m != 0 && (m < 0) != (b < 0) ? t - 1 : t);
  const @T plain = a / b;
  const @T z = q == 0 ? fl_copysign_@S((@T)0, plain) : q;
  return b == 0 ? plain : z;
})"},
    {"fl_remainder_@S", kFloats, kNoType,
     R"(FL_FN @T fl_remainder_@S(@T a, @T b) {
  const @T m = fl_fmod_@S(a, b);
  const @T r = m != 0 && (m < 0) != (b < 0) ? m + b : m;
  return r == 0 ? fl_copysign_@S((@T)0, b) : r;
})"},

    // Equal operands differ at most by the sign of a zero, so that combining their bits orders -0.0 below +0.0.
    {"fl_maximum_@S", kFloats, kNoType,
     R"(FL_FN @T fl_maximum_@S(@T a, @T b) {
  const @T m = a < b ? b : a;
  const @T z = a == b ? fl_from_bits_@S(fl_bits_@S(a) & fl_bits_@S(b)) : m;
  return b != b ? b : z;
})"},
    {"fl_minimum_@S", kFloats, kNoType,
     R"(FL_FN @T fl_minimum_@S(@T a, @T b) {
  const @T m = b < a ? b : a;
  const @T z = a == b ? fl_from_bits_@S(fl_bits_@S(a) | fl_bits_@S(b)) : m;
  return b != b ? b : z;
})"},
    {"fl_maximum_@S", kInts | kBool, kNoType, "FL_FN @T fl_maximum_@S(@T a, @T b) { return a < b ? b : a; }"},
    {"fl_minimum_@S", kInts | kBool, kNoType, "FL_FN @T fl_minimum_@S(@T a, @T b) { return b < a ? b : a; }"},
    {"fl_fmax_@S", kFloats, kNoType,
     R"(FL_FN @T fl_fmax_@S(@T a, @T b) {
  const @T m = a < b ? b : a;
  return a != a ? b : m;
})"},
    {"fl_fmin_@S", kFloats, kNoType,
     R"(FL_FN @T fl_fmin_@S(@T a, @T b) {
  const @T m = b < a ? b : a;
  return a != a ? b : m;
})"},
    {"fl_fmax_@S", kInts | kBool, kNoType, "FL_FN @T fl_fmax_@S(@T a, @T b) { return a < b ? b : a; }"},
    {"fl_fmin_@S", kInts | kBool, kNoType, "FL_FN @T fl_fmin_@S(@T a, @T b) { return b < a ? b : a; }"},

    {"fl_pow_@S", kSignedInts, kNoType,
     R"(FL_FN @T fl_pow_@S(@T a, @T b) {
  @U result = 1;
  @U square = (@U)a;
  for (@U e = b < 0 ? 0 : (@U)b; e != 0; e >>= 1) {
    result *= e & 1 ? square : 1;
    square *= square;
  }
  const @T odd = (@T)(b & 1 ? -1 : 1);
  const @T inverse = a == 1 ? (@T)1 : a == -1 ? odd : (@T)0;
  return b < 0 ? inverse : (@T)result;
})"},
    {"fl_pow_@S", kU8, kNoType,
     R"(FL_FN @T fl_pow_@S(@T a, @T b) {
  @U result = 1;
  @U square = a;
  for (@U e = b; e != 0; e >>= 1) {
    result *= e & 1 ? square : 1;
    square *= square;
  }
  return (@T)result;
})"},

    // The neighbour of a towards b is one step in the bit pattern, away from zero or towards it.
    {"fl_nextafter_@S", kFloats, kNoType,
     R"(FL_FN @T fl_nextafter_@S(@T a, @T b) {
  const @B u = fl_bits_@S(a);
  const @B step = (a < b) == (a > 0) ? u + 1 : u - 1;
  const @T least = fl_copysign_@S(fl_from_bits_@S(1), b);
  const @T r = a == 0 ? least : fl_from_bits_@S(step);
  const @T e = a == b ? b : r;
  return a != a || b != b ? a + b : e;
})"},
    {"fl_is_nan_@S", kFloats, kNoType, "FL_FN bool fl_is_nan_@S(@T a) { return a != a; }"},
    {"fl_is_inf_@S", kFloats, kNoType, "FL_FN bool fl_is_inf_@S(@T a) { return fl_abs_@S(a) == fl_inf_@S(); }"},
    {"fl_is_finite_@S", kFloats, kNoType, "FL_FN bool fl_is_finite_@S(@T a) { return fl_abs_@S(a) < fl_inf_@S(); }"},
    {"fl_inf_f32", kNoType, kNoType, "FL_FN float fl_inf_f32() { return fl_from_bits_f32(0x7f800000u); }"},
    {"fl_inf_f64", kNoType, kNoType, "FL_FN double fl_inf_f64() { return fl_from_bits_f64(0x7ff0000000000000ull); }"},

    {"fl_eq_@S", kAll, kNoType, "FL_FN bool fl_eq_@S(@T a, @T b) { return a == b; }"},
    {"fl_ne_@S", kAll, kNoType, "FL_FN bool fl_ne_@S(@T a, @T b) { return a != b; }"},
    {"fl_lt_@S", kAll, kNoType, "FL_FN bool fl_lt_@S(@T a, @T b) { return a < b; }"},
    {"fl_le_@S", kAll, kNoType, "FL_FN bool fl_le_@S(@T a, @T b) { return a <= b; }"},
    {"fl_gt_@S", kAll, kNoType, "FL_FN bool fl_gt_@S(@T a, @T b) { return a > b; }"},
    {"fl_ge_@S", kAll, kNoType, "FL_FN bool fl_ge_@S(@T a, @T b) { return a >= b; }"},
    {"fl_select_@S", kNumbers, kNoType, "FL_FN @T fl_select_@S(bool c, @T a, @T b) { return c ? a : b; }"},

    // Bools as masks, without ? : or &&: GCC vectorises those forms.
    {"fl_select_bool", kNoType, kNoType,
     "FL_FN bool fl_select_bool(bool c, bool a, bool b) { return (c & a) | (!c & b); }"},
    {"fl_logical_and_bool", kNoType, kNoType, "FL_FN bool fl_logical_and_bool(bool a, bool b) { return a & b; }"},
    {"fl_logical_or_bool", kNoType, kNoType, "FL_FN bool fl_logical_or_bool(bool a, bool b) { return a | b; }"},
    {"fl_logical_xor_bool", kNoType, kNoType, "FL_FN bool fl_logical_xor_bool(bool a, bool b) { return a ^ b; }"},
    {"fl_logical_not_bool", kNoType, kNoType, "FL_FN bool fl_logical_not_bool(bool a) { return !a; }"},
    {"fl_bit_and_@S", kInts, kNoType, "FL_FN @T fl_bit_and_@S(@T a, @T b) { return (@T)(a & b); }"},
    {"fl_bit_and_bool", kNoType, kNoType, "FL_FN bool fl_bit_and_bool(bool a, bool b) { return a & b; }"},
    {"fl_bit_or_@S", kInts, kNoType, "FL_FN @T fl_bit_or_@S(@T a, @T b) { return (@T)(a | b); }"},
    {"fl_bit_or_bool", kNoType, kNoType, "FL_FN bool fl_bit_or_bool(bool a, bool b) { return a | b; }"},
    {"fl_bit_xor_@S", kInts, kNoType, "FL_FN @T fl_bit_xor_@S(@T a, @T b) { return (@T)(a ^ b); }"},
    {"fl_bit_xor_bool", kNoType, kNoType, "FL_FN bool fl_bit_xor_bool(bool a, bool b) { return a ^ b; }"},
    {"fl_bit_not_@S", kInts, kNoType, "FL_FN @T fl_bit_not_@S(@T a) { return (@T)~a; }"},
    {"fl_bit_not_bool", kNoType, kNoType, "FL_FN bool fl_bit_not_bool(bool a) { return !a; }"},
    // A negative count, being large as an unsigned number, counts as the width or more.
    {"fl_shift_left_@S", kInts, kNoType,
     R"(FL_FN @T fl_shift_left_@S(@T a, @T b) {
  const @T shifted = (@T)((@U)a << (b & (@W - 1)));
  return b < 0 || b >= @W ? (@T)0 : shifted;
})"},
    {"fl_shift_right_@S", kInts, kNoType,
     R"(FL_FN @T fl_shift_right_@S(@T a, @T b) {
  const @T shifted = (@T)(a >> (b & (@W - 1)));
  return b < 0 || b >= @W ? (@T)(a < 0 ? -1 : 0) : shifted;
})"},

    // Philox-4x32-10 (Salmon and others, SC 2011): word 0 to 3 of the block whose 128-bit counter is high and low.
    {"fl_philox_round", kNoType, kNoType,
     R"(FL_FN void fl_philox_round(unsigned& c0, unsigned& c1, unsigned& c2, unsigned& c3, unsigned k0, unsigned k1) {
  const unsigned long long a = 0xD2511F53ull * c0;
  const unsigned long long b = 0xCD9E8D57ull * c2;
  c0 = (unsigned)(b >> 32) ^ c1 ^ k0;
  c1 = (unsigned)b;
  c2 = (unsigned)(a >> 32) ^ c3 ^ k1;
  c3 = (unsigned)a;
})"},
    {"fl_philox_word", kNoType, kNoType,
     R"(FL_FN long long fl_philox_word(long long key, long long low, long long high, int word) {
  const unsigned k0 = (unsigned)key, k1 = (unsigned)((unsigned long long)key >> 32);
  unsigned c0 = (unsigned)low, c1 = (unsigned)((unsigned long long)low >> 32);
  unsigned c2 = (unsigned)high, c3 = (unsigned)((unsigned long long)high >> 32);
  fl_philox_round(c0, c1, c2, c3, k0, k1);
  fl_philox_round(c0, c1, c2, c3, k0 + 0x9E3779B9u, k1 + 0xBB67AE85u);
  fl_philox_round(c0, c1, c2, c3, k0 + 2u * 0x9E3779B9u, k1 + 2u * 0xBB67AE85u);
  fl_philox_round(c0, c1, c2, c3, k0 + 3u * 0x9E3779B9u, k1 + 3u * 0xBB67AE85u);
  fl_philox_round(c0, c1, c2, c3, k0 + 4u * 0x9E3779B9u, k1 + 4u * 0xBB67AE85u);
  fl_philox_round(c0, c1, c2, c3, k0 + 5u * 0x9E3779B9u, k1 + 5u * 0xBB67AE85u);
  fl_philox_round(c0, c1, c2, c3, k0 + 6u * 0x9E3779B9u, k1 + 6u * 0xBB67AE85u);
  fl_philox_round(c0, c1, c2, c3, k0 + 7u * 0x9E3779B9u, k1 + 7u * 0xBB67AE85u);
  fl_philox_round(c0, c1, c2, c3, k0 + 8u * 0x9E3779B9u, k1 + 8u * 0xBB67AE85u);
  fl_philox_round(c0, c1, c2, c3, k0 + 9u * 0x9E3779B9u, k1 + 9u * 0xBB67AE85u);
  const unsigned even = word == 0 ? c0 : c2;
  const unsigned odd = word == 1 ? c1 : c3;
  return (word & 1) != 0 ? odd : even;
})"},

    // Casts; those from floats to integers are the targets'.
    {"fl_cast_@S_to_@s", kFloats, kFloats, "FL_FN @t fl_cast_@S_to_@s(@T a) { return (@t)a; }"},
    {"fl_cast_@S_to_@s", kInts, kNumbers, "FL_FN @t fl_cast_@S_to_@s(@T a) { return (@t)a; }"},
    {"fl_cast_bool_to_@S", kNumbers, kNoType, "FL_FN @T fl_cast_bool_to_@S(bool a) { return a ? (@T)1 : (@T)0; }"},
    {"fl_cast_@S_to_@s", kAll, kBool, "FL_FN bool fl_cast_@S_to_@s(@T a) { return a != 0; }"},
    {"fl_load_bool", kNoType, kNoType, "FL_FN bool fl_load_bool(unsigned char a) { return a != 0; }"},
    {"fl_store_bool", kNoType, kNoType, "FL_FN unsigned char fl_store_bool(bool a) { return a ? 1 : 0; }"},
};

}  // namespace

absl::Span<const PreludeTemplate> SharedScalarTemplates() { return kTemplates; }

}  // namespace fuseline::codegen
