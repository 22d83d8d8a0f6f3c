// Tested by tests/unit/prelude/storage_prelude_test.cc and, on a GPU, by the case files.
#include "server/codegen/cuda/cuda_prelude_tables.h"
#include "server/codegen/prelude_template.h"

namespace fuseline::codegen {
namespace {

// A row's threads combine their partial results by butterflies of shuffles, then across warps through shared memory.
// Every thread of the row ends with the same bits: each step adds the same two numbers on both sides. Neighbours are
// combined first, as partial_sums.h says. All threads of the block must call it.
#define FUSELINE_ROW_REDUCE(KIND, TYPES, COMBINE)                            \
  {                                                                          \
    "fl_row_reduce_" KIND "_@S", TYPES, kNoType,                             \
        "template <int kThreads>\n"                                          \
        "FL_FN @T fl_row_reduce_" KIND                                       \
        "_@S(@T value) {\n"                                                  \
        "#pragma unroll\n"                                                   \
        "  for (int d = 1; d < (kThreads < 32 ? kThreads : 32); d *= 2) {\n" \
        "    value = " COMBINE                                               \
        "(value, fl_shuffle_xor_@S(value, d));\n"                            \
        "  }\n"                                                              \
        "  if (kThreads > 32) {\n"                                           \
        "    constexpr int kWarps = kThreads > 32 ? kThreads / 32 : 1;\n"    \
        "    FL_SHARED @T partial[32];\n"                                    \
        "    const int warp = fl_thread() / 32, lane = fl_thread() % 32;\n"  \
        "    fl_barrier();\n"                                                \
        "    if (lane == 0) partial[warp] = value;\n"                        \
        "    fl_barrier();\n"                                                \
        "    value = partial[warp / kWarps * kWarps + lane % kWarps];\n"     \
        "#pragma unroll\n"                                                   \
        "    for (int d = 1; d < kWarps; d *= 2) value = " COMBINE           \
        "(value, fl_shuffle_xor_@S(value, d));\n"                            \
        "  }\n"                                                              \
        "  return value;\n"                                                  \
        "}"                                                                  \
  }

// The same for argmax and argmin, which carry the position along.
#define FUSELINE_ROW_ARG_REDUCE(KIND)                                            \
  {                                                                              \
    "fl_row_reduce_arg" KIND "_@S", kAll, kNoType,                               \
        "template <int kThreads>\n"                                              \
        "FL_FN void fl_row_reduce_arg" KIND                                      \
        "_@S(@T& value, long long& at) {\n"                                      \
        "#pragma unroll\n"                                                       \
        "  for (int d = (kThreads < 32 ? kThreads : 32) / 2; d > 0; d /= 2) {\n" \
        "    const @T other = fl_shuffle_xor_@S(value, d);\n"                    \
        "    const long long other_at = fl_shuffle_xor_i64(at, d);\n"            \
        "    if (fl_better_" KIND                                                \
        "_@S(value, at, other, other_at)) value = other, at = other_at;\n"       \
        "  }\n"                                                                  \
        "  if (kThreads > 32) {\n"                                               \
        "    constexpr int kWarps = kThreads > 32 ? kThreads / 32 : 1;\n"        \
        "    FL_SHARED @T partial[32];\n"                                        \
        "    FL_SHARED long long partial_at[32];\n"                              \
        "    const int warp = fl_thread() / 32, lane = fl_thread() % 32;\n"      \
        "    fl_barrier();\n"                                                    \
        "    if (lane == 0) partial[warp] = value, partial_at[warp] = at;\n"     \
        "    fl_barrier();\n"                                                    \
        "    value = partial[warp / kWarps * kWarps + lane % kWarps];\n"         \
        "    at = partial_at[warp / kWarps * kWarps + lane % kWarps];\n"         \
        "#pragma unroll\n"                                                       \
        "    for (int d = kWarps / 2; d > 0; d /= 2) {\n"                        \
        "      const @T other = fl_shuffle_xor_@S(value, d);\n"                  \
        "      const long long other_at = fl_shuffle_xor_i64(at, d);\n"          \
        "      if (fl_better_" KIND                                              \
        "_@S(value, at, other, other_at)) value = other, at = other_at;\n"       \
        "    }\n"                                                                \
        "  }\n"                                                                  \
        "}"                                                                      \
  }

// Threads (x, 0), (x, 1), … hold partial results of the same kLanes columns; every one of them gets the combined ones.
#define FUSELINE_COLUMN_REDUCE(KIND, TYPES, COMBINE)                                       \
  {                                                                                        \
    "fl_column_reduce_" KIND "_@S", TYPES, kNoType,                                        \
        "template <int kColumns, int kThreads, int kLanes>\n"                              \
        "FL_FN void fl_column_reduce_" KIND                                                \
        "_@S(@T* value) {\n"                                                               \
        "  if (kThreads == 1) return;\n"                                                   \
        "  FL_SHARED @T partial[kThreads][kLanes][kColumns];\n"                            \
        "  const int x = fl_thread() % kColumns, y = fl_thread() / kColumns;\n"            \
        "  fl_barrier();\n"                                                                \
        "#pragma unroll\n"                                                                 \
        "  for (int lane = 0; lane < kLanes; ++lane) partial[y][lane][x] = value[lane];\n" \
        "  fl_barrier();\n"                                                                \
        "  for (int d = kThreads / 2; d > 0; d /= 2) {\n"                                  \
        "    if (y < d) {\n"                                                               \
        "#pragma unroll\n"                                                                 \
        "      for (int lane = 0; lane < kLanes; ++lane) {\n"                              \
        "        partial[y][lane][x] = " COMBINE                                           \
        "(partial[y][lane][x], partial[y + d][lane][x]);\n"                                \
        "      }\n"                                                                        \
        "    }\n"                                                                          \
        "    fl_barrier();\n"                                                              \
        "  }\n"                                                                            \
        "#pragma unroll\n"                                                                 \
        "  for (int lane = 0; lane < kLanes; ++lane) value[lane] = partial[0][lane][x];\n" \
        "}"                                                                                \
  }

#define FUSELINE_COLUMN_ARG_REDUCE(KIND)                                         \
  {                                                                              \
    "fl_column_reduce_arg" KIND "_@S", kAll, kNoType,                            \
        "template <int kColumns, int kThreads, int kLanes>\n"                    \
        "FL_FN void fl_column_reduce_arg" KIND                                   \
        "_@S(@T* value, long long* at) {\n"                                      \
        "  if (kThreads == 1) return;\n"                                         \
        "  FL_SHARED @T partial[kThreads][kLanes][kColumns];\n"                  \
        "  FL_SHARED long long partial_at[kThreads][kLanes][kColumns];\n"        \
        "  const int x = fl_thread() % kColumns, y = fl_thread() / kColumns;\n"  \
        "  fl_barrier();\n"                                                      \
        "#pragma unroll\n"                                                       \
        "  for (int lane = 0; lane < kLanes; ++lane) {\n"                        \
        "    partial[y][lane][x] = value[lane];\n"                               \
        "    partial_at[y][lane][x] = at[lane];\n"                               \
        "  }\n"                                                                  \
        "  fl_barrier();\n"                                                      \
        "  for (int d = kThreads / 2; d > 0; d /= 2) {\n"                        \
        "    if (y < d) {\n"                                                     \
        "#pragma unroll\n"                                                       \
        "      for (int lane = 0; lane < kLanes; ++lane) {\n"                    \
        "        const @T other = partial[y + d][lane][x];\n"                    \
        "        const long long other_at = partial_at[y + d][lane][x];\n"       \
        "        if (fl_better_" KIND                                            \
        "_@S(partial[y][lane][x], partial_at[y][lane][x], other, other_at)) {\n" \
        "          partial[y][lane][x] = other;\n"                               \
        "          partial_at[y][lane][x] = other_at;\n"                         \
        "        }\n"                                                            \
        "      }\n"                                                              \
        "    }\n"                                                                \
        "    fl_barrier();\n"                                                    \
        "  }\n"                                                                  \
        "#pragma unroll\n"                                                       \
        "  for (int lane = 0; lane < kLanes; ++lane) {\n"                        \
        "    value[lane] = partial[0][lane][x];\n"                               \
        "    at[lane] = partial_at[0][lane][x];\n"                               \
        "  }\n"                                                                  \
        "}"                                                                      \
  }

// Stores kLanes (even) f32 values as 16-bit floats; 16 bytes an access where there are that many.
#define FUSELINE_STORE_PACKED(STORAGE)                                                                                 \
  {                                                                                                                    \
    "fl_store_packed_" STORAGE, kNoType, kNoType,                                                                      \
        "template <int kLanes> FL_FN void fl_store_packed_" STORAGE "(fl_" STORAGE                                     \
        "* to, const float* v) {\n"                                                                                    \
        "  union { typename fl_word<2 * kLanes>::type words[1]; unsigned pairs[kLanes / 2]; uint4 quads[(kLanes + 7) " \
        "/ 8]; } u;\n"                                                                                                 \
        "#pragma unroll\n"                                                                                             \
        "  for (int i = 0; i < kLanes / 2; ++i) u.pairs[i] = fl_pack_" STORAGE                                         \
        "(v[2 * i], v[2 * i + 1]);\n"                                                                                  \
        "  if (kLanes >= 8) {\n"                                                                                       \
        "#pragma unroll\n"                                                                                             \
        "    for (int i = 0; i < kLanes / 8; ++i) reinterpret_cast<uint4*>(to)[i] = u.quads[i];\n"                     \
        "  } else {\n"                                                                                                 \
        "    *reinterpret_cast<typename fl_word<2 * kLanes>::type*>(to) = u.words[0];\n"                               \
        "  }\n"                                                                                                        \
        "}"                                                                                                            \
  }

constexpr uint32_t kWide = kFloats | kI64 | kI32;

constexpr PreludeTemplate kTemplates[] = {
    {"FL_KERNEL", kNoType, kNoType,
     "#define FL_KERNEL(threads) extern \"C\" __global__ void __launch_bounds__(threads)"},
    {"FL_SHARED", kNoType, kNoType, "#define FL_SHARED __shared__"},
    {"fl_thread", kNoType, kNoType, "FL_FN int fl_thread() { return (int)threadIdx.x; }"},
    {"fl_block", kNoType, kNoType, "FL_FN int fl_block() { return (int)blockIdx.x; }"},
    {"fl_barrier", kNoType, kNoType, "FL_FN void fl_barrier() { __syncthreads(); }"},
    {"fl_shuffle_xor_@S", kWide, kNoType,
     "FL_FN @T fl_shuffle_xor_@S(@T a, int mask) { return __shfl_xor_sync(0xffffffffu, a, mask); }"},
    {"fl_shuffle_xor_@S", kSmallInts | kBool, kNoType,
     "FL_FN @T fl_shuffle_xor_@S(@T a, int mask) { return (@T)__shfl_xor_sync(0xffffffffu, (int)a, mask); }"},
    // kLanes neighbouring elements, moved by accesses of 16 bytes (or one smaller one). The address is aligned to the
    // access.
    {"fl_word", kNoType, kNoType,
     R"(template <int kBytes> struct fl_word { typedef uint4 type; };
template <> struct fl_word<8> { typedef uint2 type; };
template <> struct fl_word<4> { typedef unsigned type; };
template <> struct fl_word<2> { typedef unsigned short type; };)"},
    {"fl_vec", kNoType, kNoType,
     R"(template <typename T, int kLanes> union fl_vec {
  typedef typename fl_word<(int)sizeof(T) * kLanes>::type word;
  word words[sizeof(T) * kLanes / sizeof(word)];
  T lane[kLanes];
};)"},
    {"fl_load_vec", kNoType, kNoType,
     R"(template <int kLanes, typename T> FL_FN fl_vec<T, kLanes> fl_load_vec(const T* from) {
  typedef typename fl_vec<T, kLanes>::word word;
  fl_vec<T, kLanes> v;
#pragma unroll
  for (int i = 0; i < (int)(sizeof(T) * kLanes / sizeof(word)); ++i) v.words[i] = __ldg(reinterpret_cast<const word*>(from) + i);
  return v;
})"},
    {"fl_store_vec", kNoType, kNoType,
     R"(template <int kLanes, typename T> FL_FN void fl_store_vec(T* to, const fl_vec<T, kLanes>& v) {
  typedef typename fl_vec<T, kLanes>::word word;
#pragma unroll
  for (int i = 0; i < (int)(sizeof(T) * kLanes / sizeof(word)); ++i) reinterpret_cast<word*>(to)[i] = v.words[i];
})"},
    // kLanes f32 values, rounded two at a time.
    {"fl_pack_bf16", kNoType, kNoType,
     R"(FL_FN unsigned fl_pack_bf16(float low, float high) {
#if __CUDA_ARCH__ >= 800
  unsigned r;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
  return r;
#else
  return (unsigned)fl_store_bf16(low).bits | (unsigned)fl_store_bf16(high).bits << 16;
#endif
})"},
    {"fl_pack_f16", kNoType, kNoType,
     R"(FL_FN unsigned fl_pack_f16(float low, float high) {
#if __CUDA_ARCH__ >= 800
  unsigned r;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
  return r;
#else
  return (unsigned)fl_store_f16(low).bits | (unsigned)fl_store_f16(high).bits << 16;
#endif
})"},
    FUSELINE_STORE_PACKED("bf16"),
    FUSELINE_STORE_PACKED("f16"),
    FUSELINE_ROW_REDUCE("sum", kNumbers, "fl_add_@S"),
    FUSELINE_ROW_REDUCE("prod", kNumbers, "fl_mul_@S"),
    FUSELINE_ROW_REDUCE("amax", kAll, "fl_maximum_@S"),
    FUSELINE_ROW_REDUCE("amin", kAll, "fl_minimum_@S"),
    FUSELINE_ROW_REDUCE("any", kBool, "fl_logical_or_@S"),
    FUSELINE_ROW_REDUCE("all", kBool, "fl_logical_and_@S"),
    FUSELINE_ROW_ARG_REDUCE("max"),
    FUSELINE_ROW_ARG_REDUCE("min"),
    FUSELINE_COLUMN_REDUCE("sum", kNumbers, "fl_add_@S"),
    FUSELINE_COLUMN_REDUCE("prod", kNumbers, "fl_mul_@S"),
    FUSELINE_COLUMN_REDUCE("amax", kAll, "fl_maximum_@S"),
    FUSELINE_COLUMN_REDUCE("amin", kAll, "fl_minimum_@S"),
    FUSELINE_COLUMN_REDUCE("any", kBool, "fl_logical_or_@S"),
    FUSELINE_COLUMN_REDUCE("all", kBool, "fl_logical_and_@S"),
    FUSELINE_COLUMN_ARG_REDUCE("max"),
    FUSELINE_COLUMN_ARG_REDUCE("min"),
};

}  // namespace

absl::Span<const PreludeTemplate> CudaMemoryTemplates() { return kTemplates; }

}  // namespace fuseline::codegen
