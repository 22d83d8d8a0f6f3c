#include "common/launch/launch_plan_runner.h"

#include "common/status/error.h"
#include "common/status/str_cat.h"

namespace fuseline::launch {

absl::StatusOr<std::unique_ptr<PreparedLaunch>> Device::Prepare(LoadedArtifactPtr artifact) {
  return Unimplemented("", StrCat("'", name(), "' can't be launched on from outside"));
}

bool RunsCodeFor(const Target& device, const Target& code) {
  if (!device.is_cuda() || !code.is_cuda()) return device == code;
  if (code.arch_specific) return code.sm == device.sm;
  return code.sm / 10 == device.sm / 10 && code.sm <= device.sm;
}

}  // namespace fuseline::launch
