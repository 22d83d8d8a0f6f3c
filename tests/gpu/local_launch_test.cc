// libfuseline_launch.so on a GPU, in a process that has CUDA of its own: its context, stream, memory and graphs.
#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "client/launch/fuseline_launch.h"
#include "common/artifact/codec/artifact_codec.h"
#include "server/compiler/kernel_compiler.h"
#include "tests/gpu/gpu_memory.h"
#include "tests/testing/status_matchers.h"

namespace fuseline {
namespace {

using ::fuseline::testing::GpuProcess;
using ::fuseline::testing::IsOk;

constexpr int64_t kElements = 100'000;

// y = (2 x) + c by way of a temporary and a copy; and a gather with the check that compiled kernels have.
constexpr char kSource[] = R"(
extern "C" __global__ void twice(const float* x, float* y) {
  const int i = blockIdx.x * 256 + threadIdx.x;
  if (i < 100000) y[i] = x[i] * 2.0f;
}
extern "C" __global__ void plus(const float* x, const float* c, float* y, long long n) {
  const int i = blockIdx.x * 256 + threadIdx.x;
  if (i < n) y[i] = x[i] + c[i];
}
extern "C" __global__ void gather(const long long* index, long long* y, long long* check) {
  const long long i = index[threadIdx.x];
  if (i >= 0 && i < 10) {
    y[threadIdx.x] = i * i;
  } else {
    check[1] = i;
    check[0] = 1;
  }
}
)";

LaunchPlan AxpyPlan() {
  LaunchPlan plan;
  constexpr int64_t kBytes = kElements * 4;
  constexpr int64_t kAligned = (kBytes + 255) / 256 * 256;
  plan.inputs.push_back({"in0", DType::kF32, {kElements}, {1}, 16});
  plan.outputs.push_back({"out0", DType::kF32, {kElements}, {1}, 16});
  std::vector<float> constant(kElements);
  for (size_t i = 0; i < constant.size(); ++i) constant[i] = static_cast<float>(i % 1000);
  plan.constants.emplace_back(reinterpret_cast<const char*>(constant.data()), constant.size() * sizeof(float));
  plan.arena_bytes = 2 * kAligned;
  plan.buffers = {{PlanBuffer::Kind::kInput, 0, kBytes, 0},
                  {PlanBuffer::Kind::kTemporary, 0, kBytes, 0},
                  {PlanBuffer::Kind::kTemporary, 0, kBytes, kAligned},
                  {PlanBuffer::Kind::kConstant, 0, kBytes, 0},
                  {PlanBuffer::Kind::kOutput, 0, kBytes, 0}};
  plan.steps.resize(3);
  plan.steps[0].buffers = {0, 1};
  plan.steps[1].kind = PlanStep::Kind::kCopy;
  plan.steps[1].buffers = {1, 2};
  plan.steps[2].kernel = 1;
  plan.steps[2].buffers = {2, 3, 4};
  plan.steps[2].sizes = {kElements};
  for (PlanStep& step : plan.steps) {
    step.dims.grid[0] = (kElements + 255) / 256;
    step.dims.block[0] = 256;
  }
  return plan;
}

LaunchPlan GatherPlan() {
  LaunchPlan plan;
  plan.inputs.push_back({"in0", DType::kI64, {4}, {1}, 8});
  plan.outputs.push_back({"out0", DType::kI64, {4}, {1}, 8});
  plan.checks.push_back({"%v3", 10});
  plan.buffers = {{PlanBuffer::Kind::kInput, 0, 32, 0},
                  {PlanBuffer::Kind::kOutput, 0, 32, 0},
                  {PlanBuffer::Kind::kChecks, 0, 16, 0}};
  plan.steps.resize(1);
  plan.steps[0].buffers = {0, 1, 2};
  plan.steps[0].dims.block[0] = 4;
  return plan;
}

class LocalLaunchTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto process = GpuProcess::Start();
    if (!process.ok()) GTEST_SKIP() << process.status();
    process_ = *std::move(process);
    const auto compiler = compiler::MakeNvrtcCompiler({});
    if (const absl::Status status = compiler->Available(); !status.ok()) GTEST_SKIP() << status;
    ASSERT_EQ(fuseline_open_cuda(0, &device_), FUSELINE_OK) << fuseline_last_error();
    const auto target = ParseTarget(fuseline_device_target(device_));
    ASSERT_THAT(target, IsOk());
    target_ = *target;
    const auto image = compiler->CompileKernel({"twice", kSource, target_, false});
    ASSERT_THAT(image, IsOk());
    image_ = *image;
  }
  void TearDown() override {
    fuseline_callable_release(callable_);
    fuseline_device_close(device_);
  }

  void Load(LaunchPlan plan, const std::vector<std::string>& entries) {
    Artifact artifact;
    artifact.target = target_;
    artifact.plan = std::move(plan);
    for (const std::string& entry : entries) {
      artifact.kernels.push_back(image_);
      artifact.kernels.back().entry = entry;
    }
    const std::string bytes = SerializeArtifact(artifact);
    ASSERT_EQ(fuseline_load(device_, bytes.data(), bytes.size(), nullptr, &callable_), FUSELINE_OK)
        << fuseline_last_error();
  }
  void LoadAxpy() {
    Load(AxpyPlan(), {"twice", "plus"});
    x_.resize(kElements);
    for (size_t i = 0; i < x_.size(); ++i) x_[i] = static_cast<float>(i % 777);
    ASSERT_NO_FATAL_FAILURE(AllocatePair(kElements * 4));
    ASSERT_OK(process_->ToDevice(input_, x_));
  }
  void AllocatePair(size_t bytes) {
    const auto input = process_->Allocate(bytes);
    const auto output = process_->Allocate(bytes);
    ASSERT_THAT(input, IsOk());
    ASSERT_THAT(output, IsOk());
    input_ = *input;
    output_ = *output;
  }
  fuseline_code Launch(void* stream, void* arena = nullptr) {
    return fuseline_launch(callable_, &input_, &output_, arena, stream);
  }
  void ExpectAxpy() {
    std::vector<float> y(kElements);
    ASSERT_OK(process_->ToHost(y, output_));
    for (size_t i = 0; i < y.size(); ++i) ASSERT_EQ(y[i], 2 * x_[i] + static_cast<float>(i % 1000)) << i;
    ASSERT_OK(process_->ToDevice(output_, std::vector<float>(kElements, -1.0f)));
  }

  std::unique_ptr<GpuProcess> process_;
  Target target_;
  KernelImage image_;
  fuseline_device* device_ = nullptr;
  fuseline_callable* callable_ = nullptr;
  std::vector<float> x_;
  void* input_ = nullptr;
  void* output_ = nullptr;
};

