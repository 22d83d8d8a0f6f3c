#include "server/executor/executor.h"

#include <atomic>
#include <thread>
#include <vector>

#include "absl/time/clock.h"
#include "common/status/error.h"
#include "gtest/gtest.h"
#include "tests/testing/status_matchers.h"
#include "tests/unit/server/test_artifacts.h"

namespace fuseline::executor {
namespace {

using ::fuseline::testing::AxpyArtifact;
using ::fuseline::testing::IsOk;
using ::fuseline::testing::KeyOf;
using ::fuseline::testing::StatusIs;

// Spins until its input's first element, which the test changes, is not zero. The test's way to keep a device busy.
constexpr char kSpinSource[] = R"(
extern "C" void spin(void* const* buffers, long begin, long end) {
  volatile const int* x = static_cast<volatile const int*>(buffers[0]);
  while (x[0] == 0) {}
  static_cast<int*>(buffers[1])[0] = x[0];
}
)";

ArtifactPtr SpinArtifact() {
  auto artifact = std::make_shared<Artifact>();
  artifact->fingerprint = KeyOf(77);
  artifact->target = Target::Cpu();
  auto image = compiler::MakeHostCompiler("", "")->CompileKernel({"spin", kSpinSource, Target::Cpu(), false});
  if (!image.ok()) return nullptr;
  artifact->kernels = {*image};
  artifact->plan.inputs.push_back({"x", DType::kI32, {1}, {1}, 4});
  artifact->plan.outputs.push_back({"y", DType::kI32, {1}, {1}, 4});
  artifact->plan.buffers = {{PlanBuffer::Kind::kInput, 0, 4, 0}, {PlanBuffer::Kind::kOutput, 0, 4, 0}};
  PlanStep step;
  step.work_items = 1;
  step.buffers = {0, 1};
  artifact->plan.steps = {step};
  return artifact;
}

Tensor Floats(const std::vector<float>& values) {
  Tensor tensor = Tensor::Allocate(DType::kF32, {static_cast<int64_t>(values.size())});
  for (size_t i = 0; i < values.size(); ++i) tensor.SetDouble(static_cast<int64_t>(i), values[i]);
  return tensor;
}

std::unique_ptr<Executor> CpuExecutor(int max_queue = 256, int devices = 1) {
  ExecutorOptions options;
  options.use_cuda = false;
  options.cpu_devices = devices;
  options.cpu_threads = 2;
  options.max_queue = max_queue;
  auto executor = Executor::Create(options);
  return executor.ok() ? *std::move(executor) : nullptr;
}

// Keeps the only device of `executor` busy until Release.
class BusyDevice {
 public:
  explicit BusyDevice(Executor& executor) : artifact_(SpinArtifact()), x_(Tensor::Allocate(DType::kI32, {1})) {
    x_.SetInt(0, 0);
    thread_ = std::thread([this, &executor] { result_ = executor.Execute(artifact_, {x_}, {}).status(); });
    while (executor.Devices()[0].queue_depth == 0) absl::SleepFor(absl::Milliseconds(1));
  }
  absl::Status Release() {
    *static_cast<volatile int32_t*>(x_.data()) = 5;
    thread_.join();
    return result_;
  }

