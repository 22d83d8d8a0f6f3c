#include "tests/cuda_host/host_kernel_compiler.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "common/case_file/random_values.h"
#include "common/status/str_cat.h"
#include "common/tensor/tensor.h"
#include "gtest/gtest.h"
#include "tests/cuda_host/block_scheduler.h"
#include "tests/testing/status_matchers.h"

namespace fuseline::cuda_host {
namespace {

using ::fuseline::testing::IsOk;
using ::fuseline::testing::StatusIs;

KernelSource Source(const std::string& text) { return {"k", text, Target::Cuda(90), false}; }

class HostKernelCompilerTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto created = HostKernelCompiler::Create();
    if (!created.ok()) GTEST_SKIP() << created.status().message();
    compiler_ = *std::move(created);
  }
  // Runs k(in, out) with one thread an element.
  template <typename Out, typename In>
  std::vector<Out> Run(const std::string& text, std::vector<In> in) {
    const auto kernels = compiler_->Compile({Source(text)});
    EXPECT_THAT(kernels, IsOk());
    std::vector<Out> out(in.size());
    if (!kernels.ok()) return out;
    MemoryRegion input("in", in.data(), static_cast<int64_t>(in.size() * sizeof(In)), sizeof(In), false, true);
    MemoryRegion output("out", out.data(), static_cast<int64_t>(in.size() * sizeof(Out)), sizeof(Out), true, false);
    MemoryCheck check;
    LaunchDims dims;
    dims.block[0] = 64;
    dims.grid[0] = static_cast<int64_t>(in.size()) / 64;
    EXPECT_THAT(BlockScheduler().Launch(*(*kernels)[0], {in.data(), out.data()}, dims, {}, {&input, &output}, check),
                IsOk());
    return out;
  }

  std::unique_ptr<HostKernelCompiler> compiler_;
};

// Floats around every boundary of the small formats: every exponent with random mantissas and with mantissas that end
// in ties.
std::vector<float> Samples() {
  std::vector<float> samples = {0.0f, -0.0f, std::numeric_limits<float>::infinity(),
                                -std::numeric_limits<float>::infinity()};
  for (uint32_t exponent = 0; exponent < 255; ++exponent) {
    for (uint32_t i = 0; i < 64; ++i) {
      const auto word = static_cast<uint32_t>(RandomWord(exponent, i));
      const uint32_t mantissa =
          i < 32 ? word & 0x7fffff : (word & 0x7f) << 16 | ((word >> 8 & 3) << 14) | (i < 36 ? i - 34 : 0);
      const uint32_t bits = (word & 0x80000000u) | exponent << 23 | (mantissa & 0x7fffff);
      float value = 0;
      std::memcpy(&value, &bits, sizeof value);
      samples.push_back(value);
    }
  }
  while (samples.size() % 64 != 0) samples.push_back(1.0f);
  return samples;
}

std::string Conversion(const char* result, const char* statement) {
  return StrCat("extern \"C\" __global__ void k(const float* in, ", result,
                "* out) {\n  const int i = blockIdx.x * blockDim.x + ", "threadIdx.x;\n  const float a = in[i];\n  ",
                result, " r;\n  ", statement, "\n  out[i] = r;\n}\n");
}

TEST_F(HostKernelCompilerTest, ConversionsRoundAsTheTensorLibraryDoes) {
  const std::vector<float> samples = Samples();
  struct Format {
    DType dtype;
    const char* statement;
  };
  for (const Format& f :
       {Format{DType::kF16, R"(asm("cvt.rn.f16.f32 %0, %1;" : "=h"(r) : "f"(a));)"},
        Format{DType::kBF16, R"(asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(r) : "f"(a));)"},
        Format{DType::kF8E4M3, R"(asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(r) : "f"(0.0f), "f"(a));)"},
        Format{DType::kF8E5M2, R"(asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;" : "=h"(r) : "f"(0.0f), "f"(a));)"}}) {
    const auto got = Run<uint16_t>(Conversion("unsigned short", f.statement), samples);
    int wrong = 0;
    for (size_t i = 0; i < samples.size() && wrong < 5; ++i) {
      uint16_t want = 0;
      StoreElement(f.dtype, &want, 0, samples[i]);
      if (got[i] == want) continue;
      ++wrong;
      ADD_FAILURE() << DTypeName(f.dtype) << " of " << samples[i] << " is " << got[i] << ", not " << want;
    }
  }
}

