// The other end of worker_compiler.h: a process that compiles what it is sent, until the server closes the connection.
// Pipeline: WorkerRequest -> MaybeRunCompilerWorker -> WorkerReply.
// It leads a process group which the compilers that it starts belong to, keeps the memory limit, leaves no core file,
// is the first that the kernel ends when the machine is out of memory, takes no notice of SIGTERM, SIGINT and SIGHUP (a
// service manager sends them to it as well while the server drains), and ends with its group when the server is gone.
// Tested by tests/unit/compiler/worker_compiler_test.cc
#pragma once

#include <functional>
#include <memory>
#include <optional>

#include "server/compiler/kernel_compiler.h"
#include "server/compiler/worker_compiler.h"

namespace fuseline::compiler {

// The argument that makes a program a worker; the connection is descriptor 3.
inline constexpr char kWorkerArgument[] = "--fuseline-compiler-worker=3";
// The exit code of a worker that met the memory limit.
inline constexpr int kOutOfMemoryExitCode = 86;

using CompilerFactory =
    std::function<std::unique_ptr<KernelCompiler>(const CompilerSpec& spec, const CompilerLimits& limits)>;

// Call it first in main, before any thread: if the program was started as a worker, works and returns the exit code.
// `factory` makes the compiler that is to be run.
std::optional<int> MaybeRunCompilerWorker(int argc, char** argv, const CompilerFactory& factory = MakeCompiler);

}  // namespace fuseline::compiler
