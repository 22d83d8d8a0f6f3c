#include "tests/cuda_host/host_cuda_prelude.h"

#include "common/status/str_cat.h"
#include "tests/cuda_host/host_abi.h"

namespace fuseline::cuda_host {
namespace {

#define FUSELINE_TEXT_OF(...) #__VA_ARGS__
#define FUSELINE_EXPANDED_TEXT_OF(...) FUSELINE_TEXT_OF(__VA_ARGS__)
constexpr char kAbi[] = FUSELINE_EXPANDED_TEXT_OF(FUSELINE_CUDA_HOST_ABI);

constexpr char kCallbacks[] = R"(
#define FL_HOST_INLINE static inline __attribute__((always_inline))
#define FL_HOST_HIDDEN __attribute__((visibility("hidden"), noinline, no_sanitize("thread")))
FL_HOST_INLINE HostThread* fl_host_thread() {
  const unsigned long here = (unsigned long)__builtin_frame_address(0);
  return (HostThread*)((here | (FL_HOST_STACK_BYTES - 1)) + 1 - sizeof(HostThread));
}
extern "C" {
#define FL_HOST_ACCESS(NAME, BYTES, WRITE)                                                  \
  FL_HOST_HIDDEN void __tsan_##NAME(void* address) {                                        \
    HostThread* thread = fl_host_thread();                                                  \
    /* Locals lie on the stack that the thread's record ends. */                            \
    if (((unsigned long)address ^ (unsigned long)thread) < FL_HOST_STACK_BYTES) return;     \
    thread->calls.access(thread, address, BYTES, WRITE, __builtin_return_address(0));      \
  }
FL_HOST_ACCESS(read1, 1, 0)
FL_HOST_ACCESS(read2, 2, 0)
FL_HOST_ACCESS(read4, 4, 0)
FL_HOST_ACCESS(read8, 8, 0)
FL_HOST_ACCESS(read16, 16, 0)
FL_HOST_ACCESS(write1, 1, 1)
FL_HOST_ACCESS(write2, 2, 1)
FL_HOST_ACCESS(write4, 4, 1)
FL_HOST_ACCESS(write8, 8, 1)
FL_HOST_ACCESS(write16, 16, 1)
FL_HOST_HIDDEN void __tsan_read_range(void* address, unsigned long bytes) {
  HostThread* thread = fl_host_thread();
  if (((unsigned long)address ^ (unsigned long)thread) < FL_HOST_STACK_BYTES) return;
  thread->calls.access(thread, address, bytes, 0, __builtin_return_address(0));
}
FL_HOST_HIDDEN void __tsan_write_range(void* address, unsigned long bytes) {
  HostThread* thread = fl_host_thread();
  if (((unsigned long)address ^ (unsigned long)thread) < FL_HOST_STACK_BYTES) return;
  thread->calls.access(thread, address, bytes, 1, __builtin_return_address(0));
}
FL_HOST_HIDDEN void __tsan_init(void) {}
FL_HOST_HIDDEN void __ubsan_handle_out_of_bounds(void* check, unsigned long index) {
  HostThread* thread = fl_host_thread();
  thread->calls.index_out_of_bounds(thread, check, index, __builtin_return_address(0));
}

float sqrtf(float); float expf(float); float exp2f(float); float expm1f(float); float logf(float); float log2f(float);
float log10f(float); float log1pf(float); float sinf(float); float cosf(float); float tanf(float); float asinf(float);
float acosf(float); float atanf(float); float sinhf(float); float coshf(float); float tanhf(float); float asinhf(float);
float acoshf(float); float atanhf(float); float erff(float); float erfcf(float); float lgammaf(float);
float floorf(float); float ceilf(float); float truncf(float); float rintf(float); float fabsf(float);
float fmodf(float, float); float powf(float, float); float atan2f(float, float); float hypotf(float, float);
float copysignf(float, float); float fmaf(float, float, float);
double sqrt(double); double exp(double); double exp2(double); double expm1(double); double log(double);
double log2(double); double log10(double); double log1p(double); double sin(double); double cos(double);
double tan(double); double asin(double); double acos(double); double atan(double); double sinh(double);
double cosh(double); double tanh(double); double asinh(double); double acosh(double); double atanh(double);
double erf(double); double erfc(double); double lgamma(double); double floor(double); double ceil(double);
double trunc(double); double rint(double); double fabs(double); double fmod(double, double); double pow(double, double);
double atan2(double, double); double hypot(double, double); double copysign(double, double); double fma(double, double, double); double ldexp(double, int); int ilogb(double);
}
)";

