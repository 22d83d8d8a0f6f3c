// Compiles in worker processes, so that a compiler that crashes, hangs or takes all memory costs one kernel and no
// more. Pipeline: KernelSource -> MakeWorkerCompiler's CompileKernel -> a worker (compiler_worker.h) -> KernelImage. A
// worker is this program, or another, started again with an argument of its own; it is kept and used again, so that it
// costs a kernel well under a millisecond. The image is the one that the compiler itself gives. Errors: besides those
// of the compiler, INTERNAL (kCompilerFailed) where the worker can't be started, crashes, meets a limit or breaks the
// protocol, for the kernel at hand alone; Available says UNAVAILABLE then, and asks again the next time. Thread-safety:
// thread-safe. Blocking: for a worker, where all are busy, and for the compiler. Tested by
// tests/unit/compiler/worker_compiler_test.cc
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "server/compiler/kernel_compiler.h"

namespace fuseline::compiler {

// Which compiler, and how it is set up.
struct CompilerSpec {
  // On the wire.
  enum class Kind : uint8_t { kNvrtc = 1, kHost = 2 } kind = Kind::kNvrtc;
  std::vector<std::string> nvrtc_search_paths;  // as for MakeNvrtcCompiler
  std::string host_compiler;                    // as for MakeHostCompiler
};

struct WorkerOptions {
  // Path and arguments of a program whose main begins with MaybeRunCompilerWorker. Empty: no workers, the compiler runs
  // in this process.
  std::vector<std::string> command;
  int max_workers = 0;                            // 0: one for each core; started when first needed
  absl::Duration time_limit = absl::Seconds(60);  // for a kernel
  // Of each process of a worker: its data, and with room for what is only reserved its address space. 0: none. Not kept
  // under a sanitizer, which reserves far more.
  int64_t memory_limit_bytes = 4ll << 30;
  // A worker is replaced after so many kernels, or when it has grown beyond so many resident bytes: compilers leak.
  int64_t max_kernels = 2000;
  int64_t max_resident_bytes = 1ll << 30;
};

// The command that starts the running program again: for programs whose main begins with MaybeRunCompilerWorker.
std::vector<std::string> ThisProgramAsWorker();

// Calls under way must have ended before the compiler is destroyed, which ends its workers.
std::unique_ptr<KernelCompiler> MakeWorkerCompiler(const CompilerSpec& spec, const WorkerOptions& options);

// The compiler itself, in this process.
std::unique_ptr<KernelCompiler> MakeCompiler(const CompilerSpec& spec, const CompilerLimits& limits);

}  // namespace fuseline::compiler
