// The scalar functions whose definition is the same text for every target. Each begins with FL_FN, which the target's
// table defines, and relies on the target's fl_bits_*, fl_from_bits_*, fl_abs_* and fl_fmod_* of floats.
#pragma once

#include "absl/types/span.h"
#include "server/codegen/prelude_template.h"

namespace fuseline::codegen {

absl::Span<const PreludeTemplate> SharedScalarTemplates();
// Storage types, rounding, loads and stores of the 16- and 8-bit floats, bitcasts.
absl::Span<const PreludeTemplate> SharedStorageTemplates();
// Infinities and NaN; which of two candidates argmax and argmin prefer.
absl::Span<const PreludeTemplate> SharedReductionTemplates();

}  // namespace fuseline::codegen
