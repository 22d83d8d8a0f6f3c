// fuseline: the command line. Wiring only; each command is in <name>_command.cc.
// Tested by tests/unit/client/cli_test.cc
#include <iostream>
#include <optional>

#include "client/cli/command.h"
#include "client/cli/json_output.h"
#if defined(FUSELINE_CLI_HAS_ENGINE)
#include "server/compiler/compiler_worker.h"
#endif

int main(int argc, char** argv) {
#if defined(FUSELINE_CLI_HAS_ENGINE)
  if (const std::optional<int> code = fuseline::compiler::MaybeRunCompilerWorker(argc, argv)) return *code;
#endif
  namespace cli = fuseline::cli;
  std::ios::sync_with_stdio(false);
  CLI::App app("Compiles tensor graphs into fused kernels and runs them.", "fuseline");
  app.set_version_flag("--version", "fuseline " FUSELINE_VERSION, "print the version and exit");
  app.require_subcommand(1);
  app.fallthrough();  // global flags may follow the command
  cli::GlobalFlags flags;
  CLI::Option* server = app.add_option("--server", flags.server,
                                       "HOST:PORT or unix:PATH of a server, or several of them, separated by commas; "
                                       "dns:///HOST:PORT: one at each of the name's addresses; default: "
                                       "$FUSELINE_SERVER, else --local");
  app.add_option("--balance", flags.balance,
                 "of several servers: affinity (equal graphs meet on one) or round_robin (each call to the next)")
      ->capture_default_str()
      ->check(CLI::IsMember({"affinity", "round_robin"}));
  app.add_option("--hedge-ms", flags.hedge_ms,
                 "with several servers: milliseconds after which a second one is asked to compile too; 0: never")
      ->check(CLI::NonNegativeNumber);
  app.add_flag("--tls", flags.tls.enabled,
               "with --server: TLS, with the system's authorities; the next three mean it too");
  app.add_option("--tls-ca-file", flags.tls.ca_file, "authorities that servers' certificates must be of, PEM")
      ->envname("FUSELINE_TLS_CA_FILE");
  app.add_option("--tls-cert-file", flags.tls.cert_file, "this client's certificate, PEM")
      ->envname("FUSELINE_TLS_CERT_FILE");
  app.add_option("--tls-key-file", flags.tls.key_file, "its key, PEM")->envname("FUSELINE_TLS_KEY_FILE");
  app.add_option("--owner", flags.owner, "with --server: whose kept tensors to see and use");
  app.add_flag("--local", flags.local, "an engine in this process")->excludes(server);
  app.add_flag("--json", flags.json, "results as JSON");
  app.add_option("--cache-dir", flags.cache_dir, "with --local: folder of the disk cache; default: none");
  app.add_option("--cache-key-file", flags.cache_key_file, "with --local: keys that sign what the disk cache keeps");
  app.add_option("--cache-namespace", flags.cache_namespace, "with --local: salt of the disk cache");
  app.add_option("--threads", flags.threads, "with --local: threads of the CPU device; 0: one for each core")
      ->check(CLI::NonNegativeNumber);
  app.add_option("--timeout", flags.timeout_seconds, "with --server: seconds for each call; 0: no limit")
      ->check(CLI::NonNegativeNumber);

  cli::CommandBody body;
  const cli::SetBody set_body = [&body](cli::CommandBody b) { body = std::move(b); };
  cli::RegisterRunCommand(app, set_body);
  cli::RegisterCompileCommand(app, set_body);
  cli::RegisterExplainCommand(app, set_body);
  cli::RegisterVerifyCommand(app, set_body);
  cli::RegisterReduceCommand(app, set_body);
  cli::RegisterBenchCommand(app, set_body);
  cli::RegisterConvertCommand(app, set_body);
  cli::RegisterFmtCommand(app, set_body);
  cli::RegisterOpsCommand(app, set_body);
  cli::RegisterDevicesCommand(app, set_body);
  cli::RegisterHealthCommand(app, set_body);
  cli::RegisterCacheCommand(app, set_body);
  cli::RegisterTensorsCommand(app, set_body);
  cli::RegisterWarmCommand(app, set_body);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    return app.exit(e) == 0 ? 0 : 2;
  }

  cli::CommandContext context(flags);
  const absl::StatusOr<int> code = body(context);
  context.ClearProgress();
  if (code.ok()) return *code;
  if (context.json()) {
    cli::PrintJson({{"error", cli::ErrorJson(code.status())}});
  } else {
    std::cerr << "error: " << cli::ErrorText(code.status()) << "\n";
  }
  return 1;
}
