// Tested by tests/unit/prelude/prelude_test.cc and the case files.
#include "server/codegen/shared_scalar_prelude.h"

namespace fuseline::codegen {
namespace {

constexpr PreludeTemplate kTemplates[] = {
    {"FL_INF_F32", kNoType, kNoType, "#define FL_INF_F32 fl_from_bits_f32(0x7f800000u)"},
    {"FL_NAN_F32", kNoType, kNoType, "#define FL_NAN_F32 fl_from_bits_f32(0x7fc00000u)"},
    {"FL_INF_F64", kNoType, kNoType, "#define FL_INF_F64 fl_from_bits_f64(0x7ff0000000000000ull)"},
    {"FL_NAN_F64", kNoType, kNoType, "#define FL_NAN_F64 fl_from_bits_f64(0x7ff8000000000000ull)"},
    // argmax and argmin: a NaN comes first, then the greater (smaller) value, then the smaller index.
    {"fl_better_max_@S", kAll, kNoType,
     R"(FL_FN bool fl_better_max_@S(@T a, long long at_a, @T b, long long at_b) {
  const bool nan_a = a != a, nan_b = b != b;
  const bool same = nan_a ? nan_b : a == b;
  return same ? at_b < at_a : !nan_a && (nan_b || b > a);
})"},
    {"fl_better_min_@S", kAll, kNoType,
     R"(FL_FN bool fl_better_min_@S(@T a, long long at_a, @T b, long long at_b) {
  const bool nan_a = a != a, nan_b = b != b;
  const bool same = nan_a ? nan_b : a == b;
  return same ? at_b < at_a : !nan_a && (nan_b || b < a);
})"},
    // Ascending order, in which NaN is the greatest; descending order is fl_better_max's.
    {"fl_below_@S", kAll, kNoType,
     R"(FL_FN bool fl_below_@S(@T a, long long at_a, @T b, long long at_b) {
  const bool nan_a = a != a, nan_b = b != b;
  const bool same = nan_a ? nan_b : a == b;
  return same ? at_b < at_a : !nan_b && (nan_a || b < a);
})"},
};

}  // namespace

absl::Span<const PreludeTemplate> SharedReductionTemplates() { return kTemplates; }

}  // namespace fuseline::codegen
