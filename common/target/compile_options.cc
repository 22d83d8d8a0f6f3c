#include "common/target/compile_options.h"

#include "common/status/error.h"
#include "common/status/str_cat.h"

namespace fuseline {

std::string_view NumericsName(Numerics numerics) {
  switch (numerics) {
    case Numerics::kFused:
      return "fused";
    case Numerics::kEager:
      return "eager";
  }
  return "invalid";
}

absl::StatusOr<Numerics> ParseNumerics(std::string_view text) {
  for (Numerics numerics : {Numerics::kFused, Numerics::kEager}) {
    if (text == NumericsName(numerics)) return numerics;
  }
  return InvalidArgument(ErrorReason::kOptionInvalid, "options.numerics",
                         StrCat("numerics '", text.substr(0, 64), "' is neither 'fused' nor 'eager'"));
}

}  // namespace fuseline
