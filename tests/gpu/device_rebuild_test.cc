// GPUs whose context is lost, each with a process of its own: this program, started again.
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
#include "server/device_worker/worker_device.h"
#include "server/executor/executor.h"
#include "tests/gpu/cuda_artifacts.h"
#include "tests/testing/status_matchers.h"

namespace fuseline::executor {
namespace {

using ::fuseline::testing::CudaArtifact;
using ::fuseline::testing::IsOk;
using ::fuseline::testing::StatusIs;

constexpr int64_t kElements = 1'500'000;  // two pieces of a transfer

Tensor Filled(float value) {
  Tensor tensor = Tensor::Allocate(DType::kF32, {kElements});
  std::fill_n(static_cast<float*>(tensor.data()), kElements, value);
  return tensor;
}

class DeviceRebuildTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string why;
    if (launch::CountCudaDevices(why) == 0) GTEST_SKIP() << why;
    if (const absl::Status status = compiler::MakeNvrtcCompiler({})->Available(); !status.ok()) GTEST_SKIP() << status;
    ExecutorOptions options;
    options.cpu_devices = 0;
    options.rebuild = {absl::Milliseconds(100), absl::Seconds(5)};
    options.open_cuda = [](std::string& reason) { return device_worker::OpenCudaWorkers({"/proc/self/exe"}, reason); };
    auto executor = Executor::Create(options);
    ASSERT_THAT(executor, IsOk());
    executor_ = *std::move(executor);
    ASSERT_FALSE(executor_->Devices().empty());
    const Target target = executor_->Devices()[0].target;
    auto work = CudaArtifact(target, "work", kElements, 10);
    auto crash = CudaArtifact(target, "crash", kElements, 0);
    ASSERT_THAT(work, IsOk());
    ASSERT_THAT(crash, IsOk());
    work_ = *std::move(work);
    crash_ = *std::move(crash);
  }
  void AwaitHealthy(size_t ordinal) const {
    for (int i = 0; i < 600 && !executor_->Devices()[ordinal].healthy; ++i) absl::SleepFor(absl::Milliseconds(100));
    EXPECT_TRUE(executor_->Devices()[ordinal].healthy) << executor_->Devices()[ordinal].unhealthy_reason;
  }
  // Of 2 x + 1, on device 0.
  absl::StatusOr<double> Last(const Argument& x) {
    ExecuteOptions options;
    options.device = 0;
    FUSELINE_ASSIGN_OR_RETURN(const Execution execution, executor_->Execute(work_, {x}, options));
    return execution.outputs[0].GetDouble(kElements - 1);
  }

  std::unique_ptr<Executor> executor_;
  ArtifactPtr work_;
  ArtifactPtr crash_;
};

TEST_F(DeviceRebuildTest, IllegalAddressCostsTheDeviceUntilItIsRebuilt) {
  const StoredTensorPtr uploaded = StoreOnHost(Filled(3));
  ExecuteOptions here;
  here.device = 0;
  here.keep = {true};
  const auto kept = executor_->Execute(work_, {uploaded}, here);
  ASSERT_THAT(kept, IsOk());
  here.keep.clear();
  for (int round = 0; round < 3; ++round) {
    const auto crashed = executor_->Execute(crash_, {uploaded}, here);
    EXPECT_THAT(crashed, StatusIs(absl::StatusCode::kUnavailable, "ILLEGAL_ADDRESS"));
    EXPECT_EQ(GetErrorReason(crashed.status()), ErrorReason::kNoHealthyDevice);
    EXPECT_FALSE(executor_->Devices()[0].healthy);
    // The others go on.
    for (size_t d = 1; d < executor_->Devices().size(); ++d) EXPECT_TRUE(executor_->Devices()[d].healthy);
    if (executor_->Devices().size() > 1) {
      const auto elsewhere = executor_->Execute(work_, {Filled(1)}, {});
      ASSERT_THAT(elsewhere, IsOk());
      EXPECT_NE(elsewhere->device, 0);
      EXPECT_EQ(elsewhere->outputs[0].GetDouble(0), 3);
    }
    AwaitHealthy(0);
    EXPECT_EQ(executor_->Devices()[0].resets, round + 1);
    for (const Argument& x : {Argument(uploaded), Argument(Filled(3))}) {
      const auto result = Last(x);
      ASSERT_THAT(result, IsOk());
      EXPECT_EQ(*result, 7);
    }
  }
  EXPECT_THAT(executor_->Fetch(kept->kept[0]), StatusIs(absl::StatusCode::kUnavailable, "lost with its device"));
}

TEST_F(DeviceRebuildTest, ChainOnKeptTensorsMovesNothing) {
  Argument x(StoreOnHost(Filled(1)));
  ExecuteOptions keep;
  keep.device = 0;
  keep.keep = {true};
  double expected = 1;
  for (int i = 0; i < 10; ++i) {
    const auto execution = executor_->Execute(work_, {x}, keep);
    ASSERT_THAT(execution, IsOk());
    x = execution->kept[0];
    expected = 2 * expected + 1;
  }
  EXPECT_EQ(executor_->Devices()[0].bytes_to_device, kElements * 4);
  EXPECT_EQ(executor_->Devices()[0].bytes_to_host, 0);
  const auto result = executor_->Fetch(x.stored);
  ASSERT_THAT(result, IsOk());
  EXPECT_EQ(result->GetDouble(kElements - 1), expected);
}

TEST_F(DeviceRebuildTest, CallersOfOtherDevicesDoNotNotice) {
  if (executor_->Devices().size() < 2) GTEST_SKIP() << "one GPU";
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 50; ++i) {
        ExecuteOptions options;
        if (t == 0 && i == 20) {
          options.device = 0;
          EXPECT_EQ(executor_->Execute(crash_, {Filled(1)}, options).status().code(), absl::StatusCode::kUnavailable);
          continue;
        }
        const auto execution = executor_->Execute(work_, {Filled(static_cast<float>(i))}, options);
        wrong += !execution.ok() || execution->outputs[0].GetDouble(7) != 2 * i + 1;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
  AwaitHealthy(0);
}

TEST_F(DeviceRebuildTest, ImpossibleSizesAreResourceExhaustedAndTheDeviceGoesOn) {
  auto large = std::make_shared<Artifact>(*work_);
  large->fingerprint.bytes[31] = 1;
  for (const int64_t arena_bytes : {executor_->Devices()[0].memory_bytes, int64_t{1} << 45}) {
    large->plan.arena_bytes = arena_bytes;
    ++large->fingerprint.bytes[31];
    const auto full = executor_->Execute(std::make_shared<const Artifact>(*large), {Filled(1)}, {});
    EXPECT_EQ(full.status().code(), absl::StatusCode::kResourceExhausted) << full.status();
    EXPECT_EQ(GetErrorReason(full.status()), ErrorReason::kDeviceMemory);
  }
  const auto result = Last(Filled(1));
  ASSERT_THAT(result, IsOk());
  EXPECT_EQ(*result, 3);
  EXPECT_EQ(executor_->Devices()[0].resets, 0);
}

}  // namespace
}  // namespace fuseline::executor

int main(int argc, char** argv) {
  if (const std::optional<int> code = fuseline::device_worker::MaybeRunDeviceWorker(argc, argv)) return *code;
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
