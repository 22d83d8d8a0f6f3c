#include "tests/cuda_host/host_cuda_engine.h"

#include <cstring>
#include <utility>

#include "common/ir/canonical.h"
#include "common/status/error.h"
#include "common/status/status_macros.h"
#include "common/status/str_cat.h"
#include "server/engine/build_artifact.h"

namespace fuseline::cuda_host {
namespace {

constexpr uint64_t kOrderSeed = 1;

}  // namespace

std::vector<ThreadOrder> HostCudaEngine::Orders() {
  return {{ThreadOrder::Kind::kForward}, {ThreadOrder::Kind::kReverse}, {ThreadOrder::Kind::kRandom, kOrderSeed}};
}

absl::StatusOr<std::unique_ptr<HostCudaEngine>> HostCudaEngine::Create() {
  FUSELINE_ASSIGN_OR_RETURN(std::unique_ptr<HostKernelCompiler> compiler, HostKernelCompiler::Create());
  return std::unique_ptr<HostCudaEngine>(new HostCudaEngine(std::move(compiler)));
}

std::unique_ptr<HostCudaRunner> HostCudaEngine::TakeRunner() {
  absl::MutexLock lock(&mutex_);
  if (idle_runners_.empty()) return std::make_unique<HostCudaRunner>();
  std::unique_ptr<HostCudaRunner> runner = std::move(idle_runners_.back());
  idle_runners_.pop_back();
  return runner;
}

absl::StatusOr<std::vector<Tensor>> HostCudaEngine::Run(const Graph& graph, const std::vector<Tensor>& inputs,
                                                        const CompileOptions& options) {
  FUSELINE_ASSIGN_OR_RETURN(GeneratedCode code, GenerateCode(Canonicalize(graph), target(), options));
  HostProgram program;
  FUSELINE_ASSIGN_OR_RETURN(program.kernels, compiler_->Compile(code.kernels.sources));
  program.plan = std::move(code.kernels.plan);

  std::unique_ptr<HostCudaRunner> runner = TakeRunner();
  std::vector<Tensor> first;
  for (const ThreadOrder& order : Orders()) {
    FUSELINE_ASSIGN_OR_RETURN(std::vector<Tensor> outputs, runner->Run(program, inputs, order));
    if (first.empty()) first = outputs;
    for (size_t o = 0; o < outputs.size(); ++o) {
      if (outputs[o].bytes() == first[o].bytes()) continue;
      return Internal(StrCat("output '", program.plan.outputs[o].name, "' differs between order ",
                             Orders()[0].ToString(), " and order ", order.ToString()));
    }
  }
  absl::MutexLock lock(&mutex_);
  idle_runners_.push_back(std::move(runner));
  return first;
}

}  // namespace fuseline::cuda_host
