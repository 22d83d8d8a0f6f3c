// Tested by tests/unit/prelude/integer_prelude_test.cc.
#include "server/codegen/cpu/cpu_prelude_tables.h"
#include "server/codegen/prelude_template.h"
#include "server/codegen/shared_scalar_prelude.h"

namespace fuseline::codegen {
namespace {

// The compiler's builtins need no header. In f64 the elementary functions are libm's own.
#define FUSELINE_UNARY(NAME, TYPES) \
  { "fl_" NAME "_@S", TYPES, kNoType, "FL_FN @T fl_" NAME "_@S(@T a) { return __builtin_" NAME "@L(a); }" }
#define FUSELINE_BINARY(NAME, TYPES) \
  { "fl_" NAME "_@S", TYPES, kNoType, "FL_FN @T fl_" NAME "_@S(@T a, @T b) { return __builtin_" NAME "@L(a, b); }" }

constexpr PreludeTemplate kTemplates[] = {
    {"FL_FN", kNoType, kNoType, "#define FL_FN static inline __attribute__((always_inline))"},

    {"fl_bits_f32", kNoType, kNoType,
     "FL_FN unsigned fl_bits_f32(float a) { return __builtin_bit_cast(unsigned, a); }"},
    {"fl_from_bits_f32", kNoType, kNoType,
     "FL_FN float fl_from_bits_f32(unsigned a) { return __builtin_bit_cast(float, a); }"},
    {"fl_bits_f64", kNoType, kNoType,
     "FL_FN unsigned long long fl_bits_f64(double a) { return __builtin_bit_cast(unsigned long long, a); }"},
    {"fl_from_bits_f64", kNoType, kNoType,
     "FL_FN double fl_from_bits_f64(unsigned long long a) { return __builtin_bit_cast(double, a); }"},

    {"fl_abs_@S", kFloats, kNoType, "FL_FN @T fl_abs_@S(@T a) { return __builtin_fabs@L(a); }"},
    {"fl_round_@S", kFloats, kNoType, "FL_FN @T fl_round_@S(@T a) { return __builtin_rint@L(a); }"},
    FUSELINE_UNARY("floor", kFloats),
    FUSELINE_UNARY("ceil", kFloats),
    FUSELINE_UNARY("trunc", kFloats),
    FUSELINE_UNARY("sqrt", kFloats),
    {"fl_rsqrt_@S", kFloats, kNoType, "FL_FN @T fl_rsqrt_@S(@T a) { return 1 / __builtin_sqrt@L(a); }"},
    FUSELINE_BINARY("copysign", kFloats),
    FUSELINE_UNARY("exp", kF64),
    FUSELINE_UNARY("exp2", kF64),
    FUSELINE_UNARY("expm1", kF64),
    FUSELINE_UNARY("log", kF64),
    FUSELINE_UNARY("log2", kF64),
    FUSELINE_UNARY("log10", kF64),
    FUSELINE_UNARY("log1p", kF64),
    FUSELINE_UNARY("sin", kF64),
    FUSELINE_UNARY("cos", kF64),
    FUSELINE_UNARY("tan", kF64),
    FUSELINE_UNARY("asin", kF64),
    FUSELINE_UNARY("acos", kF64),
    FUSELINE_UNARY("atan", kF64),
    FUSELINE_UNARY("sinh", kF64),
    FUSELINE_UNARY("cosh", kF64),
    FUSELINE_UNARY("tanh", kF64),
    FUSELINE_UNARY("asinh", kF64),
    FUSELINE_UNARY("acosh", kF64),
    FUSELINE_UNARY("atanh", kF64),
    FUSELINE_UNARY("erf", kF64),
    FUSELINE_UNARY("erfc", kF64),
    FUSELINE_BINARY("fmod", kF64),
    FUSELINE_BINARY("pow", kF64),
    FUSELINE_BINARY("atan2", kF64),
    FUSELINE_BINARY("hypot", kF64),
    // The _r form does not write the global variable signgam, so that threads do not race. Clang has no builtin of it.
    {"FL_LGAMMA_R", kNoType, kNoType, "extern \"C\" double lgamma_r(double, int*);\n#define FL_LGAMMA_R lgamma_r"},
    {"fl_lgamma_f64", kNoType, kNoType,
     R"(FL_FN double fl_lgamma_f64(double a) {
  int sign;
  return FL_LGAMMA_R(a, &sign);
})"},
    {"fl_lgamma_f32", kNoType, kNoType,
     "FL_FN float fl_lgamma_f32(float a) { return (float)fl_lgamma_f64((double)a); }"},

