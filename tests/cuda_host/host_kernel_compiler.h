// Compiles CUDA kernels for the host and loads them.
// Pipeline: KernelSource[] -> TranslateKernels -> g++ -> HostKernel[].
// Kernels that were compiled before are not compiled again; the rest of one call share translation units.
// Ownership: kernels keep their code loaded, and their files until the compiler goes away. Errors: INTERNAL with the
// compiler's first lines. Thread-safety: thread-safe. Tested by tests/cuda_host/host_kernel_compiler_test.cc
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "server/codegen/kernel_source.h"
#include "server/compiler/scratch_folder.h"
#include "tests/cuda_host/host_abi.h"

namespace fuseline::cuda_host {

struct HostParam {
  int element_bytes = 0;
  bool written = false;  // a pointer to non-const
};

// A loaded kernel. Immutable.
struct HostKernel {
  std::string name;  // the kernel's entry
  std::string text;  // as it was emitted
  HostEntry entry = nullptr;
  std::vector<HostParam> params;
  int launch_bound = 0;           // most threads of a block; 0: not said
  std::string file;               // the shared object
  const void* base = nullptr;     // where that is loaded
  std::string label;              // the kernel's file name in the object's line numbers
  std::shared_ptr<void> library;  // keeps it loaded

  // "line 43: `fl_barrier();`, called from line 80: `acc0 = …`": where `site`, an address of the kernel's code, stands
  // in the text. Slow: starts addr2line. "an unknown line" where that does not know.
  std::string Describe(const void* site) const;
};
using HostKernelPtr = std::shared_ptr<const HostKernel>;

class HostKernelCompiler {
 public:
  // Errors: FAILED_PRECONDITION (kTargetNotAvailable) where there is no g++.
  static absl::StatusOr<std::unique_ptr<HostKernelCompiler>> Create();

  absl::StatusOr<std::vector<HostKernelPtr>> Compile(const std::vector<KernelSource>& sources)
      ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  HostKernelCompiler(std::string compiler, compiler::ScratchFolder folder)
      : compiler_(std::move(compiler)), folder_(std::move(folder)) {}
  absl::Status CompileUnit(const std::vector<const KernelSource*>& sources, std::vector<HostKernelPtr>& kernels)
      ABSL_LOCKS_EXCLUDED(mutex_);

  const std::string compiler_;
  const compiler::ScratchFolder folder_;
  absl::Mutex mutex_;
  std::map<std::string, HostKernelPtr> kernels_ ABSL_GUARDED_BY(mutex_);  // by text
  int64_t units_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace fuseline::cuda_host
