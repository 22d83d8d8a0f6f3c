#include "client/launch/last_error.h"

#include <string.h>

#include <algorithm>

namespace fuseline::local {
namespace {

// Plain arrays, so that nothing is to be destroyed when a thread or the process ends: handles may be given back later.
constexpr size_t kMaxText = 2048;
constexpr size_t kMaxReason = 64;
thread_local char last_text[kMaxText];
thread_local char last_reason[kMaxReason];

template <size_t kSize>
void Keep(std::string_view text, char (&place)[kSize]) {
  const size_t size = std::min(text.size(), kSize - 1);
  memcpy(place, text.data(), size);
  place[size] = '\0';
}

}  // namespace

fuseline_code Report(const absl::Status& status) {
  if (status.ok()) return FUSELINE_OK;
  Keep({status.message().data(), status.message().size()}, last_text);
  Keep(ErrorReasonName(GetErrorReason(status)), last_reason);
  return static_cast<fuseline_code>(status.code());
}

const char* LastErrorText() { return last_text; }
const char* LastErrorReason() { return last_reason; }

}  // namespace fuseline::local
