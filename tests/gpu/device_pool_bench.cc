// How work spreads over the GPUs: 1,000 small and 20 large executions from 16 callers, on one GPU and on all, in this
// process and with a process for each GPU; and what one small execution takes.
//   device_pool_bench          exit code 77 without a GPU or NVRTC
// Prints wall times, the executions of each device, and the speed-up over one.
#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/time/clock.h"
#include "common/status/str_cat.h"
#include "server/device_worker/device_worker.h"
#include "server/device_worker/worker_device.h"
#include "server/executor/executor.h"
#include "tests/gpu/cuda_artifacts.h"

namespace fuseline {
namespace {

constexpr int kSkip = 77;
constexpr int kCallers = 16;
constexpr int kSmall = 1000;
constexpr int kLarge = 20;
constexpr int kLatencyRuns = 2000;
constexpr int64_t kSmallElements = 1024;
constexpr int64_t kLargeElements = 1 << 20;
constexpr int64_t kLargeRounds = 1'000'000;

Tensor Filled(int64_t elements) {
  Tensor tensor = Tensor::Allocate(DType::kF32, {elements});
  std::fill_n(static_cast<float*>(tensor.data()), elements, 3.0f);
  return tensor;
}

std::unique_ptr<executor::Executor> Open(size_t most, bool workers) {
  executor::ExecutorOptions options;
  options.cpu_devices = 0;
  options.open_cuda = [=](std::string& why) {
    auto devices = workers ? device_worker::OpenCudaWorkers({"/proc/self/exe"}, why) : launch::OpenCudaDevices(why);
    if (devices.size() > most) devices.resize(most);
    return devices;
  };
  auto executor = executor::Executor::Create(options);
  return executor.ok() ? *std::move(executor) : nullptr;
}

// Seconds for `count` executions; negative where one failed.
double Spread(executor::Executor& executor, const ArtifactPtr& artifact, int64_t elements, int count) {
  const Tensor x = Filled(elements);
  std::atomic<int> next{0};
  std::atomic<bool> failed{false};
  std::vector<std::thread> callers;
  const absl::Time start = absl::Now();
  for (int c = 0; c < kCallers; ++c) {
    callers.emplace_back([&] {
      while (next++ < count) {
        const auto execution = executor.Execute(artifact, {x}, {});
        if (!execution.ok() || execution->outputs[0].GetDouble(elements - 1) != 7) {
          failed = true;
          std::printf("failed: %s\n", execution.status().ToString().c_str());
        }
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
  return failed ? -1 : absl::ToDoubleSeconds(absl::Now() - start);
}

std::string Counts(const executor::Executor& executor, const std::vector<executor::DeviceInfo>& before) {
  std::string counts;
  const std::vector<executor::DeviceInfo> after = executor.Devices();
  for (size_t d = 0; d < after.size(); ++d)
    StrAppend(&counts, d == 0 ? "" : " ", after[d].executions - before[d].executions);
  return counts;
}

int Main() {
  std::string why;
  const int gpus = launch::CountCudaDevices(why);
  if (gpus == 0 || !compiler::MakeNvrtcCompiler({})->Available().ok()) {
    std::printf("skipped: %s\n", gpus == 0 ? why.c_str() : "no NVRTC");
    return kSkip;
  }
  std::vector<size_t> sizes = {1};
  if (gpus > 1) sizes.push_back(static_cast<size_t>(gpus));
  bool failed = false;
  std::printf("%-12s %4s  %-6s %6s  %10s  %8s  %s\n", "where", "GPUs", "work", "count", "seconds", "speed-up",
              "executions of each device");
  for (const bool workers : {false, true}) {
    double one[2] = {};
    for (const size_t size : sizes) {
      const auto executor = Open(size, workers);
      if (executor == nullptr || executor->Devices().empty()) return 1;
      const Target target = executor->Devices()[0].target;
      const auto small = testing::CudaArtifact(target, "work", kSmallElements, 1);
      const auto large = testing::CudaArtifact(target, "work", kLargeElements, kLargeRounds);
      if (!small.ok() || !large.ok()) return 1;
      // Everything is loaded once before it is timed.
      for (size_t d = 0; d < size; ++d) {
        executor::ExecuteOptions options;
        options.device = static_cast<int32_t>(d);
        failed |= !executor->Execute(*small, {Filled(kSmallElements)}, options).ok();
        failed |= !executor->Execute(*large, {Filled(kLargeElements)}, options).ok();
      }
      const char* const where = workers ? "own process" : "in-process";
      for (const int kind : {0, 1}) {
        const std::vector<executor::DeviceInfo> before = executor->Devices();
        const double seconds = kind == 0 ? Spread(*executor, *small, kSmallElements, kSmall)
                                         : Spread(*executor, *large, kLargeElements, kLarge);
        failed |= seconds < 0;
        if (size == 1) one[kind] = seconds;
        std::printf("%-12s %4zu  %-6s %6d  %10.4f  %7.2fx  %s\n", where, size, kind == 0 ? "small" : "large",
                    kind == 0 ? kSmall : kLarge, seconds, one[kind] / seconds, Counts(*executor, before).c_str());
      }
      if (size == 1) {
        std::vector<double> micros;
        const Tensor x = Filled(kSmallElements);
        for (int i = 0; i < kLatencyRuns; ++i) {
          const auto execution = executor->Execute(*small, {x}, {});
          if (execution.ok()) micros.push_back(execution->run_micros);
        }
        std::sort(micros.begin(), micros.end());
        if (!micros.empty()) {
          std::printf("%-12s one small execution: median %.1f us, 99 %% %.1f us\n", where, micros[micros.size() / 2],
                      micros[micros.size() * 99 / 100]);
        }
        const Tensor big = Filled(64 << 20);
        const auto copy = testing::CudaArtifact(target, "work", 64 << 20, 1);
        double best = 1e30;
        for (int i = 0; copy.ok() && i < 5; ++i) {
          const auto execution = executor->Execute(*copy, {big}, {});
          if (execution.ok()) best = std::min(best, execution->run_micros);
        }
        std::printf("%-12s 256 MB in, 256 MB out: %.1f ms, %.1f GB/s\n", where, best * 1e-3, 2 * 268.4e6 / best * 1e-3);
      }
    }
  }
  return failed ? 1 : 0;
}

}  // namespace
}  // namespace fuseline

int main(int argc, char** argv) {
  if (const std::optional<int> code = fuseline::device_worker::MaybeRunDeviceWorker(argc, argv)) return *code;
  return fuseline::Main();
}
