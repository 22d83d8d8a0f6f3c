// The prelude: named functions that generated kernels call, so that a kernel's own text is plain and
// target-independent. Only the functions that a kernel needs are emitted into its source. Naming: fl_<scalar
// op>_<type>, for instance fl_exp_f32, fl_floor_div_i64; casts fl_cast_<from>_to_<to>; rounding to a 16- or 8-bit float
// and back fl_round_<storage>; conversions between storage and compute type fl_load_<storage> / fl_store_<storage>.
// Thread-safety: immutable after construction.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "absl/types/span.h"

namespace fuseline::codegen {

struct PreludeFunction {
  const char* name;   // what kernels ask for
  const char* needs;  // names of prelude functions or types that `text` uses, separated by spaces
  const char* text;   // the definition
};

class PreludeLibrary {
 public:
  explicit PreludeLibrary(std::vector<absl::Span<const PreludeFunction>> tables);
  bool Has(const std::string& name) const;
  // The text of `names` and everything they need, each once, needed ones first. A name that is not there is a bug of
  // the caller: it is rendered as an #error line, so that the compiler names it.
  std::string Render(const std::set<std::string>& names) const;

 private:
  std::vector<PreludeFunction> functions_;
};

const PreludeLibrary& CudaPrelude();
const PreludeLibrary& CpuPrelude();

}  // namespace fuseline::codegen
