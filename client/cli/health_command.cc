// fuseline health: whether a server takes work, for health checks of containers and scripts. Exit codes: 0 it does, 1
// not.
#include <iostream>
#include <memory>

#include "absl/strings/str_split.h"
#include "absl/time/time.h"
#include "client/cli/command.h"
#include "client/cli/json_output.h"
#include "client/cpp/health.h"
#include "common/status/error.h"
#include "common/status/status_macros.h"

namespace fuseline::cli {
namespace {

// Where --timeout does not say: a check is to be over before the next one.
constexpr absl::Duration kTimeout = absl::Seconds(5);

absl::StatusOr<int> RunHealth(CommandContext& context, const std::string& service) {
  const std::string address = context.ServerAddress();
  if (address.empty())
    return InvalidArgument(ErrorReason::kOptionInvalid, "--server",
                           "whose health? give --server HOST:PORT or set FUSELINE_SERVER");
  const absl::Duration timeout = context.timeout() > absl::ZeroDuration() ? context.timeout() : kTimeout;
  // Of several servers, each must.
  for (const absl::string_view part : absl::StrSplit(address, ','))
    FUSELINE_RETURN_IF_ERROR(client::CheckHealth(std::string(part), service, timeout, context.tls()));
  if (context.json()) {
    PrintJson({{"status", "SERVING"}});
  } else {
    std::cout << "SERVING" << std::endl;
  }
  return 0;
}

}  // namespace

void RegisterHealthCommand(CLI::App& app, const SetBody& set_body) {
  CLI::App* command = app.add_subcommand("health", "whether the server takes work: exit code 0, or 1 with the reason");
  auto service = std::make_shared<std::string>();
  command->add_option("--service", *service,
                      "of one service (fuseline.v1.CompileService); default: of the whole server");
  command->callback([=] { set_body([=](CommandContext& context) { return RunHealth(context, *service); }); });
}

}  // namespace fuseline::cli
