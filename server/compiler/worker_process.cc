#include "server/compiler/worker_process.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <string_view>
#include <utility>

#include "absl/time/clock.h"
#include "common/status/error.h"
#include "common/status/status_macros.h"
#include "common/status/str_cat.h"
#include "server/compiler/compiler_worker.h"
#include "server/compiler/spawn_process.h"

namespace fuseline::compiler {
namespace {

// Starting takes some ten milliseconds; this is for a machine that is short of everything.
constexpr absl::Duration kStartLimit = absl::Seconds(30);
// How long a worker whose connection has closed may take to end, before it is ended.
constexpr absl::Duration kEndGrace = absl::Seconds(2);
// How long a kernel that nobody waits for any more may take to be done: a worker that is kept saves the next one more.
constexpr absl::Duration kStopGrace = absl::Seconds(1);

absl::Status CanNotStart(const std::string& program, std::string_view step, int error) {
  const bool exhausted = error == EMFILE || error == ENFILE || error == EAGAIN || error == ENOMEM || error == ENOBUFS;
  return MakeError(exhausted ? absl::StatusCode::kResourceExhausted : absl::StatusCode::kInternal,
                   ErrorReason::kCompilerFailed, program,
                   StrCat("can't start the compiler worker '", program, "': ", step, ": ", strerror(error)));
}

std::string SignalName(int signal) {
  const char* name = sigdescr_np(signal);
  if (name == nullptr) return "unknown";
  std::string text = name;
  text[0] = static_cast<char>(tolower(static_cast<unsigned char>(text[0])));
  return text;
}

std::string MiB(int64_t bytes) { return StrCat(bytes >> 20, " MiB"); }

}  // namespace

absl::StatusOr<std::unique_ptr<WorkerProcess>> WorkerProcess::Start(const CompilerSpec& spec,
                                                                    const WorkerOptions& options,
                                                                    const std::string& identity) {
  if (options.command.empty()) return Internal("no program for compiler workers");
  const std::string& program = options.command[0];
  FUSELINE_ASSIGN_OR_RETURN(ScratchFolder scratch, ScratchFolder::Create(""));
  int fds[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) != 0) return CanNotStart(program, "socket", errno);
  SpawnOptions spawn;
  spawn.argv = options.command;
  spawn.argv.push_back(kWorkerArgument);
  spawn.environment = {StrCat("TMPDIR=", scratch.path())};
  spawn.output_fd = 2;  // the standard output is the program's own
  // Out of the way of the descriptors that are set before it.
  spawn.extra_fd = fcntl(fds[1], F_DUPFD_CLOEXEC, 3);
  pid_t pid = -1;
  const int error = spawn.extra_fd < 0 ? errno : SpawnProcess(spawn, pid);
  if (spawn.extra_fd >= 0) close(spawn.extra_fd);
  close(fds[1]);
  if (error != 0) {
    close(fds[0]);
    return CanNotStart(program, "start", error);
  }
  std::unique_ptr<WorkerProcess> worker(new WorkerProcess(fds[0], pid, std::move(scratch), options));

  WorkerSetup setup;
  setup.compiler = spec;
  setup.memory_limit_bytes = options.memory_limit_bytes;
  setup.scratch_folder = worker->scratch_.path();
  setup.identity = identity;
  FrameWait wait;
  wait.deadline = absl::Now() + kStartLimit;
  std::string ready;
  FrameResult result = worker->channel_.Write(FrameType::kSetup, EncodeSetup(setup), wait);
  if (result == FrameResult::kOk) result = worker->channel_.Read(FrameType::kReady, ready, wait);
  if (result == FrameResult::kOk) return worker;
  std::string failure;
  worker->Fail(result, failure);
  return MakeError(
      absl::StatusCode::kInternal, ErrorReason::kCompilerFailed, program,
      StrCat("can't start the compiler worker '", program, "': ",
             result == FrameResult::kTimedOut ? StrCat("not ready after ", absl::ToDoubleSeconds(kStartLimit), " s")
                                              : failure));
}

WorkerProcess::~WorkerProcess() { Finish(absl::ZeroDuration()); }

