// The tables of which the CUDA prelude is made: scalar functions, and functions of memory, shuffles and barriers.
// Pipeline: tables -> CudaPrelude() (server/codegen/prelude.h).
// Thread-safety: immutable.
#pragma once

#include "absl/types/span.h"
#include "server/codegen/prelude.h"

namespace fuseline::codegen {

absl::Span<const PreludeFunction> CudaScalarPrelude();
absl::Span<const PreludeFunction> CudaMemoryPrelude();

}  // namespace fuseline::codegen
