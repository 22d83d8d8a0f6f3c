// Runs a launch plan of CUDA kernels on the host, with every access checked.
// Pipeline: GeneratedKernels -> HostKernelCompiler -> HostProgram; HostProgram, tensors -> HostCudaRunner::Run ->
// tensors. Every buffer, temporaries too, has memory of its own with guards around it; what kernels must write is
// filled with a pattern, and every byte of an output must be written. Errors: INTERNAL naming kernel, block, thread and
// line (BlockScheduler), or the plan's step. Ownership: values. Thread-safety: none; one runner a host thread. Tested
// by tests/cuda_host/planted_bugs_test.cc
#pragma once

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "common/artifact/launch_plan.h"
#include "common/tensor/tensor.h"
#include "tests/cuda_host/block_scheduler.h"
#include "tests/cuda_host/guarded_memory.h"
#include "tests/cuda_host/host_kernel_compiler.h"
#include "tests/cuda_host/memory_check.h"

namespace fuseline::cuda_host {

struct HostProgram {
  LaunchPlan plan;
  std::vector<HostKernelPtr> kernels;  // by PlanStep::kernel
};

class HostCudaRunner {
 public:
  // `inputs`: dense, in the plan's order.
  absl::StatusOr<std::vector<Tensor>> Run(const HostProgram& program, const std::vector<Tensor>& inputs,
                                          const ThreadOrder& order);

 private:
  GuardedMemory memory_;
  BlockScheduler scheduler_;
};

}  // namespace fuseline::cuda_host
