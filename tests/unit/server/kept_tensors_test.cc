// Executions on kept tensors, on devices with and without memory of their own.
#include <algorithm>
#include <atomic>
#include <memory>
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
using ::fuseline::testing::KeyOf;
using ::fuseline::testing::StatusIs;

constexpr int64_t kElements = 256;
constexpr int64_t kBytes = kElements * 4;

Tensor Filled(float value, int64_t elements = kElements) {
  Tensor tensor = Tensor::Allocate(DType::kF32, {elements});
  std::fill_n(static_cast<float*>(tensor.data()), elements, value);
  return tensor;
}

class KeptTensorsTest : public ::testing::TestWithParam<bool> {
 protected:
  void Start(int devices = 1, int64_t memory_bytes = int64_t{1} << 30) { StartWith(GetParam(), devices, memory_bytes); }
  void StartWith(bool separate_memory, int devices, int64_t memory_bytes) {
    ExecutorOptions options;
    options.use_cuda = false;
    options.cpu_devices = devices;
    options.cpu_threads = 1;
    options.wrap_device = [&](std::unique_ptr<launch::Device> device, int) {
      controls_.push_back(std::make_shared<FaultyDeviceControl>());
      controls_.back()->separate_memory = separate_memory;
      controls_.back()->memory_bytes = memory_bytes;
      return std::make_unique<FaultyDevice>(std::move(device), controls_.back());
    };
    auto executor = Executor::Create(options);
    ASSERT_THAT(executor, IsOk());
    executor_ = *std::move(executor);
    const auto artifact = AxpyArtifact(kElements);
    ASSERT_THAT(artifact, IsOk());
    artifact_ = *artifact;
  }
  DeviceInfo Device(size_t ordinal = 0) const { return executor_->Devices()[ordinal]; }
  absl::StatusOr<Execution> Keep(const Argument& input, int32_t device = -1) {
    ExecuteOptions options;
    options.keep = {true};
    options.device = device;
    return executor_->Execute(artifact_, {input}, options);
  }

  std::vector<std::shared_ptr<FaultyDeviceControl>> controls_;
  std::unique_ptr<Executor> executor_;
  ArtifactPtr artifact_;
};

INSTANTIATE_TEST_SUITE_P(Memory, KeptTensorsTest, ::testing::Bool(),
                         [](const auto& info) { return info.param ? "OfItsOwn" : "OfTheHost"; });

TEST_P(KeptTensorsTest, ChainOfExecutionsGivesTheResult) {
  Start();
  Argument x(Filled(1));
  double expected = 1;
  for (int i = 0; i < 5; ++i) {
    const auto execution = Keep(x);
    ASSERT_THAT(execution, IsOk());
    ASSERT_EQ(execution->kept.size(), 1u);
    ASSERT_NE(execution->kept[0], nullptr);
    EXPECT_EQ(execution->outputs[0].data(), nullptr);
    EXPECT_EQ(execution->outputs[0].shape(), Shape{kElements});
    x = execution->kept[0];
    EXPECT_EQ(x.shape(), Shape{kElements});
    EXPECT_EQ(x.dtype(), DType::kF32);
    expected = 2 * expected + kElements;
  }
  EXPECT_EQ(Device().bytes_to_host, 0);
  EXPECT_EQ(Device().bytes_to_device, GetParam() ? kBytes : 0);
  const auto result = executor_->Fetch(x.stored);
  ASSERT_THAT(result, IsOk());
  EXPECT_EQ(result->GetDouble(kElements - 1), expected);
  EXPECT_EQ(Device().bytes_to_host, GetParam() ? kBytes : 0);
  ASSERT_THAT(executor_->Fetch(x.stored), IsOk());  // the second time it is there
  EXPECT_EQ(Device().bytes_to_host, GetParam() ? kBytes : 0);
}

