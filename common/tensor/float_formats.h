// The storage formats of the 16- and 8-bit floats: f16 (5 exponent bits, 10 of fraction), bf16 (8, 7), f8e4m3 (4, 3; no
// infinity, 448 is the largest) and f8e5m2 (5, 2). Units: values as double, which holds each of them exactly.
// Thread-safety: pure functions.
#pragma once

#include <cstdint>

#include "common/ir/types.h"

namespace fuseline {

// The value of `bits`, of one of the four formats.
double DecodeSmallFloat(DType dtype, uint16_t bits);
// Rounds to nearest even, once. Beyond the largest value: infinite for f16 and bf16, the largest finite value for the
// f8 formats (infinities too). NaN stays NaN.
uint16_t EncodeSmallFloat(DType dtype, double value);
// DecodeSmallFloat(EncodeSmallFloat(value)), with no detour through the bits.
double RoundToSmallFloat(DType dtype, double value);

}  // namespace fuseline
