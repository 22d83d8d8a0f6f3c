#include "server/codegen/cuda/cuda_prelude_tables.h"
#include "server/codegen/prelude.h"

namespace fuseline::codegen {

const PreludeLibrary& CudaPrelude() {
  static const PreludeLibrary* const library = new PreludeLibrary({CudaScalarPrelude()});
  return *library;
}

}  // namespace fuseline::codegen
