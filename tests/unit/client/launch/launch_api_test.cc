// libfuseline_launch.so through its C ABI, on the CPU. The test links another Abseil and protobuf than the library has.
#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "client/launch/fuseline_launch.h"
#include "common/artifact/codec/artifact_codec.h"
#include "tests/testing/status_matchers.h"
#include "tests/unit/client/launch/launch_from_c.h"
#include "tests/unit/server/test_artifacts.h"

namespace fuseline {
namespace {

using ::fuseline::testing::AxpyArtifact;
using ::fuseline::testing::IsOk;

constexpr int64_t kElements = 1000;

struct CloseDevice {
  void operator()(fuseline_device* device) const { fuseline_device_close(device); }
};
struct ReleaseCallable {
  void operator()(fuseline_callable* callable) const { fuseline_callable_release(callable); }
};
using DevicePtr = std::unique_ptr<fuseline_device, CloseDevice>;
using CallablePtr = std::unique_ptr<fuseline_callable, ReleaseCallable>;

DevicePtr OpenCpu(int threads = 2) {
  fuseline_device* device = nullptr;
  EXPECT_EQ(fuseline_open_cpu(threads, &device), FUSELINE_OK) << fuseline_last_error();
  return DevicePtr(device);
}

CallablePtr Load(const DevicePtr& device, const std::string& bytes) {
  fuseline_callable* callable = nullptr;
  EXPECT_EQ(fuseline_load(device.get(), bytes.data(), bytes.size(), nullptr, &callable), FUSELINE_OK)
      << fuseline_last_error();
  return CallablePtr(callable);
}

// y[i] = table[index[i]], with the check that compiled kernels have.
constexpr char kGatherSource[] = R"(
extern "C" void gather(void* const* buffers, long begin, long end) {
  const long long* index = static_cast<const long long*>(buffers[0]);
  long long* y = static_cast<long long*>(buffers[1]);
  long long* check = static_cast<long long*>(buffers[2]);
  for (long i = begin; i < end; ++i) {
    if (index[i] >= 0 && index[i] < 10) {
      y[i] = index[i] * index[i];
    } else {
      check[1] = index[i];
      check[0] = 1;
    }
  }
}
)";

absl::StatusOr<std::string> GatherBytes() {
  Artifact artifact;
  artifact.target = Target::Cpu();
  auto image = compiler::MakeHostCompiler("", "")->CompileKernel({"gather", kGatherSource, Target::Cpu(), false});
  if (!image.ok()) return image.status();
  artifact.kernels = {*image};
  LaunchPlan& plan = artifact.plan;
  plan.inputs.push_back({"in0", DType::kI64, {4}, {1}, 8});
  plan.outputs.push_back({"out0", DType::kI64, {4}, {1}, 8});
  plan.checks.push_back({"%v3", 10});
  plan.buffers = {{PlanBuffer::Kind::kInput, 0, 32, 0},
                  {PlanBuffer::Kind::kOutput, 0, 32, 0},
                  {PlanBuffer::Kind::kChecks, 0, 16, 0}};
  plan.steps.resize(1);
  plan.steps[0].buffers = {0, 1, 2};
  plan.steps[0].work_items = 4;
  return SerializeArtifact(artifact);
}

class LaunchApiTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto artifact = AxpyArtifact(kElements);
    ASSERT_THAT(artifact, IsOk());
    artifact_ = *artifact;
    bytes_ = SerializeArtifact(*artifact_);
    for (int64_t i = 0; i < kElements; ++i) x_[static_cast<size_t>(i)] = static_cast<float>(i) * 0.5f;
  }

  fuseline_code Launch(const CallablePtr& callable, void* arena = nullptr) {
    void* inputs[] = {x_.data()};
    void* outputs[] = {y_.data()};
    return fuseline_launch(callable.get(), inputs, outputs, arena, nullptr);
  }
  void ExpectResult() const {
    for (int64_t i = 0; i < kElements; ++i) ASSERT_EQ(y_[static_cast<size_t>(i)], static_cast<float>(2 * i + 1)) << i;
  }

  ArtifactPtr artifact_;
  std::string bytes_;
  alignas(64) std::array<float, kElements> x_{};
  alignas(64) std::array<float, kElements> y_{};
};

