// Tested by tests/unit/prelude/integer_prelude_test.cc.
#include "server/codegen/cuda/cuda_prelude_tables.h"
#include "server/codegen/prelude_template.h"
#include "server/codegen/shared_scalar_prelude.h"

namespace fuseline::codegen {
namespace {

// NVRTC knows the math functions and the conversion intrinsics without a header. Without --use_fast_math they are
// within 4 ulp in f32, save erfc (4.01 ulp was seen), which is our own, and lgamma, which goes by way of f64.
#define FUSELINE_UNARY(NAME) \
  { "fl_" NAME "_@S", kFloats, kNoType, "FL_FN @T fl_" NAME "_@S(@T a) { return " NAME "@L(a); }" }
#define FUSELINE_BINARY(NAME) \
  { "fl_" NAME "_@S", kFloats, kNoType, "FL_FN @T fl_" NAME "_@S(@T a, @T b) { return " NAME "@L(a, b); }" }

#define FUSELINE_NARROW_UNARY(NAME)                                                  \
  {                                                                                  \
    "fl_" NAME "_@S", kSmallInts, kNoType,                                           \
        "FL_FN @T fl_" NAME "_@S(@T a) { return fl_narrow_@S(fl_" NAME "_i32(a)); }" \
  }
#define FUSELINE_NARROW_BINARY(NAME)                                                          \
  {                                                                                           \
    "fl_" NAME "_@S", kSmallInts, kNoType,                                                    \
        "FL_FN @T fl_" NAME "_@S(@T a, @T b) { return fl_narrow_@S(fl_" NAME "_i32(a, b)); }" \
  }

constexpr PreludeTemplate kTemplates[] = {
    {"FL_FN", kNoType, kNoType, "#define FL_FN static __device__ __forceinline__"},

    {"fl_bits_f32", kNoType, kNoType, "FL_FN unsigned fl_bits_f32(float a) { return __float_as_uint(a); }"},
    {"fl_from_bits_f32", kNoType, kNoType, "FL_FN float fl_from_bits_f32(unsigned a) { return __uint_as_float(a); }"},
    {"fl_bits_f64", kNoType, kNoType,
     "FL_FN unsigned long long fl_bits_f64(double a) { return (unsigned long long)__double_as_longlong(a); }"},
    {"fl_from_bits_f64", kNoType, kNoType,
     "FL_FN double fl_from_bits_f64(unsigned long long a) { return __longlong_as_double((long long)a); }"},

    // Arithmetic on 8- and 16-bit integers is done on 32 bits and cut off behind an empty asm statement, which keeps
    // the compiler from doing it on fewer: NVRTC 13.0 leaves out the sign extension of such a result in a comparison
    // (neg of an i8 taken out of a vector, then argmin).
    {"fl_narrow_@S", kSmallInts, kNoType,
     "FL_FN @T fl_narrow_@S(int a) {\n  asm(\"\" : \"+r\"(a));\n  return (@T)a;\n}"},
    FUSELINE_NARROW_UNARY("neg"),
    FUSELINE_NARROW_UNARY("abs"),
    FUSELINE_NARROW_UNARY("bit_not"),
    FUSELINE_NARROW_BINARY("add"),
    FUSELINE_NARROW_BINARY("sub"),
    FUSELINE_NARROW_BINARY("mul"),
    FUSELINE_NARROW_BINARY("trunc_div"),
    FUSELINE_NARROW_BINARY("floor_div"),
    FUSELINE_NARROW_BINARY("fmod"),
    FUSELINE_NARROW_BINARY("remainder"),
    FUSELINE_NARROW_BINARY("pow"),
    FUSELINE_NARROW_BINARY("bit_and"),
    FUSELINE_NARROW_BINARY("bit_or"),
    FUSELINE_NARROW_BINARY("bit_xor"),
    {"fl_shift_left_@S", kSmallInts, kNoType,
     "FL_FN @T fl_shift_left_@S(@T a, @T b) { return b < 0 || b >= @W ? (@T)0 : fl_narrow_@S((int)((unsigned)a << b)); "
     "}"},
    {"fl_cast_@S_to_@s", kInts, kSmallInts, "FL_FN @t fl_cast_@S_to_@s(@T a) { return fl_narrow_@s((int)a); }"},

    {"fl_abs_@S", kFloats, kNoType, "FL_FN @T fl_abs_@S(@T a) { return fabs@L(a); }"},
    {"fl_round_@S", kFloats, kNoType, "FL_FN @T fl_round_@S(@T a) { return rint@L(a); }"},
    // Within 2 ulp where b is neither tiny nor huge; a fifth of a correctly rounded division's instructions.
    {"fl_quotient_f32", kNoType, kNoType,
     R"(FL_FN float fl_quotient_f32(float a, float b) {
  float r;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(b));
  return a * r;
})"},
    FUSELINE_UNARY("floor"),
    FUSELINE_UNARY("ceil"),
    FUSELINE_UNARY("trunc"),
    FUSELINE_UNARY("sqrt"),
    FUSELINE_UNARY("rsqrt"),
    FUSELINE_UNARY("exp"),
    FUSELINE_UNARY("exp2"),
    FUSELINE_UNARY("expm1"),
    FUSELINE_UNARY("log"),
    FUSELINE_UNARY("log2"),
    FUSELINE_UNARY("log10"),
    FUSELINE_UNARY("log1p"),
    FUSELINE_UNARY("sin"),
    FUSELINE_UNARY("cos"),
    FUSELINE_UNARY("tan"),
    FUSELINE_UNARY("asin"),
    FUSELINE_UNARY("acos"),
    FUSELINE_UNARY("atan"),
    FUSELINE_UNARY("sinh"),
    FUSELINE_UNARY("cosh"),
    FUSELINE_UNARY("tanh"),
    FUSELINE_UNARY("asinh"),
    FUSELINE_UNARY("acosh"),
    FUSELINE_UNARY("atanh"),
    FUSELINE_UNARY("erf"),
    // Below 0.5, 1 - a times a polynomial in a^2 (Taylor's). Else e^(-x^2) R(t) / (1 + 2 x) with t = (x - 3) / (x + 3)
    // and the R of the CPU's (cpu_elementary_prelude.cc); each step carries what its rounding left out to the last one:
    // 2.6 ulp. From 10.1 on it rounds to 0. A power of two in two halves, since 2^-149 is no normal number.
    {"fl_erfc_f32", kNoType, kNoType,
     R"(FL_FN float fl_erfc_f32(float a) {
  const float w = a * a;
  float s = fmaf(0.000120553332f, w, -0.000854832702f);
  s = fmaf(s, w, 0.00522397763f);
  s = fmaf(s, w, -0.0268661706f);
  s = fmaf(s, w, 0.112837917f);
  s = fmaf(s, w, -0.376126389f);
  s = fmaf(s, w, 1.12837917f);
  const float near = fmaf(-a, s, 1.0f);
  const float y = fabsf(a);
  const float x = y > 10.1f ? 10.1f : y;
  const float t = (x - 3.0f) * fl_quotient_f32(1.0f, x + 3.0f);
  float p = fmaf(-0.000268125648f, t, -0.000777578941f);
  p = fmaf(p, t, 0.00200181297f);
  p = fmaf(p, t, 0.00256737424f);
  p = fmaf(p, t, -0.0237975314f);
  p = fmaf(p, t, 0.0682957683f);
  p = fmaf(p, t, -0.119270975f);
  p = fmaf(p, t, 0.129646414f);
  p = fmaf(p, t, -0.0475623994f);
  p = fmaf(p, t, -0.135621139f);
  const float polynomial = fmaf(p, t, 1.25300806f);
  const float polynomial_rest = fmaf(p, t, 1.25300806f - polynomial);
  const float square = x * x;
  const float square_rest = fmaf(x, x, -square);
  const float shifted = fmaf(square, -1.44269502f, 12582912.0f);
  const float power = shifted - 12582912.0f;
  const float r = fmaf(power, 1.90465421e-9f, fmaf(power, -0.693147182f, -square)) - square_rest;
  float e = fmaf(r, 0.000198412698f, 0.00138888889f);
  e = fmaf(e, r, 0.00833333333f);
  e = fmaf(e, r, 0.0416666667f);
  e = fmaf(e, r, 0.166666667f);
  e = fmaf(e, r, 0.5f);
  e = fmaf(e, r, 1.0f) * r;
  const float exponential = 1.0f + e;
  const float exponential_rest = e - (exponential - 1.0f);
  const float top = exponential * polynomial;
  const float top_rest = fmaf(exponential, polynomial_rest,
                              fmaf(exponential_rest, polynomial, fmaf(exponential, polynomial, -top)));
  const float bottom = fmaf(2.0f, x, 1.0f);
  const float bottom_rest = fmaf(2.0f, x, 1.0f - bottom);
  const float inverse = fl_quotient_f32(1.0f, bottom);
  const float estimate = top * inverse;
  const float rest = fmaf(-bottom, estimate, top) + fmaf(-bottom_rest, estimate, top_rest);
  const float quotient = fmaf(rest, inverse, estimate);
  const int n = (int)(fl_bits_f32(shifted) - 0x4b400000u);
  const int half = n / 2;
  const float far = quotient * fl_from_bits_f32((unsigned)(half + 127) << 23) *
                    fl_from_bits_f32((unsigned)(n - half + 127) << 23);
  return y < 0.5f ? near : a < 0.0f ? 2.0f - far : far;
})"},
    {"fl_erfc_f64", kNoType, kNoType, "FL_FN double fl_erfc_f64(double a) { return erfc(a); }"},
    {"fl_lgamma_f32", kNoType, kNoType, "FL_FN float fl_lgamma_f32(float a) { return (float)lgamma((double)a); }"},
    {"fl_lgamma_f64", kNoType, kNoType, "FL_FN double fl_lgamma_f64(double a) { return lgamma(a); }"},
    FUSELINE_BINARY("fmod"),
    FUSELINE_BINARY("pow"),
    FUSELINE_BINARY("atan2"),
    FUSELINE_BINARY("hypot"),
    FUSELINE_BINARY("copysign"),

    // One instruction since sm_80; it orders -0.0 below +0.0. In f64 there is none.
    {"fl_maximum_f32", kNoType, kNoType,
     R"(FL_FN float fl_maximum_f32(float a, float b) {
#if __CUDA_ARCH__ >= 800
  float r;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(r) : "f"(a), "f"(b));
  return r;
