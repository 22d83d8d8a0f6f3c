// Runs a program without a shell: output captured, time and memory limited, its whole process group killed at the
// limit. Pipeline: used by the host compiler alone. Errors: INTERNAL (kCompilerFailed) where it can't be started,
// DEADLINE_EXCEEDED past the time limit; a non-zero exit is no error here. Thread-safety: thread-safe. Blocking: until
// the program ends or the limit. Tested by tests/unit/compiler/child_process_test.cc
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace fuseline::compiler {

struct ChildProcessOptions {
  absl::Duration time_limit = absl::Seconds(60);
  int64_t memory_limit_bytes = 0;     // of address space, for each process; 0: none
  size_t max_output_bytes = 1 << 20;  // more is read and dropped
  bool own_group = true;  // false: it stays in this process's group, and what it starts may outlive the time limit
  std::vector<std::string> environment;  // "NAME=value", on top of this process's
};

struct ChildProcessResult {
  int exit_code = 0;   // 128 + the signal where one ended it
  std::string output;  // stdout and stderr, as they came
};

// `argv[0]` is a path. Standard input is empty.
absl::StatusOr<ChildProcessResult> RunChildProcess(const std::vector<std::string>& argv,
                                                   const ChildProcessOptions& options);

// The path of `name` on $PATH, or `name` itself where it has a slash; empty where there is no such executable file.
std::string FindProgram(const std::string& name);

}  // namespace fuseline::compiler
