// What code is made for: "cpu" or "cuda:sm_90". A value, not a string, inside.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace fuseline {

struct Target {
  enum class Kind : uint8_t { kCpu = 1, kCuda = 2 } kind = Kind::kCpu;  // never renumber
  int sm = 0;                                                           // compute capability x 10: 90 for sm_90
  bool arch_specific = false;                                           // sm_90a: code for that architecture only

  static Target Cpu() { return {}; }
  static Target Cuda(int sm, bool arch_specific = false) { return {Kind::kCuda, sm, arch_specific}; }
  bool is_cuda() const { return kind == Kind::kCuda; }
  // "cpu", "cuda:sm_90", "cuda:sm_90a".
  std::string ToString() const;
  friend bool operator==(const Target&, const Target&) = default;
};

// Errors: INVALID_ARGUMENT (kOptionInvalid) naming the text.
absl::StatusOr<Target> ParseTarget(std::string_view text);

}  // namespace fuseline
