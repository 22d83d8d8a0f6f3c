#include "common/status/lasting_error.h"

#include "absl/strings/cord.h"

namespace fuseline {
namespace {

constexpr char kLastingUrl[] = "type.fuseline.dev/Lasting";

}  // namespace

absl::Status MarkLasting(absl::Status status) {
  if (!status.ok()) status.SetPayload(kLastingUrl, absl::Cord("1"));
  return status;
}

bool IsLasting(const absl::Status& status) {
  return absl::IsUnimplemented(status) || status.GetPayload(kLastingUrl).has_value();
}

}  // namespace fuseline
