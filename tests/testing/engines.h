// Everything that can run a graph, behind one call: the reference interpreter, compiled code for the CPU and for CUDA,
// fused and with a kernel for each op, and the code for CUDA built for the host (tests/cuda_host).
// Pipeline: graph, inputs, options -> EngineSet::Run -> tensors.
// Thread-safety: thread-safe.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/engine/engine.h"
#include "tests/cuda_host/host_cuda_engine.h"

namespace fuseline::testing {

enum class EngineKind : uint8_t { kReference, kCpu, kCpuUnfused, kCuda, kCudaUnfused, kCudaHost, kCudaHostUnfused };

// "reference", "cpu", "cpu_unfused", "cuda", "cuda_unfused", "cuda_host", "cuda_host_unfused".
std::string_view EngineName(EngineKind kind);
std::optional<EngineKind> ParseEngineKind(std::string_view name);
inline bool IsUnfused(EngineKind kind) {
  return kind == EngineKind::kCpuUnfused || kind == EngineKind::kCudaUnfused || kind == EngineKind::kCudaHostUnfused;
}

class EngineSet {
 public:
  // One engine in the process, with no cache on disk, that builds a graph on each core at a time. The environment
  // variable FUSELINE_NVRTC_DIR names NVRTC's folder where it is in none of the usual places.
  static absl::StatusOr<std::unique_ptr<EngineSet>> Create();

  // OK, or why the machine can't run it.
  absl::Status CanRun(EngineKind kind) const;
  // The outputs in the graph's order. `graph`: verified; symbols get their sizes from the inputs. `options.fuse` is set
  // from `kind`. Errors: those of the engine.
  absl::StatusOr<std::vector<Tensor>> Run(EngineKind kind, const Graph& graph, const std::vector<Tensor>& inputs,
                                          CompileOptions options);
  // For `verify` and case files: the target of the kind.
  Target TargetOf(EngineKind kind) const;
  Engine& engine() { return *engine_; }

 private:
  EngineSet(std::unique_ptr<Engine> engine, EngineInfo info) : engine_(std::move(engine)), info_(std::move(info)) {}
  const TargetInfo* FindTarget(EngineKind kind) const;

  std::unique_ptr<Engine> engine_;
  EngineInfo info_;
  const absl::StatusOr<std::unique_ptr<cuda_host::HostCudaEngine>> host_cuda_ = cuda_host::HostCudaEngine::Create();
};

}  // namespace fuseline::testing
