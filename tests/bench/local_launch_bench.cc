// What a call through libfuseline_launch.so costs: graphs of one small kernel, on the CPU (the call's overhead alone)
// and, where there is a GPU, on it, beside the driver's own launch of the same kernel and beside a captured graph.
//   local_launch_bench
// Prints a line for each. Exit code 0: measured; 1: a call failed, or a GPU call takes 5 us or more beyond the
// driver's.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "client/launch/fuseline_launch.h"
#include "common/artifact/codec/artifact_codec.h"
#include "common/status/error.h"
#include "common/status/status_macros.h"
#include "common/status/str_cat.h"
#include "server/compiler/kernel_compiler.h"
#include "tests/gpu/gpu_memory.h"

namespace fuseline {
namespace {

constexpr int kRounds = 21;
constexpr double kMostGpuOverheadMicros = 5;

constexpr char kCpuSource[] = R"(
extern "C" void copy(void* const* buffers, long begin, long end) {
  for (long i = begin; i < end; ++i) static_cast<float*>(buffers[1])[i] = static_cast<const float*>(buffers[0])[i];
}
)";
constexpr char kCudaSource[] = R"(
extern "C" __global__ void copy(const float* x, float* y) { y[threadIdx.x] = x[threadIdx.x]; }
)";

absl::StatusOr<std::string> CopyArtifact(const Target& target) {
  Artifact artifact;
  artifact.target = target;
  const auto compiler = target.is_cuda() ? compiler::MakeNvrtcCompiler({}) : compiler::MakeHostCompiler("", "");
  FUSELINE_ASSIGN_OR_RETURN(
      KernelImage image, compiler->CompileKernel({"copy", target.is_cuda() ? kCudaSource : kCpuSource, target, false}));
  artifact.kernels = {std::move(image)};
  LaunchPlan& plan = artifact.plan;
  plan.inputs.push_back({"in0", DType::kF32, {32}, {1}, 16});
  plan.outputs.push_back({"out0", DType::kF32, {32}, {1}, 16});
  plan.buffers = {{PlanBuffer::Kind::kInput, 0, 128, 0}, {PlanBuffer::Kind::kOutput, 0, 128, 0}};
  plan.steps.resize(1);
  plan.steps[0].buffers = {0, 1};
  plan.steps[0].work_items = 32;
  plan.steps[0].work_grain = 32;
  plan.steps[0].dims.block[0] = 32;
  return SerializeArtifact(artifact);
}

absl::Status LastError(const char* call) { return Internal(StrCat(call, ": ", fuseline_last_error())); }

// The median over rounds of `calls` calls, in microseconds a call; `wait` follows each round, untimed.
double MicrosPerCall(int calls, const std::function<bool()>& call, const std::function<void()>& wait) {
  std::vector<double> micros;
  for (int round = 0; round < kRounds; ++round) {
    const auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < calls; ++i) {
      if (!call()) return -1;
    }
    const std::chrono::duration<double, std::micro> taken = std::chrono::steady_clock::now() - start;
    wait();
    micros.push_back(taken.count() / calls);
  }
  std::nth_element(micros.begin(), micros.begin() + kRounds / 2, micros.end());
  return micros[kRounds / 2];
}

absl::StatusOr<fuseline_callable*> Load(fuseline_device* device) {
  FUSELINE_ASSIGN_OR_RETURN(const Target target, ParseTarget(fuseline_device_target(device)));
  FUSELINE_ASSIGN_OR_RETURN(const std::string bytes, CopyArtifact(target));
  fuseline_callable* callable = nullptr;
  if (fuseline_load(device, bytes.data(), bytes.size(), nullptr, &callable) != FUSELINE_OK) return LastError("load");
  return callable;
}

