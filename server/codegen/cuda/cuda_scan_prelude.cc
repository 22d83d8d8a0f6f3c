// Tested by tests/unit/codegen/ordered_kernel_test.cc and, on the host build of CUDA kernels, by the case files.
#include "server/codegen/cuda/cuda_prelude_tables.h"
#include "server/codegen/prelude_template.h"

namespace fuseline::codegen {
namespace {

// Each thread of a block has the total of some elements, in the order of the threads. It gets what comes before it
// combined: `carry`, which stands before all of the block and becomes the total of all up to the block's last, and the
// totals of the threads before its own. All threads of the block must call it.
#define FUSELINE_BLOCK_PREFIX(KIND, COMBINE)                              \
  {                                                                       \
    "fl_block_prefix_" KIND "_@S", kNumbers, kNoType,                     \
        "template <int kThreads>\n"                                       \
        "FL_FN @T fl_block_prefix_" KIND                                  \
        "_@S(@T total, @T& carry) {\n"                                    \
        "  FL_SHARED @T warp_total[32];\n"                                \
        "  const int warp = fl_thread() / 32, lane = fl_thread() % 32;\n" \
        "  @T upto = total;\n"                                            \
        "#pragma unroll\n"                                                \
        "  for (int d = 1; d < 32; d *= 2) {\n"                           \
        "    const @T other = fl_shuffle_up_@S(upto, d);\n"               \
        "    if (lane >= d) upto = " COMBINE                              \
        "(other, upto);\n"                                                \
        "  }\n"                                                           \
        "  const @T before = fl_shuffle_up_@S(upto, 1);\n"                \
        "  fl_barrier();\n"                                               \
        "  if (lane == 31) warp_total[warp] = upto;\n"                    \
        "  fl_barrier();\n"                                               \
        "  @T all = carry, prefix = carry;\n"                             \
        "  for (int w = 0; w < kThreads / 32; ++w) {\n"                   \
        "    if (w == warp) prefix = all;\n"                              \
        "    all = " COMBINE                                              \
        "(all, warp_total[w]);\n"                                         \
        "  }\n"                                                           \
        "  carry = all;\n"                                                \
        "  return lane == 0 ? prefix : " COMBINE                          \
        "(prefix, before);\n"                                             \
        "}"                                                               \
  }

constexpr PreludeTemplate kTemplates[] = {
    {"fl_shuffle_up_@S", kFloats | kI64 | kI32, kNoType,
     "FL_FN @T fl_shuffle_up_@S(@T a, int lanes) { return __shfl_up_sync(0xffffffffu, a, lanes); }"},
    {"fl_shuffle_up_@S", kSmallInts | kBool, kNoType,
     "FL_FN @T fl_shuffle_up_@S(@T a, int lanes) { return (@T)__shfl_up_sync(0xffffffffu, (int)a, lanes); }"},
    FUSELINE_BLOCK_PREFIX("sum", "fl_add_@S"),
    FUSELINE_BLOCK_PREFIX("prod", "fl_mul_@S"),
    // The greatest and where it is.
    {"fl_block_prefix_argmax_@S", kAll, kNoType,
     R"(template <int kThreads>
FL_FN void fl_block_prefix_argmax_@S(@T& value, long long& at, @T& carry, long long& carry_at) {
  FL_SHARED @T warp_value[32];
  FL_SHARED long long warp_at[32];
  const int warp = fl_thread() / 32, lane = fl_thread() % 32;
#pragma unroll
  for (int d = 1; d < 32; d *= 2) {
    const @T other = fl_shuffle_up_@S(value, d);
    const long long other_at = fl_shuffle_up_i64(at, d);
    if (lane >= d && fl_better_max_@S(value, at, other, other_at)) value = other, at = other_at;
  }
  const @T before = fl_shuffle_up_@S(value, 1);
  const long long before_at = fl_shuffle_up_i64(at, 1);
  fl_barrier();
  if (lane == 31) warp_value[warp] = value, warp_at[warp] = at;
  fl_barrier();
  @T all = carry;
  long long all_at = carry_at;
  for (int w = 0; w < kThreads / 32; ++w) {
    if (w == warp) value = all, at = all_at;
    if (fl_better_max_@S(all, all_at, warp_value[w], warp_at[w])) all = warp_value[w], all_at = warp_at[w];
  }
  carry = all;
  carry_at = all_at;
  if (lane > 0 && fl_better_max_@S(value, at, before, before_at)) value = before, at = before_at;
})"},
};

}  // namespace

absl::Span<const PreludeTemplate> CudaScanTemplates() { return kTemplates; }

}  // namespace fuseline::codegen
