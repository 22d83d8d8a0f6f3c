#include "tests/testing/engines.h"

#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <utility>

#include "common/ir/verify_graph.h"
#include "common/status/error.h"
#include "common/status/status_macros.h"
#include "common/status/str_cat.h"
#include "server/reference/reference_interpreter.h"

namespace fuseline::testing {
namespace {

constexpr std::pair<EngineKind, std::string_view> kNames[] = {{EngineKind::kReference, "reference"},
                                                              {EngineKind::kCpu, "cpu"},
                                                              {EngineKind::kCpuUnfused, "cpu_unfused"},
                                                              {EngineKind::kCuda, "cuda"},
                                                              {EngineKind::kCudaUnfused, "cuda_unfused"},
                                                              {EngineKind::kCudaHost, "cuda_host"},
                                                              {EngineKind::kCudaHostUnfused, "cuda_host_unfused"}};

bool IsCuda(EngineKind kind) { return kind == EngineKind::kCuda || kind == EngineKind::kCudaUnfused; }
bool IsCudaHost(EngineKind kind) { return kind == EngineKind::kCudaHost || kind == EngineKind::kCudaHostUnfused; }

absl::StatusOr<Graph> AtSizesOf(const Graph& graph, const std::vector<Tensor>& inputs) {
  if (graph.is_static()) return graph;
  std::vector<Shape> shapes;
  for (const Tensor& tensor : inputs) shapes.push_back(tensor.shape());
  FUSELINE_ASSIGN_OR_RETURN(const SymbolSizes sizes, SolveSymbols(graph, shapes));
  return BindSymbols(graph, sizes);
}

}  // namespace

std::string_view EngineName(EngineKind kind) {
  const auto* row = std::find_if(std::begin(kNames), std::end(kNames), [&](const auto& r) { return r.first == kind; });
  return row == std::end(kNames) ? "unknown" : row->second;
}

std::optional<EngineKind> ParseEngineKind(std::string_view name) {
  const auto* row = std::find_if(std::begin(kNames), std::end(kNames), [&](const auto& r) { return r.second == name; });
  if (row == std::end(kNames)) return std::nullopt;
  return row->first;
}

absl::StatusOr<std::unique_ptr<EngineSet>> EngineSet::Create() {
  EngineOptions options;
  options.cache_memory_bytes = 64 << 20;
  if (const char* folder = std::getenv("FUSELINE_NVRTC_DIR")) options.nvrtc_search_paths = {folder};
  FUSELINE_ASSIGN_OR_RETURN(std::unique_ptr<Engine> engine, Engine::Create(options));
  EngineInfo info = engine->Info();
  return std::unique_ptr<EngineSet>(new EngineSet(std::move(engine), std::move(info)));
}

const TargetInfo* EngineSet::FindTarget(EngineKind kind) const {
  for (const TargetInfo& target : info_.targets) {
    if (target.target.is_cuda() == IsCuda(kind)) return &target;
  }
  return nullptr;
}

absl::Status EngineSet::CanRun(EngineKind kind) const {
  if (kind == EngineKind::kReference) return absl::OkStatus();
  if (IsCudaHost(kind)) return host_cuda_.status();
  const TargetInfo* target = FindTarget(kind);
  if (target != nullptr && target->can_compile && target->can_execute) return absl::OkStatus();
  return MakeError(
      absl::StatusCode::kFailedPrecondition, ErrorReason::kTargetNotAvailable, EngineName(kind),
      target == nullptr || target->reason.empty() ? StrCat("no device for ", EngineName(kind)) : target->reason);
}

Target EngineSet::TargetOf(EngineKind kind) const {
  if (IsCudaHost(kind)) return cuda_host::HostCudaEngine::target();
  const TargetInfo* target = kind == EngineKind::kReference ? nullptr : FindTarget(kind);
  return target == nullptr ? Target::Cpu() : target->target;
}

absl::StatusOr<std::vector<Tensor>> EngineSet::Run(EngineKind kind, const Graph& graph,
                                                   const std::vector<Tensor>& inputs, CompileOptions options) {
  if (kind == EngineKind::kReference || IsCudaHost(kind)) {
    FUSELINE_ASSIGN_OR_RETURN(const Graph bound, AtSizesOf(graph, inputs));
    if (kind == EngineKind::kReference) return reference::Interpret(bound, inputs, options);
    FUSELINE_RETURN_IF_ERROR(host_cuda_.status());
    options.fuse = !IsUnfused(kind);
    return (*host_cuda_)->Run(bound, inputs, options);
  }
  CompileRequest request;
  request.graph = graph;
  request.target = TargetOf(kind);
  request.options = options;
  request.options.fuse = !IsUnfused(kind);
  FUSELINE_ASSIGN_OR_RETURN(ExecuteResult result, engine_->Execute(request, executor::Arguments(inputs), {}));
  return std::move(result.execution.outputs);
}

}  // namespace fuseline::testing
