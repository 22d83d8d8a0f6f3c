// Tested by tests/unit/prelude/storage_prelude_test.cc, on both targets.
#include "server/codegen/shared_scalar_prelude.h"

namespace fuseline::codegen {
namespace {

// How a float x is rounded to fewer mantissa bits, to nearest even, without branches:
//   normal results: half a unit (less one, plus the lowest kept bit) is added to the bit pattern, and the lower bits
//   are dropped; subnormal results: |x| + C, where C's unit in the last place is the target's least subnormal, so that
//   the addition rounds; then either C is subtracted again (a float), or C's bit pattern is (the target's mantissa).
// Bit patterns without the sign are compared as int, for which AVX2 has an instruction.
constexpr PreludeTemplate kTemplates[] = {
    {"fl_f16", kNoType, kNoType, "struct fl_f16 { unsigned short bits; };"},
    {"fl_bf16", kNoType, kNoType, "struct fl_bf16 { unsigned short bits; };"},
    {"fl_f8e4m3", kNoType, kNoType, "struct fl_f8e4m3 { unsigned char bits; };"},
    {"fl_f8e5m2", kNoType, kNoType, "struct fl_f8e5m2 { unsigned char bits; };"},

    {"fl_load_bf16", kNoType, kNoType,
     "FL_FN float fl_load_bf16(fl_bf16 a) { return fl_from_bits_f32((unsigned)a.bits << 16); }"},
    {"fl_store_bf16", kNoType, kNoType,
     R"(FL_FN fl_bf16 fl_store_bf16(float x) {
  const unsigned u = fl_bits_f32(x);
  const unsigned r = (u + 0x7fffu + ((u >> 16) & 1u)) >> 16;
  const unsigned n = (u >> 16) | 0x40u;
  return {(unsigned short)(x != x ? n : r)};
})"},
    {"fl_round_bf16_f32", kNoType, kNoType,
     R"(FL_FN float fl_round_bf16_f32(float x) {
  const unsigned u = fl_bits_f32(x);
  const unsigned r = (u + 0x7fffu + ((u >> 16) & 1u)) & 0xffff0000u;
  return x != x ? x : fl_from_bits_f32(r);
})"},

