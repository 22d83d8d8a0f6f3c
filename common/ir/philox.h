// Philox-4x32-10, the counter-based generator of J. Salmon, M. Moraes, R. Dror and D. Shaw, "Parallel Random Numbers:
// As Easy as 1, 2, 3" (SC 2011): 128 random bits from a counter and a key, the same on every device. Pipeline: seed
// operand -> this -> references of rand, randn, dropout; kernels compute it with the preludes' own text.
// Thread-safety: pure functions.
#pragma once

#include <array>
#include <cstdint>

namespace fuseline {

std::array<uint32_t, 4> Philox4x32(const std::array<uint32_t, 4>& counter, const std::array<uint32_t, 2>& key);

// Block `counter` (its upper 64 bits are 0) under the key `seed`.
std::array<uint32_t, 4> PhiloxBlock(uint64_t seed, uint64_t counter);

}  // namespace fuseline
