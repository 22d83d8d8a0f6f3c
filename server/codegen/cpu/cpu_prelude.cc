#include "server/codegen/cpu/cpu_prelude_tables.h"
#include "server/codegen/prelude.h"

namespace fuseline::codegen {

const PreludeLibrary& CpuPrelude() {
  static const PreludeLibrary* const library = new PreludeLibrary({CpuScalarPrelude()});
  return *library;
}

}  // namespace fuseline::codegen