TEST_F(LaunchApiTest, CpuDeviceDescribesItself) {
  const DevicePtr device = OpenCpu();
  EXPECT_STRNE(fuseline_device_name(device.get()), "");
  EXPECT_STREQ(fuseline_device_target(device.get()), "cpu");
  EXPECT_GT(fuseline_device_memory_bytes(device.get()), 0);
  EXPECT_EQ(fuseline_device_driver_version(device.get()), 0);
  EXPECT_EQ(fuseline_abi_version(), FUSELINE_LAUNCH_ABI_VERSION);
  EXPECT_STRNE(fuseline_version(), "");
}

TEST_F(LaunchApiTest, LaunchesCopiesConstantsAndTemporariesGiveTheResult) {
  const DevicePtr device = OpenCpu();
  const CallablePtr callable = Load(device, bytes_);
  ASSERT_NE(callable, nullptr);
  for (int round = 0; round < 3; ++round) {
    y_.fill(-1.0f);
    ASSERT_EQ(Launch(callable), FUSELINE_OK) << fuseline_last_error();
    ExpectResult();
  }
}

TEST_F(LaunchApiTest, SignatureIsTold) {
  const CallablePtr callable = Load(OpenCpu(), bytes_);
  ASSERT_EQ(fuseline_callable_input_count(callable.get()), 1);
  ASSERT_EQ(fuseline_callable_output_count(callable.get()), 1);
  fuseline_tensor_info info = {};
  info.struct_size = sizeof(info);
  ASSERT_EQ(fuseline_callable_output(callable.get(), 0, &info), FUSELINE_OK);
  EXPECT_STREQ(info.name, "y");
  EXPECT_STREQ(fuseline_dtype_name(info.dtype), "f32");
  ASSERT_EQ(info.rank, 1);
  EXPECT_EQ(info.shape[0], kElements);
  EXPECT_EQ(info.strides[0], 1);
  EXPECT_EQ(info.size_bytes, kElements * 4);
  EXPECT_EQ(info.alignment_bytes, 16);
  EXPECT_EQ(fuseline_callable_input(callable.get(), 1, &info), FUSELINE_INVALID_ARGUMENT);
  EXPECT_STREQ(fuseline_last_error(), "there is no input 1, only 1");
  EXPECT_EQ(fuseline_callable_arena_bytes(callable.get()), artifact_->plan.arena_bytes);
  EXPECT_EQ(fuseline_callable_step_count(callable.get()), 3);
  EXPECT_EQ(fuseline_callable_check_count(callable.get()), 0);
  EXPECT_EQ(memcmp(fuseline_callable_fingerprint(callable.get()), artifact_->fingerprint.bytes.data(), 32), 0);
}

TEST_F(LaunchApiTest, StructOfAnOlderCallerIsFilledAsFarAsItGoes) {
  const CallablePtr callable = Load(OpenCpu(), bytes_);
  fuseline_tensor_info info = {};
  info.struct_size = offsetof(fuseline_tensor_info, size_bytes);
  info.size_bytes = -7;
  ASSERT_EQ(fuseline_callable_input(callable.get(), 0, &info), FUSELINE_OK);
  EXPECT_STREQ(info.name, "x");
  EXPECT_EQ(info.size_bytes, -7);
}

TEST_F(LaunchApiTest, CallersArenaIsUsed) {
  const CallablePtr callable = Load(OpenCpu(), bytes_);
  const int64_t arena_bytes = fuseline_callable_arena_bytes(callable.get());
  ASSERT_GT(arena_bytes, 0);
  const auto room = std::make_unique<char[]>(static_cast<size_t>(arena_bytes) + 512);
  char* arena = room.get() + (256 - reinterpret_cast<uintptr_t>(room.get()) % 256);
  ASSERT_EQ(Launch(callable, arena), FUSELINE_OK) << fuseline_last_error();
  ExpectResult();
  EXPECT_EQ(reinterpret_cast<const float*>(arena)[7], 2 * x_[7]);  // the first temporary
  EXPECT_EQ(Launch(callable, arena + 128), FUSELINE_INVALID_ARGUMENT);
  EXPECT_STREQ(fuseline_last_error(), "the arena is not 256-byte aligned");
  ASSERT_EQ(Launch(callable), FUSELINE_OK);
  ExpectResult();
}

