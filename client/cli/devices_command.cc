// fuseline devices: the targets and devices of the server, or of this machine.
#include <iostream>

#include "absl/strings/str_format.h"
#include "client/cli/command.h"
#include "client/cli/json_output.h"
#include "client/cli/text_output.h"
#include "common/status/status_macros.h"

namespace fuseline::cli {
namespace {

Json InfoJson(const ServerInfo& info) {
  Json targets = Json::array();
  for (const client::TargetInfo& t : info.targets) {
    targets.push_back(
        {{"target", t.target}, {"can_compile", t.can_compile}, {"can_execute", t.can_execute}, {"reason", t.reason}});
  }
  Json devices = Json::array();
  for (const client::DeviceInfo& d : info.devices) {
    devices.push_back({{"ordinal", d.ordinal},
                       {"name", d.name},
                       {"target", d.target},
                       {"memory_bytes", d.memory_bytes},
                       {"healthy", d.healthy},
                       {"executions", d.executions},
                       {"queue_depth", d.queue_depth}});
  }
  return {{"version", info.version},       {"compiler_identity", info.compiler_identity},
          {"draining", info.draining},     {"uptime_s", absl::ToDoubleSeconds(info.uptime)},
          {"targets", std::move(targets)}, {"devices", std::move(devices)}};
}

absl::StatusOr<int> RunDevices(CommandContext& context) {
  FUSELINE_ASSIGN_OR_RETURN(Backend * backend, context.GetBackend());
  FUSELINE_ASSIGN_OR_RETURN(const ServerInfo info, backend->Info());
  if (context.json()) {
    PrintJson(InfoJson(info));
    return 0;
  }
  std::cout << "version " << info.version << (info.draining ? ", draining" : "") << ", compiler identity "
            << info.compiler_identity << "\n\n";
  std::cout << absl::StreamFormat("%-14s %-8s %-8s %s\n", "target", "compile", "execute", "");
  for (const client::TargetInfo& t : info.targets) {
    std::cout << absl::StreamFormat("%-14s %-8s %-8s %s\n", t.target, t.can_compile ? "yes" : "no",
                                    t.can_execute ? "yes" : "no", t.reason);
  }
  std::cout << absl::StreamFormat("\n%-7s %-14s %-10s %-12s %-8s %s\n", "device", "target", "memory", "executions",
                                  "waiting", "name");
  for (const client::DeviceInfo& d : info.devices) {
    std::cout << absl::StreamFormat("%-7d %-14s %-10s %-12d %-8d %s%s\n", d.ordinal, d.target,
                                    BytesText(static_cast<double>(d.memory_bytes)), d.executions, d.queue_depth, d.name,
                                    d.healthy ? "" : " (out of rotation)");
  }
  std::cout << std::flush;
  return 0;
}

}  // namespace

void RegisterDevicesCommand(CLI::App& app, const SetBody& set_body) {
  CLI::App* command = app.add_subcommand("devices", "targets and devices");
  command->callback([=] { set_body(RunDevices); });
}

}  // namespace fuseline::cli
