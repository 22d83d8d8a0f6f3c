// One compiler worker, as the server sees it: started, asked, and ended with all that it started.
// Pipeline: WorkerOptions, CompilerSpec -> WorkerProcess::Start -> Call -> WorkerReply.
// Ownership: owns the process, its group and its scratch folder; all three are gone when the object is.
// Errors: see Call. Thread-safety: thread-compatible; one call at a time.
// Tested by tests/unit/compiler/worker_compiler_test.cc
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/compiler/frame_channel.h"
#include "server/compiler/scratch_folder.h"
#include "server/compiler/worker_compiler.h"
#include "server/compiler/worker_messages.h"

namespace fuseline::compiler {

class WorkerProcess {
 public:
  // Errors: RESOURCE_EXHAUSTED (kCompilerFailed) where the system has no descriptors, processes or memory left,
  // INTERNAL (kCompilerFailed) otherwise. `identity`: as in WorkerSetup.
  static absl::StatusOr<std::unique_ptr<WorkerProcess>> Start(const CompilerSpec& spec, const WorkerOptions& options,
                                                              const std::string& identity);
  ~WorkerProcess();
  WorkerProcess(const WorkerProcess&) = delete;
  WorkerProcess& operator=(const WorkerProcess&) = delete;

  enum class Outcome : uint8_t {
    kReplied,
    kDeadBefore,  // it had ended before the request reached it: ask another one
    kCrashed,
    kTimedOut,
    kOutOfMemory,  // either ended by the limit, or replied that the compiler met it
    kGivenUp,
  };
  // After anything but kReplied the worker is of no more use. `failure`: what happened, but for kReplied and kGivenUp:
  // "the compiler worker was killed by signal 11 (segmentation fault)".
  // `payload` is the request, encoded; `stop` may be empty, and is given a second to come true in vain.
  Outcome Call(const std::string& payload, const KernelSource& source, const StopCheck& stop, WorkerReply& reply,
               std::string& failure);
  // Calls that it has replied to.
  int64_t calls() const { return calls_; }
  // Whether it has ended, or said something without being asked. Only between calls.
  bool IsBroken() const { return channel_.HasInput(); }
  pid_t pid() const { return pid_; }

 private:
  // How it ended.
  struct End {
    bool known = false;  // false: it was still there when it was killed
    bool signalled = false;
    int code = 0;  // of the exit, or the signal
    int64_t peak_bytes = 0;
  };

  WorkerProcess(int connection, pid_t pid, ScratchFolder scratch, const WorkerOptions& options)
      : options_(options), scratch_(std::move(scratch)), channel_(connection), pid_(pid) {}
  // Ends the process group and reaps the worker, after `grace` in which it may end by itself.
  End Finish(absl::Duration grace);
  Outcome Fail(FrameResult result, std::string& failure);

  const WorkerOptions options_;
  const ScratchFolder scratch_;
  FrameChannel channel_;
  pid_t pid_;  // -1 once reaped
  int64_t calls_ = 0;
};

}  // namespace fuseline::compiler