#else
  const float m = a < b ? b : a;
  const float z = a == b ? fl_from_bits_f32(fl_bits_f32(a) & fl_bits_f32(b)) : m;
  return b != b ? b : z;
#endif
})"},
    {"fl_minimum_f32", kNoType, kNoType,
     R"(FL_FN float fl_minimum_f32(float a, float b) {
#if __CUDA_ARCH__ >= 800
  float r;
  asm("min.NaN.f32 %0, %1, %2;" : "=f"(r) : "f"(a), "f"(b));
  return r;
#else
  const float m = b < a ? b : a;
  const float z = a == b ? fl_from_bits_f32(fl_bits_f32(a) | fl_bits_f32(b)) : m;
  return b != b ? b : z;
#endif
})"},
    // One step of what tiles do.
    {"fl_chain_@S", kFloats, kNoType, "FL_FN @T fl_chain_@S(@T a, @T b, @T sum) { return fma@L(a, b, sum); }"},
    {"fl_fmax_@S", kFloats, kNoType, "FL_FN @T fl_fmax_@S(@T a, @T b) { return fmax@L(a, b); }"},
    {"fl_fmin_@S", kFloats, kNoType, "FL_FN @T fl_fmin_@S(@T a, @T b) { return fmin@L(a, b); }"},

    // The conversion instructions truncate and saturate; NaN gives 0 only from f32 to 32 bits.
    {"fl_cast_f32_to_i32", kNoType, kNoType, "FL_FN int fl_cast_f32_to_i32(float a) { return __float2int_rz(a); }"},
    {"fl_cast_f64_to_i32", kNoType, kNoType,
     "FL_FN int fl_cast_f64_to_i32(double a) { return a == a ? __double2int_rz(a) : 0; }"},
    {"fl_cast_f32_to_i64", kNoType, kNoType,
     "FL_FN long long fl_cast_f32_to_i64(float a) { return a == a ? __float2ll_rz(a) : 0; }"},
    {"fl_cast_f64_to_i64", kNoType, kNoType,
     "FL_FN long long fl_cast_f64_to_i64(double a) { return a == a ? __double2ll_rz(a) : 0; }"},
    {"fl_cast_@S_to_@s", kFloats, kSmallInts,
     R"(FL_FN @t fl_cast_@S_to_@s(@T a) {
  const int i = fl_cast_@S_to_i32(a);
  const int low = i < @lo ? @lo : i;
  return (@t)(low > @hi ? @hi : low);
})"},

    // Hot: one instruction each way. NaN becomes the canonical NaN.
    {"fl_load_f16", kNoType, kNoType,
     R"(FL_FN float fl_load_f16(fl_f16 a) {
  float r;
  asm("cvt.f32.f16 %0, %1;" : "=f"(r) : "h"(a.bits));
  return r;
})"},
    {"fl_store_f16", kNoType, kNoType,
     R"(FL_FN fl_f16 fl_store_f16(float a) {
  unsigned short r;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(r) : "f"(a));
  return {r};
})"},
    {"fl_round_f16_f32", kNoType, kNoType,
     "FL_FN float fl_round_f16_f32(float a) { return fl_load_f16(fl_store_f16(a)); }"},
    {"fl_store_bf16", kNoType, kNoType,
     R"(FL_FN fl_bf16 fl_store_bf16(float a) {
#if __CUDA_ARCH__ >= 800
  unsigned short r;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(r) : "f"(a));
  return {r};
