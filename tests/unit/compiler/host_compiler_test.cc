#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "common/status/error.h"
#include "gtest/gtest.h"
#include "server/compiler/kernel_compiler.h"
#include "server/compiler/scratch_folder.h"
#include "tests/testing/status_matchers.h"

namespace fuseline::compiler {
namespace {

using ::fuseline::testing::IsOk;
using ::fuseline::testing::StatusIs;

constexpr char kAxpy[] = R"(
extern "C" void axpy(void* const* buffers, long begin, long end) {
  const float* __restrict x = static_cast<const float*>(buffers[0]);
  float* __restrict y = static_cast<float*>(buffers[1]);
  for (long i = begin; i < end; ++i) y[i] = x[i] * 2.0f + 1.0f;
}
)";

KernelSource Source(const std::string& entry, const std::string& text) { return {entry, text, Target::Cpu(), false}; }

class HostCompilerTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto folder = ScratchFolder::Create("");
    ASSERT_THAT(folder, IsOk());
    scratch_ = std::make_unique<ScratchFolder>(*std::move(folder));
    compiler_ = MakeHostCompiler("", scratch_->path());
    if (const absl::Status status = compiler_->Available(); !status.ok()) GTEST_SKIP() << status;
  }
  bool ScratchIsEmpty() const { return std::filesystem::is_empty(scratch_->path()); }

  std::unique_ptr<ScratchFolder> scratch_;
  std::unique_ptr<KernelCompiler> compiler_;
};

TEST_F(HostCompilerTest, KernelBecomesASharedObjectAndNoFileIsLeft) {
  const auto image = compiler_->CompileKernel(Source("axpy", kAxpy));
  ASSERT_THAT(image, IsOk());
  EXPECT_EQ(image->format, ImageFormat::kSharedObject);
  EXPECT_EQ(image->entry, "axpy");
  EXPECT_EQ(image->source, kAxpy);
  EXPECT_EQ(image->bytes.substr(0, 4),
            "\x7f"
            "ELF");
  EXPECT_TRUE(ScratchIsEmpty());
}

TEST_F(HostCompilerTest, EqualSourcesGiveEqualBytes) {
  const auto first = compiler_->CompileKernel(Source("axpy", kAxpy));
  const auto second = compiler_->CompileKernel(Source("axpy", kAxpy));
  ASSERT_THAT(first, IsOk());
  ASSERT_THAT(second, IsOk());
  EXPECT_EQ(first->bytes, second->bytes);
}

TEST_F(HostCompilerTest, SyntaxErrorIsInternalWithTheLog) {
  const auto image = compiler_->CompileKernel(Source("broken", "extern \"C\" void broken( { undeclared_thing; }"));
  EXPECT_THAT(image, StatusIs(absl::StatusCode::kInternal, "kernel 'broken'"));
  EXPECT_THAT(image, StatusIs(absl::StatusCode::kInternal, "kernel.cc:1"));
  EXPECT_EQ(GetErrorReason(image.status()), ErrorReason::kCompilerFailed);
  EXPECT_TRUE(ScratchIsEmpty());
}

TEST_F(HostCompilerTest, CudaTargetIsRefused) {
  KernelSource source = Source("axpy", kAxpy);
  source.target = Target::Cuda(90);
  EXPECT_THAT(compiler_->CompileKernel(source), StatusIs(absl::StatusCode::kInternal, "cuda:sm_90"));
}

TEST_F(HostCompilerTest, ArgumentsOfTheEnvironmentsCompilerAreInTheIdentity) {
  const char* const old = getenv("CXX");
  const std::string before = old != nullptr ? old : "";
  setenv("CXX", "g++", 1);
  const std::string plain = MakeHostCompiler("", "")->Identity();
  setenv("CXX", "g++ -O1", 1);
  const std::string with_argument = MakeHostCompiler("", "")->Identity();
  if (old != nullptr) {
    setenv("CXX", before.c_str(), 1);
  } else {
    unsetenv("CXX");
  }
  EXPECT_NE(plain, with_argument);
  EXPECT_NE(with_argument.find("flags -O1 "), std::string::npos) << with_argument;
}

TEST_F(HostCompilerTest, IdentityNamesVersionFlagsAndProcessor) {
  const std::string identity = compiler_->Identity();
  EXPECT_NE(identity.find("-ffp-contract=off"), std::string::npos) << identity;
  EXPECT_NE(identity.find("; native "), std::string::npos) << identity;
  EXPECT_EQ(identity.find("native unknown"), std::string::npos) << identity;
  EXPECT_EQ(identity, MakeHostCompiler("", "")->Identity());
}

TEST(HostCompilerSelectionTest, AbsentCompilerSaysWhatToInstall) {
  const auto compiler = MakeHostCompiler("/no/such/compiler", "");
  EXPECT_THAT(compiler->Available(), StatusIs(absl::StatusCode::kFailedPrecondition, "'/no/such/compiler'"));
  EXPECT_THAT(compiler->CompileKernel(Source("axpy", kAxpy)),
              StatusIs(absl::StatusCode::kFailedPrecondition, "install g++"));
  EXPECT_EQ(GetErrorReason(compiler->Available()), ErrorReason::kTargetNotAvailable);
}

TEST(ScratchFolderTest, FolderAndItsFilesAreRemoved) {
  std::string path;
  {
    const auto folder = ScratchFolder::Create("");
    ASSERT_THAT(folder, IsOk());
    path = folder->path();
    ASSERT_THAT(WriteFile(path + "/a", "bytes"), IsOk());
    const auto bytes = ReadFile(path + "/a");
    ASSERT_THAT(bytes, IsOk());
    EXPECT_EQ(*bytes, "bytes");
  }
  EXPECT_FALSE(std::filesystem::exists(path));
  EXPECT_THAT(ScratchFolder::Create("/no/such/folder"), StatusIs(absl::StatusCode::kInternal, "/no/such/folder"));
}

}  // namespace
}  // namespace fuseline::compiler