TEST_F(LaunchApiTest, PointersThatKernelsCannotUseAreRefused) {
  const CallablePtr callable = Load(OpenCpu(), bytes_);
  void* good = x_.data();
  void* unaligned = x_.data() + 1;
  void* null = nullptr;
  EXPECT_EQ(fuseline_launch(callable.get(), &unaligned, &good, nullptr, nullptr), FUSELINE_INVALID_ARGUMENT);
  EXPECT_STREQ(fuseline_last_error(), "input 'x': the pointer is not 16-byte aligned, which the kernels assume");
  EXPECT_STREQ(fuseline_last_error_reason(), "TENSOR_MISMATCH");
  EXPECT_EQ(fuseline_launch(callable.get(), &good, &null, nullptr, nullptr), FUSELINE_INVALID_ARGUMENT);
  EXPECT_STREQ(fuseline_last_error(), "output 'y': the pointer is null");
  EXPECT_EQ(fuseline_launch(callable.get(), nullptr, &good, nullptr, nullptr), FUSELINE_INVALID_ARGUMENT);
  EXPECT_STREQ(fuseline_last_error(), "'inputs' is null");
}

TEST_F(LaunchApiTest, IndexOutOfRangeIsToldByTheCallThatHadIt) {
  const auto bytes = GatherBytes();
  ASSERT_THAT(bytes, IsOk());
  const CallablePtr callable = Load(OpenCpu(), *bytes);
  EXPECT_EQ(fuseline_callable_check_count(callable.get()), 1);
  alignas(16) std::array<int64_t, 4> index = {1, 2, 12, 3};
  alignas(16) std::array<int64_t, 4> y{};
  void* inputs[] = {index.data()};
  void* outputs[] = {y.data()};
  EXPECT_EQ(fuseline_launch(callable.get(), inputs, outputs, nullptr, nullptr), FUSELINE_INVALID_ARGUMENT);
  EXPECT_STREQ(fuseline_last_error(), "node '%v3': index 12 is out of range for size 10");
  EXPECT_STREQ(fuseline_last_error_reason(), "INDEX_OUT_OF_RANGE");
  index[2] = 9;
  EXPECT_EQ(fuseline_launch(callable.get(), inputs, outputs, nullptr, nullptr), FUSELINE_OK);
  EXPECT_EQ(y[2], 81);
  EXPECT_EQ(fuseline_callable_check(callable.get(), nullptr), FUSELINE_OK);
}

TEST_F(LaunchApiTest, BytesThatAreNoArtifactAreRefused) {
  const DevicePtr device = OpenCpu();
  fuseline_callable* callable = nullptr;
  for (const std::string& bytes : {std::string(), bytes_.substr(0, bytes_.size() / 2), std::string("no artifact")}) {
    EXPECT_EQ(fuseline_load(device.get(), bytes.data(), bytes.size(), nullptr, &callable), FUSELINE_INVALID_ARGUMENT);
    EXPECT_STREQ(fuseline_last_error_reason(), "DATA_LOSS");
  }
  EXPECT_EQ(callable, nullptr);
}

TEST_F(LaunchApiTest, ArtifactForAnotherTargetIsRefused) {
  Artifact other = *artifact_;
  other.target = Target::Cuda(90);
  for (KernelImage& kernel : other.kernels) kernel.format = ImageFormat::kCubin;
  const std::string bytes = SerializeArtifact(other);
  const DevicePtr device = OpenCpu();
  fuseline_callable* callable = nullptr;
  EXPECT_EQ(fuseline_load(device.get(), bytes.data(), bytes.size(), nullptr, &callable), FUSELINE_FAILED_PRECONDITION);
  EXPECT_STREQ(fuseline_last_error(), "a CPU can't run code for 'cuda:sm_90'");
  EXPECT_STREQ(fuseline_last_error_reason(), "TARGET_NOT_AVAILABLE");
}

