// The server program's flags and config file: the same names in both, the command line wins.
// Pipeline: argv, config file -> ParseServerFlags -> EngineOptions, ServerOptions and the rest.
// Thread-safety: pure but for the environment variables that defaults come from.
// Tested by tests/unit/service/server_flags_test.cc; docs/config.md lists the flags, and the test keeps it true.
#pragma once

#include <optional>
#include <string>

#include "absl/time/time.h"
#include "server/engine/engine.h"
#include "server/service/call_log.h"
#include "server/service/server.h"

namespace fuseline::service {

struct ServerFlags {
  EngineOptions engine;
  ServerOptions server;
  bool compiler_workers = true;  // the program says what they are started with: engine.compiler_workers.command
  bool device_workers = true;    // likewise: engine.executor.open_cuda
  LogLevel log_level = LogLevel::kInfo;
  LogFormat log_format = LogFormat::kText;
  absl::Duration drain_time = absl::Seconds(30);
  std::string port_file;   // empty: none
  std::string access_log;  // empty: calls are logged with the rest
};

// What to do: run with `flags`, or print `output` (to the standard error where `exit_code` is not 0) and exit.
struct FlagsOutcome {
  std::optional<ServerFlags> flags;
  int exit_code = 0;  // 0: --help, --version; 2: a wrong flag or config file
  std::string output;
};
FlagsOutcome ParseServerFlags(int argc, const char* const* argv, const std::string& version);

// $XDG_CACHE_HOME/fuseline, or ~/.cache/fuseline, or "" where neither variable is set.
std::string DefaultCacheDir();

}  // namespace fuseline::service
