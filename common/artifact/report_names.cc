#include "common/artifact/report_names.h"

#include "common/ir/value_names.h"
#include "common/status/error.h"

namespace fuseline {
namespace {

std::string Rename(const absl::flat_hash_map<std::string, std::string>& names, const std::string& text) {
  std::string renamed;
  for (size_t at = 0; at < text.size();) {
    renamed.push_back(text[at]);
    if (text[at++] != '%') continue;
    size_t end = at;
    while (end < text.size() && IsNameChar(text[end])) ++end;
    const std::string name = text.substr(at, end - at);
    const auto it = names.find(name);
    renamed += it == names.end() ? name : it->second;
    at = end;
  }
  return renamed;
}

}  // namespace

void RenameReportValues(const absl::flat_hash_map<std::string, std::string>& names, ArtifactReport& report) {
  for (KernelReport& kernel : report.kernels) {
    for (std::string& op : kernel.ops) op = Rename(names, op);
  }
  for (FusionRefusal& refusal : report.refusals) {
    refusal.producer = Rename(names, refusal.producer);
    refusal.consumer = Rename(names, refusal.consumer);
  }
}

absl::Status RenameIndexError(const absl::flat_hash_map<std::string, std::string>& names, const absl::Status& status) {
  if (GetErrorReason(status) != ErrorReason::kIndexOutOfRange) return status;
  absl::Status renamed = MakeError(status.code(), ErrorReason::kIndexOutOfRange, Rename(names, GetErrorSubject(status)),
                                   Rename(names, std::string(status.message())));
  status.ForEachPayload([&](absl::string_view url, const absl::Cord& payload) {
    if (!renamed.GetPayload(url).has_value()) renamed.SetPayload(url, payload);
  });
  return renamed;
}

}  // namespace fuseline