    // There is no vector division of integers. In a float type with room for twice the bits, the quotient of two
    // integers is never rounded up to an integer, so that truncating it is exact. -1 divides by itself below, because
    // the least value's quotient overflows.
    {"fl_quotient_@S", kI32, kNoType,
     R"(FL_FN int fl_quotient_@S(@T a, @T b) {
  const @T d = b == 0 || b == -1 ? (@T)1 : b;
  const int q = (int)((double)a / (double)d);
  return b == -1 ? (int)(0u - (unsigned)a) : q;
})"},
    {"fl_quotient_@S", kSmallInts, kNoType,
     "FL_FN int fl_quotient_@S(@T a, @T b) { return (int)((float)a / (b == 0 ? 1.0f : (float)b)); }"},
    {"fl_trunc_div_@S", kI32 | kSmallInts, kNoType,
     "FL_FN @T fl_trunc_div_@S(@T a, @T b) { return (@T)fl_quotient_@S(a, b); }"},
    {"fl_fmod_@S", kI32 | kSmallInts, kNoType,
     "FL_FN @T fl_fmod_@S(@T a, @T b) { return (@T)((unsigned)a - (unsigned)fl_quotient_@S(a, b) * (unsigned)b); }"},
    {"fl_floor_div_@S", kI32 | kSmallInts, kNoType,
     R"(FL_FN @T fl_floor_div_@S(@T a, @T b) {
  const int q = fl_quotient_@S(a, b);
  const int m = (int)((unsigned)a - (unsigned)q * (unsigned)b);
  const bool below = (m != 0) & ((m ^ (int)b) < 0);
  return (@T)(below ? (unsigned)q - 1u : (unsigned)q);
})"},
    {"fl_remainder_@S", kI32 | kSmallInts, kNoType,
     R"(FL_FN @T fl_remainder_@S(@T a, @T b) {
  const int m = (int)((unsigned)a - (unsigned)fl_quotient_@S(a, b) * (unsigned)b);
  const bool below = (m != 0) & ((m ^ (int)b) < 0);
  return (@T)(below ? (unsigned)m + (unsigned)b : (unsigned)m);
})"},

    // The bounds of i32 and i64, and of i64 in f32, are powers of two that the float type holds although the greatest
    // integer may not be. A conversion of a value out of range is undefined, so that it is replaced first, NaN by 0. So
    // is what becomes 0: g++ 12 takes a conversion to an integer and back for trunc, which would keep the sign of zero.
    {"fl_cast_@S_to_i32", kFloats, kNoType,
     R"(FL_FN int fl_cast_@S_to_i32(@T a) {
  const @T below = a < (@T)2147483648.0 ? a : (@T)0;
  const @T inside = below > (@T)-2147483648.0 ? below : (@T)-2147483648.0;
  return a >= (@T)2147483648.0 ? 2147483647 : (int)(__builtin_fabs@L(inside) < 1 ? (@T)0 : inside);
})"},
    {"fl_cast_@S_to_i64", kFloats, kNoType,
     R"(FL_FN long long fl_cast_@S_to_i64(@T a) {
  const @T below = a < (@T)9223372036854775808.0 ? a : (@T)0;
  const @T inside = below > (@T)-9223372036854775808.0 ? below : (@T)-9223372036854775808.0;
  return a >= (@T)9223372036854775808.0 ? 9223372036854775807ll : (long long)(__builtin_fabs@L(inside) < 1 ? (@T)0 : inside);
})"},
    {"fl_cast_@S_to_@s", kFloats, kSmallInts,
     R"(FL_FN @t fl_cast_@S_to_@s(@T a) {
  const @T number = a == a ? a : (@T)0;
  const @T low = number < (@T)@lo ? (@T)@lo : number;
  return (@t)(int)(low > (@T)@hi ? (@T)@hi : low);
})"},
};

#undef FUSELINE_UNARY
#undef FUSELINE_BINARY

}  // namespace

absl::Span<const PreludeFunction> CpuScalarPrelude() {
  static const PreludeTable* const table =
      new PreludeTable({kTemplates, CpuElementaryTemplates(), CpuTileTemplates(), SharedScalarTemplates(),
                        SharedStorageTemplates(), SharedReductionTemplates()});
  return table->functions();
}

}  // namespace fuseline::codegen
