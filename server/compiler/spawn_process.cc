#include "server/compiler/spawn_process.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <unistd.h>

#include <algorithm>
#include <string_view>

extern char** environ;

namespace fuseline::compiler {
namespace {

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

}  // namespace

int SpawnProcess(const SpawnOptions& options, pid_t& pid) {
  if (options.argv.empty()) return EINVAL;
  posix_spawn_file_actions_t actions;
  posix_spawnattr_t attributes;
  posix_spawn_file_actions_init(&actions);
  posix_spawnattr_init(&attributes);
  posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, options.output_fd, 1);
  posix_spawn_file_actions_adddup2(&actions, options.error_fd, 2);
  if (options.extra_fd >= 0) posix_spawn_file_actions_adddup2(&actions, options.extra_fd, 3);
#if defined(__GLIBC_PREREQ)
#if __GLIBC_PREREQ(2, 34)
  // Sockets and databases of the server are none of its business.
  posix_spawn_file_actions_addclosefrom_np(&actions, options.extra_fd >= 0 ? 4 : 3);
#endif
#endif
  sigset_t signals;
  sigemptyset(&signals);
  posix_spawnattr_setsigmask(&attributes, &signals);
  sigaddset(&signals, SIGPIPE);
  posix_spawnattr_setsigdefault(&attributes, &signals);
  short flags = POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF;
  if (options.own_group) {
    posix_spawnattr_setpgroup(&attributes, 0);
    flags |= POSIX_SPAWN_SETPGROUP;
  }
  posix_spawnattr_setflags(&attributes, flags);
  const std::vector<std::string> environment = MergeEnvironment(options.environment);
  const std::vector<char*> arguments = Pointers(options.argv);
  const std::vector<char*> variables = Pointers(environment);
  const int error =
      posix_spawn(&pid, options.argv[0].c_str(), &actions, &attributes, arguments.data(), variables.data());
  posix_spawn_file_actions_destroy(&actions);
  posix_spawnattr_destroy(&attributes);
  return error;
}

}  // namespace fuseline::compiler