// Qualifiers, built-in variables and functions. Vectors are GCC's: an access to one stays a single access.
constexpr char kLanguage[] = R"(
#define __device__
#define __forceinline__ inline __attribute__((always_inline))
#define __global__ __attribute__((noinline))
#define __launch_bounds__(...)
typedef unsigned uint2 __attribute__((vector_size(8)));
typedef unsigned uint4 __attribute__((vector_size(16)));
struct fl_host_dim3 { unsigned x, y, z; };
FL_HOST_INLINE fl_host_dim3 fl_host_thread_index() { return {fl_host_thread()->thread, 0, 0}; }
FL_HOST_INLINE fl_host_dim3 fl_host_block_index() { return {fl_host_thread()->block, 0, 0}; }
FL_HOST_INLINE fl_host_dim3 fl_host_block_dim() { return {fl_host_thread()->threads, 1, 1}; }
FL_HOST_INLINE fl_host_dim3 fl_host_grid_dim() { return {fl_host_thread()->blocks, 1, 1}; }
#define threadIdx fl_host_thread_index()
#define blockIdx fl_host_block_index()
#define blockDim fl_host_block_dim()
#define gridDim fl_host_grid_dim()
FL_HOST_INLINE void __syncthreads() { HostThread* t = fl_host_thread(); t->calls.barrier(t); }
template <typename T> FL_HOST_INLINE T __ldg(const T* from) { return *from; }

template <typename To, typename From> FL_HOST_INLINE To fl_host_bits(From from) {
  static_assert(sizeof(To) >= sizeof(From), "");
  To to = {};
  __builtin_memcpy(&to, &from, sizeof(From));
  return to;
}
template <typename T> FL_HOST_INLINE T fl_host_shuffle(int kind, unsigned mask, T value, int operand, int width) {
  HostThread* t = fl_host_thread();
  const unsigned long long got =
      t->calls.shuffle(t, kind, mask, operand, width, fl_host_bits<unsigned long long>(value));
  T result;
  __builtin_memcpy(&result, &got, sizeof(T));
  return result;
}
#define FL_HOST_SHUFFLES(T)                                                                              \
  FL_HOST_INLINE T __shfl_xor_sync(unsigned mask, T value, int lanes, int width = 32) {                  \
    return fl_host_shuffle(kShuffleXor, mask, value, lanes, width);                                      \
  }                                                                                                      \
  FL_HOST_INLINE T __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = 32) {              \
    return fl_host_shuffle(kShuffleUp, mask, value, (int)delta, width);                                  \
  }                                                                                                      \
  FL_HOST_INLINE T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = 32) {            \
    return fl_host_shuffle(kShuffleDown, mask, value, (int)delta, width);                                \
  }                                                                                                      \
  FL_HOST_INLINE T __shfl_sync(unsigned mask, T value, int lane, int width = 32) {                       \
    return fl_host_shuffle(kShuffleIndex, mask, value, lane, width);                                     \
  }
FL_HOST_SHUFFLES(int)
FL_HOST_SHUFFLES(unsigned)
FL_HOST_SHUFFLES(long long)
FL_HOST_SHUFFLES(unsigned long long)
FL_HOST_SHUFFLES(float)
FL_HOST_SHUFFLES(double)

FL_HOST_INLINE unsigned __float_as_uint(float a) { return fl_host_bits<unsigned>(a); }
FL_HOST_INLINE int __float_as_int(float a) { return fl_host_bits<int>(a); }
FL_HOST_INLINE float __uint_as_float(unsigned a) { return fl_host_bits<float>(a); }
FL_HOST_INLINE float __int_as_float(int a) { return fl_host_bits<float>(a); }
FL_HOST_INLINE long long __double_as_longlong(double a) { return fl_host_bits<long long>(a); }
FL_HOST_INLINE double __longlong_as_double(long long a) { return fl_host_bits<double>(a); }
// NaN gives 0 from f32 to 32 bits alone.
FL_HOST_INLINE int __double2int_rz(double a) {
  return a != a ? (int)0x80000000 : a >= 2147483647.0 ? 2147483647 : a <= -2147483648.0 ? (int)0x80000000 : (int)a;
}
FL_HOST_INLINE int __float2int_rz(float a) { return a != a ? 0 : __double2int_rz(a); }
FL_HOST_INLINE long long __double2ll_rz(double a) {
  const long long least = -9223372036854775807ll - 1;
  return a != a ? least : a >= 9223372036854775807.0 ? 9223372036854775807ll : a <= (double)least ? least : (long long)a;
}
FL_HOST_INLINE long long __float2ll_rz(float a) { return __double2ll_rz(a); }
// The C library's give a NaN where one operand is a signalling one.
#define FL_HOST_FMAX_FMIN(T, FMAX, FMIN)                                                                    \
  FL_HOST_INLINE T FMAX(T a, T b) { return a != a ? b : b != b ? a : a == b ? (__builtin_signbit(a) ? b : a) : a > b ? a : b; } \
  FL_HOST_INLINE T FMIN(T a, T b) { return a != a ? b : b != b ? a : a == b ? (__builtin_signbit(a) ? a : b) : a < b ? a : b; }
