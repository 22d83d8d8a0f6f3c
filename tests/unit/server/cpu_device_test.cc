#include <string.h>

#include <memory>
#include <vector>

#include "absl/time/clock.h"
#include "common/launch/launch_plan_runner.h"
#include "common/status/error.h"
#include "gtest/gtest.h"
#include "tests/testing/status_matchers.h"
#include "tests/unit/server/test_artifacts.h"

namespace fuseline::launch {
namespace {

using ::fuseline::testing::AxpyArtifact;
using ::fuseline::testing::IsOk;
using ::fuseline::testing::StatusIs;

class CpuDeviceTest : public ::testing::Test {
 protected:
  std::unique_ptr<Device> device_ = OpenCpuDevice(3);
};

TEST_F(CpuDeviceTest, DeviceDescribesItself) {
  EXPECT_FALSE(device_->name().empty());
  EXPECT_GT(device_->memory_bytes(), 0);
  EXPECT_TRUE(device_->CanRun(Target::Cpu()));
  EXPECT_FALSE(device_->CanRun(Target::Cuda(90)));
}

TEST_F(CpuDeviceTest, LaunchesCopiesConstantsAndTemporariesGiveTheResult) {
  constexpr int64_t kElements = 1000;
  const auto artifact = AxpyArtifact(kElements);
  ASSERT_THAT(artifact, IsOk());
  const auto loaded = device_->Load(*artifact);
  ASSERT_THAT(loaded, IsOk());
  std::vector<float> x(kElements);
  for (int64_t i = 0; i < kElements; ++i) x[static_cast<size_t>(i)] = static_cast<float>(i) * 0.5f;
  std::vector<float> y(kElements, -1.0f);
  ASSERT_THAT(device_->Run(**loaded, {x.data()}, {y.data()}, nullptr), IsOk());
  ASSERT_THAT(device_->Synchronize(), IsOk());
  for (int64_t i = 0; i < kElements; ++i) ASSERT_EQ(y[static_cast<size_t>(i)], static_cast<float>(2 * i + 1)) << i;
}

TEST_F(CpuDeviceTest, StopEndsTheRunBetweenSteps) {
  const auto artifact = AxpyArtifact(16);
  ASSERT_THAT(artifact, IsOk());
  const auto loaded = device_->Load(*artifact);
  ASSERT_THAT(loaded, IsOk());
  std::vector<float> x(16, 1.0f);
  std::vector<float> y(16, -1.0f);
  int calls = 0;
  const absl::Status status = device_->Run(
      **loaded, {x.data()}, {y.data()}, [&] { return ++calls == 3 ? absl::CancelledError("stop") : absl::OkStatus(); });
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kCancelled, "stop"));
  EXPECT_EQ(calls, 3);
  EXPECT_EQ(y[0], -1.0f);
}

// Work that takes years: an item of 64 elements each takes some nanoseconds.
constexpr char kEndlessSource[] = R"(
extern "C" void endless(void* const* buffers, long begin, long end) {
  volatile float* y = static_cast<volatile float*>(buffers[0]);
  for (long i = begin; i < end; ++i) y[0] = y[0] * 0.5f + 1.0f;
}
)";

TEST_F(CpuDeviceTest, StopEndsALongStep) {
  auto artifact = std::make_shared<Artifact>();
  artifact->target = Target::Cpu();
  const auto image =
      compiler::MakeHostCompiler("", "")->CompileKernel({"endless", kEndlessSource, Target::Cpu(), false});
  ASSERT_THAT(image, IsOk());
  artifact->kernels = {*image};
  artifact->plan.outputs.push_back({"y", DType::kF32, {1}, {1}, 4});
  artifact->plan.buffers = {{PlanBuffer::Kind::kOutput, 0, 4, 0}};
  PlanStep step;
  step.work_items = int64_t{1} << 50;
  step.work_grain = 1000;
  step.buffers = {0};
  artifact->plan.steps = {step};
  const auto loaded = device_->Load(artifact);
  ASSERT_THAT(loaded, IsOk());
  float y = 0;
  for (const bool timed : {false, true}) {
    const absl::Time cancelled = absl::Now() + absl::Milliseconds(50);
    const StopCheck stop = [&] { return absl::Now() < cancelled ? absl::OkStatus() : absl::CancelledError("stop"); };
    const absl::Status status =
        timed ? device_->Time(**loaded, {}, {&y}, 0, 1, false, stop).status() : device_->Run(**loaded, {}, {&y}, stop);
    EXPECT_THAT(status, StatusIs(absl::StatusCode::kCancelled, "stop"));
    EXPECT_LT(absl::Now() - cancelled, absl::Milliseconds(500));  // of which the machine takes most
  }
}

// Notes its input as an index out of range where it is above 9.
constexpr char kCheckSource[] = R"(
extern "C" void check(void* const* buffers, long begin, long end) {
  const long index = *static_cast<const long*>(buffers[0]);
  long* noted = static_cast<long*>(buffers[2]);
  for (long i = begin; i < end; ++i) static_cast<float*>(buffers[1])[i] = 1.0f;
  if (index > 9) { noted[2] = 1; noted[3] = index; }
}
)";