TEST_F(LocalLaunchTest, RunsOnTheProcessesStreamAndMemoryAndLeavesItsContext) {
  ASSERT_NO_FATAL_FAILURE(LoadAxpy());
  for (int round = 0; round < 3; ++round) {
    ASSERT_EQ(Launch(process_->stream()), FUSELINE_OK) << fuseline_last_error();
    ASSERT_NO_FATAL_FAILURE(ExpectAxpy());
  }
  launch::CuContext current = nullptr;
  process_->driver().CtxGetCurrent(&current);
  EXPECT_EQ(current, process_->context());
}

TEST_F(LocalLaunchTest, RunsOnTheDefaultStreamAndWhereNoContextIsCurrent) {
  ASSERT_NO_FATAL_FAILURE(LoadAxpy());
  launch::CuContext popped = nullptr;
  process_->driver().CtxPopCurrent(&popped);
  ASSERT_EQ(popped, process_->context());
  EXPECT_EQ(Launch(nullptr), FUSELINE_OK) << fuseline_last_error();
  EXPECT_EQ(fuseline_callable_forget_stream(callable_, nullptr), FUSELINE_OK) << fuseline_last_error();
  launch::CuContext current = popped;
  process_->driver().CtxGetCurrent(&current);
  EXPECT_EQ(current, nullptr);
  process_->driver().CtxPushCurrent(popped);
  ExpectAxpy();
}

TEST_F(LocalLaunchTest, CallersArenaIsUsed) {
  ASSERT_NO_FATAL_FAILURE(LoadAxpy());
  const auto arena = process_->Allocate(static_cast<size_t>(fuseline_callable_arena_bytes(callable_)));
  ASSERT_THAT(arena, IsOk());
  ASSERT_EQ(Launch(process_->stream(), *arena), FUSELINE_OK) << fuseline_last_error();
  ASSERT_NO_FATAL_FAILURE(ExpectAxpy());
  std::vector<float> temporary(16);
  ASSERT_OK(process_->ToHost(temporary, *arena));
  EXPECT_EQ(temporary[5], 2 * x_[5]);
  ASSERT_EQ(Launch(process_->stream()), FUSELINE_OK) << fuseline_last_error();
  ExpectAxpy();
}

// The first launch on the stream is the captured one: its arena is allocated meanwhile.
TEST_F(LocalLaunchTest, CapturedLaunchesReplay) {
  ASSERT_NO_FATAL_FAILURE(LoadAxpy());
  ASSERT_OK(process_->BeginCapture());
  const fuseline_code code = Launch(process_->stream());
  const absl::Status ended = process_->EndCapture();
  ASSERT_EQ(code, FUSELINE_OK) << fuseline_last_error();
  ASSERT_OK(ended);
  for (int round = 0; round < 3; ++round) {
    for (float& value : x_) value += 1;
    ASSERT_OK(process_->ToDevice(input_, x_));
    ASSERT_OK(process_->Replay());
    ASSERT_NO_FATAL_FAILURE(ExpectAxpy());
  }
}