absl::Status MeasureCpu() {
  fuseline_device* device = nullptr;
  if (fuseline_open_cpu(1, &device) != FUSELINE_OK) return LastError("open");
  FUSELINE_ASSIGN_OR_RETURN(fuseline_callable * callable, Load(device));
  alignas(16) float x[32] = {};
  alignas(16) float y[32] = {};
  void* input = x;
  void* output = y;
  const double micros = MicrosPerCall(
      100'000, [&] { return fuseline_launch(callable, &input, &output, nullptr, nullptr) == FUSELINE_OK; }, [] {});
  fuseline_callable_release(callable);
  fuseline_device_close(device);
  if (micros < 0) return LastError("launch");
  printf("cpu: %.3f us a call\n", micros);
  return absl::OkStatus();
}

absl::Status MeasureGpu(testing::GpuProcess& process) {
  // Fewer than the driver queues before it makes the caller wait.
  constexpr int kCalls = 500;
  fuseline_device* device = nullptr;
  if (fuseline_open_cuda(0, &device) != FUSELINE_OK) return LastError("open");
  FUSELINE_ASSIGN_OR_RETURN(fuseline_callable * callable, Load(device));
  FUSELINE_ASSIGN_OR_RETURN(void* input, process.Allocate(128));
  FUSELINE_ASSIGN_OR_RETURN(void* output, process.Allocate(128));
  const auto wait = [&] { process.Synchronize().IgnoreError(); };
  const auto launch = [&] {
    return fuseline_launch(callable, &input, &output, nullptr, process.stream()) == FUSELINE_OK;
  };

  // The driver's own, of the same kernel.
  FUSELINE_ASSIGN_OR_RETURN(const Target target, ParseTarget(fuseline_device_target(device)));
  FUSELINE_ASSIGN_OR_RETURN(const KernelImage image,
                            compiler::MakeNvrtcCompiler({})->CompileKernel({"copy", kCudaSource, target, false}));
  const launch::CudaDriver& driver = process.driver();
  launch::CuModule module = nullptr;
  launch::CuFunction function = nullptr;
  FUSELINE_RETURN_IF_ERROR(driver.Check(driver.ModuleLoadData(&module, image.bytes.c_str()), "cuModuleLoadData"));
  FUSELINE_RETURN_IF_ERROR(driver.Check(driver.ModuleGetFunction(&function, module, "copy"), "cuModuleGetFunction"));
  void* params[] = {&input, &output};
  const auto plain = [&] {
    return driver.LaunchKernel(function, 1, 1, 1, 32, 1, 1, 0, process.stream(), params, nullptr) == 0;
  };

  const double plain_micros = MicrosPerCall(kCalls, plain, wait);
  const double micros = MicrosPerCall(kCalls, launch, wait);
  FUSELINE_RETURN_IF_ERROR(process.BeginCapture());
  const bool captured = launch();
  FUSELINE_RETURN_IF_ERROR(process.EndCapture());
  if (!captured || micros < 0) return LastError("launch");
  const double graph_micros = MicrosPerCall(
      kCalls, [&] { return process.Replay().ok(); }, wait);
  printf("cuda: %.3f us a call; the driver's own launch %.3f us; replaying it as a graph %.3f us\n", micros,
         plain_micros, graph_micros);
  fuseline_callable_release(callable);
  fuseline_device_close(device);
  driver.ModuleUnload(module);
  if (micros - plain_micros >= kMostGpuOverheadMicros)
    return Internal(StrCat("a call costs ", micros - plain_micros, " us beyond the driver's launch"));
  return absl::OkStatus();
}

absl::Status Measure() {
  FUSELINE_RETURN_IF_ERROR(MeasureCpu());
  const auto process = testing::GpuProcess::Start();
  if (!process.ok()) {
    printf("cuda: not measured: %s\n", std::string(process.status().message()).c_str());
    return absl::OkStatus();
  }
  return MeasureGpu(**process);
}

}  // namespace
}  // namespace fuseline

int main() {
  const absl::Status status = fuseline::Measure();
  if (status.ok()) return 0;
  fprintf(stderr, "local_launch_bench: %s\n", std::string(status.message()).c_str());
  return 1;
}
