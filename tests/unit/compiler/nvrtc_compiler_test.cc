#include <string>
#include <thread>
#include <vector>

#include "common/status/error.h"
#include "gtest/gtest.h"
#include "server/compiler/kernel_compiler.h"
#include "tests/testing/status_matchers.h"

namespace fuseline::compiler {
namespace {

using ::fuseline::testing::IsOk;
using ::fuseline::testing::StatusIs;

constexpr char kReverse[] = R"(
extern "C" __global__ void __launch_bounds__(256) reverse(const float* x, float* y) {
  __shared__ float tile[256];
  tile[threadIdx.x] = x[threadIdx.x];
  __syncthreads();
  y[threadIdx.x] = tile[255 - threadIdx.x] * 2.0f + 1.0f;
}
)";

KernelSource Source(const std::string& entry, const std::string& text, Target target = Target::Cuda(90)) {
  return {entry, text, target, false};
}

class NvrtcCompilerTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (const absl::Status status = compiler_->Available(); !status.ok()) GTEST_SKIP() << status;
  }
  std::unique_ptr<KernelCompiler> compiler_ = MakeNvrtcCompiler({});
};

TEST_F(NvrtcCompilerTest, KernelBecomesACubinWithItsResources) {
  const auto image = compiler_->CompileKernel(Source("reverse", kReverse));
  ASSERT_THAT(image, IsOk());
  EXPECT_EQ(image->format, ImageFormat::kCubin);
  EXPECT_EQ(image->bytes.substr(0, 4),
            "\x7f"
            "ELF");
  EXPECT_GT(image->resources.registers, 0);
  EXPECT_EQ(image->resources.static_shared_bytes, 1024);
  EXPECT_EQ(image->resources.spill_store_bytes, 0);
}

TEST_F(NvrtcCompilerTest, ArchitectureSpecificTargetIsAccepted) {
  EXPECT_THAT(compiler_->CompileKernel(Source("reverse", kReverse, Target::Cuda(90, true))), IsOk());
}

TEST_F(NvrtcCompilerTest, PtxKeepsMultiplyAndAddApartUnlessFastMath) {
  KernelSource source = Source("reverse", kReverse);
  const auto exact = compiler_->CompileToPtx(source);
  ASSERT_THAT(exact, IsOk());
  EXPECT_NE(exact->find(".target sm_90"), std::string::npos);
  EXPECT_EQ(exact->find("fma.rn"), std::string::npos);
  source.fast_math = true;
  const auto fast = compiler_->CompileToPtx(source);
  ASSERT_THAT(fast, IsOk());
  EXPECT_NE(fast->find("fma.rn"), std::string::npos);
}

TEST_F(NvrtcCompilerTest, SyntaxErrorIsInternalWithTheLog) {
  const auto image =
      compiler_->CompileKernel(Source("broken", "extern \"C\" __global__ void broken() { undeclared_thing = 1; }"));
  EXPECT_THAT(image, StatusIs(absl::StatusCode::kInternal, "undeclared_thing"));
  EXPECT_EQ(GetErrorReason(image.status()), ErrorReason::kCompilerFailed);
  EXPECT_EQ(GetErrorSubject(image.status()), "broken");
}

TEST_F(NvrtcCompilerTest, UnknownArchitectureNamesItAndTheKnownOnes) {
  const auto image = compiler_->CompileKernel(Source("reverse", kReverse, Target::Cuda(13)));
  EXPECT_THAT(image, StatusIs(absl::StatusCode::kFailedPrecondition, "'cuda:sm_13'"));
  EXPECT_THAT(image, StatusIs(absl::StatusCode::kFailedPrecondition, "sm_90"));
  EXPECT_EQ(GetErrorReason(image.status()), ErrorReason::kTargetNotAvailable);
}

TEST_F(NvrtcCompilerTest, ThreadsCompileAtTheSameTime) {
  std::vector<absl::Status> statuses(4, absl::UnknownError("not run"));
  std::vector<std::thread> threads;
  for (absl::Status& status : statuses) {
    threads.emplace_back([&] { status = compiler_->CompileKernel(Source("reverse", kReverse)).status(); });
  }
  for (std::thread& thread : threads) thread.join();
  for (const absl::Status& status : statuses) EXPECT_THAT(status, IsOk());
}

TEST_F(NvrtcCompilerTest, IdentityNamesVersionAndFlags) {
  EXPECT_EQ(compiler_->Identity().substr(0, 6), "nvrtc ");
  EXPECT_NE(compiler_->Identity().find("--fmad=false"), std::string::npos);
}

}  // namespace
}  // namespace fuseline::compiler
