// Runs graphs on the CUDA target's code, built for the host: what the engine does for a GPU, with g++ in NVRTC's place
// and a checked run in the device's.
// Pipeline: Graph, tensors -> Canonicalize -> GenerateCode -> HostKernelCompiler -> HostCudaRunner, once in each order
// -> tensors.
// Errors: those of code generation; INTERNAL for what a check finds, and where two orders give different bits.
// Thread-safety: thread-safe. Tested by tests/cuda_host/cuda_host_cases_test.cc
#pragma once

#include <memory>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "common/ir/graph.h"
#include "common/target/compile_options.h"
#include "common/target/target.h"
#include "common/tensor/tensor.h"
#include "tests/cuda_host/host_cuda_runner.h"

namespace fuseline::cuda_host {

class HostCudaEngine {
 public:
  // Errors: FAILED_PRECONDITION where there is no g++.
  static absl::StatusOr<std::unique_ptr<HostCudaEngine>> Create();

  // The outputs in the graph's order, which all of Orders() agree on. `graph`: verified and static.
  absl::StatusOr<std::vector<Tensor>> Run(const Graph& graph, const std::vector<Tensor>& inputs,
                                          const CompileOptions& options) ABSL_LOCKS_EXCLUDED(mutex_);

  static Target target() { return Target::Cuda(90); }
  // In these orders every graph runs: forward, reverse, and a random one.
  static std::vector<ThreadOrder> Orders();

 private:
  explicit HostCudaEngine(std::unique_ptr<HostKernelCompiler> compiler) : compiler_(std::move(compiler)) {}
  std::unique_ptr<HostCudaRunner> TakeRunner() ABSL_LOCKS_EXCLUDED(mutex_);

  const std::unique_ptr<HostKernelCompiler> compiler_;
  absl::Mutex mutex_;
  std::vector<std::unique_ptr<HostCudaRunner>> idle_runners_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace fuseline::cuda_host
