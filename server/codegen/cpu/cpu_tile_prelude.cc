// The micro-kernel of tiled contractions: 6 rows by 128 bytes of columns, held in vector registers. A product and its
// sum may be one fma. Tested by tests/unit/codegen/tile_contraction_test.cc
#include "server/codegen/cpu/cpu_prelude_tables.h"
#include "server/codegen/prelude_template.h"

namespace fuseline::codegen {
namespace {

constexpr PreludeTemplate kTemplates[] = {
    // One step of what fl_tile_multiply does.
    {"fl_chain_@S", kFloats, kNoType,
     R"(FL_FN @T fl_chain_@S(@T a, @T b, @T sum) {
#if defined(__FMA__) || defined(__ARM_FEATURE_FMA)
  return __builtin_fma@L(a, b, sum);
#else
  return sum + a * b;
#endif
})"},
    // 12 sums, two vectors of b and one of a fit into the registers with AVX-512 and nearly so without.
    // a: [step][6], b: [step][columns], c: 6 rows of `stride`.
    {"fl_tile_multiply_@S", kNumbers, kNoType,
     R"(#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC push_options
#pragma GCC optimize("fp-contract=fast")
#endif
static __attribute__((noinline)) void fl_tile_multiply_@S(const @T* a, const @T* b, @T* c, long long stride, int steps) {
#ifdef __clang__
#pragma clang fp contract(fast)
#endif
#ifdef __AVX512F__
#define TILE_VECTOR 64
#else
#define TILE_VECTOR 32
#endif
  typedef @T lanes __attribute__((vector_size(TILE_VECTOR)));
  constexpr int kLanes = TILE_VECTOR / (int)sizeof(@T), kColumns = 128 / (int)sizeof(@T);
  for (int part = 0; part < kColumns; part += 2 * kLanes) {
    lanes* const c0 = (lanes*)(c + part);
    lanes* const c1 = (lanes*)(c + part + stride);
    lanes* const c2 = (lanes*)(c + part + 2 * stride);
    lanes* const c3 = (lanes*)(c + part + 3 * stride);
    lanes* const c4 = (lanes*)(c + part + 4 * stride);
    lanes* const c5 = (lanes*)(c + part + 5 * stride);
    lanes s00 = c0[0], s01 = c0[1], s10 = c1[0], s11 = c1[1], s20 = c2[0], s21 = c2[1];
    lanes s30 = c3[0], s31 = c3[1], s40 = c4[0], s41 = c4[1], s50 = c5[0], s51 = c5[1];
    const @T* x = a;
    const @T* y = b + part;
    for (int s = 0; s < steps; ++s, x += 6, y += kColumns) {
      const lanes b0 = ((const lanes*)y)[0], b1 = ((const lanes*)y)[1];
      s00 += x[0] * b0, s01 += x[0] * b1;
      s10 += x[1] * b0, s11 += x[1] * b1;
      s20 += x[2] * b0, s21 += x[2] * b1;
      s30 += x[3] * b0, s31 += x[3] * b1;
      s40 += x[4] * b0, s41 += x[4] * b1;
      s50 += x[5] * b0, s51 += x[5] * b1;
    }
    c0[0] = s00, c0[1] = s01, c1[0] = s10, c1[1] = s11, c2[0] = s20, c2[1] = s21;
    c3[0] = s30, c3[1] = s31, c4[0] = s40, c4[1] = s41, c5[0] = s50, c5[1] = s51;
  }
}
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC pop_options
#endif)"},
};

}  // namespace

absl::Span<const PreludeTemplate> CpuTileTemplates() { return kTemplates; }

}  // namespace fuseline::codegen
