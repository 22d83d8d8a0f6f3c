// SHA-256 (FIPS 180-4), for the launch library, which brings no libcrypto into another's process. Elsewhere OpenSSL
// computes digests (common/fingerprint). Thread-safety: a pure function. Tested by
// tests/unit/client/launch/sha256_test.cc
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace fuseline::local {

std::array<uint8_t, 32> Sha256(std::string_view bytes);

}  // namespace fuseline::local
