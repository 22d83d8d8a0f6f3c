// The text that translation units of kernels begin with: what CUDA C++ has and C++ lacks, by way of HostCalls.
// Memory is seen by g++'s thread-sanitizer instrumentation, whose callbacks are defined here and ask HostCalls::access;
// no sanitizer library is linked. PTX instructions are functions fl_ptx_<name>, to which TranslateKernel turns asm
// statements; they are written apart from the prelude's own conversions, which they check.
// Not provided, since the emitter uses none: warp votes, __syncwarp, atomics, dynamic shared memory, and grids and
// blocks of more than one dimension. A kernel that uses one does not compile.
// Thread-safety: a pure function. Tested by tests/cuda_host/host_kernel_compiler_test.cc
#pragma once

#include <string>

namespace fuseline::cuda_host {

// `sm`: the value of __CUDA_ARCH__, divided by 10.
std::string HostCudaPrelude(int sm);

}  // namespace fuseline::cuda_host