FL_HOST_FMAX_FMIN(float, fmaxf, fminf)
FL_HOST_FMAX_FMIN(double, fmax, fmin)
FL_HOST_INLINE float rsqrtf(float a) { return (float)(1.0 / sqrt((double)a)); }
FL_HOST_INLINE double rsqrt(double a) { return 1.0 / sqrt(a); }
)";

constexpr char kPtx[] = R"(
// `a` as a float with `mantissa` and `exponent` bits, rounded to nearest even; what is over the largest finite value
// `largest` gives `over`. The sign is the caller's.
static unsigned fl_host_encode(double a, int mantissa, int bias, double largest, unsigned over) {
  if (a == 0) return 0;
  const int exponent = ilogb(a) < 1 - bias ? 1 - bias : ilogb(a);
  const double units = rint(ldexp(a, mantissa - exponent));
  if (ldexp(units, exponent - mantissa) > largest) return over;
  const unsigned normal = units >= ldexp(1.0, mantissa) ? 1 : 0;
  // A mantissa that was rounded up to the next power of two carries into the exponent.
  return normal == 0 ? (unsigned)units
                     : (unsigned)(exponent + bias - 1) * (1u << mantissa) + (unsigned)units;
}
FL_HOST_INLINE unsigned short fl_ptx_cvt_rn_f16_f32(float a) {
  if (a != a) return 0x7fff;
  return (unsigned short)(fl_host_encode(fabs(a), 10, 15, 65504.0, 0x7c00u) | (__float_as_uint(a) >> 31) << 15);
}
FL_HOST_INLINE float fl_ptx_cvt_f32_f16(unsigned short a) {
  const unsigned exponent = (a >> 10) & 31, mantissa = a & 1023;
  const double magnitude = exponent == 0 ? ldexp((double)mantissa, -24) : ldexp((double)(mantissa | 1024), (int)exponent - 25);
  const float finite = (float)((a & 0x8000) != 0 ? -magnitude : magnitude);
  if (exponent < 31) return finite;
  return __uint_as_float(mantissa != 0 ? 0x7fffffffu : 0x7f800000u | (a & 0x8000u) << 16);
}
FL_HOST_INLINE unsigned short fl_ptx_cvt_rn_bf16_f32(float a) {
  if (a != a) return 0x7fff;
  return (unsigned short)(fl_host_encode(fabs(a), 7, 127, 3.3895313892515355e38, 0x7f80u) | (__float_as_uint(a) >> 31) << 15);
}
FL_HOST_INLINE unsigned fl_ptx_cvt_rn_f16x2_f32(float high, float low) {
  return (unsigned)fl_ptx_cvt_rn_f16_f32(high) << 16 | fl_ptx_cvt_rn_f16_f32(low);
}
FL_HOST_INLINE unsigned fl_ptx_cvt_rn_bf16x2_f32(float high, float low) {
  return (unsigned)fl_ptx_cvt_rn_bf16_f32(high) << 16 | fl_ptx_cvt_rn_bf16_f32(low);
}
FL_HOST_INLINE unsigned fl_host_e4m3(float a) {
  if (a != a) return 0x7f;
  return fl_host_encode(fabs(a), 3, 7, 448.0, 0x7eu) | (__float_as_uint(a) >> 31) << 7;
}
FL_HOST_INLINE unsigned fl_host_e5m2(float a) {
  if (a != a) return 0x7f;
  return fl_host_encode(fabs(a), 2, 15, 57344.0, 0x7bu) | (__float_as_uint(a) >> 31) << 7;
}
FL_HOST_INLINE unsigned short fl_ptx_cvt_rn_satfinite_e4m3x2_f32(float high, float low) {
  return (unsigned short)(fl_host_e4m3(high) << 8 | fl_host_e4m3(low));
}
FL_HOST_INLINE unsigned short fl_ptx_cvt_rn_satfinite_e5m2x2_f32(float high, float low) {
  return (unsigned short)(fl_host_e5m2(high) << 8 | fl_host_e5m2(low));
}
FL_HOST_INLINE unsigned fl_host_f16_of_e4m3(unsigned a) {
  const unsigned exponent = (a >> 3) & 15, mantissa = a & 7;
  if ((a & 0x7f) == 0x7f) return 0x7fff;
  const double magnitude = exponent == 0 ? ldexp((double)mantissa, -9) : ldexp((double)(mantissa | 8), (int)exponent - 10);
  return fl_ptx_cvt_rn_f16_f32((float)((a & 0x80) != 0 ? -magnitude : magnitude));
}
FL_HOST_INLINE unsigned fl_ptx_cvt_rn_f16x2_e4m3x2(unsigned short a) {
  return fl_host_f16_of_e4m3(a >> 8) << 16 | fl_host_f16_of_e4m3(a & 0xff);
}
// Within 1 ulp; subnormals count as zero.
FL_HOST_INLINE float fl_ptx_rcp_approx_ftz_f32(float a) {
  const float r = fabsf(a) < 0x1p-126f ? copysignf(__builtin_inff(), a) : 1.0f / a;
  return fabsf(r) < 0x1p-126f ? copysignf(0.0f, r) : r;
}
FL_HOST_INLINE float fl_ptx_max_NaN_f32(float a, float b) {
  if (a != a || b != b) return __uint_as_float(0x7fffffffu);
  if (a == b) return (__float_as_uint(a) >> 31) != 0 ? b : a;
  return a > b ? a : b;
}
FL_HOST_INLINE float fl_ptx_min_NaN_f32(float a, float b) {
  if (a != a || b != b) return __uint_as_float(0x7fffffffu);
  if (a == b) return (__float_as_uint(a) >> 31) != 0 ? a : b;
  return a < b ? a : b;
}
)";

