// Compiles kernel sources to kernel images.
// Pipeline: KernelSource -> KernelCompiler::CompileKernel -> KernelImage.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/artifact/kernel_image.h"
#include "common/target/target.h"
#include "server/codegen/kernel_source.h"

namespace fuseline::compiler {

// Asked now and then, by any thread: OK to go on, or the status to stop with. May be empty.
using StopCheck = std::function<absl::Status()>;

// The processes that a compiler runs in (worker_compiler.h). Counts since the start, but for `busy` and `idle`.
struct WorkerStats {
  int64_t started = 0;
  int64_t crashed = 0;        // ended by themselves or by someone else's signal, or broke the protocol
  int64_t timed_out = 0;      // ended by us at the time limit
  int64_t out_of_memory = 0;  // met the memory limit
  int64_t retired = 0;        // ended by us after many kernels, grown large, or at a call that was given up
  int64_t busy = 0;           // now
  int64_t idle = 0;           // now
};

// Thread-safe: CompileKernel may be called from any number of threads.
class KernelCompiler {
 public:
  virtual ~KernelCompiler() = default;
  // OK, or FAILED_PRECONDITION (kTargetNotAvailable) saying what is missing and what to install.
  virtual absl::Status Available() const = 0;
  // Blocks for tens to hundreds of milliseconds. Errors: INTERNAL (kCompilerFailed) with the first lines of the
  // compiler's log: our source is at fault, never the user's graph.
  virtual absl::StatusOr<KernelImage> CompileKernel(const KernelSource& source) = 0;
  // As CompileKernel; gives up with the status of `stop` where that comes first. A compiler that can't be interrupted
  // asks it before it begins.
  virtual absl::StatusOr<KernelImage> CompileUnlessStopped(const KernelSource& source, const StopCheck& stop);
  // The source as PTX text, for people. Errors: as CompileKernel; UNIMPLEMENTED (kUnsupported) where the compiler knows
  // none.
  virtual absl::StatusOr<std::string> CompileToPtx(const KernelSource& source);
  // Part of the compiler identity: "nvrtc 13.0; flags …", "g++ 12.2.0 …; flags …; cpu model flags".
  virtual std::string Identity() const = 0;
  // Zeros for a compiler that runs in this process.
  virtual WorkerStats workers() const { return {}; }
};

// What one kernel may cost. Generous: a kernel takes 30 to 300 ms. It bounds what a compiler that hangs or runs away
// can do.
struct CompilerLimits {
  absl::Duration time = absl::Seconds(60);
  int64_t memory_bytes = 8ll << 30;  // of each process that the host compiler starts; 0: none
  // False in a worker: the processes that a compiler starts stay in its group, so that they end with it.
  bool own_process_group = true;
};

// NVRTC, loaded when first needed (dlopen); works without a GPU or driver. `search_paths`: extra places for
// libnvrtc.so.13|12, before the loader's own, CUDA's usual folders and the PyPI wheel's folder (nvidia/cu13/lib,
// nvidia/cuda_nvrtc/lib under site-packages).
std::unique_ptr<KernelCompiler> MakeNvrtcCompiler(std::vector<std::string> search_paths,
                                                  const CompilerLimits& limits = {});

// The system's C++ compiler. `compiler`: a path or name; empty: $CXX, then g++, then clang++. Temporary files go to
// `scratch_dir` (empty: the system's), and are removed.
std::unique_ptr<KernelCompiler> MakeHostCompiler(std::string compiler, std::string scratch_dir,
                                                 const CompilerLimits& limits = {});

// Called after each kernel, by one thread at a time, with `done` one higher each time.
using ProgressCallback = std::function<void(int64_t done, int64_t total)>;

// Compiles all of `sources` on up to `threads` threads; results in order; the first error wins, which may be that of
// `stop`, asked before each kernel and by the compiler.
absl::StatusOr<std::vector<KernelImage>> CompileKernels(KernelCompiler& compiler,
                                                        const std::vector<KernelSource>& sources, int threads,
                                                        const StopCheck& stop = {},
                                                        const ProgressCallback& progress = {});

}  // namespace fuseline::compiler
