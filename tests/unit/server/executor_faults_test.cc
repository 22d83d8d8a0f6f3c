// Executors whose devices break.
#include <algorithm>
#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/time/clock.h"
#include "common/status/error.h"
#include "gtest/gtest.h"
#include "server/executor/executor.h"
#include "tests/testing/status_matchers.h"
#include "tests/unit/server/faulty_device.h"
#include "tests/unit/server/test_artifacts.h"

namespace fuseline::executor {
namespace {

using ::fuseline::testing::AxpyArtifact;
using ::fuseline::testing::FaultyDevice;
using ::fuseline::testing::FaultyDeviceControl;
using ::fuseline::testing::IsOk;
using ::fuseline::testing::StatusIs;

Tensor Filled(int64_t elements, float value) {
  Tensor tensor = Tensor::Allocate(DType::kF32, {elements});
  std::fill_n(static_cast<float*>(tensor.data()), elements, value);
  return tensor;
}

class ExecutorFaultsTest : public ::testing::Test {
 protected:
  void Start(int devices, bool separate_memory = false, absl::Duration pause = absl::Milliseconds(20)) {
    ExecutorOptions options;
    options.use_cuda = false;
    options.cpu_devices = devices;
    options.cpu_threads = 1;
    options.rebuild = {pause, pause};
    options.wrap_device = [&](std::unique_ptr<launch::Device> device, int) {
      controls_.push_back(std::make_shared<FaultyDeviceControl>());
      controls_.back()->separate_memory = separate_memory;
      return std::make_unique<FaultyDevice>(std::move(device), controls_.back());
    };
    auto executor = Executor::Create(options);
    ASSERT_THAT(executor, IsOk());
    executor_ = *std::move(executor);
  }
  DeviceInfo Device(size_t ordinal) const { return executor_->Devices()[ordinal]; }
  void AwaitHealthy(size_t ordinal) const {
    while (!Device(ordinal).healthy) absl::SleepFor(absl::Milliseconds(1));
  }
  // 2 x + (1, 2, …) of x = `value` everywhere.
  absl::Status RunOnce(const ArtifactPtr& artifact, float value, const ExecuteOptions& options = {}) {
    const int64_t elements = artifact->plan.inputs[0].shape[0];
    const auto execution = executor_->Execute(artifact, {Filled(elements, value)}, options);
    if (!execution.ok()) return execution.status();
    for (const int64_t i : {int64_t{0}, elements / 2, elements - 1}) {
      if (execution->outputs[0].GetDouble(i) != 2 * value + static_cast<float>(i + 1))
        return absl::DataLossError("a wrong result");
    }
    return absl::OkStatus();
  }

