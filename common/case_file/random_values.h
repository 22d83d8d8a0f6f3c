// Deterministic random tensors: the same seed gives the same bits on every machine.
// The generator is counter-based: element i of stream `seed` depends on (seed, i) alone, so tensors can be filled in
// any order.
//   word(seed, j)  = Mix(Mix(seed) + (j + 1) * 0x9E3779B97F4A7C15), Mix being SplitMix64's output function
//   uniform        = the top 53 bits of word(seed, i) * 2^-53, scaled to [low, high)
//   normal         = the sum of twelve 21-bit uniforms of words 4i … 4i+3, minus 6: mean 0, deviation 1, within [-6,
//   6]. No
//                    logarithm or cosine, whose last bit differs between math libraries.
//   int            = word(seed, i) mapped to [low, high) by a 128-bit multiply and shift
// Values are rounded to the tensor's dtype. Thread-safety: pure functions.
// Tested by tests/unit/client/random_values_test.cc
#pragma once

#include <cstdint>

#include "common/tensor/tensor.h"

namespace fuseline {

uint64_t RandomWord(uint64_t seed, uint64_t index);

// Each fills every element. `period`: element i gets the value of element i % period; 0: none. It bounds the cost of
// large tensors whose values hardly matter.
void FillNormal(Tensor& tensor, uint64_t seed, int64_t period = 0);
void FillUniform(Tensor& tensor, uint64_t seed, double low, double high, int64_t period = 0);
// low < high; high itself is never drawn.
void FillRandomInt(Tensor& tensor, uint64_t seed, int64_t low, int64_t high, int64_t period = 0);

}  // namespace fuseline
