// The text of kernels for both targets: what every kernel must have, and what single schedules print.
#include <set>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_split.h"
#include "common/status/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/codegen/cpu/cpu_emitter.h"
#include "server/codegen/cuda/cuda_emitter.h"
#include "tests/unit/codegen/plan_builder.h"

namespace fuseline::codegen {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// The kernels of a graph, without their preludes.
struct Emitted {
  std::string entry;
  std::string prelude;
  std::string kernel;  // from the comment that describes it
};

std::vector<Emitted> Emit(const std::string& text, const Target& target) {
  std::vector<Emitted> out;
  for (const ScheduledKernel& k : ScheduleText(text, target)) {
    const KernelSource source = target.is_cuda() ? EmitCudaKernel(k, target, false) : EmitCpuKernel(k, target, false);
    EXPECT_EQ(source.entry, k.name);
    EXPECT_EQ(source.target, target);
    const size_t begin = source.text.find("// " + k.description);
    EXPECT_NE(begin, std::string::npos) << source.text;
    out.push_back({source.entry, source.text.substr(0, begin), source.text.substr(begin)});
  }
  return out;
}

std::string Kernel(const std::string& text, const Target& target) {
  const std::vector<Emitted> all = Emit(text, target);
  EXPECT_EQ(all.size(), 1u);
  return all[0].kernel;
}

const Target kCuda = Target::Cuda(90);

const char* const kGraphs[] = {
    "graph g(x: f32[1000], y: i64[1000]) {\n%c = cast(y) {dtype = f32}\n%e = exp(x)\n%r = add(%e, %c)\nreturn %r\n}\n",
    "graph g(x: bf16[33, 24], w: f16[24]) {\n%a = cast(x) {dtype = f32}\n%b = cast(w) {dtype = f32}\n%m = mul(%a, "
    "%b)\n%y = cast(%m) {dtype = bf16}\nreturn %y\n}\n",
    "graph g(x: f32[64, 1000]) {\n%y = softmax(x) {dim = -1}\nreturn %y\n}\n",
    "graph g(x: f32[64, 1000]) {\n%y = softmax(x) {dim = 0}\nreturn %y\n}\n",
    "graph g(x: bf16[1000001]) {\n%e = exp(x)\n%y = sum(%e)\n%a = argmax(%e)\nreturn %y, %a\n}\n",
    "graph g(x: i32[70, 30]) {\n%s = sum(x) {dims = [0]}\n%m = amin(x) {dims = [0]}\n%f = floor_divide(x, 3)\nreturn "
    "%s, %m, %f\n}\n",
    "graph g(x: bool[50, 20]) {\n%s = any(x) {dims = [1]}\n%t = all(x) {dims = [1]}\n%n = logical_not(x)\nreturn %s, "
    "%t, %n\n}\n",
    "graph g(x: f64[]) {\n%y = sqrt(x)\nreturn %y\n}\n",
    "graph g(x: f32[5, 0]) {\n%y = prod(x) {dims = [1]}\nreturn %y\n}\n",
    "graph g() {\n%y = iota() {shape = [3, 4], dim = 1, dtype = bf16}\nreturn %y\n}\n",
};

TEST(EmitterTest, KernelsAreCompleteAndSelfContained) {
  for (const Target& target : {Target::Cpu(), kCuda}) {
    for (const char* graph : kGraphs) {
      for (const Emitted& e : Emit(graph, target)) {
        SCOPED_TRACE(StrCat(target.ToString(), "\n", graph, e.kernel));
        EXPECT_THAT(e.prelude, Not(HasSubstr("#error")));
        EXPECT_THAT(e.prelude, Not(HasSubstr("#include")));
        EXPECT_THAT(e.kernel, HasSubstr(e.entry + "("));
        EXPECT_EQ(std::count(e.kernel.begin(), e.kernel.end(), '{'), std::count(e.kernel.begin(), e.kernel.end(), '}'));
        EXPECT_EQ(std::count(e.kernel.begin(), e.kernel.end(), '('), std::count(e.kernel.begin(), e.kernel.end(), ')'));
        // Every prelude function that the text calls is there.
        for (size_t at = e.kernel.find("fl_"); at != std::string::npos; at = e.kernel.find("fl_", at + 1)) {
          if (at > 0 && (isalnum(static_cast<unsigned char>(e.kernel[at - 1])) || e.kernel[at - 1] == '_')) continue;
          const size_t end = e.kernel.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789_", at);
          EXPECT_THAT(e.prelude, HasSubstr(e.kernel.substr(at, end - at)));
        }
      }
    }
  }
}

TEST(EmitterTest, NamesAreDefinedOnceInTheirScope) {
  for (const Target& target : {Target::Cpu(), kCuda}) {
    for (const char* graph : kGraphs) {
      for (const Emitted& e : Emit(graph, target)) {
        std::vector<std::set<std::string>> scopes(1);
        for (absl::string_view view : absl::StrSplit(e.kernel, '\n')) {
          const std::string line(absl::StripAsciiWhitespace(view));
          if (absl::StartsWith(line, "const ") && absl::StrContains(line, " = ") && line.back() == ';') {
            const std::string left = line.substr(0, line.find(" = "));
            const std::string name = left.substr(left.rfind(' ') + 1);
            EXPECT_TRUE(scopes.back().insert(name).second) << name << "\n" << e.kernel;
          }
          for (char c : line) {
            if (c == '{') scopes.emplace_back();
            if (c == '}') scopes.pop_back();
          }
        }
      }
    }
  }
}

TEST(EmitterTest, CpuSignatureTakesBuffersAndARange) {
  EXPECT_EQ(Kernel("graph g(x: f32[1024], w: f32[1024]) {\n%m = mul(x, w)\nreturn %m\n}\n", Target::Cpu()),
            "// pointwise, vectorised loop; loops [d0 < 1024]\n"
            "extern \"C\" void k0(void* const* buffers, long long begin, long long end) {\n"
            "  const float* __restrict__ const in0 = (const float*)buffers[0];\n"
            "  const float* __restrict__ const in1 = (const float*)buffers[1];\n"
            "  float* __restrict__ const out0 = (float*)buffers[2];\n"
            "#pragma GCC ivdep\n"
            "  for (long long d0 = begin; d0 < end; ++d0) {\n"
            "    const float x_in0 = in0[d0];\n"
            "    const float x_in1 = in1[d0];\n"
            "    const float mul_0 = x_in0 * x_in1;\n"
            "    out0[d0] = mul_0;\n"
            "  }\n"
            "}\n");
}

TEST(EmitterTest, CudaIndicesAreAsWideAsTheyMustBe) {
  const std::string narrow = Kernel("graph g(x: f32[1024]) {\n%n = neg(x)\nreturn %n\n}\n", kCuda);
  EXPECT_THAT(narrow, Not(HasSubstr("long long")));
  const std::string wide = Kernel("graph g(x: f32[4294967296]) {\n%n = neg(x)\nreturn %n\n}\n", kCuda);
  EXPECT_THAT(wide, HasSubstr("long long"));
}

TEST(EmitterTest, CudaThreadsPastTheEndReturn) {
  EXPECT_THAT(Kernel("graph g(x: f32[1000]) {\n%n = neg(x)\nreturn %n\n}\n", kCuda), HasSubstr(">= 1000) return;"));
}

TEST(EmitterTest, VectorAccessesAreFunctionsOfThePrelude) {
  const std::string f32 = Kernel("graph g(x: f32[4096, 1024], w: f32[1024]) {\n%n = mul(x, w)\nreturn %n\n}\n", kCuda);
  EXPECT_THAT(f32, HasSubstr("fl_load_vec<4>(in0"));
  EXPECT_THAT(f32, HasSubstr("fl_store_vec<4>(out0"));
  const std::string bf16 =
      Kernel("graph g(x: bf16[4096, 1024], w: bf16[1024]) {\n%n = mul(x, w)\nreturn %n\n}\n", kCuda);
  EXPECT_THAT(bf16, HasSubstr("fl_load_vec<8>(in0"));
  EXPECT_THAT(bf16, HasSubstr("fl_store_packed_bf16<8>(out0"));
}

TEST(EmitterTest, ConstantsAreInlined) {
  const std::string text =
      Kernel("graph g(x: f32[64]) {\n%a = mul(x, -0.5)\n%b = add(%a, inf)\nreturn %b\n}\n", Target::Cpu());
  EXPECT_THAT(text, HasSubstr("x_in0 * (-0.5f)"));
  EXPECT_THAT(text, HasSubstr(" + FL_INF_F32"));
}

TEST(EmitterTest, ArgumentsOfRowsKeepTheFirst) {
  const std::string text =
      Kernel("graph g(x: f32[64, 100]) {\n%a = argmax(x) {dim = 1}\nreturn %a\n}\n", Target::Cpu());
  EXPECT_THAT(text, HasSubstr("long long acc0_at = 9223372036854775807ll;"));
  EXPECT_THAT(text, HasSubstr("if (fl_better_max_f32(acc0, acc0_at, x_in0, "));
  EXPECT_THAT(text, Not(HasSubstr("omp simd reduction")));  // the position goes with the value
}

TEST(EmitterTest, LastPieceOfASplitRowEndsAtTheLimit) {
  const std::vector<Emitted> cpu = Emit("graph g(x: f32[1000001]) {\n%s = sum(x)\nreturn %s\n}\n", Target::Cpu());
  ASSERT_EQ(cpu.size(), 2u);
  EXPECT_THAT(cpu[0].kernel, HasSubstr("_left = 1000001 - "));
  EXPECT_THAT(cpu[1].kernel, Not(HasSubstr("_left")));
  EXPECT_THAT(cpu[1].kernel, HasSubstr("partial0"));
}

TEST(EmitterTest, TheSameKernelHasTheSameTextWhateverTheGraphsNames) {
  const std::string a =
      Kernel("graph a(x: f32[64], w: f32[64]) {\n%m = mul(x, w)\n%e = exp(%m)\nreturn %e\n}\n", kCuda);
  const std::string b = Kernel(
      "graph b(left: f32[64], right: f32[64]) {\n%product = mul(left, right)\n%power = exp(%product)\nreturn y = "
      "%power\n}\n",
      kCuda);
  EXPECT_EQ(a, b);
}

TEST(EmitterTest, FastMathIsPassedOn) {
  const std::vector<ScheduledKernel> kernels =
      ScheduleText("graph g(x: f32[64]) {\n%n = exp(x)\nreturn %n\n}\n", kCuda);
  EXPECT_TRUE(EmitCudaKernel(kernels[0], kCuda, true).fast_math);
  EXPECT_FALSE(EmitCudaKernel(kernels[0], kCuda, false).fast_math);
}

}  // namespace
}  // namespace fuseline::codegen
