// Artifacts that the tests on GPUs run: compiled here, for the device's own target.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "common/artifact/artifact.h"
#include "common/status/status_macros.h"
#include "server/compiler/kernel_compiler.h"

namespace fuseline::testing {

// y = 2 x + 1, after `rounds` rounds of work that change nothing.
inline constexpr char kCudaSource[] = R"(
extern "C" __global__ void work(const float* x, float* y) {
  const long i = blockIdx.x * 256L + threadIdx.x;
  if (i >= ELEMENTS) return;
  float v = x[i];
  float w = v;
  for (int r = 0; r < ROUNDS; ++r) w = w * 0.5f + 1.0f;
  y[i] = w == -1.0f ? 0.0f : v * 2.0f + 1.0f;
}
extern "C" __global__ void crash(const float* x, float* y) {
  *reinterpret_cast<volatile float*>(16) = x[0];
}
)";

inline absl::StatusOr<ArtifactPtr> CudaArtifact(const Target& target, const std::string& entry, int64_t elements,
                                                int64_t rounds) {
  std::string source = kCudaSource;
  const auto replace = [&](const std::string& name, int64_t value) {
    for (size_t at; (at = source.find(name)) != std::string::npos;)
      source.replace(at, name.size(), std::to_string(value));
  };
  replace("ELEMENTS", elements);
  replace("ROUNDS", rounds);
  auto artifact = std::make_shared<Artifact>();
  artifact->target = target;
  artifact->fingerprint.bytes[0] = entry == "crash" ? 1 : 2;
  for (size_t i = 0; i < 8; ++i) {
    artifact->fingerprint.bytes[1 + i] = static_cast<uint8_t>(elements >> (8 * i));
    artifact->fingerprint.bytes[9 + i] = static_cast<uint8_t>(rounds >> (8 * i));
  }
  FUSELINE_ASSIGN_OR_RETURN(KernelImage image,
                            compiler::MakeNvrtcCompiler({})->CompileKernel({entry, source, target, false}));
  image.entry = entry;
  artifact->kernels = {image};
  artifact->plan.inputs.push_back({"x", DType::kF32, {elements}, {1}, 16});
  artifact->plan.outputs.push_back({"y", DType::kF32, {elements}, {1}, 16});
  artifact->plan.buffers = {{PlanBuffer::Kind::kInput, 0, elements * 4, 0},
                            {PlanBuffer::Kind::kOutput, 0, elements * 4, 0}};
  PlanStep step;
  step.buffers = {0, 1};
  step.dims.grid[0] = (elements + 255) / 256;
  step.dims.block[0] = 256;
  artifact->plan.steps = {step};
  return ArtifactPtr(std::move(artifact));
}

}  // namespace fuseline::testing
