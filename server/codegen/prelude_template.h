// Prelude definitions written once for several types, and their expansion into a table of PreludeFunction.
// A name or text contains tokens which are replaced for each type (or pair of types):
//   @S suffix (f32)      @T C type (float)     @U unsigned type in which integer arithmetic wraps     @W width in bits
//   @L suffix of C's math functions (f for float, nothing for double)       @B unsigned type of the same size as a
//   float
//   @s @t @lo @hi        suffix, C type, least and greatest value of the second type of a pair
// What a definition needs is found by itself: every identifier in its text that begins with fl_ or FL_.
// Pipeline: tables of PreludeTemplate -> PreludeTable -> PreludeLibrary.
// Ownership: a PreludeTable owns the texts which its span points into; the names and texts of templates must outlive
// it. Thread-safety: immutable after construction.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "server/codegen/prelude.h"

namespace fuseline::codegen {

// Sets of types that a template is expanded for. The 16- and 8-bit floats have C type float: they are computed in f32.
enum : uint32_t {
  kNoType = 0,  // the template is one definition, without tokens
  kF32 = 1,
  kF64 = 2,
  kI64 = 4,
  kI32 = 8,
  kI16 = 16,
  kI8 = 32,
  kU8 = 64,
  kBool = 128,
  kF16 = 256,
  kBf16 = 512,
  kF8e4m3 = 1024,
  kF8e5m2 = 2048,
  kFloats = kF32 | kF64,
  kSmallInts = kI16 | kI8 | kU8,
  kInts = kI64 | kI32 | kSmallInts,
  kSignedInts = kI64 | kI32 | kI16 | kI8,
  kNumbers = kFloats | kInts,
  kAll = kNumbers | kBool,
  kSmallFloats = kF16 | kBf16 | kF8e4m3 | kF8e5m2,
};

struct PreludeTemplate {
  const char* name;
  uint32_t types;
  uint32_t to_types;  // kNoType, or the types of the pair's second member
  const char* text;
};

class PreludeTable {
 public:
  explicit PreludeTable(std::vector<absl::Span<const PreludeTemplate>> templates);
  PreludeTable(const PreludeTable&) = delete;
  PreludeTable& operator=(const PreludeTable&) = delete;
  absl::Span<const PreludeFunction> functions() const { return functions_; }

 private:
  void Add(std::string name, std::string text);

  std::deque<std::string> strings_;  // a deque, so that the addresses stay
  std::vector<PreludeFunction> functions_;
};

}  // namespace fuseline::codegen
