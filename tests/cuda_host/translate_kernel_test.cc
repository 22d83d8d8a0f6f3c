#include "tests/cuda_host/translate_kernel.h"

#include <algorithm>
#include <string>
#include <utility>

#include "gtest/gtest.h"
#include "tests/testing/status_matchers.h"

namespace fuseline::cuda_host {
namespace {

using ::fuseline::testing::StatusIs;

KernelSource Source(std::string text) { return {"k", std::move(text), Target::Cuda(90), false}; }

struct Statement {
  const char* cuda;
  const char* host;
};

TEST(TranslateKernelTest, OnlyWhatTheHostLacksIsChanged) {
  const Statement statements[] = {
      {"float r = a + b;", "float r = a + b;"},
      {R"(asm("cvt.f32.f16 %0, %1;" : "=f"(r) : "h"(a.bits));)", "r = fl_ptx_cvt_f32_f16(a.bits);"},
      {R"(asm("max.NaN.f32 %0, %1, %2;" : "=f"(r) : "f"(a), "f"(b));)", "r = fl_ptx_max_NaN_f32(a, b);"},
      {R"(asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(r) : "h"((unsigned short)(a)));)",
       "r = fl_ptx_cvt_rn_f16x2_e4m3x2((unsigned short)(a));"},
      {R"(asm("" : "+r"(a));)", R"(__asm__("" : "+r"(a));)"},
      {"FL_SHARED float partial[4][32];",
       "static const char partial_key = 0; typedef float partial_type[4][32]; partial_type& partial = "
       "fl_host_shared<partial_type>(&partial_key, \"partial\");"},
      {"__shared__ long long at[32];",
       "static const char at_key = 0; typedef long long at_type[32]; at_type& at = "
       "fl_host_shared<at_type>(&at_key, \"at\");"},
      {"extern \"C\" __global__ void k() {}", "__global__ void k() {}"},
  };
  for (const Statement& s : statements) {
    const auto text = TranslateKernel(Source(s.cuda));
    ASSERT_TRUE(text.ok()) << text.status();
    EXPECT_EQ(*text, s.host);
  }
}

TEST(TranslateKernelTest, StatementThatIsNotUnderstoodIsNamed) {
  for (const char* statement : {
           R"(asm volatile("membar.gl;");)",
           R"(asm("add.f32 %0, %2, %1;" : "=f"(r) : "f"(a), "f"(b));)",
           R"(asm("{ mov.b32 {%0, %1}, %2; }" : "=h"(a), "=h"(b) : "r"(c));)",
           "__shared__ float one;",
       }) {
    const auto text = TranslateKernel(Source(statement));
    EXPECT_THAT(text, StatusIs(absl::StatusCode::kInternal, "the host build does not understand")) << statement;
  }
}

TEST(TranslateKernelTest, LinesKeepTheirNumbers) {
  const std::string text =
      "a\n  FL_SHARED float partial[4];\n\nasm(\"cvt.f32.f16 %0, %1;\" : \"=f\"(r) : \"h\"(b));\nc\n";
  const auto translated = TranslateKernel(Source(text));
  ASSERT_TRUE(translated.ok()) << translated.status();
  EXPECT_EQ(std::count(translated->begin(), translated->end(), '\n'), std::count(text.begin(), text.end(), '\n'));
}

TEST(TranslateKernelTest, KernelsOfTwoArchitecturesShareNoUnit) {
  const KernelSource a = Source("a"), b = {"b", "b", Target::Cuda(80), false}, c = {"c", "c", Target::Cpu(), false};
  EXPECT_THAT(TranslateKernels({&a, &b}), StatusIs(absl::StatusCode::kInternal, "cuda:sm_80"));
  EXPECT_THAT(TranslateKernels({&c}), StatusIs(absl::StatusCode::kInternal, "cpu"));
}

TEST(TranslateKernelTest, LaunchBoundIsTheSignatures) {
  EXPECT_EQ(LaunchBound("#define FL_KERNEL(threads) x\nFL_KERNEL(128) name(float* a)"), 128);
  EXPECT_EQ(LaunchBound("__global__ void k()"), 0);
}

}  // namespace
}  // namespace fuseline::cuda_host
