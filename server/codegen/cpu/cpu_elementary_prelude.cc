// Tested by tests/unit/prelude/elementary_prelude_test.cc.
#include "server/codegen/cpu/cpu_prelude_tables.h"

namespace fuseline::codegen {
namespace {

// Elementary functions in f32, each but exp computed in f64 by a polynomial and rounded once, so that the error is near
// half an ulp. Not libmvec's: its results differ between the vector widths and from scalar libm, so that an element
// would change with its position in a loop (body or tail) and with what it is fused with. These give the same bits
// wherever they stand. The coefficients are minimax fits (Remez exchange) of the relative error, which each comment
// states; f32's half ulp is 2^-25. Every step is a select, so that loops vectorise; a NaN operand passes through
// because every comparison with it is false.
constexpr PreludeTemplate kTemplates[] = {
    // Only within approximations: plain arithmetic is never contracted.
    {"FL_FMA", kNoType, kNoType,
     R"(#if defined(__FMA__) || defined(__aarch64__)
#define FL_FMA(a, b, c) __builtin_fma(a, b, c)
#else
#define FL_FMA(a, b, c) ((a) * (b) + (c))
#endif)"},

    // e^x = 2^k e^r with |r| <= ln(2) / 2. Adding 1.5 * 2^52 rounds to an integer, k, and leaves it in the low bits,
    // from where it
    // is shifted into an exponent. fl_expm1_part is e^r - 1 (2^-32). The clamp keeps k within f64's exponents and is
    // beyond f32's range.
    {"fl_exp_clamp", kNoType, kNoType,
     R"(FL_FN double fl_exp_clamp(double x) {
  const double low = x < -200.0 ? -200.0 : x;
  return low > 200.0 ? 200.0 : low;
})"},
    {"fl_exp_shifted", kNoType, kNoType,
     "FL_FN double fl_exp_shifted(double x) { return FL_FMA(x, 0x1.71547652b82fep+0, 0x1.8p52); }"},
    {"fl_exp_scale", kNoType, kNoType,
     R"(FL_FN double fl_exp_scale(double shifted) {
  return fl_from_bits_f64((fl_bits_f64(shifted) << 52) + 0x3ff0000000000000ull);
})"},
    {"fl_expm1_part", kNoType, kNoType,
     R"(FL_FN double fl_expm1_part(double x, double shifted) {
  const double r = FL_FMA(shifted - 0x1.8p52, -0x1.62e42fefa39efp-1, x);
  double p = FL_FMA(0.00019915828411589171, r, 0.001394112163314997);
  p = FL_FMA(p, r, 0.0083332686568280464);
  p = FL_FMA(p, r, 0.04166635272855862);
  p = FL_FMA(p, r, 0.16666666853374348);
  p = FL_FMA(p, r, 0.50000000471608375);
  p = FL_FMA(p, r, 0.99999999999104483);
  return p * r;
})"},
    {"fl_wide_exp", kNoType, kNoType,
     R"(FL_FN double fl_wide_exp(double x) {
  const double c = fl_exp_clamp(x);
  const double k = fl_exp_shifted(c);
  const double s = fl_exp_scale(k);
  return FL_FMA(s, fl_expm1_part(c, k), s);
})"},
    {"fl_wide_expm1", kNoType, kNoType,
     R"(FL_FN double fl_wide_expm1(double x) {
  const double c = fl_exp_clamp(x);
  const double k = fl_exp_shifted(c);
  const double s = fl_exp_scale(k);
  return FL_FMA(s, fl_expm1_part(c, k), s - 1.0);
})"},
    // The one that models spend their time in, in f32 throughout, where fused multiply-adds keep its error below 1 ulp:
    // the reduced argument is exact up to its last step, e^r - 1 - r is fitted to 2^-28 of e^r, and 2^k is applied as
    // two
    // factors, each a normal number, so that results may be subnormal or overflow.
    {"fl_exp_f32", kNoType, kNoType,
     R"(FL_FN float fl_exp_f32(float a) {
#if defined(__FMA__) || defined(__aarch64__)
  const float low = a < -104.0f ? -104.0f : a;
  const float c = low > 89.0f ? 89.0f : low;
  const float shifted = __builtin_fmaf(c, 0x1.715476p+0f, 0x1.8p23f);
  const float k = shifted - 0x1.8p23f;
  const float r = __builtin_fmaf(k, 0x1.05c610p-29f, __builtin_fmaf(k, -0x1.62e430p-1f, c));
  float q = __builtin_fmaf(0x1.6a23cep-10f, r, 0x1.123a2p-7f);
  q = __builtin_fmaf(q, r, 0x1.5558f2p-5f);
  q = __builtin_fmaf(q, r, 0x1.555492p-3f);
  q = __builtin_fmaf(q, r, 0x1.fffffcp-2f);
  const float e = 1.0f + __builtin_fmaf(r * r, q, r);
  const int n = (int)(fl_bits_f32(shifted) - 0x4b400000u);
  const int half = n >> 1;
  return e * fl_from_bits_f32((unsigned)(half + 127) << 23) * fl_from_bits_f32((unsigned)(n - half + 127) << 23);
#else
  return (float)fl_wide_exp((double)a);
#endif
})"},
    {"fl_exp2_f32", kNoType, kNoType,
     "FL_FN float fl_exp2_f32(float a) { return (float)fl_wide_exp((double)a * 0x1.62e42fefa39efp-1); }"},
    // An odd function's sign is copied at the end, because the sums inside lose that of -0.0.
    {"fl_expm1_f32", kNoType, kNoType,
     "FL_FN float fl_expm1_f32(float a) { return __builtin_copysignf((float)fl_wide_expm1((double)a), a); }"},
    {"fl_sinh_f32", kNoType, kNoType,
     R"(FL_FN float fl_sinh_f32(float a) {
  const double e = fl_wide_expm1(__builtin_fabs((double)a));
  return __builtin_copysignf((float)(0.5 * (e + e / (e + 1.0))), a);
})"},
    {"fl_cosh_f32", kNoType, kNoType,
     R"(FL_FN float fl_cosh_f32(float a) {
  const double e = fl_wide_exp(__builtin_fabs((double)a));
  return (float)(0.5 * (e + 1.0 / e));
})"},
    {"fl_tanh_f32", kNoType, kNoType,
     R"(FL_FN float fl_tanh_f32(float a) {
  const double e = fl_wide_expm1(2.0 * __builtin_fabs((double)a));
  return __builtin_copysignf((float)(e / (e + 2.0)), a);
})"},

    // log(x) = k ln(2) + log(m) with m in [sqrt(1/2), sqrt(2)); log(m) = 2 atanh(s), s = (m - 1) / (m + 1) (2^-43). The
    // bits of an
    // integer below 2^52 under those of 2^52 are that integer as an f64. x is normal or zero: an f32 as f64 always is.
    {"fl_wide_log", kNoType, kNoType,
     R"(FL_FN double fl_wide_log(double x) {
  const unsigned long long u = fl_bits_f64(x);
  const unsigned long long t = u - 0x3fe6a09e667f3bcdull;
  const unsigned long long biased = (t + 0x4000000000000000ull) >> 52;
  const double k = fl_from_bits_f64(0x4330000000000000ull | biased) - (0x1p52 + 1024.0);
  const double m = fl_from_bits_f64(u - (t & 0xfff0000000000000ull));
  const double s = (m - 1.0) / (m + 1.0);
  const double z = s * s;
  double p = FL_FMA(0.19366707541866529, z, 0.22191180176388531);
  p = FL_FMA(p, z, 0.28571758262926894);
  p = FL_FMA(p, z, 0.3999999877736311);
  p = FL_FMA(p, z, 0.66666666667391639);
  p = FL_FMA(p, z, 2.0);
  const double r = FL_FMA(k, 0x1.62e42fefa39efp-1, s * p);
  const double outside = x == 0.0 ? -fl_inf_f64() : __builtin_nan("");
  const double positive = x > 0.0 ? r : outside;
  return x == fl_inf_f64() ? x : positive;
})"},
    // The rounding error of 1 + x is added back; it counts only near 1, where log(u + c) = log(u) + c.
    {"fl_wide_log1p", kNoType, kNoType,
     R"(FL_FN double fl_wide_log1p(double x) {
  const double u = 1.0 + x;
  const double c = x - (u - 1.0);
  return fl_wide_log(u) + (u < fl_inf_f64() ? c : 0.0);
})"},
    {"fl_log_f32", kNoType, kNoType, "FL_FN float fl_log_f32(float a) { return (float)fl_wide_log((double)a); }"},
    {"fl_log2_f32", kNoType, kNoType,
     "FL_FN float fl_log2_f32(float a) { return (float)(fl_wide_log((double)a) * 0x1.71547652b82fep+0); }"},
    {"fl_log10_f32", kNoType, kNoType,
     "FL_FN float fl_log10_f32(float a) { return (float)(fl_wide_log((double)a) * 0x1.bcb7b1526e50ep-2); }"},
    {"fl_log1p_f32", kNoType, kNoType,
     "FL_FN float fl_log1p_f32(float a) { return __builtin_copysignf((float)fl_wide_log1p((double)a), a); }"},
    {"fl_asinh_f32", kNoType, kNoType,
     R"(FL_FN float fl_asinh_f32(float a) {
  const double y = __builtin_fabs((double)a);
  const double square = y * y;
  const double t = y + square / (1.0 + __builtin_sqrt(1.0 + square));
  return __builtin_copysignf((float)fl_wide_log1p(a == a && y < fl_inf_f64() ? t : y), a);
})"},
    {"fl_acosh_f32", kNoType, kNoType,
     R"(FL_FN float fl_acosh_f32(float a) {
  const double x = (double)a;
  const double t = x - 1.0;
  const double r = fl_wide_log1p(t + __builtin_sqrt(t * (x + 1.0)));
  return a < 1.0f ? __builtin_nanf("") : (float)r;
})"},
    {"fl_atanh_f32", kNoType, kNoType,
     R"(FL_FN float fl_atanh_f32(float a) {
  const double y = __builtin_fabs((double)a);
  return __builtin_copysignf((float)(0.5 * fl_wide_log1p(2.0 * y / (1.0 - y))), a);
})"},

    {"fl_pow_f32", kNoType, kNoType,
     R"(FL_FN float fl_pow_f32(float a, float b) {
  const double y = (double)b;
  const double size = __builtin_fabs((double)a);
  const double power = fl_wide_exp(y * fl_wide_log(size));
  const double r = size == 1.0 && b == b ? 1.0 : power;
  const float half = b * 0.5f;
  const bool whole = __builtin_truncf(b) == b;
  const bool odd = whole & (__builtin_truncf(half) != half) & (__builtin_fabsf(b) < 0x1p24f);
  const float f = (float)r;
  const float signed_f = odd ? __builtin_copysignf(f, a) : f;
  const bool undefined = (a < 0.0f) & (a > -fl_inf_f32()) & !whole;
  const float defined = undefined ? __builtin_nanf("") : signed_f;
  const bool one = (b == 0.0f) | (a == 1.0f);
  return one ? 1.0f : defined;
})"},

    // x = q pi/2 + r, |r| <= pi/4. Below 2^17, q has 17 bits and the first part of pi/2 has 33, so that their product
    // is exact.
    // Above, 2/pi is multiplied in fixed point: of its bits only those can matter that meet x's 24 bits between weights
    // 2^1 and
    // 2^-62; the table has 32 bits of 2/pi from every eighth bit on, and the shift by 0 to 7 that is left goes into x.
    // The result is
    // x * 2/pi modulo 4 in units of 2^-62.
    {"fl_two_over_pi", kNoType, kNoType,
     R"(static const unsigned fl_two_over_pi[23] = {
    0x0028be60u, 0x28be60dbu, 0xbe60db93u, 0x60db9391u, 0xdb939105u, 0x9391054au, 0x91054a7fu, 0x054a7f09u,
    0x4a7f09d5u, 0x7f09d5f4u, 0x09d5f47du, 0xd5f47d4du, 0xf47d4d37u, 0x7d4d3770u, 0x4d377036u, 0x377036d8u,
    0x7036d8a5u, 0x36d8a566u, 0xd8a5664fu, 0xa5664f10u, 0x664f10e4u, 0x4f10e410u, 0x10e4107fu};)"},
    {"fl_angle", kNoType, kNoType, "struct fl_angle { double rest; unsigned long long quadrant; };"},
    {"fl_reduce_angle", kNoType, kNoType,
     R"(FL_FN fl_angle fl_reduce_angle(float a) {
  const double x = (double)a;
  const double shifted = FL_FMA(x, 0x1.45f306dc9c883p-1, 0x1.8p52);
  const double k = shifted - 0x1.8p52;
  const double near = FL_FMA(k, -6.0771005065061922e-11, FL_FMA(k, -1.5707963267341256, x));
  const unsigned bits = fl_bits_f32(a);
  const int exponent = (int)((bits >> 23) & 0xffu) - 142;
  const int place = exponent < 0 ? 0 : exponent;
  const unsigned long long m = ((bits & 0x7fffffu) | 0x800000u) << (place & 7);
  const int word = place >> 3;
  const unsigned long long w0 = fl_two_over_pi[word];
  const unsigned long long w1 = fl_two_over_pi[word + 4];
  const unsigned long long w2 = fl_two_over_pi[word + 8];
  const unsigned long long turn = ((m * w0) << 32) + m * w1 + ((m * w2) >> 32);
  const unsigned long long q = (turn + 0x2000000000000000ull) >> 62;
  const unsigned long long part = turn - (q << 62);
  const double high = fl_from_bits_f64(0x4330000000000000ull | ((part >> 32) ^ 0x80000000ull)) - (0x1p52 + 0x1p31);
  const double low = fl_from_bits_f64(0x4330000000000000ull | (part & 0xffffffffull)) - 0x1p52;
  const double size = (high * 0x1p32 + low) * 0x1.921fb54442d18p-62;
  const double far = a < 0.0f ? -size : size;
  const unsigned long long far_quadrant = a < 0.0f ? 0ull - q : q;
  const double y = __builtin_fabs(x);
  const bool large = (y >= 131072.0) & (y < fl_inf_f64());
  return {large ? far : near, large ? far_quadrant : fl_bits_f64(shifted)};
})"},
    {"fl_sin_part", kNoType, kNoType,
     R"(FL_FN double fl_sin_part(double r) {
  const double z = r * r;
  double p = FL_FMA(2.7249940396777236e-06, z, -0.00019840086964800245);
  p = FL_FMA(p, z, 0.0083333318754593919);
  p = FL_FMA(p, z, -0.16666666663858606);
  return r * FL_FMA(p, z, 1.0);
})"},
    {"fl_cos_part", kNoType, kNoType,
     R"(FL_FN double fl_cos_part(double r) {
  const double z = r * r;
  double p = FL_FMA(2.4463819494196507e-05, z, -0.001388758954795519);
  p = FL_FMA(p, z, 0.041666650655993252);
  p = FL_FMA(p, z, -0.49999999969166886);
  return FL_FMA(p, z, 1.0);
})"},
    {"fl_sin_f32", kNoType, kNoType,
     R"(FL_FN float fl_sin_f32(float a) {
  const fl_angle angle = fl_reduce_angle(a);
  const double s = fl_sin_part(angle.rest);
  const double c = fl_cos_part(angle.rest);
  const double v = (angle.quadrant & 1) != 0 ? c : s;
  return (float)fl_from_bits_f64(fl_bits_f64(v) ^ (angle.quadrant & 2) << 62);
})"},
    {"fl_cos_f32", kNoType, kNoType,
     R"(FL_FN float fl_cos_f32(float a) {
  const fl_angle angle = fl_reduce_angle(a);
  const double s = fl_sin_part(angle.rest);
  const double c = fl_cos_part(angle.rest);
  const double v = (angle.quadrant & 1) != 0 ? s : c;
  return (float)fl_from_bits_f64(fl_bits_f64(v) ^ ((angle.quadrant + 1) & 2) << 62);
})"},
    {"fl_tan_f32", kNoType, kNoType,
     R"(FL_FN float fl_tan_f32(float a) {
  const fl_angle angle = fl_reduce_angle(a);
  const double s = fl_sin_part(angle.rest);
  const double c = fl_cos_part(angle.rest);
  const bool swap = (angle.quadrant & 1) != 0;
  const double top = swap ? -c : s;
  const double bottom = swap ? s : c;
  return (float)(top / bottom);
})"},

    // atan(z) for z in [0, 1] (2^-34).
    {"fl_atan_part", kNoType, kNoType,
     R"(FL_FN double fl_atan_part(double r) {
  const double z = r * r;
  double p = FL_FMA(-0.00068478764029969192, z, 0.004850907078603894);
  p = FL_FMA(p, z, -0.016111615774759017);
  p = FL_FMA(p, z, 0.034209516383406788);
  p = FL_FMA(p, z, -0.054279023503725918);
  p = FL_FMA(p, z, 0.072457131868925412);
  p = FL_FMA(p, z, -0.089802370082643995);
  p = FL_FMA(p, z, 0.11093240706068176);
  p = FL_FMA(p, z, -0.14283980671093544);
  p = FL_FMA(p, z, 0.19999912044069987);
  p = FL_FMA(p, z, -0.33333331570989683);
  p = FL_FMA(p, z, 0.99999999994124678);
  return p * r;
})"},
    {"fl_wide_atan2", kNoType, kNoType,
     R"(FL_FN double fl_wide_atan2(double y, double x) {
  const double ax = __builtin_fabs(x);
  const double ay = __builtin_fabs(y);
  const bool steep = ay > ax;
  const double least = steep ? ax : ay;
  const double greatest = steep ? ay : ax;
  const double quotient = least / greatest;
  const double nonzero = greatest == 0.0 ? 0.0 : quotient;
  const double r = fl_atan_part(least == fl_inf_f64() ? 1.0 : nonzero);
  const double upper = steep ? 0x1.921fb54442d18p+0 - r : r;
  const double half = __builtin_copysign(1.0, x) < 0.0 ? 0x1.921fb54442d18p+1 - upper : upper;
  const double result = __builtin_copysign(half, y);
  return (x != x) | (y != y) ? x + y : result;
})"},
    {"fl_atan2_f32", kNoType, kNoType,
     "FL_FN float fl_atan2_f32(float a, float b) { return (float)fl_wide_atan2((double)a, (double)b); }"},
    {"fl_atan_f32", kNoType, kNoType,
     R"(FL_FN float fl_atan_f32(float a) {
  const double y = __builtin_fabs((double)a);
  const bool steep = y > 1.0;
  const double r = fl_atan_part(steep ? 1.0 / y : y);
  return __builtin_copysignf((float)(steep ? 0x1.921fb54442d18p+0 - r : r), a);
})"},
    // 1 - x is exact in f64, so that the square root is precise near 1.
    {"fl_asin_f32", kNoType, kNoType,
     R"(FL_FN float fl_asin_f32(float a) {
  const double x = (double)a;
  return (float)fl_wide_atan2(x, __builtin_sqrt((1.0 - x) * (1.0 + x)));
})"},
    {"fl_acos_f32", kNoType, kNoType,
     R"(FL_FN float fl_acos_f32(float a) {
  const double x = (double)a;
  return (float)fl_wide_atan2(__builtin_sqrt((1.0 - x) * (1.0 + x)), x);
})"},

    // erf(x) = 1 - e^-g with g = -log(erfc(x)), which is smooth (2^-38 of erf). From 4 on erf rounds to 1.
    {"fl_erf_f32", kNoType, kNoType,
     R"(FL_FN float fl_erf_f32(float a) {
  const double y = __builtin_fabs((double)a);
  const double x = y > 4.0 ? 4.0 : y;
  double p = FL_FMA(-8.2674393854497408e-09, x, 1.8141168936475642e-07);
  p = FL_FMA(p, x, -1.7738060892194559e-06);
  p = FL_FMA(p, x, 1.0060132780072416e-05);
  p = FL_FMA(p, x, -3.5096327416878865e-05);
  p = FL_FMA(p, x, 6.5126919606571149e-05);
  p = FL_FMA(p, x, 2.9704241899137499e-05);
  p = FL_FMA(p, x, -0.00059481754841298124);
  p = FL_FMA(p, x, 0.0016990402191955202);
  p = FL_FMA(p, x, -0.00021017482715723627);
  p = FL_FMA(p, x, -0.019128257374111023);
  p = FL_FMA(p, x, 0.10277258502257314);
  p = FL_FMA(p, x, 0.63661977303739137);
  p = FL_FMA(p, x, 1.1283791670915611);
  return __builtin_copysignf((float)-fl_wide_expm1(-(p * x)), a);
})"},
    // erfc(x) = e^(-x^2) R(t) / (1 + 2 x) with t = (x - 3) / (x + 3) (2^-29). From 10.1 on it rounds to 0. x^2 is exact
    // in f64.
    {"fl_erfc_f32", kNoType, kNoType,
     R"(FL_FN float fl_erfc_f32(float a) {
  const double y = __builtin_fabs((double)a);
  const double x = y > 10.1 ? 10.1 : y;
  const double t = (x - 3.0) / (x + 3.0);
  double p = FL_FMA(-0.00026812564818226266, t, -0.0007775789413836503);
  p = FL_FMA(p, t, 0.0020018129724779961);
  p = FL_FMA(p, t, 0.0025673742392535431);
  p = FL_FMA(p, t, -0.02379753138124524);
  p = FL_FMA(p, t, 0.068295768275595109);
  p = FL_FMA(p, t, -0.11927097506884431);
  p = FL_FMA(p, t, 0.1296464144212745);
  p = FL_FMA(p, t, -0.047562399449979795);
  p = FL_FMA(p, t, -0.13562113929520148);
  p = FL_FMA(p, t, 1.2530080591219068);
  const double r = p * fl_wide_exp(-(x * x)) / (1.0 + 2.0 * x);
  return (float)(a < 0.0f ? 2.0 - r : r);
})"},

    // Squares of f32 values neither overflow nor underflow in f64.
    {"fl_hypot_f32", kNoType, kNoType,
     R"(FL_FN float fl_hypot_f32(float a, float b) {
  const double r = __builtin_sqrt((double)a * (double)a + (double)b * (double)b);
  const bool infinite = (__builtin_fabsf(a) == fl_inf_f32()) | (__builtin_fabsf(b) == fl_inf_f32());
  return infinite ? fl_inf_f32() : (float)r;
})"},

    // Long division of |a| by |b| in steps of 29 bits: with a divisor of 24 bits, the product q d is exact, and a
    // quotient below 2^29
    // in f64 never rounds up to an integer. 277 bits at most lie between two f32 values: ten steps.
    {"fl_fmod_step", kNoType, kNoType,
     "FL_FN double fl_fmod_step(double r, double d) { return r - __builtin_trunc(r / d) * d; }"},
    {"fl_fmod_f32", kNoType, kNoType,
     R"(FL_FN float fl_fmod_f32(float a, float b) {
  const double d = __builtin_fabs((double)b);
  double r = __builtin_fabs((double)a);
  r = fl_fmod_step(r, d * 0x1p261);
  r = fl_fmod_step(r, d * 0x1p232);
  r = fl_fmod_step(r, d * 0x1p203);
  r = fl_fmod_step(r, d * 0x1p174);
  r = fl_fmod_step(r, d * 0x1p145);
  r = fl_fmod_step(r, d * 0x1p116);
  r = fl_fmod_step(r, d * 0x1p87);
  r = fl_fmod_step(r, d * 0x1p58);
  r = fl_fmod_step(r, d * 0x1p29);
  r = fl_fmod_step(r, d);
  const float m = __builtin_copysignf((float)r, a);
  const bool whole = (__builtin_fabsf(b) == fl_inf_f32()) & (__builtin_fabsf(a) < fl_inf_f32());
  return whole ? a : m;
})"},
};

}  // namespace

absl::Span<const PreludeTemplate> CpuElementaryTemplates() { return kTemplates; }

}  // namespace fuseline::codegen
