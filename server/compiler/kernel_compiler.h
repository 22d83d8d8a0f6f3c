// Compiles kernel sources to kernel images.
// Pipeline: KernelSource -> KernelCompiler::CompileKernel -> KernelImage.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/artifact/kernel_image.h"
#include "common/target/target.h"
#include "server/codegen/kernel_source.h"

namespace fuseline::compiler {

// Thread-safe: CompileKernel may be called from any number of threads.
class KernelCompiler {
 public:
  virtual ~KernelCompiler() = default;
  // OK, or FAILED_PRECONDITION (kTargetNotAvailable) saying what is missing and what to install.
  virtual absl::Status Available() const = 0;
  // Blocks for tens to hundreds of milliseconds. Errors: INTERNAL (kCompilerFailed) with the first lines of the
  // compiler's log: our source is at fault, never the user's graph.
  virtual absl::StatusOr<KernelImage> CompileKernel(const KernelSource& source) = 0;
  // The source as PTX text, for people. Errors: as CompileKernel; UNIMPLEMENTED (kUnsupported) where the compiler knows
  // none.
  virtual absl::StatusOr<std::string> CompileToPtx(const KernelSource& source);
  // Part of the compiler identity: "nvrtc 13.0; flags …", "g++ 12.2.0 …; flags …; cpu model flags".
  virtual std::string Identity() const = 0;
};

// NVRTC, loaded when first needed (dlopen); works without a GPU or driver. `search_paths`: extra places for
// libnvrtc.so.13|12, before the loader's own, CUDA's usual folders and the PyPI wheel's folder (nvidia/cu13/lib,
// nvidia/cuda_nvrtc/lib under site-packages).
std::unique_ptr<KernelCompiler> MakeNvrtcCompiler(std::vector<std::string> search_paths);

// The system's C++ compiler. `compiler`: a path or name; empty: $CXX, then g++, then clang++. Temporary files go to
// `scratch_dir` (empty: the system's), and are removed.
std::unique_ptr<KernelCompiler> MakeHostCompiler(std::string compiler, std::string scratch_dir);

// Compiles all of `sources` on up to `threads` threads; results in order; the first error wins.
absl::StatusOr<std::vector<KernelImage>> CompileKernels(KernelCompiler& compiler,
                                                        const std::vector<KernelSource>& sources, int threads);

}  // namespace fuseline::compiler
