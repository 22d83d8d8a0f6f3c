#include <memory>
#include <string>
#include <vector>

#include "common/launch/launch_plan_runner.h"
#include "common/status/error.h"
#include "gtest/gtest.h"
#include "tests/testing/status_matchers.h"
#include "tests/unit/server/test_artifacts.h"

namespace fuseline::launch {
namespace {

using ::fuseline::testing::AxpyPlan;
using ::fuseline::testing::IsOk;
using ::fuseline::testing::KeyOf;
using ::fuseline::testing::StatusIs;

constexpr char kSource[] = R"(
extern "C" __global__ void twice(const float* x, float* y) {
  const int i = blockIdx.x * 256 + threadIdx.x;
  if (i < ELEMENTS) y[i] = x[i] * 2.0f;
}
extern "C" __global__ void plus(const float* x, const float* c, float* y) {
  extern __shared__ float unused[];
  const int i = blockIdx.x * 256 + threadIdx.x;
  if (i < ELEMENTS) y[i] = x[i] + c[i];
}
)";

TEST(OpenCudaDevicesTest, NoDeviceComesWithAReason) {
  std::string why;
  if (OpenCudaDevices(why).empty()) {
    EXPECT_FALSE(why.empty());
  }
}

class CudaDeviceTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string why;
    devices_ = OpenCudaDevices(why);
    if (devices_.empty()) GTEST_SKIP() << why;
    const auto compiler = compiler::MakeNvrtcCompiler({});
    if (const absl::Status status = compiler->Available(); !status.ok()) GTEST_SKIP() << status;
    auto artifact = std::make_shared<Artifact>();
    artifact->fingerprint = KeyOf(1);
    artifact->target = devices_[0]->target();
    std::string source = kSource;
    for (size_t at; (at = source.find("ELEMENTS")) != std::string::npos;)
      source.replace(at, 8, std::to_string(kElements));
    const auto image = compiler->CompileKernel({"twice", source, artifact->target, false});
    ASSERT_THAT(image, IsOk());
    artifact->kernels = {*image, *image};
    artifact->kernels[1].entry = "plus";
    artifact->plan = AxpyPlan(kElements);
    for (PlanStep& step : artifact->plan.steps) {
      step.dims.grid[0] = (kElements + 255) / 256;
      step.dims.block[0] = 256;
    }
    artifact->plan.steps[2].dims.dynamic_shared_bytes = 100 << 10;
    artifact_ = std::move(artifact);
  }

  static constexpr int64_t kElements = 3'000'001;  // three transfer chunks
  std::vector<std::unique_ptr<Device>> devices_;
  ArtifactPtr artifact_;
};

TEST_F(CudaDeviceTest, LaunchesCopiesConstantsAndTemporariesGiveTheResultOnEachDevice) {
  for (const std::unique_ptr<Device>& device : devices_) {
    const auto loaded = device->Load(artifact_);
    ASSERT_THAT(loaded, IsOk());
    std::vector<float> x(kElements);
    for (int64_t i = 0; i < kElements; ++i) x[static_cast<size_t>(i)] = static_cast<float>(i % 1000);
    std::vector<float> y(kElements);
    const auto input = device->Allocate(kElements * 4);
    const auto output = device->Allocate(kElements * 4);
    ASSERT_THAT(input, IsOk());
    ASSERT_THAT(output, IsOk());
    for (int round = 0; round < 3; ++round) {
      ASSERT_THAT(device->CopyToDevice(input->get(), x.data(), kElements * 4), IsOk());
      ASSERT_THAT(device->Run(**loaded, {input->get()}, {output->get()}, nullptr), IsOk());
      ASSERT_THAT(device->CopyToHost(y.data(), output->get(), kElements * 4), IsOk());
      for (int64_t i = 0; i < kElements; ++i) {
        ASSERT_EQ(y[static_cast<size_t>(i)], static_cast<float>(2 * (i % 1000)) + static_cast<float>(i + 1)) << i;
      }
    }
    const auto micros = device->Time(**loaded, {input->get()}, {output->get()}, 2, 10, true, nullptr);
    ASSERT_THAT(micros, IsOk());
    EXPECT_EQ(micros->size(), 10u);
    for (const double t : *micros) EXPECT_GT(t, 0);
    const auto rate = device->MeasureCopyRate(256 << 20);
    ASSERT_THAT(rate, IsOk());
    EXPECT_GT(*rate, 1e10);
  }
}

TEST_F(CudaDeviceTest, TargetsThatRunAreTold) {
  const Target own = devices_[0]->target();
  EXPECT_TRUE(devices_[0]->CanRun(own));
  EXPECT_TRUE(devices_[0]->CanRun(Target::Cuda(own.sm, true)));
  EXPECT_FALSE(devices_[0]->CanRun(Target::Cuda(own.sm + 10)));
  EXPECT_FALSE(devices_[0]->CanRun(Target::Cpu()));
  auto other = std::make_shared<Artifact>(*artifact_);
  other->least_driver_version = 1'000'000;
  EXPECT_THAT(devices_[0]->Load(other), StatusIs(absl::StatusCode::kFailedPrecondition, "driver"));
}

TEST_F(CudaDeviceTest, MoreMemoryThanThereIsIsResourceExhausted) {
  const auto block = devices_[0]->Allocate(devices_[0]->memory_bytes() + 1);
  EXPECT_THAT(block, StatusIs(absl::StatusCode::kResourceExhausted, "bytes"));
  const auto nearly_all = devices_[0]->Allocate(devices_[0]->memory_bytes());
  EXPECT_THAT(nearly_all, StatusIs(absl::StatusCode::kResourceExhausted, "allocate"));
  EXPECT_EQ(GetErrorReason(nearly_all.status()), ErrorReason::kDeviceMemory);
}

TEST_F(CudaDeviceTest, MemoryOutlivesItsDevice) {
  auto block = devices_[0]->Allocate(1000);
  ASSERT_THAT(block, IsOk());
  devices_.clear();
  block->reset();
  std::string why;
  EXPECT_FALSE(OpenCudaDevices(why).empty()) << why;
}

}  // namespace
}  // namespace fuseline::launch