TEST_F(LocalLaunchTest, LoadingAndReleasingDoNotDisturbACapture) {
  ASSERT_NO_FATAL_FAILURE(LoadAxpy());
  ASSERT_EQ(Launch(process_->stream()), FUSELINE_OK);
  ASSERT_OK(process_->Synchronize());
  fuseline_callable* const first = callable_;
  ASSERT_OK(process_->BeginCapture());
  const fuseline_code code = Launch(process_->stream());
  callable_ = nullptr;
  Load(AxpyPlan(), {"twice", "plus"});
  // Its stream is being captured: kept, and let go of later.
  fuseline_callable_release(callable_);
  callable_ = first;
  const absl::Status ended = process_->EndCapture();
  ASSERT_EQ(code, FUSELINE_OK) << fuseline_last_error();
  ASSERT_OK(ended);
  ASSERT_OK(process_->Replay());
  ExpectAxpy();
}

TEST_F(LocalLaunchTest, CallableReleasedDuringACaptureOfItsStreamIsKeptUntilThen) {
  ASSERT_NO_FATAL_FAILURE(LoadAxpy());
  ASSERT_OK(process_->BeginCapture());
  const fuseline_code code = Launch(process_->stream());
  fuseline_callable_release(callable_);
  callable_ = nullptr;
  const absl::Status ended = process_->EndCapture();
  ASSERT_EQ(code, FUSELINE_OK) << fuseline_last_error();
  ASSERT_OK(ended);
  // Nothing has been loaded or released since, so that the graph is still valid.
  ASSERT_OK(process_->Replay());
  ExpectAxpy();
}

TEST_F(LocalLaunchTest, IndexOutOfRangeIsToldOnceWhenAsked) {
  ASSERT_NO_FATAL_FAILURE(Load(GatherPlan(), {"gather"}));
  ASSERT_NO_FATAL_FAILURE(AllocatePair(32));
  void* const stream = process_->stream();
  ASSERT_OK(process_->ToDevice(input_, std::vector<int64_t>{1, 2, 12, 3}));
  ASSERT_EQ(Launch(stream), FUSELINE_OK) << fuseline_last_error();
  EXPECT_EQ(fuseline_callable_check(callable_, stream), FUSELINE_INVALID_ARGUMENT);
  EXPECT_STREQ(fuseline_last_error(), "node '%v3': index 12 is out of range for size 10");
  EXPECT_STREQ(fuseline_last_error_reason(), "INDEX_OUT_OF_RANGE");
  EXPECT_EQ(fuseline_callable_check(callable_, stream), FUSELINE_OK);
  ASSERT_OK(process_->ToDevice(input_, std::vector<int64_t>{1, 2, 9, 3}));
  ASSERT_EQ(Launch(stream), FUSELINE_OK) << fuseline_last_error();
  EXPECT_EQ(fuseline_callable_check(callable_, stream), FUSELINE_OK);
  std::vector<int64_t> y(4);
  ASSERT_OK(process_->ToHost(y, output_));
  EXPECT_EQ(y[2], 81);
}

TEST_F(LocalLaunchTest, IndexOutOfRangeIsToldByALaterLaunch) {
  ASSERT_NO_FATAL_FAILURE(Load(GatherPlan(), {"gather"}));
  ASSERT_NO_FATAL_FAILURE(AllocatePair(32));
  ASSERT_OK(process_->ToDevice(input_, std::vector<int64_t>{1, 2, -3, 3}));
  ASSERT_EQ(Launch(process_->stream()), FUSELINE_OK) << fuseline_last_error();
  ASSERT_OK(process_->Synchronize());
  EXPECT_EQ(Launch(process_->stream()), FUSELINE_INVALID_ARGUMENT);
  EXPECT_STREQ(fuseline_last_error(), "node '%v3': index -3 is out of range for size 10");
  ASSERT_OK(process_->ToDevice(input_, std::vector<int64_t>{1, 2, 3, 3}));
  EXPECT_EQ(Launch(process_->stream()), FUSELINE_OK) << fuseline_last_error();
}

TEST_F(LocalLaunchTest, NoSuchDeviceIsAFailedPrecondition) {
  fuseline_device* device = nullptr;
  EXPECT_EQ(fuseline_open_cuda(fuseline_cuda_device_count(), &device), FUSELINE_FAILED_PRECONDITION);
  EXPECT_STREQ(fuseline_last_error_reason(), "TARGET_NOT_AVAILABLE");
}

}  // namespace
}  // namespace fuseline
