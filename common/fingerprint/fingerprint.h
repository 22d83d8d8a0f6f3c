// The key of a compilation: SHA-256 over canonical graph, target, options and compiler identity. docs/fingerprint.md
// lists and argues every field. Thread-safety: pure functions.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "common/ir/graph.h"
#include "common/target/compile_options.h"
#include "common/target/target.h"

namespace fuseline {

// Inline, for the launch library, which has no more of this folder.
inline std::string HexOf(const std::array<uint8_t, 32>& bytes) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string hex;
  hex.reserve(2 * bytes.size());
  for (const uint8_t byte : bytes) {
    hex += kDigits[byte >> 4];
    hex += kDigits[byte & 15];
  }
  return hex;
}

// A hash of meaning.
struct Fingerprint {
  std::array<uint8_t, 32> bytes{};
  std::string ToHex() const { return HexOf(bytes); }
  friend bool operator==(const Fingerprint&, const Fingerprint&) = default;
  friend bool operator<(const Fingerprint& a, const Fingerprint& b) { return a.bytes < b.bytes; }
  template <typename H>
  friend H AbslHashValue(H h, const Fingerprint& f) {
    return H::combine(std::move(h), f.bytes);
  }
};
// Errors: INVALID_ARGUMENT unless 64 hex digits.
absl::StatusOr<Fingerprint> ParseFingerprint(std::string_view hex);

// A hash of bytes, always with their size.
struct Digest {
  std::array<uint8_t, 32> sha256{};
  int64_t size_bytes = 0;
  std::string ToHex() const { return HexOf(sha256); }
  friend bool operator==(const Digest&, const Digest&) = default;
  friend bool operator<(const Digest& a, const Digest& b) { return a.sha256 < b.sha256; }
  template <typename H>
  friend H AbslHashValue(H h, const Digest& d) {
    return H::combine(std::move(h), d.sha256);
  }
};
Digest ComputeDigest(std::string_view bytes);

// One field of the key, for `explain --key`.
struct KeyField {
  std::string name;    // "graph", "target", "options.numerics", "compiler_identity", …
  std::string value;   // readable where short, else its digest
  std::string digest;  // hex SHA-256 of the field's bytes
};

struct FingerprintInputs {
  std::string canonical_graph;  // CanonicalBytes
  Target target;
  CompileOptions options;
  std::string compiler_identity;  // hash of the code-generating sources, toolkit version, flags
};
Fingerprint ComputeFingerprint(const FingerprintInputs& inputs);
std::vector<KeyField> ExplainKey(const FingerprintInputs& inputs);

}  // namespace fuseline