  std::vector<std::shared_ptr<FaultyDeviceControl>> controls_;
  std::unique_ptr<Executor> executor_;
};

TEST_F(ExecutorFaultsTest, LosingADeviceLosesNoExecution) {
  Start(2);
  const auto small = AxpyArtifact(64);
  const auto large = AxpyArtifact(1'000'000);
  ASSERT_THAT(small, IsOk());
  ASSERT_THAT(large, IsOk());
  controls_[1]->break_at_run = 20;
  std::atomic<int> next{0};
  std::atomic<int> failed{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([&] {
      for (int i; (i = next++) < 1020;) {
        const absl::Status status = RunOnce(i % 51 == 0 ? *large : *small, static_cast<float>(i));
        failed += !status.ok();
        EXPECT_THAT(status, IsOk());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(failed, 0);
  EXPECT_EQ(Device(0).executions + Device(1).executions, 1020);
  EXPECT_GE(Device(0).executions, 100);
  EXPECT_GE(Device(1).executions, 21);
  EXPECT_GE(Device(1).failures, 1);
  AwaitHealthy(1);
  EXPECT_EQ(Device(1).resets, 1);
  EXPECT_EQ(Device(0).resets, 0);
  // Back in rotation, with everything loaded anew.
  const int64_t before = Device(1).executions;
  for (int i = 0; i < 4; ++i) ASSERT_THAT(RunOnce(*small, 1), IsOk());
  EXPECT_EQ(Device(1).executions, before + 2);
}

TEST_F(ExecutorFaultsTest, OnlyDeviceLostIsUnavailableUntilItIsBack) {
  Start(1, false, absl::Milliseconds(200));
  const auto artifact = AxpyArtifact(64);
  ASSERT_THAT(artifact, IsOk());
  ASSERT_THAT(RunOnce(*artifact, 1), IsOk());
  controls_[0]->broken = true;
  for (int i = 0; i < 2; ++i) {
    const absl::Status lost = RunOnce(*artifact, 1);
    EXPECT_THAT(lost, StatusIs(absl::StatusCode::kUnavailable, "an illegal address"));
    EXPECT_EQ(GetErrorReason(lost), ErrorReason::kNoHealthyDevice);
  }
  EXPECT_THAT(executor_->CanRun(Target::Cpu()),
              StatusIs(absl::StatusCode::kUnavailable, "device 0: an illegal address"));
  EXPECT_FALSE(Device(0).healthy);
  EXPECT_EQ(Device(0).unhealthy_reason, "an illegal address");
  ExecuteOptions wanted;
  wanted.device = 0;
  EXPECT_THAT(RunOnce(*artifact, 1, wanted), StatusIs(absl::StatusCode::kUnavailable, "device 0 is being rebuilt"));
  AwaitHealthy(0);
  EXPECT_THAT(RunOnce(*artifact, 1), IsOk());
  EXPECT_EQ(Device(0).resets, 1);
}

TEST_F(ExecutorFaultsTest, ExecutionThatBreaksDevicesDoesNotBreakThemAll) {
  Start(4, false, absl::Seconds(100));
  const auto artifact = AxpyArtifact(64);
  ASSERT_THAT(artifact, IsOk());
  for (const auto& control : controls_) control->break_at_run = 0;
  EXPECT_THAT(RunOnce(*artifact, 1), StatusIs(absl::StatusCode::kUnavailable, "illegal"));
  int healthy = 0;
  for (const DeviceInfo& device : executor_->Devices()) healthy += device.healthy;
  EXPECT_EQ(healthy, 2);
}

TEST_F(ExecutorFaultsTest, DeviceWithBadMemoryStaysOut) {
  Start(2);
  const auto artifact = AxpyArtifact(64);
  ASSERT_THAT(artifact, IsOk());
  controls_[0]->forgets = true;
  controls_[0]->failing_resets = 2;
  controls_[0]->break_at_run = 0;
  for (int i = 0; i < 4; ++i) ASSERT_THAT(RunOnce(*artifact, 1), IsOk());
  while (Device(0).unhealthy_reason.find("does not hold") == std::string::npos) absl::SleepFor(absl::Milliseconds(1));
  EXPECT_GE(controls_[0]->resets, 3);
  controls_[0]->forgets = false;
  AwaitHealthy(0);
  for (int i = 0; i < 2; ++i) ASSERT_THAT(RunOnce(*artifact, 1), IsOk());
  EXPECT_EQ(Device(0).executions, 1);
}

TEST_F(ExecutorFaultsTest, BenchOnALostDeviceIsUnavailable) {
  Start(1, false, absl::Seconds(100));
  const auto artifact = AxpyArtifact(64);
  ASSERT_THAT(artifact, IsOk());
  controls_[0]->broken = true;
  for (int i = 0; i < 2; ++i) {
    EXPECT_THAT(executor_->Bench(*artifact, {Filled(64, 1)}, 0, 1),
                StatusIs(absl::StatusCode::kUnavailable, "illegal"));
  }
  EXPECT_FALSE(Device(0).healthy);
}

TEST_F(ExecutorFaultsTest, KeptTensorsWithHostDataOutliveTheDevice) {
  Start(1, /*separate_memory=*/true);
  const auto artifact = AxpyArtifact(64);
  ASSERT_THAT(artifact, IsOk());
  const StoredTensorPtr uploaded = StoreOnHost(Filled(64, 3));
  ExecuteOptions keep;
  keep.keep = {true};
  const auto first = executor_->Execute(*artifact, {uploaded}, keep);
  const auto second = executor_->Execute(*artifact, {uploaded}, keep);
  ASSERT_THAT(first, IsOk());
  ASSERT_THAT(second, IsOk());
  ASSERT_THAT(executor_->Fetch(second->kept[0]), IsOk());
  controls_[0]->broken = true;
  EXPECT_EQ(executor_->Execute(*artifact, {uploaded}, {}).status().code(), absl::StatusCode::kUnavailable);
  AwaitHealthy(0);
  // A result that lay on the device alone is gone, and that is no fault of the device's.
  const auto lost = executor_->Execute(*artifact, {first->kept[0]}, {});
  EXPECT_THAT(lost, StatusIs(absl::StatusCode::kUnavailable, "input 'x': tensor was lost with its device"));
  EXPECT_EQ(GetErrorReason(lost.status()), ErrorReason::kNoHealthyDevice);
  EXPECT_THAT(executor_->Fetch(first->kept[0]), StatusIs(absl::StatusCode::kUnavailable, "was lost with its device"));
  EXPECT_TRUE(Device(0).healthy);
  for (const StoredTensorPtr& tensor : {uploaded, second->kept[0]}) {
    const auto execution = executor_->Execute(*artifact, {tensor}, {});
    ASSERT_THAT(execution, IsOk());
    EXPECT_EQ(execution->outputs[0].GetDouble(0), tensor == uploaded ? 7 : 15);
  }
}

TEST_F(ExecutorFaultsTest, DrainEndsWhileADeviceIsBroken) {
  Start(2, false, absl::Seconds(100));
  const auto artifact = AxpyArtifact(64);
  ASSERT_THAT(artifact, IsOk());
  controls_[0]->break_at_run = 0;
  for (int i = 0; i < 2; ++i) ASSERT_THAT(RunOnce(*artifact, 1), IsOk());
  executor_->Drain();
  EXPECT_EQ(RunOnce(*artifact, 1).code(), absl::StatusCode::kUnavailable);
  executor_.reset();
}

}  // namespace
}  // namespace fuseline::executor
