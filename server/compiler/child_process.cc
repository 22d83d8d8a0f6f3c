#include "server/compiler/child_process.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <string_view>

#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "common/status/error.h"
#include "common/status/str_cat.h"
#include "server/compiler/spawn_process.h"

namespace fuseline::compiler {
namespace {

absl::Status CanNotStart(const std::string& program, std::string_view step, int error) {
  return MakeError(absl::StatusCode::kInternal, ErrorReason::kCompilerFailed, program,
                   StrCat("can't run '", program, "': ", step, ": ", strerror(error)));
}

// Reads until every writer has closed its end. False where the deadline came first.
bool ReadOutput(int fd, absl::Time deadline, size_t max_bytes, std::string& output) {
  char chunk[8192];
  while (true) {
    const int64_t left_ms = absl::ToInt64Milliseconds(deadline - absl::Now());
    if (left_ms <= 0) return false;
    pollfd poll_fd = {fd, POLLIN, 0};
    const int ready = poll(&poll_fd, 1, static_cast<int>(std::min<int64_t>(left_ms, 60'000)));
    if (ready < 0 && errno != EINTR) return true;
    if (ready <= 0) continue;
    const ssize_t count = read(fd, chunk, sizeof(chunk));
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return true;
    output.append(chunk, std::min(static_cast<size_t>(count), max_bytes - std::min(max_bytes, output.size())));
  }
}

// Waits for the child itself, which may outlive its output. False where the deadline came first.
bool WaitForExit(pid_t pid, absl::Time deadline, int& wait_status) {
  absl::Duration pause = absl::Microseconds(50);
  while (true) {
    const pid_t ended = waitpid(pid, &wait_status, WNOHANG);
    if (ended == pid || (ended < 0 && errno != EINTR)) return true;
    if (absl::Now() >= deadline) return false;
    absl::SleepFor(pause);
    pause = std::min(pause * 2, absl::Milliseconds(5));
  }
}

}  // namespace

absl::StatusOr<ChildProcessResult> RunChildProcess(const std::vector<std::string>& argv,
                                                   const ChildProcessOptions& options) {
  if (argv.empty()) return Internal("no program to run");
  int pipe_fds[2];
  if (pipe2(pipe_fds, O_CLOEXEC) != 0) return CanNotStart(argv[0], "pipe", errno);
  const absl::Time deadline = absl::Now() + options.time_limit;
  SpawnOptions spawn;
  spawn.argv = argv;
  spawn.environment = options.environment;
  spawn.output_fd = pipe_fds[1];
  spawn.error_fd = pipe_fds[1];
  spawn.own_group = options.own_group;
  pid_t pid = -1;
  const int error = SpawnProcess(spawn, pid);
  close(pipe_fds[1]);
  if (error != 0) {
    close(pipe_fds[0]);
    return CanNotStart(argv[0], "start", error);
  }
  if (options.memory_limit_bytes > 0) {
    // Set from outside, since posix_spawn can't; the programs that it starts in turn inherit the limit.
    const rlim_t bytes = static_cast<rlim_t>(options.memory_limit_bytes);
    const rlimit limit = {bytes, bytes};
    prlimit(pid, RLIMIT_AS, &limit, nullptr);
  }
  ChildProcessResult result;
  int wait_status = 0;
  const bool in_time = ReadOutput(pipe_fds[0], deadline, options.max_output_bytes, result.output) &&
                       WaitForExit(pid, deadline, wait_status);
  close(pipe_fds[0]);
  if (!in_time) {
    kill(options.own_group ? -pid : pid, SIGKILL);
    while (waitpid(pid, &wait_status, 0) < 0 && errno == EINTR) {
    }
    return MakeError(absl::StatusCode::kDeadlineExceeded, ErrorReason::kCompilerFailed, argv[0],
                     StrCat("'", argv[0], "' did not end within ", absl::FormatDuration(options.time_limit)));
  }
  result.exit_code = WIFSIGNALED(wait_status) ? 128 + WTERMSIG(wait_status) : WEXITSTATUS(wait_status);
  return result;
}

std::string FindProgram(const std::string& name) {
  const auto is_program = [](const std::string& path) {
    struct stat info;
    return access(path.c_str(), X_OK) == 0 && stat(path.c_str(), &info) == 0 && S_ISREG(info.st_mode);
  };
  if (name.empty()) return "";
  if (name.find('/') != std::string::npos) return is_program(name) ? name : "";
  const char* path = getenv("PATH");
  const std::string folders = path == nullptr ? "/usr/local/bin:/usr/bin:/bin" : path;
  for (absl::string_view folder : absl::StrSplit(folders, ':', absl::SkipEmpty())) {
    const std::string candidate = absl::StrCat(folder, "/", name);
    if (is_program(candidate)) return candidate;
  }
  return "";
}

}  // namespace fuseline::compiler
