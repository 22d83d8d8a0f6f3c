#include "common/artifact/index_checks.h"

#include "common/status/error.h"
#include "common/status/str_cat.h"

namespace fuseline {

absl::Status IndexCheckStatus(const std::vector<PlanCheck>& checks, absl::Span<const int64_t> noted) {
  for (size_t i = 0; i < checks.size() && 2 * i + 1 < noted.size(); ++i) {
    if (noted[2 * i] == 0) continue;
    return InvalidArgument(ErrorReason::kIndexOutOfRange, checks[i].node,
                           StrCat("node '", checks[i].node, "': index ", noted[2 * i + 1], " is out of range for size ",
                                  checks[i].extent));
  }
  return absl::OkStatus();
}

}  // namespace fuseline
