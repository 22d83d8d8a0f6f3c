#include "server/compiler/child_process.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <string_view>
#include <utility>

#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "common/status/error.h"
#include "common/status/str_cat.h"

extern char** environ;

namespace fuseline::compiler {
namespace {

absl::Status CanNotStart(const std::string& program, std::string_view step, int error) {
  return MakeError(absl::StatusCode::kInternal, ErrorReason::kCompilerFailed, program,
                   StrCat("can't run '", program, "': ", step, ": ", strerror(error)));
}

// This process's environment with `extra` in place of variables of the same name.
std::vector<std::string> MergeEnvironment(const std::vector<std::string>& extra) {
  const auto name_of = [](std::string_view entry) { return entry.substr(0, entry.find('=')); };
  std::vector<std::string> merged;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const bool replaced =
        std::any_of(extra.begin(), extra.end(), [&](const std::string& e) { return name_of(e) == name_of(*entry); });
    if (!replaced) merged.emplace_back(*entry);
  }
  merged.insert(merged.end(), extra.begin(), extra.end());
  return merged;
}

std::vector<char*> Pointers(const std::vector<std::string>& strings) {
  std::vector<char*> pointers;
  for (const std::string& s : strings) pointers.push_back(const_cast<char*>(s.c_str()));
  pointers.push_back(nullptr);
  return pointers;
}

// Starts `argv` with its output on `output_fd`, in a process group of its own. Returns an errno value.
int Spawn(const std::vector<std::string>& argv, const std::vector<std::string>& environment, int output_fd,
          pid_t& pid) {
  posix_spawn_file_actions_t actions;
  posix_spawnattr_t attributes;
  posix_spawn_file_actions_init(&actions);
  posix_spawnattr_init(&attributes);
  posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, output_fd, 1);
  posix_spawn_file_actions_adddup2(&actions, output_fd, 2);
#if defined(__GLIBC_PREREQ)
#if __GLIBC_PREREQ(2, 34)
  posix_spawn_file_actions_addclosefrom_np(&actions,
                                           3);  // sockets and databases of the server are none of its business
#endif
#endif
  sigset_t signals;
  sigemptyset(&signals);
  posix_spawnattr_setsigmask(&attributes, &signals);
  sigaddset(&signals, SIGPIPE);
  posix_spawnattr_setsigdefault(&attributes, &signals);
  posix_spawnattr_setpgroup(&attributes, 0);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
  const std::vector<char*> arguments = Pointers(argv);
  const std::vector<char*> variables = Pointers(environment);
  const int error = posix_spawn(&pid, argv[0].c_str(), &actions, &attributes, arguments.data(), variables.data());
  posix_spawn_file_actions_destroy(&actions);
  posix_spawnattr_destroy(&attributes);
  return error;
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
  pid_t pid = -1;
  const int error = Spawn(argv, MergeEnvironment(options.environment), pipe_fds[1], pid);
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
    kill(-pid, SIGKILL);
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
