// The tables of which the CUDA prelude is made: scalar functions, and functions of memory, shuffles and barriers.
// Pipeline: tables -> CudaPrelude() (server/codegen/prelude.h).
// Thread-safety: immutable.
#pragma once

#include "absl/types/span.h"
#include "server/codegen/prelude.h"
#include "server/codegen/prelude_template.h"

namespace fuseline::codegen {

absl::Span<const PreludeFunction> CudaScalarPrelude();
// Vector loads and stores, shuffles, barriers, reductions across threads.
absl::Span<const PreludeTemplate> CudaMemoryTemplates();
// Prefixes across the threads of a block.
absl::Span<const PreludeTemplate> CudaScanTemplates();

}  // namespace fuseline::codegen
