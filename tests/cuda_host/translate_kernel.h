// Turns the CUDA text of kernels into C++ that g++ compiles: the text itself, line for line, with three changes. A PTX
// instruction becomes a call of a function (host_cuda_prelude.h), a __shared__ array is asked for from HostCalls, and
// extern "C" goes, since several kernels stand in one translation unit, each in a namespace of its own.
// Pipeline: KernelSource[] -> TranslateKernels -> C++ text -> HostKernelCompiler.
// Errors: INTERNAL naming the kernel and the statement that isn't understood. Thread-safety: pure functions.
// Tested by tests/cuda_host/translate_kernel_test.cc
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "server/codegen/kernel_source.h"

namespace fuseline::cuda_host {

// One kernel's text, changed as above. The number of lines stays.
absl::StatusOr<std::string> TranslateKernel(const KernelSource& source);

// A translation unit of kernels for one architecture. Kernel number n is called by HostEntryName(n), its HostParams are
// HostParamsName(n), and its lines carry the file name HostFileName(n).
absl::StatusOr<std::string> TranslateKernels(const std::vector<const KernelSource*>& sources);
std::string HostEntryName(size_t n);
std::string HostParamsName(size_t n);
std::string HostFileName(size_t n);

// The N of FL_KERNEL(N) in the kernel's signature, the most threads that a block may have; 0 if it does not say.
int LaunchBound(std::string_view text);

}  // namespace fuseline::cuda_host
