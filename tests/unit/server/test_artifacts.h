// Artifacts that the tests of caches, launching and execution run on.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "common/artifact/artifact.h"
#include "common/fingerprint/fingerprint.h"
#include "server/compiler/kernel_compiler.h"

namespace fuseline::testing {

inline Fingerprint KeyOf(int n) {
  Fingerprint key;
  key.bytes[0] = static_cast<uint8_t>(n);
  key.bytes[1] = static_cast<uint8_t>(n >> 8);
  return key;
}

// A valid artifact whose kernel is `kernel_bytes`, which is no code: for caches.
inline ArtifactPtr StoredArtifact(const Fingerprint& key, const std::string& kernel_bytes,
                                  const std::string& identity = "compiler 1") {
  auto artifact = std::make_shared<Artifact>();
  artifact->fingerprint = key;
  artifact->canonical_graph = "graph";
  artifact->target = Target::Cpu();
  artifact->compiler_identity = identity;
  KernelImage kernel;
  kernel.format = ImageFormat::kSharedObject;
  kernel.entry = "kernel";
  kernel.bytes = kernel_bytes;
  kernel.source = "source of " + kernel_bytes.substr(0, 16);
  artifact->kernels.push_back(std::move(kernel));
  LaunchPlan& plan = artifact->plan;
  plan.inputs.push_back({"x", DType::kF32, {4}, {1}, 16});
  plan.outputs.push_back({"y", DType::kF32, {4}, {1}, 16});
  plan.buffers.push_back({PlanBuffer::Kind::kInput, 0, 16, 0});
  plan.buffers.push_back({PlanBuffer::Kind::kOutput, 0, 16, 0});
  PlanStep step;
  step.work_items = 4;
  step.buffers = {0, 1};
  plan.steps.push_back(std::move(step));
  return artifact;
}

// y = 2 x + c, with c a constant [1, 2, 3, …] of x's shape; by way of a temporary and a copy:
// t = 2 x (launch), u = t (copy), y = u + c (launch).
inline constexpr char kAxpySource[] = R"(
extern "C" void twice(void* const* buffers, long begin, long end) {
  const float* x = static_cast<const float*>(buffers[0]);
  float* y = static_cast<float*>(buffers[1]);
  for (long i = begin; i < end; ++i) y[i] = x[i] * 2.0f;
}
extern "C" void plus(void* const* buffers, long begin, long end) {
  const float* x = static_cast<const float*>(buffers[0]);
  const float* c = static_cast<const float*>(buffers[1]);
  float* y = static_cast<float*>(buffers[2]);
  for (long i = begin; i < end; ++i) y[i] = x[i] + c[i];
}
)";

inline LaunchPlan AxpyPlan(int64_t elements) {
  LaunchPlan plan;
  const int64_t bytes = elements * 4;
  const int64_t aligned = (bytes + 255) / 256 * 256;
  plan.inputs.push_back({"x", DType::kF32, {elements}, {1}, 16});
  plan.outputs.push_back({"y", DType::kF32, {elements}, {1}, 16});
  std::string constant(static_cast<size_t>(bytes), '\0');
  for (int64_t i = 0; i < elements; ++i) {
    const float value = static_cast<float>(i + 1);
    constant.replace(static_cast<size_t>(i) * 4, 4, reinterpret_cast<const char*>(&value), 4);
  }
  plan.constants.push_back(std::move(constant));
  plan.arena_bytes = 2 * aligned;
  plan.buffers = {{PlanBuffer::Kind::kInput, 0, bytes, 0},
                  {PlanBuffer::Kind::kTemporary, 0, bytes, 0},
                  {PlanBuffer::Kind::kTemporary, 0, bytes, aligned},
                  {PlanBuffer::Kind::kConstant, 0, bytes, 0},
                  {PlanBuffer::Kind::kOutput, 0, bytes, 0}};
  plan.steps.resize(3);
  plan.steps[0].kernel = 0;
  plan.steps[0].buffers = {0, 1};
  plan.steps[1].kind = PlanStep::Kind::kCopy;
  plan.steps[1].buffers = {1, 2};
  plan.steps[2].kernel = 1;
  plan.steps[2].buffers = {2, 3, 4};
  for (PlanStep& step : plan.steps) {
    step.work_items = elements;
    step.work_grain = 16;
  }
  return plan;
}

inline absl::StatusOr<ArtifactPtr> AxpyArtifact(int64_t elements) {
  auto artifact = std::make_shared<Artifact>();
  artifact->fingerprint = KeyOf(static_cast<int>(elements));
  artifact->target = Target::Cpu();
  const auto compiler = compiler::MakeHostCompiler("", "");
  auto image = compiler->CompileKernel({"twice", kAxpySource, Target::Cpu(), false});
  if (!image.ok()) return image.status();
  artifact->kernels = {*image, *image};
  artifact->kernels[1].entry = "plus";
  artifact->plan = AxpyPlan(elements);
  return ArtifactPtr(std::move(artifact));
}

}  // namespace fuseline::testing