TEST_F(LaunchApiTest, AnotherArtifactThanWasAskedForIsDataLoss) {
  const DevicePtr device = OpenCpu();
  std::array<uint8_t, 32> sha256 = ComputeDigest(bytes_).sha256;
  std::array<uint8_t, 32> fingerprint = artifact_->fingerprint.bytes;
  const fuseline_load_options options = {sizeof(options), fingerprint.data(), sha256.data()};
  const auto load = [&] {
    fuseline_callable* callable = nullptr;
    const fuseline_code code = fuseline_load(device.get(), bytes_.data(), bytes_.size(), &options, &callable);
    fuseline_callable_release(callable);
    return code;
  };
  EXPECT_EQ(load(), FUSELINE_OK) << fuseline_last_error();
  fingerprint[0] ^= 1;
  EXPECT_EQ(load(), FUSELINE_DATA_LOSS);
  fingerprint[0] ^= 1;
  sha256[31] ^= 1;
  EXPECT_EQ(load(), FUSELINE_DATA_LOSS);
}

TEST_F(LaunchApiTest, BadArgumentsAreNamed) {
  fuseline_device* device = nullptr;
  EXPECT_EQ(fuseline_open_cpu(-1, &device), FUSELINE_INVALID_ARGUMENT);
  EXPECT_EQ(fuseline_open_cpu(1, nullptr), FUSELINE_INVALID_ARGUMENT);
  EXPECT_STREQ(fuseline_last_error(), "'device' is null");
  fuseline_callable* callable = nullptr;
  EXPECT_EQ(fuseline_load(nullptr, bytes_.data(), bytes_.size(), nullptr, &callable), FUSELINE_INVALID_ARGUMENT);
  EXPECT_EQ(fuseline_open_cuda(-1, &device), FUSELINE_FAILED_PRECONDITION);
  EXPECT_STREQ(fuseline_last_error_reason(), "TARGET_NOT_AVAILABLE");
  fuseline_device_close(nullptr);
  fuseline_callable_release(nullptr);
}

TEST_F(LaunchApiTest, EachThreadHasItsOwnLastError) {
  fuseline_device* device = nullptr;
  ASSERT_EQ(fuseline_open_cpu(-1, &device), FUSELINE_INVALID_ARGUMENT);
  std::string elsewhere = "not asked";
  std::thread([&] { elsewhere = fuseline_last_error(); }).join();
  EXPECT_EQ(elsewhere, "");
  EXPECT_STRNE(fuseline_last_error(), "");
}

TEST_F(LaunchApiTest, ThreadsMayLaunchOneCallable) {
  const CallablePtr callable = Load(OpenCpu(), bytes_);
  std::vector<std::thread> threads;
  std::array<int, 4> failures{};
  for (size_t t = 0; t < failures.size(); ++t) {
    threads.emplace_back([&, t] {
      alignas(64) std::array<float, kElements> x;
      alignas(64) std::array<float, kElements> y;
      x.fill(static_cast<float>(t));
      void* inputs[] = {x.data()};
      void* outputs[] = {y.data()};
      for (int round = 0; round < 50; ++round) {
        const bool done = fuseline_launch(callable.get(), inputs, outputs, nullptr, nullptr) == FUSELINE_OK;
        if (!done || y[9] != static_cast<float>(2 * t + 10)) ++failures[t];
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(failures, (std::array<int, 4>{}));
}

TEST_F(LaunchApiTest, CallsFromCWork) {
  const char* failed = LaunchFromC(bytes_.data(), bytes_.size(), x_.data(), y_.data(), kElements);
  ASSERT_EQ(failed, nullptr) << failed << ": " << fuseline_last_error();
  ExpectResult();
}

}  // namespace
}  // namespace fuseline