#else
  const unsigned u = fl_bits_f32(a);
  const unsigned r = (u + 0x7fffu + ((u >> 16) & 1u)) >> 16;
  const unsigned n = (u >> 16) | 0x40u;
  return {(unsigned short)(a != a ? n : r)};
#endif
})"},
    {"fl_round_bf16_f32", kNoType, kNoType,
     "FL_FN float fl_round_bf16_f32(float a) { return fl_load_bf16(fl_store_bf16(a)); }"},

    // Since sm_89 there are instructions for pairs, of which the upper half is left 0. They saturate infinity too.
    {"fl_store_f8e4m3", kNoType, kNoType,
     R"(FL_FN fl_f8e4m3 fl_store_f8e4m3(float a) {
#if __CUDA_ARCH__ >= 890
  unsigned short r;
  asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(r) : "f"(0.0f), "f"(a));
  return {(unsigned char)r};
#else
  return fl_plain_store_f8e4m3(a);
#endif
})"},
    {"fl_store_f8e5m2", kNoType, kNoType,
     R"(FL_FN fl_f8e5m2 fl_store_f8e5m2(float a) {
#if __CUDA_ARCH__ >= 890
  unsigned short r;
  asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;" : "=h"(r) : "f"(0.0f), "f"(a));
  return {(unsigned char)r};
#else
  return fl_plain_store_f8e5m2(a);
#endif
})"},
    {"fl_load_f8e4m3", kNoType, kNoType,
     R"(FL_FN float fl_load_f8e4m3(fl_f8e4m3 a) {
#if __CUDA_ARCH__ >= 890
  unsigned r;
  asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(r) : "h"((unsigned short)a.bits));
  return fl_load_f16(fl_f16{(unsigned short)r});
#else
  return fl_plain_load_f8e4m3(a);
#endif
})"},
    {"fl_round_@S_f32", kF8e4m3 | kF8e5m2, kNoType,
     "FL_FN float fl_round_@S_f32(float a) { return fl_load_@S(fl_store_@S(a)); }"},
};

#undef FUSELINE_NARROW_BINARY
#undef FUSELINE_NARROW_UNARY
#undef FUSELINE_UNARY
#undef FUSELINE_BINARY

}  // namespace

absl::Span<const PreludeFunction> CudaScalarPrelude() {
  static const PreludeTable* const table =
      new PreludeTable({kTemplates, SharedScalarTemplates(), SharedStorageTemplates(), SharedReductionTemplates(),
                        CudaMemoryTemplates(), CudaScanTemplates()});
  return table->functions();
}

}  // namespace fuseline::codegen
