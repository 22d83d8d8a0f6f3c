#include "server/service/request_id.h"

#include <cstdint>

#include "absl/random/random.h"
#include "absl/strings/str_cat.h"

namespace fuseline::service {

bool IsValidRequestId(const std::string& text) {
  constexpr size_t kMaxLength = 128;
  if (text.empty() || text.size() > kMaxLength) return false;
  for (const char c : text) {
    const bool valid = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '.' ||
                       c == '_' || c == ':' || c == '-';
    if (!valid) return false;
  }
  return true;
}

std::string NewRequestId() {
  // Seeded from Abseil's pool: std::random_device would ask the processor or the kernel, which costs more than the rest
  // of a cached call.
  absl::BitGen random;
  return absl::StrCat(absl::Hex(absl::Uniform<uint64_t>(random), absl::kZeroPad16),
                      absl::Hex(absl::Uniform<uint64_t>(random), absl::kZeroPad16));
}

}  // namespace fuseline::service
