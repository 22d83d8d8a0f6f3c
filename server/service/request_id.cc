#include "server/service/request_id.h"

#include <cstdint>
#include <random>

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
  std::random_device device;
  std::string id;
  for (int i = 0; i < 4; ++i) absl::StrAppend(&id, absl::Hex(static_cast<uint32_t>(device()), absl::kZeroPad8));
  return id;
}

}  // namespace fuseline::service