TEST_F(CpuDeviceTest, IndexThatAKernelNotesIsTheErrorOfThatRunAlone) {
  auto artifact = std::make_shared<Artifact>();
  artifact->target = Target::Cpu();
  const auto image = compiler::MakeHostCompiler("", "")->CompileKernel({"check", kCheckSource, Target::Cpu(), false});
  ASSERT_THAT(image, IsOk());
  artifact->kernels = {*image};
  artifact->plan.inputs.push_back({"x", DType::kI64, {1}, {1}, 8});
  artifact->plan.outputs.push_back({"y", DType::kF32, {1}, {1}, 4});
  artifact->plan.buffers = {
      {PlanBuffer::Kind::kInput, 0, 8, 0}, {PlanBuffer::Kind::kOutput, 0, 4, 0}, {PlanBuffer::Kind::kChecks, 0, 32, 0}};
  artifact->plan.checks = {{"%v0", 5}, {"%v1", 10}};
  PlanStep step;
  step.work_items = 1;
  step.buffers = {0, 1, 2};
  artifact->plan.steps = {step};
  const auto loaded = device_->Load(artifact);
  ASSERT_THAT(loaded, IsOk());
  float y = 0;
  for (const int64_t index : {int64_t{12}, int64_t{3}, int64_t{12}}) {
    int64_t x = index;
    const absl::Status run = device_->Run(**loaded, {&x}, {&y}, nullptr);
    const auto timed = device_->Time(**loaded, {&x}, {&y}, 1, 2, false, nullptr);
    if (index == 3) {
      EXPECT_THAT(run, IsOk());
      EXPECT_THAT(timed, IsOk());
      continue;
    }
    EXPECT_THAT(run, StatusIs(absl::StatusCode::kInvalidArgument, "node '%v1': index 12 is out of range for size 10"));
    EXPECT_THAT(timed, StatusIs(absl::StatusCode::kInvalidArgument, "index 12"));
  }
}

TEST_F(CpuDeviceTest, StopEndsTimingBetweenRuns) {
  const auto artifact = AxpyArtifact(16);
  ASSERT_THAT(artifact, IsOk());
  const auto loaded = device_->Load(*artifact);
  ASSERT_THAT(loaded, IsOk());
  std::vector<float> x(16, 1.0f);
  std::vector<float> y(16);
  int calls = 0;
  const auto micros = device_->Time(**loaded, {x.data()}, {y.data()}, 0, 1'000'000, false,
                                    [&] { return ++calls == 100 ? absl::CancelledError("stop") : absl::OkStatus(); });
  EXPECT_THAT(micros, StatusIs(absl::StatusCode::kCancelled, "stop"));
}

TEST_F(CpuDeviceTest, MoreMemoryThanThereIsIsResourceExhausted) {
  const auto block = device_->Allocate(device_->memory_bytes() + 1);
  EXPECT_THAT(block, StatusIs(absl::StatusCode::kResourceExhausted, "host memory"));
  EXPECT_EQ(GetErrorReason(block.status()), ErrorReason::kDeviceMemory);
  const auto small = device_->Allocate(5000);
  ASSERT_THAT(small, IsOk());
  EXPECT_GE(device_->memory_usage().used_bytes, 5000);
  EXPECT_GE(device_->memory_usage().reserved_bytes, device_->memory_usage().used_bytes);
}

TEST_F(CpuDeviceTest, WrongTargetAndMissingEntryAreRefused) {
  const auto artifact = AxpyArtifact(16);
  ASSERT_THAT(artifact, IsOk());
  auto other = std::make_shared<Artifact>(**artifact);
  other->target = Target::Cuda(90);
  EXPECT_THAT(device_->Load(other), StatusIs(absl::StatusCode::kFailedPrecondition, "cuda:sm_90"));
  other = std::make_shared<Artifact>(**artifact);
  other->kernels[1].entry = "absent";
  EXPECT_THAT(device_->Load(other), StatusIs(absl::StatusCode::kInternal, "'absent'"));
}

TEST_F(CpuDeviceTest, WrongNumberOfTensorsIsInternal) {
  const auto artifact = AxpyArtifact(16);
  ASSERT_THAT(artifact, IsOk());
  const auto loaded = device_->Load(*artifact);
  ASSERT_THAT(loaded, IsOk());
  EXPECT_THAT(device_->Run(**loaded, {}, {}, nullptr), StatusIs(absl::StatusCode::kInternal, "1 inputs"));
}

TEST_F(CpuDeviceTest, TimesAreGivenForEachIteration) {
  const auto artifact = AxpyArtifact(64);
  ASSERT_THAT(artifact, IsOk());
  const auto loaded = device_->Load(*artifact);
  ASSERT_THAT(loaded, IsOk());
  std::vector<float> x(64, 1.0f);
  std::vector<float> y(64);
  const auto micros = device_->Time(**loaded, {x.data()}, {y.data()}, 1, 5, true, nullptr);
  ASSERT_THAT(micros, IsOk());
  ASSERT_EQ(micros->size(), 5u);
  for (const double t : *micros) EXPECT_GT(t, 0);
}

TEST_F(CpuDeviceTest, CopiesKeepBytesAndTheirRateIsPositive) {
  std::vector<char> from(3'000'001);
  for (size_t i = 0; i < from.size(); ++i) from[i] = static_cast<char>(i * 31);
  const auto block = device_->Allocate(static_cast<int64_t>(from.size()));
  ASSERT_THAT(block, IsOk());
  std::vector<char> to(from.size());
  ASSERT_THAT(device_->CopyToDevice(block->get(), from.data(), static_cast<int64_t>(from.size())), IsOk());
  ASSERT_THAT(device_->CopyToHost(to.data(), block->get(), static_cast<int64_t>(to.size())), IsOk());
  EXPECT_EQ(from, to);
  const auto rate = device_->MeasureCopyRate(8 << 20);
  ASSERT_THAT(rate, IsOk());
  EXPECT_GT(*rate, 1e8);
}

}  // namespace
}  // namespace fuseline::launch
