// Starts a program without a shell and without a copy of this process (posix_spawn), so that it is safe with threads.
// Pipeline: argv, environment, file descriptors -> SpawnProcess -> a process. Units: none. Errors: errno values.
// Thread-safety: thread-safe. Tested by tests/unit/compiler/child_process_test.cc
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

namespace fuseline::compiler {

struct SpawnOptions {
  std::vector<std::string> argv;         // argv[0] is a path
  std::vector<std::string> environment;  // "NAME=value", on top of this process's
  int output_fd = 2;                     // becomes its standard output
  int error_fd = 2;                      // becomes its standard error
  int extra_fd = -1;                     // becomes descriptor 3, where not negative; all others are closed
  bool own_group = true;                 // leads a process group; otherwise it stays in this process's
};

// The standard input is empty, no signal is blocked, and SIGPIPE has its default action. Returns 0 or an errno value.
int SpawnProcess(const SpawnOptions& options, pid_t& pid);

}  // namespace fuseline::compiler
