#include "server/codegen/cuda/cuda_prelude_tables.h"

namespace fuseline::codegen {

absl::Span<const PreludeFunction> CudaMemoryPrelude() { return {}; }

}  // namespace fuseline::codegen
