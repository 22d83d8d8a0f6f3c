#include "client/cli/text_output.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "common/case_file/compare_tensors.h"

namespace fuseline::cli {

std::string BytesText(double bytes) {
  const char* const units[] = {"bytes", "KiB", "MiB", "GiB", "TiB"};
  size_t unit = 0;
  while (bytes >= 1024 && unit + 1 < std::size(units)) {
    bytes /= 1024;
    ++unit;
  }
  return unit == 0 ? absl::StrFormat("%.0f bytes", bytes) : absl::StrFormat("%.1f %s", bytes, units[unit]);
}

std::string MicrosText(double micros) {
  return micros < 1000 ? absl::StrFormat("%.1f us", micros) : absl::StrFormat("%.2f ms", micros / 1000);
}
std::string MillisText(absl::Duration duration) { return MicrosText(absl::ToDoubleMicroseconds(duration)); }

std::string SummaryText(const client::CompileSummary& summary) {
  return absl::StrCat("target ", summary.target.ToString(), ", ", summary.outcome, ", ", MillisText(summary.elapsed),
                      ", fingerprint ", summary.fingerprint.ToHex());
}

std::string TensorText(const std::string& name, const Tensor& tensor, int64_t max_values) {
  std::string text =
      absl::StrCat(name, ": ", std::string(DTypeName(tensor.dtype())), "[", absl::StrJoin(tensor.shape(), ", "), "]");
  const int64_t shown = std::min(max_values, tensor.element_count());
  if (shown == 0 && tensor.element_count() > 0) return text;
  absl::StrAppend(&text, " =");
  for (int64_t i = 0; i < shown; ++i) absl::StrAppend(&text, i == 0 ? " " : ", ", ElementText(tensor, i));
  if (shown < tensor.element_count()) absl::StrAppend(&text, ", …");
  if (tensor.element_count() == 0) absl::StrAppend(&text, " (empty)");
  return text;
}

std::string KeptTensorText(const client::KeptTensor& tensor) {
  return absl::StrCat(tensor.name, tensor.name.empty() ? "" : ": ", std::string(DTypeName(tensor.dtype)), "[",
                      absl::StrJoin(tensor.shape, ", "), "] is kept as '", tensor.handle, "' for ",
                      absl::FormatDuration(tensor.lease), " without use");
}

}  // namespace fuseline::cli
