// Tested by tests/unit/common/philox_test.cc
#include "common/ir/philox.h"

namespace fuseline {

std::array<uint32_t, 4> Philox4x32(const std::array<uint32_t, 4>& counter, const std::array<uint32_t, 2>& key) {
  std::array<uint32_t, 4> c = counter;
  std::array<uint32_t, 2> k = key;
  for (int round = 0; round < 10; ++round) {
    const uint64_t even = uint64_t{0xD2511F53} * c[0];
    const uint64_t odd = uint64_t{0xCD9E8D57} * c[2];
    c = {static_cast<uint32_t>(odd >> 32) ^ c[1] ^ k[0], static_cast<uint32_t>(odd),
         static_cast<uint32_t>(even >> 32) ^ c[3] ^ k[1], static_cast<uint32_t>(even)};
    k[0] += 0x9E3779B9;
    k[1] += 0xBB67AE85;
  }
  return c;
}

std::array<uint32_t, 4> PhiloxBlock(uint64_t seed, uint64_t counter) {
  return Philox4x32({static_cast<uint32_t>(counter), static_cast<uint32_t>(counter >> 32), 0, 0},
                    {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)});
}

}  // namespace fuseline
