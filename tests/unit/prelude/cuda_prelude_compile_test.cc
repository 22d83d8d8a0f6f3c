// Every CUDA prelude function compiles, for architectures with and without the instructions that some use.
#include "gtest/gtest.h"
#include "tests/unit/prelude/cuda_prelude_compiler.h"

namespace fuseline::codegen {
namespace {

class CudaPreludeCompileTest : public ::testing::TestWithParam<const char*> {};

TEST_P(CudaPreludeCompileTest, EveryFunctionCompilesToACubin) {
  const absl::StatusOr<std::string> cubin = CompileCudaPrelude(GetParam());
  if (cubin.status().code() == absl::StatusCode::kUnavailable) GTEST_SKIP() << cubin.status().message();
  ASSERT_TRUE(cubin.ok()) << cubin.status();
  EXPECT_EQ(cubin->substr(1, 3), "ELF");
}

INSTANTIATE_TEST_SUITE_P(Architectures, CudaPreludeCompileTest, ::testing::Values("sm_75", "sm_90"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace fuseline::codegen
