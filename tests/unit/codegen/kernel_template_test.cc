#include "server/codegen/kernel_template.h"

#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace fuseline::codegen {
namespace {

KernelSource Source(const std::string& body, const Target& target) {
  KernelSource out;
  out.entry = "k";
  out.target = target;
  out.text = target.is_cuda()
                 ? "FL_KERNEL(256) k(const float* in0, float* out0) {\n" + body + "}\n"
                 : "extern \"C\" void k(void* const* buffers, long long begin, long long end) {\n" + body + "}\n";
  return out;
}

struct Case {
  const char* name;
  const char* at;
  const char* elsewhere;
  const char* made;  // null: no template
  std::vector<int64_t> sizes;
};

class KernelTemplateTest : public ::testing::TestWithParam<Case> {};

TEST_P(KernelTemplateTest, IntegersOfExpressionsBecomeParameters) {
  const Case& c = GetParam();
  const std::optional<KernelTemplate> made =
      MakeKernelTemplate(Source(c.at, Target::Cuda(90)), Source(c.elsewhere, Target::Cuda(90)), 2);
  if (c.made == nullptr) {
    EXPECT_FALSE(made.has_value()) << made->source.text;
    return;
  }
  ASSERT_TRUE(made.has_value());
  EXPECT_EQ(made->sizes, c.sizes);
  std::string parameters;
  for (size_t i = 0; i < c.sizes.size(); ++i) parameters += ", const long long size_" + std::to_string(i);
  EXPECT_EQ(made->source.text,
            "FL_KERNEL(256) k(const float* in0, float* out0" + parameters + ") {\n" + std::string(c.made) + "}\n");
}

INSTANTIATE_TEST_SUITE_P(
    Texts, KernelTemplateTest,
    ::testing::Values(
        Case{"Equal", "  if (e >= 64) return;\n", "  if (e >= 64) return;\n", "  if (e >= 64) return;\n", {}},
        Case{"Bound",
             "  if (e >= 64) return;\n",
             "  if (e >= 192) return;\n",
             "  if (e >= (int)size_0) return;\n",
             {64}},
        Case{"Wide", "  if (e >= 64ll) return;\n", "  if (e >= 192ll) return;\n", "  if (e >= size_0) return;\n", {64}},
        Case{"OneValueOneParameter",
             "  x = in0[8*(e / 64) + e % 64 - 7];\n",
             "  x = in0[8*(e / 192) + e % 192 - 21];\n",
             "  x = in0[8*(e / (int)size_0) + e % (int)size_0 - (int)size_1];\n",
             {64, 7}},
        Case{"IndexThatBeginsWithIt",
             "  x = in0[64*d0 + d1];\n",
             "  x = in0[192*d0 + d1];\n",
             "  x = in0[(int)size_0*d0 + d1];\n",
             {64}},
        Case{"Comment", "  // loops [d0 < 64]\n", "  // loops [d0 < 192]\n", "  // loops [d0 < (int)size_0]\n", {64}},
        Case{"TooLargeForAnInt",
             "  if (e >= 64) return;\n",
             "  if (e >= 6000000000) return;\n",
             "  if (e >= size_0) return;\n",
             {64}},
        Case{"Float", "  x = x / 64.0f;\n", "  x = x / 192.0f;\n", nullptr, {}},
        Case{"TemplateArgument", "  fl_row_reduce_sum_f32<64>(x);\n", "  fl_row_reduce_sum_f32<32>(x);\n", nullptr, {}},
        Case{"LaterTemplateArgument", "  f<8, 64>(x);\n", "  f<8, 32>(x);\n", nullptr, {}},
        Case{"ArrayLength", "  float acc0[4];\n", "  float acc0[8];\n", nullptr, {}},
        Case{"Directive", "#pragma unroll 4\n", "#pragma unroll 8\n", nullptr, {}},
        Case{"Constant", "  constexpr int lane = 0;\n", "  constexpr int lane = 1;\n", nullptr, {}},
        Case{"AnotherStatement", "  x = y + 64;\n", "  x = y - 64;\n", nullptr, {}},
        Case{"OneMoreStatement", "  x = 64;\n", "  x = 64;\n  y = 64;\n", nullptr, {}},
        Case{"AnotherWidth", "  x = 64;\n", "  x = 192ll;\n", nullptr, {}}),
    [](const auto& info) { return info.param.name; });

TEST(KernelTemplateSignatureTest, CpuKernelsReadParametersBehindTheirBuffers) {
  const std::optional<KernelTemplate> made =
      MakeKernelTemplate(Source("  f(64, 5);\n", Target::Cpu()), Source("  f(192, 10);\n", Target::Cpu()), 3);
  ASSERT_TRUE(made.has_value());
  EXPECT_EQ(made->source.text,
            "extern \"C\" void k(void* const* buffers, long long begin, long long end) {\n"
            "  const long long size_0 = ((const long long*)buffers[3])[0];\n"
            "  const long long size_1 = ((const long long*)buffers[3])[1];\n"
            "  f(size_0, size_1);\n}\n");
  EXPECT_EQ(made->sizes, (std::vector<int64_t>{64, 5}));
}

TEST(KernelTemplateSignatureTest, BlockSizeThatDiffersIsAnotherKernel) {
  KernelSource other = Source("", Target::Cuda(90));
  other.text.replace(other.text.find("256"), 3, "128");
  EXPECT_FALSE(MakeKernelTemplate(Source("", Target::Cuda(90)), other, 2).has_value());
}

TEST(KernelTemplateSignatureTest, MoreParametersThanAKernelMayHaveIsAnotherKernel) {
  std::string at, elsewhere;
  for (size_t i = 0; i <= kMaxSizeParameters; ++i) {
    at += "  x = " + std::to_string(10 + i) + ";\n";
    elsewhere += "  x = " + std::to_string(1000 + i) + ";\n";
  }
  EXPECT_FALSE(MakeKernelTemplate(Source(at, Target::Cpu()), Source(elsewhere, Target::Cpu()), 2).has_value());
}

}  // namespace
}  // namespace fuseline::codegen
