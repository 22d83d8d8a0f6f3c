// The tables of which the CPU prelude is made.
// Pipeline: tables -> CpuPrelude() (server/codegen/prelude.h).
// Thread-safety: immutable.
#pragma once

#include "absl/types/span.h"
#include "server/codegen/prelude.h"
#include "server/codegen/prelude_template.h"

namespace fuseline::codegen {

absl::Span<const PreludeFunction> CpuScalarPrelude();
// The elementary functions in f32, computed in f64 by polynomials; part of CpuScalarPrelude.
absl::Span<const PreludeTemplate> CpuElementaryTemplates();
// The micro-kernels of tiled contractions; part of CpuScalarPrelude.
absl::Span<const PreludeTemplate> CpuTileTemplates();

}  // namespace fuseline::codegen