 private:
  ArtifactPtr artifact_;
  Tensor x_;
  absl::Status result_;
  std::thread thread_;
};

TEST(ExecutorTest, ArtifactRunsAndItsResultsComeBack) {
  const auto executor = CpuExecutor();
  const auto artifact = AxpyArtifact(3);
  ASSERT_THAT(artifact, IsOk());
  const auto execution = executor->Execute(*artifact, {Floats({1, -2, 0.5})}, {});
  ASSERT_THAT(execution, IsOk());
  ASSERT_EQ(execution->outputs.size(), 1u);
  EXPECT_EQ(execution->outputs[0].shape(), Shape{3});
  EXPECT_EQ(execution->outputs[0].GetDouble(0), 3);
  EXPECT_EQ(execution->outputs[0].GetDouble(1), -2);
  EXPECT_EQ(execution->outputs[0].GetDouble(2), 4);
  EXPECT_GT(execution->run_micros, 0);
  EXPECT_EQ(executor->Devices()[0].executions, 1);
}

TEST(ExecutorTest, ResultsOutliveTheExecutor) {
  auto executor = CpuExecutor();
  const auto artifact = AxpyArtifact(1);
  ASSERT_THAT(artifact, IsOk());
  const auto execution = executor->Execute(*artifact, {Floats({1})}, {});
  ASSERT_THAT(execution, IsOk());
  executor.reset();
  EXPECT_EQ(execution->outputs[0].GetDouble(0), 3);
}

TEST(ExecutorTest, StridedInputIsLaidOut) {
  const auto executor = CpuExecutor();
  const auto base = AxpyArtifact(6);
  ASSERT_THAT(base, IsOk());
  auto artifact = std::make_shared<Artifact>(**base);
  artifact->fingerprint = KeyOf(1000);
  artifact->plan.inputs[0].shape = {2, 3};
  artifact->plan.inputs[0].strides = {1, 2};
  Tensor x = Tensor::Allocate(DType::kF32, {2, 3});
  for (int64_t i = 0; i < 6; ++i) x.SetDouble(i, static_cast<double>(10 * i));
  const auto execution = executor->Execute(artifact, {x}, {});
  ASSERT_THAT(execution, IsOk());
  // In memory: 0 30 10 40 20 50; then 2 x + (1, 2, 3, …).
  const std::vector<double> expected = {1, 62, 23, 84, 45, 106};
  for (size_t i = 0; i < 6; ++i) EXPECT_EQ(execution->outputs[0].GetDouble(static_cast<int64_t>(i)), expected[i]) << i;
}

TEST(ExecutorTest, UnalignedInputIsMoved) {
  const auto executor = CpuExecutor();
  const auto artifact = AxpyArtifact(4);
  ASSERT_THAT(artifact, IsOk());
  auto storage = std::make_shared<std::vector<float>>(std::vector<float>{0, 1, 2, 3, 4, 5, 6, 7, 8});
  float* data = storage->data();
  while (reinterpret_cast<uintptr_t>(data) % 16 != 4) ++data;
  const Tensor x = Tensor::Borrow(DType::kF32, {4}, data, storage);
  const auto execution = executor->Execute(*artifact, {x}, {});
  ASSERT_THAT(execution, IsOk());
  for (int64_t i = 0; i < 4; ++i)
    EXPECT_EQ(execution->outputs[0].GetDouble(i), 2 * data[i] + static_cast<float>(i + 1));
}

TEST(ExecutorTest, InputsThatDoNotFitAreNamed) {
  const auto executor = CpuExecutor();
  const auto artifact = AxpyArtifact(3);
  ASSERT_THAT(artifact, IsOk());
  EXPECT_THAT(executor->Execute(*artifact, {}, {}),
              StatusIs(absl::StatusCode::kInvalidArgument, "takes 1 inputs, got 0"));
  const auto wrong_shape = executor->Execute(*artifact, {Floats({1, 2})}, {});
  EXPECT_THAT(wrong_shape,
              StatusIs(absl::StatusCode::kInvalidArgument, "input 'x': the graph takes f32[3], got f32[2]"));
  EXPECT_EQ(GetErrorReason(wrong_shape.status()), ErrorReason::kTensorMismatch);
  EXPECT_EQ(GetErrorSubject(wrong_shape.status()), "inputs.x");
  EXPECT_THAT(executor->Execute(*artifact, {Tensor::Allocate(DType::kI32, {3})}, {}),
              StatusIs(absl::StatusCode::kInvalidArgument, "i32[3]"));
}

TEST(ExecutorTest, TargetWithoutADeviceSaysWhy) {
  const auto executor = CpuExecutor();
  EXPECT_THAT(executor->CanRun(Target::Cpu()), IsOk());
  EXPECT_THAT(executor->CanRun(Target::Cuda(90)), StatusIs(absl::StatusCode::kFailedPrecondition, "switched off"));
  EXPECT_THAT(CpuExecutor(1, 0)->CanRun(Target::Cpu()), StatusIs(absl::StatusCode::kFailedPrecondition, "no devices"));
  ExecutorOptions options;
  options.cpu_devices = 0;
  const auto cuda_only = Executor::Create(options);
  ASSERT_THAT(cuda_only, IsOk());
  EXPECT_THAT((*cuda_only)->CanRun(Target::Cpu()), StatusIs(absl::StatusCode::kFailedPrecondition, "'cpu'"));
}

TEST(ExecutorTest, DeviceThatDoesNotExistIsFailedPrecondition) {
  const auto executor = CpuExecutor();
  const auto artifact = AxpyArtifact(1);
  ASSERT_THAT(artifact, IsOk());
  ExecuteOptions options;
  options.device = 3;
  EXPECT_THAT(executor->Execute(*artifact, {Floats({1})}, options),
              StatusIs(absl::StatusCode::kFailedPrecondition, "no device 3"));
}

TEST(ExecutorTest, BusyDeviceHonoursQueueBoundDeadlineAndCancellation) {
  const auto executor = CpuExecutor(/*max_queue=*/1);
  const auto artifact = AxpyArtifact(1);
  ASSERT_THAT(artifact, IsOk());
  BusyDevice busy(*executor);

  ExecuteOptions options;
  options.deadline = absl::Now() + absl::Milliseconds(20);
  const auto late = executor->Execute(*artifact, {Floats({1})}, options);
  EXPECT_THAT(late, StatusIs(absl::StatusCode::kDeadlineExceeded, "deadline"));

  std::atomic<bool> cancel{false};
  absl::Status waiting;
  std::thread waiter([&] {
    ExecuteOptions cancellable;
    cancellable.cancelled = [&] { return cancel ? absl::CancelledError("the caller left") : absl::OkStatus(); };
    waiting = executor->Execute(*artifact, {Floats({1})}, cancellable).status();
  });
  while (executor->Devices()[0].queue_depth < 2) absl::SleepFor(absl::Milliseconds(1));
  const auto refused = executor->Execute(*artifact, {Floats({1})}, {});
  EXPECT_THAT(refused, StatusIs(absl::StatusCode::kResourceExhausted, "queue is full"));
  EXPECT_EQ(GetErrorReason(refused.status()), ErrorReason::kQueueFull);
  cancel = true;
  waiter.join();
  EXPECT_THAT(waiting, StatusIs(absl::StatusCode::kCancelled, "the caller left"));

  EXPECT_THAT(busy.Release(), IsOk());
  EXPECT_THAT(executor->Execute(*artifact, {Floats({1})}, {}), IsOk());
}

TEST(ExecutorTest, DeadlineInThePastRunsNothing) {
  const auto executor = CpuExecutor();
  const auto artifact = AxpyArtifact(1);
  ASSERT_THAT(artifact, IsOk());
  ExecuteOptions options;
  options.deadline = absl::Now() - absl::Seconds(1);
  EXPECT_THAT(executor->Execute(*artifact, {Floats({1})}, options),
              StatusIs(absl::StatusCode::kDeadlineExceeded, "deadline"));
  EXPECT_EQ(executor->Devices()[0].executions, 0);
}

TEST(ExecutorTest, WorkIsSpreadOverDevices) {
  const auto executor = CpuExecutor(256, 2);
  const auto artifact = AxpyArtifact(1);
  ASSERT_THAT(artifact, IsOk());
  for (int i = 0; i < 10; ++i) ASSERT_THAT(executor->Execute(*artifact, {Floats({1})}, {}), IsOk());
  EXPECT_EQ(executor->Devices()[0].executions, 5);
  EXPECT_EQ(executor->Devices()[1].executions, 5);
}

TEST(ExecutorTest, ManyCallersGetTheirOwnResults) {
  const auto executor = CpuExecutor();
  const auto artifact = AxpyArtifact(500);
  ASSERT_THAT(artifact, IsOk());
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([&, t] {
      const Tensor x = Floats(std::vector<float>(500, static_cast<float>(t)));
      for (int i = 0; i < 20; ++i) {
        const auto execution = executor->Execute(*artifact, {x}, {});
        wrong += !execution.ok() || execution->outputs[0].GetDouble(499) != 2 * t + 500;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

TEST(ExecutorTest, DrainedExecutorIsUnavailable) {
  const auto executor = CpuExecutor();
  const auto artifact = AxpyArtifact(1);
  ASSERT_THAT(artifact, IsOk());
  executor->Drain();
  const auto execution = executor->Execute(*artifact, {Floats({1})}, {});
  EXPECT_THAT(execution, StatusIs(absl::StatusCode::kUnavailable, "shutting down"));
  EXPECT_EQ(GetErrorReason(execution.status()), ErrorReason::kDraining);
}

TEST(ExecutorTest, BenchGivesTimesAndTheCopyRate) {
  const auto executor = CpuExecutor();
  const auto artifact = AxpyArtifact(100);
  ASSERT_THAT(artifact, IsOk());
  const std::vector<Tensor> inputs = {Floats(std::vector<float>(100, 1.0f))};
  const auto result = executor->Bench(*artifact, inputs, 1, 3);
  ASSERT_THAT(result, IsOk());
  EXPECT_EQ(result->micros.size(), 3u);
  EXPECT_GT(result->copy_bytes_per_second, 0);
  EXPECT_THAT(executor->Bench(*artifact, inputs, 0, 0), StatusIs(absl::StatusCode::kInvalidArgument, "iterations"));
}

}  // namespace
}  // namespace fuseline::executor
