// The program fuseline-server: flags -> engine -> server -> drain. Exit codes: 0 done, 1 the work failed, 2 usage.
#include <google/protobuf/stubs/logging.h>
#include <signal.h>
#include <time.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "server/compiler/compiler_worker.h"
#include "server/compiler/worker_compiler.h"
#include "server/device_worker/device_worker.h"
#include "server/device_worker/worker_device.h"
#include "server/engine/engine.h"
#include "server/service/call_log.h"
#include "server/service/server.h"
#include "server/service/server_flags.h"

namespace {

using fuseline::service::LineFile;
using fuseline::service::Logger;
using fuseline::service::LogLevel;
using fuseline::service::Server;
using fuseline::service::ServerFlags;

// What a kernel under compilation may take past the drain time before the process is ended without it.
constexpr absl::Duration kOvertime = absl::Seconds(10);

// By a rename, so that whoever waits for the file never reads half of it.
bool WritePortFile(const std::string& path, int port) {
  const std::string temporary = absl::StrCat(path, ".tmp");
  std::ofstream file(temporary);
  file << port << "\n";
  file.close();
  return !file.fail() && std::rename(temporary.c_str(), path.c_str()) == 0;
}

// The signal, or 0 when `timeout` passed without one.
int WaitForSignal(const sigset_t& signals, absl::Duration timeout) {
  const timespec wait = absl::ToTimespec(timeout);
  const int signal = sigtimedwait(&signals, nullptr, &wait);
  return signal > 0 ? signal : 0;
}

void LogTargets(const Logger& logger, const fuseline::Engine& engine) {
  for (const fuseline::TargetInfo& target : engine.Info().targets) {
    logger.Log(LogLevel::kInfo, "target",
               {{"target", target.target.ToString()},
                {"can_compile", target.can_compile ? "true" : "false"},
                {"can_execute", target.can_execute ? "true" : "false"},
                {"reason", target.reason}});
  }
}

int Run(ServerFlags flags, const sigset_t& signals) {
  std::unique_ptr<LineFile> access_log;
  if (!flags.access_log.empty()) {
    absl::StatusOr<std::unique_ptr<LineFile>> opened = LineFile::Open(flags.access_log);
    if (!opened.ok()) {
      Logger(flags.log_format, flags.log_level)
          .Log(LogLevel::kError, "access-log-failed", {{"message", std::string(opened.status().message())}});
      return 1;
    }
    access_log = *std::move(opened);
  }
  const Logger logger(flags.log_format, flags.log_level, std::move(access_log));
  const auto fail = [&](const std::string& event, const absl::Status& status) {
    logger.Log(LogLevel::kError, event, {{"message", std::string(status.message())}});
    return status.code() == absl::StatusCode::kInvalidArgument ? 2 : 1;
  };
  if (flags.engine.cache_dir.empty()) logger.Log(LogLevel::kWarning, "no-disk-cache", {});
  flags.engine.report = [&logger](const std::string& line) {
    logger.Log(LogLevel::kWarning, "cache", {{"message", line}});
  };
  absl::StatusOr<std::unique_ptr<fuseline::Engine>> engine = fuseline::Engine::Create(flags.engine);
  if (!engine.ok()) return fail("engine-failed", engine.status());
  LogTargets(logger, **engine);
  for (const std::string& warning : (*engine)->Info().warnings) {
    logger.Log(LogLevel::kWarning, "degraded", {{"reason", warning}});
  }
  flags.server.log = [&logger](const fuseline::service::CallRecord& record) { logger.LogCall(record); };
  absl::StatusOr<std::unique_ptr<Server>> server = Server::Start(**engine, flags.server);
  if (!server.ok()) return fail("listen-failed", server.status());
  if (!flags.port_file.empty() && !WritePortFile(flags.port_file, (*server)->port())) {
    return fail("port-file-failed", absl::UnavailableError(absl::StrCat("can't write '", flags.port_file, "'")));
  }
  logger.Log(LogLevel::kInfo, "serving",
             {{"address", (*server)->address()},
              {"version", flags.server.version},
              {"cache_dir", flags.engine.cache_dir},
              {"metrics_port", absl::StrCat((*server)->metrics_port())}});

  int signal = 0;
  while (signal == 0) {
    signal = WaitForSignal(signals, absl::Hours(1));
    if (signal != SIGHUP) continue;
    logger.ReopenAccessLog();
    if (const absl::Status status = (*engine)->ReloadKeys(); !status.ok()) {
      logger.Log(LogLevel::kError, "cache-keys-kept", {{"message", std::string(status.message())}});
    } else if (!flags.engine.cache_key_file.empty()) {
      logger.Log(LogLevel::kInfo, "cache-keys-read", {{"file", flags.engine.cache_key_file}});
    }
    signal = 0;
  }
  logger.Log(
      LogLevel::kInfo, "draining",
      {{"signal", absl::StrCat(signal)}, {"drain_seconds", absl::StrCat(absl::ToInt64Seconds(flags.drain_time))}});
  bool in_time = false;
  absl::Notification drained;
  std::thread drain([&] {
    in_time = (*server)->Drain(flags.drain_time);
    (*engine)->Drain();
    drained.Notify();
  });
  const absl::Time limit = absl::Now() + flags.drain_time + kOvertime;
  while (!drained.WaitForNotificationWithTimeout(absl::Milliseconds(20))) {
    // A second signal means now. What still runs can't be interrupted (a compiler), so the process ends under it.
    const int second = WaitForSignal(signals, absl::ZeroDuration());
    if ((second == 0 || second == SIGHUP) && absl::Now() < limit) continue;
    logger.Log(LogLevel::kError, "drain-abandoned", {});
    std::_Exit(1);
  }
  drain.join();
  logger.Log(LogLevel::kInfo, "stopped", {{"drained", in_time ? "true" : "false"}});
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (const std::optional<int> code = fuseline::compiler::MaybeRunCompilerWorker(argc, argv)) return *code;
  if (const std::optional<int> code = fuseline::device_worker::MaybeRunDeviceWorker(argc, argv)) return *code;
  // Before any thread: threads inherit the mask, so that these signals come to sigtimedwait alone.
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  sigaddset(&signals, SIGHUP);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  signal(SIGPIPE, SIG_IGN);
  // Protobuf would write a line for each malformed string that a client sends.
  google::protobuf::SetLogHandler(nullptr);

  fuseline::service::FlagsOutcome outcome = fuseline::service::ParseServerFlags(argc, argv, FUSELINE_VERSION);
  if (!outcome.flags.has_value()) {
    std::fputs(outcome.output.c_str(), outcome.exit_code == 0 ? stdout : stderr);
    return outcome.exit_code;
  }
  if (outcome.flags->compiler_workers) {
    outcome.flags->engine.compiler_workers.command = fuseline::compiler::ThisProgramAsWorker();
  }
  if (outcome.flags->device_workers) {
    outcome.flags->engine.executor.open_cuda = [](std::string& why) {
      return fuseline::device_worker::OpenCudaWorkers(fuseline::compiler::ThisProgramAsWorker(), why);
    };
  }
  return Run(*std::move(outcome.flags), signals);
}