TEST_P(KeptTensorsTest, UploadMovesToADeviceOnce) {
  Start();
  const StoredTensorPtr x = StoreOnHost(Filled(2));
  for (int i = 0; i < 3; ++i) {
    const auto execution = executor_->Execute(artifact_, {x}, {});
    ASSERT_THAT(execution, IsOk());
    EXPECT_TRUE(execution->kept.empty());
    EXPECT_EQ(execution->outputs[0].GetDouble(0), 5);
  }
  EXPECT_EQ(Device().bytes_to_device, GetParam() ? kBytes : 0);
  EXPECT_EQ(Device().kept_bytes, GetParam() ? kBytes : 0);
  EXPECT_EQ(Device().memory_used_bytes >= kBytes, GetParam());
}

TEST_P(KeptTensorsTest, StridedInputIsLaidOut) {
  Start();
  auto artifact = std::make_shared<Artifact>(*artifact_);
  artifact->fingerprint = KeyOf(1000);
  artifact->plan.inputs[0].shape = {2, kElements / 2};
  artifact->plan.inputs[0].strides = {1, 2};
  Tensor matrix = Tensor::Allocate(DType::kF32, {2, kElements / 2});
  for (int64_t i = 0; i < kElements; ++i) matrix.SetDouble(i, static_cast<double>(i));
  const StoredTensorPtr x = StoreOnHost(matrix);
  for (int i = 0; i < 2; ++i) {
    const auto execution = executor_->Execute(artifact, {x}, {});
    ASSERT_THAT(execution, IsOk());
    EXPECT_EQ(execution->outputs[0].GetDouble(1), 2 * (kElements / 2) + 2);  // element (1, 0)
  }
}

TEST_P(KeptTensorsTest, KeptTensorOutlivesTheExecutor) {
  Start();
  const auto execution = Keep(Filled(1));
  ASSERT_THAT(execution, IsOk());
  const StoredTensorPtr kept = execution->kept[0];
  executor_.reset();
  EXPECT_EQ(FetchFromHost(kept).ok(), !GetParam());
}

TEST_P(KeptTensorsTest, WrongShapeOfAKeptTensorIsNamed) {
  Start();
  EXPECT_THAT(executor_->Execute(artifact_, {StoreOnHost(Filled(1, 3))}, {}),
              StatusIs(absl::StatusCode::kInvalidArgument, "input 'x': the graph takes f32[256], got f32[3]"));
  ExecuteOptions options;
  options.keep = {true, false};
  EXPECT_THAT(executor_->Execute(artifact_, {Filled(1)}, options),
              StatusIs(absl::StatusCode::kInvalidArgument, "1 outputs, 2 are"));
}

