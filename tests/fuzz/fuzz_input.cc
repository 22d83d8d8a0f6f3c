#include "tests/fuzz/fuzz_input.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "common/status/error.h"
#include "common/status/str_cat.h"

namespace fuseline::fuzz {

void ReportFinding(std::string_view what, std::string_view detail) {
  std::fprintf(stderr, "finding: %.*s: %.*s\n", static_cast<int>(what.size()), what.data(),
               static_cast<int>(std::min<size_t>(detail.size(), 1 << 16)), detail.data());
  std::abort();
}

void RequireOk(const absl::Status& status, std::string_view what) {
  if (!status.ok()) ReportFinding(what, status.ToString());
}

void RequireBlamesInput(const absl::Status& status, std::string_view what) {
  if (status.ok()) return;
  if (status.code() != absl::StatusCode::kInvalidArgument && status.code() != absl::StatusCode::kUnimplemented)
    ReportFinding(what, status.ToString());
  if (status.message().empty()) ReportFinding(what, "an error without a message");
  if (GetErrorReason(status) == ErrorReason::kUnspecified)
    ReportFinding(what, StrCat("an error without a reason: ", status.ToString()));
}

void RequireEqual(std::string_view got, std::string_view want, std::string_view what) {
  if (got == want) return;
  const auto [g, w] = std::mismatch(got.begin(), got.end(), want.begin(), want.end());
  const size_t at = static_cast<size_t>(g - got.begin());
  const size_t from = at < 40 ? 0 : at - 40;
  ReportFinding(what, StrCat("differs at byte ", at, ":\n  got  ...", got.substr(from, 200), "\n  want ...",
                             want.substr(from, 200)));
}

GraphLimits SmallLimits() {
  GraphLimits limits;
  limits.max_nodes = 200;
  limits.max_elements = 1 << 20;
  limits.max_constant_bytes = 64 << 10;
  limits.max_text_bytes = 64 << 10;
  return limits;
}

}  // namespace fuseline::fuzz
