// Devices in processes of their own: this program, started again. CPU devices stand in for GPUs.
#include "server/device_worker/worker_device.h"

#include <algorithm>
#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/time/clock.h"
#include "common/status/error.h"
#include "gtest/gtest.h"
#include "server/device_worker/device_worker.h"
#include "server/executor/executor.h"
#include "tests/testing/status_matchers.h"
#include "tests/unit/server/test_artifacts.h"

namespace fuseline::device_worker {
namespace {

using ::fuseline::testing::AxpyArtifact;
using ::fuseline::testing::IsOk;
using ::fuseline::testing::KeyOf;
using ::fuseline::testing::StatusIs;

// The process ends, or goes on for years.
constexpr char kBadSource[] = R"(
extern "C" void crash(void* const* buffers, long begin, long end) { __builtin_trap(); }
extern "C" void endless(void* const* buffers, long begin, long end) {
  volatile float* y = static_cast<volatile float*>(buffers[1]);
  for (long i = begin; i < end; ++i) y[0] = y[0] * 0.5f + 1.0f;
}
)";

// x -> y, both f32[64].
ArtifactPtr BadArtifact(const std::string& entry, int64_t work_items) {
  auto artifact = std::make_shared<Artifact>();
  artifact->fingerprint = KeyOf(entry == "crash" ? 5001 : 5002);
  artifact->target = Target::Cpu();
  auto image = compiler::MakeHostCompiler("", "")->CompileKernel({"crash", kBadSource, Target::Cpu(), false});
  if (!image.ok()) return nullptr;
  artifact->kernels = {*image};
  artifact->kernels[0].entry = entry;
  artifact->plan.inputs.push_back({"x", DType::kF32, {64}, {1}, 16});
  artifact->plan.outputs.push_back({"y", DType::kF32, {64}, {1}, 16});
  artifact->plan.buffers = {{PlanBuffer::Kind::kInput, 0, 256, 0}, {PlanBuffer::Kind::kOutput, 0, 256, 0}};
  PlanStep step;
  step.work_items = work_items;
  step.work_grain = 1000;
  step.buffers = {0, 1};
  artifact->plan.steps = {step};
  return artifact;
}

Tensor Filled(int64_t elements, float value) {
  Tensor tensor = Tensor::Allocate(DType::kF32, {elements});
  std::fill_n(static_cast<float*>(tensor.data()), elements, value);
  return tensor;
}

std::unique_ptr<launch::Device> OpenWorker() {
  auto device = OpenWorkerDevice({"/proc/self/exe"}, "cpu:1");
  EXPECT_THAT(device, IsOk());
  return device.ok() ? *std::move(device) : nullptr;
}

TEST(WorkerDeviceTest, DeviceDescribesItself) {
  const auto device = OpenWorker();
  ASSERT_NE(device, nullptr);
  const auto here = launch::OpenCpuDevice(1);
  EXPECT_EQ(device->name(), here->name());
  EXPECT_EQ(device->target(), here->target());
  EXPECT_EQ(device->memory_bytes(), here->memory_bytes());
  EXPECT_TRUE(device->CanRun(Target::Cpu()));
  EXPECT_FALSE(device->CanRun(Target::Cuda(90)));
  EXPECT_FALSE(device->uses_host_memory());
}

TEST(WorkerDeviceTest, DeviceThatCannotBeOpenedSaysWhy) {
  EXPECT_THAT(OpenWorkerDevice({"/proc/self/exe"}, "tpu:0"), StatusIs(absl::StatusCode::kInternal, "'tpu:0'"));
  EXPECT_THAT(OpenWorkerDevice({"/nonexistent"}, "cpu:1"), StatusIs(absl::StatusCode::kUnavailable, "process"));
  EXPECT_THAT(OpenWorkerDevice({"/bin/true"}, "cpu:1"), StatusIs(absl::StatusCode::kUnavailable, "ended"));
  std::string why;
  if (OpenCudaWorkers({"/proc/self/exe"}, why).empty()) {
    EXPECT_NE(why, "");
  }
}

TEST(WorkerDeviceTest, CopiesOfAllSizesKeepTheirBytes) {
  const auto device = OpenWorker();
  ASSERT_NE(device, nullptr);
  for (const int64_t size : {1, 255, 4096, (4 << 20) - 1, 4 << 20, (4 << 20) + 1, 45'000'007}) {
    std::vector<char> from(static_cast<size_t>(size));
    for (size_t i = 0; i < from.size(); ++i) from[i] = static_cast<char>(i * 31 + i / 1000);
    std::vector<char> to(from.size());
    const auto block = device->Allocate(size);
    ASSERT_THAT(block, IsOk());
    ASSERT_THAT(device->CopyToDevice(block->get(), from.data(), size), IsOk());
    ASSERT_THAT(device->CopyToHost(to.data(), block->get(), size), IsOk());
    EXPECT_EQ(from, to) << size;
  }
}

TEST(WorkerDeviceTest, FreedMemoryIsReused) {
  const auto device = OpenWorker();
  ASSERT_NE(device, nullptr);
  auto block = device->Allocate(1'000'000);
  ASSERT_THAT(block, IsOk());
  const void* const address = block->get();
  EXPECT_GE(device->memory_usage().used_bytes, 1'000'000);
  block->reset();
  EXPECT_LT(device->memory_usage().used_bytes, 1'000'000);
  block = device->Allocate(999'000);
  ASSERT_THAT(block, IsOk());
  EXPECT_EQ(block->get(), address);
  const auto too_large = device->Allocate(device->memory_bytes() + 1);
  EXPECT_THAT(too_large, StatusIs(absl::StatusCode::kResourceExhausted, "bytes of memory"));
  EXPECT_EQ(GetErrorReason(too_large.status()), ErrorReason::kDeviceMemory);
}

TEST(WorkerDeviceTest, RunsAndTimesAnArtifact) {
  const auto device = OpenWorker();
  ASSERT_NE(device, nullptr);
  const auto artifact = AxpyArtifact(64);
  ASSERT_THAT(artifact, IsOk());
  const auto loaded = device->Load(*artifact);
  ASSERT_THAT(loaded, IsOk());
  const auto x = device->Allocate(256);
  const auto y = device->Allocate(256);
  ASSERT_THAT(x, IsOk());
  ASSERT_THAT(y, IsOk());
  const Tensor in = Filled(64, 3);
  Tensor out = Filled(64, 0);
  ASSERT_THAT(device->CopyToDevice(x->get(), in.data(), 256), IsOk());
  ASSERT_THAT(device->Run(**loaded, {x->get()}, {y->get()}, nullptr), IsOk());
  ASSERT_THAT(device->Synchronize(), IsOk());
  ASSERT_THAT(device->CopyToHost(out.data(), y->get(), 256), IsOk());
  EXPECT_EQ(out.GetDouble(63), 70);
  const auto micros = device->Time(**loaded, {x->get()}, {y->get()}, 1, 5, false, nullptr);
  ASSERT_THAT(micros, IsOk());
  ASSERT_EQ(micros->size(), 5u);
  EXPECT_GT((*micros)[4], 0);
  const auto rate = device->MeasureCopyRate(1 << 20);
  ASSERT_THAT(rate, IsOk());
  EXPECT_GT(*rate, 0);
  EXPECT_THAT(device->Run(**loaded, {}, {}, nullptr), StatusIs(absl::StatusCode::kInternal, "1 inputs"));
}

class WorkerExecutorTest : public ::testing::Test {
 protected:
  void Start(int devices) {
    executor::ExecutorOptions options;
    options.use_cuda = false;
    options.cpu_devices = devices;
    options.rebuild = {absl::Milliseconds(10), absl::Milliseconds(10)};
    options.wrap_device = [](std::unique_ptr<launch::Device>, int) { return OpenWorker(); };
    auto executor = executor::Executor::Create(options);
    ASSERT_THAT(executor, IsOk());
    executor_ = *std::move(executor);
    const auto artifact = AxpyArtifact(64);
    ASSERT_THAT(artifact, IsOk());
    artifact_ = *artifact;
  }
  void AwaitHealthy(size_t ordinal) const {
    while (!executor_->Devices()[ordinal].healthy) absl::SleepFor(absl::Milliseconds(1));
  }
  double First(const executor::Argument& x) {
    const auto execution = executor_->Execute(artifact_, {x}, {});
    EXPECT_THAT(execution, IsOk());
    return execution.ok() ? execution->outputs[0].GetDouble(0) : -1;
  }

  std::unique_ptr<executor::Executor> executor_;
  ArtifactPtr artifact_;
};

TEST_F(WorkerExecutorTest, CrashCostsTheDeviceOnly) {
  Start(1);
  const ArtifactPtr crash = BadArtifact("crash", 1);
  ASSERT_NE(crash, nullptr);
  const executor::StoredTensorPtr uploaded = executor::StoreOnHost(Filled(64, 3));
  executor::ExecuteOptions keep;
  keep.keep = {true};
  const auto kept = executor_->Execute(artifact_, {uploaded}, keep);
  ASSERT_THAT(kept, IsOk());
  for (int round = 0; round < 2; ++round) {
    const auto crashed = executor_->Execute(crash, {uploaded}, {});
    EXPECT_THAT(crashed, StatusIs(absl::StatusCode::kUnavailable, "process has ended"));
    EXPECT_EQ(GetErrorReason(crashed.status()), ErrorReason::kNoHealthyDevice);
    AwaitHealthy(0);
    EXPECT_EQ(executor_->Devices()[0].resets, round + 1);
    EXPECT_EQ(First(uploaded), 7);
    EXPECT_EQ(First(Filled(64, 1)), 3);
  }
  EXPECT_THAT(executor_->Fetch(kept->kept[0]), StatusIs(absl::StatusCode::kUnavailable, "lost with its device"));
}

TEST_F(WorkerExecutorTest, OtherDeviceGoesOn) {
  Start(2);
  const ArtifactPtr crash = BadArtifact("crash", 1);
  ASSERT_NE(crash, nullptr);
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 3; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 100; ++i) {
        executor::ExecuteOptions options;
        if (t == 0 && i == 50) {
          options.device = 1;
          EXPECT_EQ(executor_->Execute(crash, {Filled(64, 1)}, options).status().code(),
                    absl::StatusCode::kUnavailable);
          continue;
        }
        const auto execution = executor_->Execute(artifact_, {Filled(64, static_cast<float>(i))}, options);
        wrong += !execution.ok() || execution->outputs[0].GetDouble(0) != 2 * i + 1;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
  AwaitHealthy(1);
  EXPECT_EQ(executor_->Devices()[0].resets, 0);
  EXPECT_EQ(executor_->Devices()[1].resets, 1);
}

TEST_F(WorkerExecutorTest, LongKernelsAreStopped) {
  Start(1);
  const ArtifactPtr endless = BadArtifact("endless", int64_t{1} << 50);
  ASSERT_NE(endless, nullptr);
  executor::ExecuteOptions options;
  options.deadline = absl::Now() + absl::Milliseconds(100);
  EXPECT_THAT(executor_->Execute(endless, {Filled(64, 1)}, options),
              StatusIs(absl::StatusCode::kDeadlineExceeded, "deadline"));
  EXPECT_LT(absl::Now() - options.deadline, absl::Seconds(1));
  EXPECT_THAT(executor_->Bench(endless, {Filled(64, 1)}, 0, 1, options),
              StatusIs(absl::StatusCode::kDeadlineExceeded, "deadline"));
  options.deadline = absl::InfiniteFuture();
  std::atomic<bool> cancel{false};
  options.cancelled = [&] { return cancel ? absl::CancelledError("left") : absl::OkStatus(); };
  std::thread canceller([&] {
    absl::SleepFor(absl::Milliseconds(50));
    cancel = true;
  });
  EXPECT_THAT(executor_->Bench(endless, {Filled(64, 1)}, 0, 1, options),
              StatusIs(absl::StatusCode::kCancelled, "left"));
  canceller.join();
  EXPECT_EQ(First(Filled(64, 1)), 3);
  EXPECT_EQ(executor_->Devices()[0].resets, 0);
}

}  // namespace
}  // namespace fuseline::device_worker

int main(int argc, char** argv) {
  if (const std::optional<int> code = fuseline::device_worker::MaybeRunDeviceWorker(argc, argv)) return *code;
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