TEST_P(KeptTensorsTest, ManyCallersShareOneTensor) {
  Start(2);
  const StoredTensorPtr x = StoreOnHost(Filled(2));
  const auto kept = Keep(Filled(1));
  ASSERT_THAT(kept, IsOk());
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 50; ++i) {
        if (t == 3) {
          const auto fetched = executor_->Fetch(kept->kept[0]);
          wrong += !fetched.ok() || fetched->GetDouble(0) != 3;
          continue;
        }
        const auto execution = executor_->Execute(artifact_, {t == 2 ? kept->kept[0] : x}, {});
        wrong += !execution.ok() || execution->outputs[0].GetDouble(0) != (t == 2 ? 7 : 5);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

TEST_F(KeptTensorsTest, ExecutionGoesWhereItsInputsLie) {
  StartWith(true, 3, int64_t{1} << 30);
  const auto kept = Keep(Filled(1), 1);
  ASSERT_THAT(kept, IsOk());
  for (int i = 0; i < 6; ++i) {
    const auto execution = executor_->Execute(artifact_, {kept->kept[0]}, {});
    ASSERT_THAT(execution, IsOk());
    EXPECT_EQ(execution->device, 1);
  }
  EXPECT_EQ(Device(1).bytes_to_device, kBytes);
}

TEST_F(KeptTensorsTest, ResultNeededOnAnotherDeviceGoesThroughTheHost) {
  StartWith(true, 2, int64_t{1} << 30);
  const auto kept = Keep(Filled(1), 0);
  ASSERT_THAT(kept, IsOk());
  const auto moved = Keep(kept->kept[0], 1);
  ASSERT_THAT(moved, IsOk());
  EXPECT_EQ(Device(0).bytes_to_host, kBytes);
  EXPECT_EQ(Device(1).bytes_to_device, kBytes);
  const auto result = executor_->Fetch(moved->kept[0]);
  ASSERT_THAT(result, IsOk());
  EXPECT_EQ(result->GetDouble(0), 7);
}

TEST_F(KeptTensorsTest, IdleCopiesMakeWayLeastRecentlyUsedFirst) {
  StartWith(true, 1, 8 * kBytes);
  std::vector<StoredTensorPtr> tensors;
  for (int i = 0; i < 7; ++i) tensors.push_back(StoreOnHost(Filled(static_cast<float>(i))));
  const auto run = [&](const StoredTensorPtr& x) { return executor_->Execute(artifact_, {x}, {}).status(); };
  for (const StoredTensorPtr& x : tensors) ASSERT_THAT(run(x), IsOk());
  EXPECT_EQ(Device().bytes_to_device, 7 * kBytes);
  ASSERT_THAT(run(tensors[0]), IsOk());
  // No room for its result. A run takes four tensors (input, output, two temporaries): 1 to 4, unused for longest, go.
  ASSERT_THAT(run(StoreOnHost(Filled(5))), IsOk());
  EXPECT_EQ(Device().bytes_to_device, 8 * kBytes);
  for (const size_t stayed : {0, 5, 6}) ASSERT_THAT(run(tensors[stayed]), IsOk());
  EXPECT_EQ(Device().bytes_to_device, 8 * kBytes);
  for (const size_t went : {1, 2, 3, 4}) ASSERT_THAT(run(tensors[went]), IsOk());
  EXPECT_EQ(Device().bytes_to_device, 12 * kBytes);
}

TEST_F(KeptTensorsTest, ResultsWithoutHostDataNeverMakeWay) {
  StartWith(true, 1, 3 * kBytes);
  const auto first = Keep(Filled(1));
  const auto second = Keep(Filled(2));
  ASSERT_THAT(first, IsOk());
  ASSERT_THAT(second, IsOk());
  const auto full = executor_->Execute(artifact_, {Filled(3)}, {});
  EXPECT_THAT(full, StatusIs(absl::StatusCode::kResourceExhausted, "full"));
  EXPECT_EQ(GetErrorReason(full.status()), ErrorReason::kDeviceMemory);
  EXPECT_TRUE(Device().healthy);
  ASSERT_THAT(executor_->Fetch(second->kept[0]), IsOk());
  EXPECT_THAT(executor_->Execute(artifact_, {Filled(3)}, {}), IsOk());
  const auto result = executor_->Fetch(first->kept[0]);
  ASSERT_THAT(result, IsOk());
  EXPECT_EQ(result->GetDouble(0), 3);
}

TEST_F(KeptTensorsTest, ImpossibleSizeIsResourceExhaustedAndTheDeviceGoesOn) {
  StartWith(true, 1, 2 * kBytes - 1);
  EXPECT_THAT(executor_->Execute(artifact_, {Filled(1)}, {}), StatusIs(absl::StatusCode::kResourceExhausted, "full"));
  EXPECT_EQ(controls_[0]->used_bytes, 0);
  EXPECT_TRUE(Device().healthy);
  EXPECT_EQ(Device().failures, 1);
}

TEST_F(KeptTensorsTest, DroppedTensorsFreeTheDevice) {
  StartWith(true, 1, int64_t{1} << 30);
  {
    const auto kept = Keep(StoreOnHost(Filled(1)));
    ASSERT_THAT(kept, IsOk());
    EXPECT_EQ(controls_[0]->used_bytes, kBytes);  // the result; the input's copy went with the input
    EXPECT_EQ(Device().kept_bytes, kBytes);
  }
  EXPECT_EQ(controls_[0]->used_bytes, 0);
  EXPECT_EQ(Device().kept_bytes, 0);
}

}  // namespace
}  // namespace fuseline::executor