    // Normal: the exponent's bias goes from 15 to 127. Subnormal: the mantissa as the low bits of 0.5, from which 0.5
    // is taken away; no operand is subnormal as an f32, which some processors are slow with.
    {"fl_load_f16", kNoType, kNoType,
     R"(FL_FN float fl_load_f16(fl_f16 a) {
  const unsigned m = (a.bits & 0x7fffu) << 13;
  const unsigned subnormal = fl_bits_f32(fl_from_bits_f32((a.bits & 0x3ffu) | 0x3f000000u) - 0.5f);
  const unsigned finite = (int)m < 0x00800000 ? subnormal : m + 0x38000000u;
  const unsigned r = (int)m >= 0x0f800000 ? m | 0x7f800000u : finite;
  return fl_from_bits_f32(r | (unsigned)(a.bits & 0x8000u) << 16);
})"},
    {"fl_store_f16", kNoType, kNoType,
     R"(FL_FN fl_f16 fl_store_f16(float x) {
  const unsigned u = fl_bits_f32(x);
  const unsigned a = u & 0x7fffffffu;
  const unsigned normal = (a + 0xfffu + ((a >> 13) & 1u) - 0x38000000u) >> 13;
  const unsigned subnormal = fl_bits_f32(fl_from_bits_f32(a) + 0.5f) - 0x3f000000u;
  const unsigned finite = (int)a < 0x38800000 ? subnormal : normal;
  const unsigned range = (int)a >= 0x477ff000 ? 0x7c00u : finite;
  const unsigned r = (int)a > 0x7f800000 ? 0x7e00u | ((a >> 13) & 0x3ffu) : range;
  return {(unsigned short)(r | ((u >> 16) & 0x8000u))};
})"},
    {"fl_round_f16_f32", kNoType, kNoType,
     R"(FL_FN float fl_round_f16_f32(float x) {
  const unsigned u = fl_bits_f32(x);
  const unsigned a = u & 0x7fffffffu;
  const unsigned normal = (a + 0xfffu + ((a >> 13) & 1u)) & 0xffffe000u;
  const unsigned subnormal = fl_bits_f32((fl_from_bits_f32(a) + 0.5f) - 0.5f);
  const unsigned finite = (int)a < 0x38800000 ? subnormal : normal;
  const unsigned range = (int)a >= 0x477ff000 ? 0x7f800000u : finite;
  const unsigned r = (int)a > 0x7f800000 ? a : range;
  return fl_from_bits_f32(r | (u & 0x80000000u));
})"},

    // e4m3 has no infinity: 0x7f is NaN, 0x7e is 448. The exponent's bias is 7.
    {"fl_plain_load_f8e4m3", kNoType, kNoType,
     R"(FL_FN float fl_plain_load_f8e4m3(fl_f8e4m3 a) {
  const unsigned m = (a.bits & 0x7fu) << 20;
  const unsigned subnormal = fl_bits_f32(fl_from_bits_f32((a.bits & 0x7u) | 0x46800000u) - 16384.0f);
  const unsigned finite = (int)m < 0x00800000 ? subnormal : m + 0x3c000000u;
  const unsigned r = m == 0x07f00000u ? 0x7fc00000u : finite;
  return fl_from_bits_f32(r | (unsigned)(a.bits & 0x80u) << 24);
})"},
    {"fl_plain_store_f8e4m3", kNoType, kNoType,
     R"(FL_FN fl_f8e4m3 fl_plain_store_f8e4m3(float x) {
  const unsigned u = fl_bits_f32(x);
  const unsigned a = u & 0x7fffffffu;
  const unsigned normal = (a + 0x7ffffu + ((a >> 20) & 1u) - 0x3c000000u) >> 20;
  const unsigned subnormal = fl_bits_f32(fl_from_bits_f32(a) + 16384.0f) - 0x46800000u;
  const unsigned finite = (int)a < 0x3c800000 ? subnormal : normal;
  const unsigned range = (int)a >= 0x43e00000 ? 0x7eu : finite;
  const unsigned r = (int)a > 0x7f800000 ? 0x7fu : range;
  return {(unsigned char)(r | ((u >> 24) & 0x80u))};
})"},
    {"fl_round_f8e4m3_f32", kNoType, kNoType,
     R"(FL_FN float fl_round_f8e4m3_f32(float x) {
  const unsigned u = fl_bits_f32(x);
  const unsigned a = u & 0x7fffffffu;
  const unsigned normal = (a + 0x7ffffu + ((a >> 20) & 1u)) & 0xfff00000u;
  const unsigned subnormal = fl_bits_f32((fl_from_bits_f32(a) + 16384.0f) - 16384.0f);
  const unsigned finite = (int)a < 0x3c800000 ? subnormal : normal;
  const unsigned range = (int)a >= 0x43e00000 ? 0x43e00000u : finite;
  const unsigned r = (int)a > 0x7f800000 ? 0x7fc00000u : range;
  return fl_from_bits_f32(r | (u & 0x80000000u));
})"},

    // e5m2 is the upper byte of an f16. 0x7b is 57344; infinity can be loaded but is not made by a rounding.
    {"fl_load_f8e5m2", kNoType, kNoType,
     "FL_FN float fl_load_f8e5m2(fl_f8e5m2 a) { return fl_load_f16(fl_f16{(unsigned short)(a.bits << 8)}); }"},
    {"fl_plain_store_f8e5m2", kNoType, kNoType,
     R"(FL_FN fl_f8e5m2 fl_plain_store_f8e5m2(float x) {
  const unsigned u = fl_bits_f32(x);
  const unsigned a = u & 0x7fffffffu;
  const unsigned normal = (a + 0xfffffu + ((a >> 21) & 1u) - 0x38000000u) >> 21;
  const unsigned subnormal = fl_bits_f32(fl_from_bits_f32(a) + 128.0f) - 0x43000000u;
  const unsigned finite = (int)a < 0x38800000 ? subnormal : normal;
  const unsigned range = (int)a >= 0x47600000 ? 0x7bu : finite;
  const unsigned r = (int)a > 0x7f800000 ? 0x7eu | ((a >> 21) & 1u) : range;
  return {(unsigned char)(r | ((u >> 24) & 0x80u))};
})"},
    {"fl_store_@S", kF8e4m3 | kF8e5m2, kNoType, "FL_FN fl_@S fl_store_@S(float a) { return fl_plain_store_@S(a); }"},
    {"fl_load_f8e4m3", kNoType, kNoType, "FL_FN float fl_load_f8e4m3(fl_f8e4m3 a) { return fl_plain_load_f8e4m3(a); }"},
    {"fl_round_f8e5m2_f32", kNoType, kNoType,
     R"(FL_FN float fl_round_f8e5m2_f32(float x) {
  const unsigned u = fl_bits_f32(x);
  const unsigned a = u & 0x7fffffffu;
  const unsigned normal = (a + 0xfffffu + ((a >> 21) & 1u)) & 0xffe00000u;
  const unsigned subnormal = fl_bits_f32((fl_from_bits_f32(a) + 128.0f) - 128.0f);
  const unsigned finite = (int)a < 0x38800000 ? subnormal : normal;
  const unsigned range = (int)a >= 0x47600000 ? 0x47600000u : finite;
  const unsigned r = (int)a > 0x7f800000 ? 0x7fc00000u : range;
  return fl_from_bits_f32(r | (u & 0x80000000u));
})"},

    // Rounds to odd: truncates, and sets the last bit if that was inexact. A second rounding to a shorter format then
    // gives what one rounding of the f64 would.
    {"fl_odd_f32", kNoType, kNoType,
     R"(FL_FN float fl_odd_f32(double x) {
  const float f = (float)x;
  const double back = (double)f;
  const unsigned u = fl_bits_f32(f);
  const unsigned truncated = fl_abs_f64(back) > fl_abs_f64(x) ? u - 1u : u;
  const unsigned odd = truncated | 1u;
  return back == x || x != x ? f : fl_from_bits_f32(odd);
})"},
    {"fl_round_@S_f64", kSmallFloats, kNoType,
     "FL_FN float fl_round_@S_f64(double x) { return fl_round_@S_f32(fl_odd_f32(x)); }"},

    // A bitcast goes through the bit pattern of the storage type.
    {"fl_storage_bits_@S", kSmallFloats & ~(kF8e4m3 | kF8e5m2), kNoType,
     "FL_FN unsigned short fl_storage_bits_@S(float a) { return fl_store_@S(a).bits; }"},
    {"fl_storage_bits_@S", kF8e4m3 | kF8e5m2, kNoType,
     "FL_FN unsigned char fl_storage_bits_@S(float a) { return fl_store_@S(a).bits; }"},
    {"fl_storage_bits_@S", kI8 | kU8, kNoType,
     "FL_FN unsigned char fl_storage_bits_@S(@T a) { return (unsigned char)a; }"},
    {"fl_storage_bits_i16", kNoType, kNoType,
     "FL_FN unsigned short fl_storage_bits_i16(short a) { return (unsigned short)a; }"},
    {"fl_storage_bits_@S", kI32 | kI64, kNoType, "FL_FN @U fl_storage_bits_@S(@T a) { return (@U)a; }"},
    {"fl_storage_bits_@S", kFloats, kNoType, "FL_FN @B fl_storage_bits_@S(@T a) { return fl_bits_@S(a); }"},
    {"fl_from_storage_bits_@S", kF16 | kBf16, kNoType,
     "FL_FN float fl_from_storage_bits_@S(unsigned short a) { return fl_load_@S(fl_@S{a}); }"},
    {"fl_from_storage_bits_@S", kF8e4m3 | kF8e5m2, kNoType,
     "FL_FN float fl_from_storage_bits_@S(unsigned char a) { return fl_load_@S(fl_@S{a}); }"},
    {"fl_from_storage_bits_@S", kI8 | kU8, kNoType,
     "FL_FN @T fl_from_storage_bits_@S(unsigned char a) { return (@T)a; }"},
    {"fl_from_storage_bits_i16", kNoType, kNoType,
     "FL_FN short fl_from_storage_bits_i16(unsigned short a) { return (short)a; }"},
    {"fl_from_storage_bits_@S", kI32 | kI64, kNoType, "FL_FN @T fl_from_storage_bits_@S(@U a) { return (@T)a; }"},
    {"fl_from_storage_bits_@S", kFloats, kNoType,
     "FL_FN @T fl_from_storage_bits_@S(@B a) { return fl_from_bits_@S(a); }"},

#define FUSELINE_BITCAST(TYPES)                                                                         \
  {                                                                                                     \
    "fl_bitcast_@S_to_@s", (TYPES), (TYPES),                                                            \
        "FL_FN @t fl_bitcast_@S_to_@s(@T a) { return fl_from_storage_bits_@s(fl_storage_bits_@S(a)); }" \
  }
    FUSELINE_BITCAST(kI8 | kU8 | kF8e4m3 | kF8e5m2),
    FUSELINE_BITCAST(kI16 | kF16 | kBf16),
    FUSELINE_BITCAST(kI32 | kF32),
    FUSELINE_BITCAST(kI64 | kF64),
#undef FUSELINE_BITCAST
};

}  // namespace

absl::Span<const PreludeTemplate> SharedStorageTemplates() { return kTemplates; }

}  // namespace fuseline::codegen
