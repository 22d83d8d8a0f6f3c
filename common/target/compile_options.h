// Options of one compilation. Every field is in the fingerprint (fingerprint.cc's table must list each).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace fuseline {

enum class Numerics : uint8_t {
  kFused = 1,  // 16-bit floats are rounded only where they are stored or cast
  kEager = 2,  // rounded after every op, and combined in an order of the op's own: the bits of op-by-op execution
};

struct CompileOptions {
  Numerics numerics = Numerics::kFused;
  bool fast_math = false;   // allow approximate elementary functions and fma contraction
  bool allow_tf32 = false;  // f32 products may use tf32
  bool fuse = true;         // false: one kernel for each op, for comparison
  friend bool operator==(const CompileOptions&, const CompileOptions&) = default;
};

std::string_view NumericsName(Numerics numerics);  // "fused", "eager"
absl::StatusOr<Numerics> ParseNumerics(std::string_view text);

}  // namespace fuseline