TEST_F(HostKernelCompilerTest, EveryStoredPatternLoadsAsTheTensorLibraryDoes) {
  std::vector<float> patterns(65536);
  for (size_t i = 0; i < patterns.size(); ++i) patterns[i] = static_cast<float>(i);
  struct Format {
    DType dtype;
    const char* statement;
    size_t count;
  };
  for (const Format& f :
       {Format{DType::kF16, R"(asm("cvt.f32.f16 %0, %1;" : "=f"(r) : "h"((unsigned short)a));)", 65536},
        Format{DType::kF8E4M3,
               "unsigned h;\n  asm(\"cvt.rn.f16x2.e4m3x2 %0, %1;\" : \"=r\"(h) : \"h\"((unsigned short)a));\n"
               "  asm(\"cvt.f32.f16 %0, %1;\" : \"=f\"(r) : \"h\"((unsigned short)h));",
               256}}) {
    const auto got = Run<float>(Conversion("float", f.statement), patterns);
    for (size_t i = 0; i < f.count; ++i) {
      const auto bits = static_cast<uint16_t>(i);
      const double want = LoadElement(f.dtype, &bits, 0);
      if (std::isnan(want) ? !std::isnan(got[i]) : got[i] != want || std::signbit(got[i]) != std::signbit(want)) {
        ADD_FAILURE() << DTypeName(f.dtype) << " pattern " << i << " is " << got[i] << ", not " << want;
        break;
      }
    }
  }
}

TEST_F(HostKernelCompilerTest, PairsHaveTheFirstOperandAbove) {
  const auto got =
      Run<uint32_t>(Conversion("unsigned", R"(asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(a), "f"(1.0f));)"),
                    std::vector<float>(64, -2.0f));
  EXPECT_EQ(got[0], 0xc0003f80u);
}

TEST_F(HostKernelCompilerTest, MaximumAndMinimumOrderZerosAndKeepNaN) {
  struct Case {
    float a;
    const char* b;
    float maximum, minimum;
  };
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const Case& c : {Case{0.0f, "-0.0f", 0.0f, -0.0f}, Case{-0.0f, "0.0f", 0.0f, -0.0f},
                        Case{1.0f, "2.0f", 2.0f, 1.0f}, Case{nan, "2.0f", nan, nan}}) {
    for (const bool is_max : {true, false}) {
      const std::string statement =
          StrCat("asm(\"", is_max ? "max" : "min", ".NaN.f32 %0, %1, %2;\" : \"=f\"(r) : \"f\"(a), \"f\"(", c.b, "));");
      const float got = Run<float>(Conversion("float", statement.c_str()), std::vector<float>(64, c.a))[0];
      const float want = is_max ? c.maximum : c.minimum;
      EXPECT_TRUE(std::isnan(want) ? std::isnan(got) : got == want && std::signbit(got) == std::signbit(want))
          << statement << " of " << c.a << " is " << got;
    }
  }
}

TEST_F(HostKernelCompilerTest, ParametersAndBoundsAreRead) {
  const auto kernels = compiler_->Compile(
      {Source("#define FL_KERNEL(threads) extern \"C\" __global__ void __launch_bounds__(threads)\n"
              "FL_KERNEL(96) k(const double* __restrict__ a, unsigned char* __restrict__ b) { b[0] = a[0] != 0; }")});
  ASSERT_THAT(kernels, IsOk());
  const HostKernel& kernel = *(*kernels)[0];
  ASSERT_EQ(kernel.params.size(), 2u);
  EXPECT_EQ(kernel.params[0].element_bytes, 8);
  EXPECT_FALSE(kernel.params[0].written);
  EXPECT_EQ(kernel.params[1].element_bytes, 1);
  EXPECT_TRUE(kernel.params[1].written);
  EXPECT_EQ(kernel.launch_bound, 96);
}

TEST_F(HostKernelCompilerTest, EqualTextIsCompiledOnce) {
  const KernelSource a = Source("extern \"C\" __global__ void k(int* a) { a[0] = 1; }");
  const KernelSource b = Source("extern \"C\" __global__ void k(int* a) { a[0] = 2; }");
  const auto first = compiler_->Compile({a}), second = compiler_->Compile({b, a});
  ASSERT_THAT(first, IsOk());
  ASSERT_THAT(second, IsOk());
  EXPECT_EQ((*first)[0], (*second)[1]);
  EXPECT_NE((*first)[0], (*second)[0]);
}

TEST_F(HostKernelCompilerTest, TextThatIsNoCppIsAnErrorWithTheCompilersLines) {
  EXPECT_THAT(compiler_->Compile({Source("extern \"C\" __global__ void k(int* a) { atomicAdd(a, 1); }")}),
              StatusIs(absl::StatusCode::kInternal, "atomicAdd"));
}

}  // namespace
}  // namespace fuseline::cuda_host