WorkerProcess::End WorkerProcess::Finish(absl::Duration grace) {
  End end;
  if (pid_ < 0) return end;
  // Watched without reaping, so that the group's id stays this worker's until the group was ended.
  const absl::Time limit = absl::Now() + grace;
  absl::Duration pause = absl::Microseconds(50);
  while (true) {
    siginfo_t info = {};
    const int waited = waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOHANG | WNOWAIT);
    end.known = waited == 0 && info.si_pid == pid_;
    if (end.known || (waited != 0 && errno != EINTR) || absl::Now() >= limit) break;
    absl::SleepFor(pause);
    pause = std::min(pause * 2, absl::Milliseconds(5));
  }
  kill(-pid_, SIGKILL);
  kill(pid_, SIGKILL);  // had it not yet come to lead its group
  int wait_status = 0;
  rusage usage = {};
  pid_t reaped = -1;
  while ((reaped = wait4(pid_, &wait_status, 0, &usage)) < 0 && errno == EINTR) {
  }
  if (reaped == pid_) {
    end.signalled = WIFSIGNALED(wait_status);
    end.code = end.signalled ? WTERMSIG(wait_status) : WEXITSTATUS(wait_status);
    end.peak_bytes = static_cast<int64_t>(usage.ru_maxrss) * 1024;
  }
  pid_ = -1;
  return end;
}

WorkerProcess::Outcome WorkerProcess::Fail(FrameResult result, std::string& failure) {
  const int64_t limit = options_.memory_limit_bytes;
  if (result == FrameResult::kGivenUp || result == FrameResult::kTimedOut) {
    Finish(absl::ZeroDuration());
    failure = StrCat("the compiler was not done after ", absl::ToDoubleSeconds(options_.time_limit), " s");
    return result == FrameResult::kGivenUp ? Outcome::kGivenUp : Outcome::kTimedOut;
  }
  const End end = Finish(result == FrameResult::kClosed ? kEndGrace : absl::ZeroDuration());
  // A failed allocation that nobody checks ends in a crash at the limit.
  const bool at_limit = limit > 0 && end.signalled && end.peak_bytes >= limit - limit / 8;
  if (end.known && ((!end.signalled && end.code == kOutOfMemoryExitCode) || at_limit)) {
    failure = StrCat("the compiler used more than ", MiB(limit));
    return Outcome::kOutOfMemory;
  }
  if (result == FrameResult::kMalformed) {
    failure = "the compiler worker broke the protocol";
  } else if (!end.known) {
    failure = "the compiler worker closed its connection";
  } else if (end.signalled) {
    failure = StrCat("the compiler worker was killed by signal ", end.code, " (", SignalName(end.code), ")");
  } else {
    failure = StrCat("the compiler worker exited with code ", end.code);
  }
  return Outcome::kCrashed;
}

WorkerProcess::Outcome WorkerProcess::Call(const std::string& payload, const KernelSource& source,
                                           const StopCheck& stop, WorkerReply& reply, std::string& failure) {
  FrameWait wait;
  wait.deadline = absl::Now() + options_.time_limit;
  absl::Time stopped = absl::InfiniteFuture();
  if (stop) {
    wait.give_up = [&stop, &stopped] {
      if (stopped == absl::InfiniteFuture() && !stop().ok()) stopped = absl::Now();
      return absl::Now() - stopped >= kStopGrace;
    };
  }
  std::string bytes;
  FrameResult result = channel_.Write(FrameType::kRequest, payload, wait);
  if (result == FrameResult::kOk) result = channel_.Read(FrameType::kBegun, bytes, wait);
  if (result == FrameResult::kClosed && calls_ > 0) {
    Finish(kEndGrace);
    return Outcome::kDeadBefore;
  }
  if (result == FrameResult::kOk) result = channel_.Read(FrameType::kReply, bytes, wait);
  if (result == FrameResult::kOk && !DecodeReply(bytes, source, reply)) result = FrameResult::kMalformed;
  if (result != FrameResult::kOk) return Fail(result, failure);
  ++calls_;
  if (!reply.out_of_memory) return Outcome::kReplied;
  std::string_view said(reply.status.message().data(), reply.status.message().size());
  const std::string prefix = StrCat("kernel '", source.entry, "': ");  // which the failure will have as well
  if (said.starts_with(prefix)) said.remove_prefix(prefix.size());
  failure = StrCat("the compiler used more than ", MiB(options_.memory_limit_bytes), ": ", said);
  return Outcome::kOutOfMemory;
}

}  // namespace fuseline::compiler