// What TranslateKernel's text asks for.
constexpr char kGlue[] = R"(
template <typename T> struct fl_host_element { typedef T type; };
template <typename T, unsigned long kCount> struct fl_host_element<T[kCount]> {
  typedef typename fl_host_element<T>::type type;
};
// Neighbouring elements of a vector in shared memory may be written by different threads.
template <template <typename, int> class Vector, typename T, int kLanes> struct fl_host_element<Vector<T, kLanes>> {
  typedef T type;
};
// `key`: an address of the array's own.
template <typename T> FL_HOST_INLINE T& fl_host_shared(const void* key, const char* name) {
  HostThread* t = fl_host_thread();
  return *(T*)t->calls.shared(t, key, name, sizeof(T), sizeof(typename fl_host_element<T>::type));
}
template <int... kIndices> struct fl_host_indices {};
template <typename T> struct fl_host_param;
template <typename T> struct fl_host_param<T*> { static constexpr int code = 2 * (int)sizeof(T) + 1; };
template <typename T> struct fl_host_param<const T*> { static constexpr int code = 2 * (int)sizeof(T); };
template <typename... Args> constexpr HostParams<sizeof...(Args)> fl_host_params(void (*)(Args...)) {
  return {(int)sizeof...(Args), {fl_host_param<Args>::code..., 0}};
}
template <typename... Args, int... kIndices>
FL_HOST_INLINE void fl_host_call(void (*kernel)(Args...), void* const* arguments, fl_host_indices<kIndices...>) {
  kernel((Args)arguments[kIndices]...);
}
template <typename... Args>
FL_HOST_INLINE void fl_host_call(void (*kernel)(Args...), void* const* arguments) {
  fl_host_call(kernel, arguments, fl_host_indices<__integer_pack((int)sizeof...(Args))...>());
}
)";

}  // namespace

std::string HostCudaPrelude(int sm) {
  return StrCat("#define __CUDA_ARCH__ ", sm * 10, "\n#define FL_HOST_STACK_BYTES ", kFiberStackBytes, "ul\n", kAbi,
                kCallbacks, kLanguage, kPtx, kGlue);
}

}  // namespace fuseline::cuda_host
