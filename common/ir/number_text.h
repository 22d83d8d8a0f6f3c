// Numbers as the text form spells them, and back.
// A NaN is `nan` where it is the usual quiet one, otherwise `nan(0x7ff8000000000001)` with its bits, so that nothing is
// lost. Thread-safety: pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "common/ir/graph.h"

namespace fuseline {

// The shortest text that reads back equal; never mistaken for an integer ("5" is written "5.0").
std::string DoubleText(double value);
std::string LiteralText(const Literal& literal);

// An integer or a float literal; a '.', an exponent, inf and nan make it a float. Errors: INVALID_ARGUMENT for an
// integer outside i64, a float beyond the largest double, a bad NaN. A float too small for a double gives a zero.
absl::StatusOr<Literal> ParseNumber(std::string_view text);

// True for "nan(0x…)"; `bits` is what stands in it, 0 where that is no hexadecimal number of at most 64 bits.
bool ParseNanBits(std::string_view text, uint64_t* bits);

// As std::from_chars on all of `text`, with underflow giving zero. False for overflow and for malformed text.
bool ParseDouble(std::string_view text, double* value);
bool ParseFloat(std::string_view text, float* value);

}  // namespace fuseline
