// Bugs planted in emitted kernels: each must be found, whatever order the threads run in, with a message that says
// where. That the same kernels pass unchanged is checked beside it.
#include <cstring>
#include <memory>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_replace.h"
#include "common/case_file/random_values.h"
#include "common/ir/canonical.h"
#include "common/ir/text_form.h"
#include "common/ir/verify_graph.h"
#include "common/status/status_macros.h"
#include "common/status/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/engine/build_artifact.h"
#include "tests/cuda_host/host_cuda_engine.h"
#include "tests/testing/status_matchers.h"

namespace fuseline::cuda_host {
namespace {

using ::fuseline::testing::IsOk;
using ::fuseline::testing::StatusIs;
using ::testing::HasSubstr;

constexpr char kPointwise[] = "graph g(x: f32[1001]) {\n  %y = exp(x)\n  return y = %y\n}\n";
// 250 vectors: the last block has threads without work.
constexpr char kVectors[] = "graph g(x: f32[1000], w: f32[1000]) {\n  %y = mul(x, w)\n  return y = %y\n}\n";
// A row has a block of its own, of several warps.
constexpr char kRows[] = "graph g(x: f32[3, 4000]) {\n  %s = sum(x) {dims = [1]}\n  return y = %s\n}\n";
constexpr char kNormalisedRows[] =
    "graph g(x: f32[3, 4000]) {\n  %n = layer_norm(x) {dims = [-1]}\n  return y = %n\n}\n";
constexpr char kColumns[] = "graph g(x: f32[300, 70]) {\n  %s = sum(x) {dims = [0]}\n  return y = %s\n}\n";
constexpr char kArgmax[] = "graph g(x: f32[3, 4000]) {\n  %a = argmax(x) {dim = 1}\n  return y = %a\n}\n";

struct PlantedBug {
  const char* name;
  const char* graph;
  std::string before;  // in the emitted text; every occurrence is replaced
  std::string after;
  std::vector<std::string> message;  // parts of it
};

void PrintTo(const PlantedBug& bug, std::ostream* out) { *out << bug.name; }

class PlantedBugsTest : public ::testing::TestWithParam<PlantedBug> {};

absl::StatusOr<GeneratedCode> Generate(const std::string& text) {
  FUSELINE_ASSIGN_OR_RETURN(Graph graph, ParseGraphText(text));
  FUSELINE_RETURN_IF_ERROR(VerifyGraph(graph));
  return GenerateCode(Canonicalize(graph), HostCudaEngine::target(), {});
}

absl::Status RunInOrder(HostKernelCompiler& compiler, const GeneratedCode& code, const ThreadOrder& order) {
  HostProgram program;
  FUSELINE_ASSIGN_OR_RETURN(program.kernels, compiler.Compile(code.kernels.sources));
  program.plan = code.kernels.plan;
  std::vector<Tensor> inputs;
  for (const PlanTensor& input : program.plan.inputs) {
    inputs.push_back(Tensor::Allocate(input.dtype, input.shape));
    FillNormal(inputs.back(), inputs.size());
  }
  return HostCudaRunner().Run(program, inputs, order).status();
}

TEST_P(PlantedBugsTest, IsFoundInEveryOrder) {
  const PlantedBug& bug = GetParam();
  absl::StatusOr<std::unique_ptr<HostKernelCompiler>> compiler = HostKernelCompiler::Create();
  if (!compiler.ok()) GTEST_SKIP() << compiler.status().message();
  absl::StatusOr<GeneratedCode> code = Generate(bug.graph);
  ASSERT_THAT(code, IsOk());
  for (const ThreadOrder& order : HostCudaEngine::Orders()) {
    EXPECT_THAT(RunInOrder(**compiler, *code, order), IsOk()) << order.ToString();
  }
  bool is_planted = false;
  for (KernelSource& source : code->kernels.sources) {
    is_planted = absl::StrReplaceAll({{bug.before, bug.after}}, &source.text) > 0 || is_planted;
  }
  ASSERT_TRUE(is_planted) << "nothing reads '" << bug.before << "' in\n" << code->kernels.sources[0].text;
  for (const ThreadOrder& order : HostCudaEngine::Orders()) {
    const absl::Status status = RunInOrder(**compiler, *code, order);
    for (const std::string& part : bug.message) EXPECT_THAT(status, StatusIs(absl::StatusCode::kInternal, part));
  }
}

const PlantedBug kBugs[] = {
    {"LoadPastTheEnd",
     kPointwise,
     "in0[d0]",
     "in0[d0 + 1]",
     {"reads 4 bytes, 0 bytes past the end of input 'in0' (4004 bytes)", "in0[d0 + 1]"}},
    {"LoadBeforeTheBeginning", kPointwise, "in0[d0]", "in0[d0 - 1]", {"reads 4 bytes, 4 bytes before input 'in0'"}},
    {"BoundTooLargeByOne", kPointwise, "if (e >= 1001) return;", "if (e > 1001) return;", {"past the end of"}},
    {"StorePastTheEnd",
     kRows,
     "out0[d0] =",
     "out0[d0 + 1] =",
     {"writes 4 bytes, 0 bytes past the end of output 'out0' (12 bytes)", "block 2"}},
    {"VectorBoundTooLargeByOne", kVectors, "if (e >= 1000) return;", "if (e > 1000) return;", {"past the end of"}},
    {"VectorOfWrongAlignment",
     kVectors,
     "fl_load_vec<4>(in0 + ",
     "fl_load_vec<4>(in0 + 1 + ",
     {"not aligned to 16 bytes", "fl_load_vec<4>(in0 + 1"}},
    {"RowBoundTooLarge", kRows, "r < 4000", "r < 4001", {"past the end of input 'in0'", "block 2"}},
    {"MissingBarrierBeforeSharedLoad",
     kRows,
     "partial[warp] = value;\n    fl_barrier();",
     "partial[warp] = value;",
     {"shared array 'partial'", "`value = partial["}},
    {"MissingBarrierBetweenReductions",
     kNormalisedRows,
     "    fl_barrier();\n    if (lane == 0)",
     "    if (lane == 0)",
     {"a race", "shared array 'partial'", "with no barrier between", "the other access: line"}},
    {"MissingBarrierInColumns",
     kColumns,
     "    }\n    fl_barrier();\n  }",
     "    }\n  }",
     {"a race", "shared array 'partial'"}},
    {"BarrierThatNotAllReach",
     kRows,
     "    fl_barrier();\n    value = ",
     "    if (warp == 0) fl_barrier();\n    value = ",
     {""}},
    {"BarrierAfterAnExit",
     kRows,
     "  const int d0 = row;",
     "  const int d0 = row;\n  if (fl_thread() == 7) return;",
     {"thread 7", "has exited"}},
    {"DifferentBarriers",
     kRows,
     "    if (lane == 0) partial[warp] = value;\n    fl_barrier();",
     "    if (lane == 0) partial[warp] = value;\n    if (warp == 1) { fl_barrier(); } else { fl_barrier(); }",
     {""}},
    {"ShuffleMaskTooSmall", kRows, "0xffffffffu, a, mask", "0x0000ffffu, a, mask", {"shuffle", "0x0000ffff"}},
    {"ShuffleMaskTooLarge",
     kRows,
     "    value = fl_add_f32(value, fl_shuffle_xor_f32(value, d));\n",
     "    if (fl_thread() % 32 < 16) value = fl_add_f32(value, fl_shuffle_xor_f32(value, d));\n",
     {"shuffle"}},
    {"ShuffleTooFar",
     kRows,
     "d < (kThreads < 32 ? kThreads : 32)",
     "d <= (kThreads < 32 ? kThreads : 32)",
     {"operand is 32, out of [0, 32)"}},
    {"SharedLoadOfWhatNobodyWrote",
     kRows,
     "value = partial[warp / kWarps * kWarps + lane % kWarps];",
     "value = partial[warp / kWarps * kWarps + lane % kWarps + 1];",
     {"nothing has been written there", "shared array 'partial'"}},
    {"SharedStorePastTheEnd",
     kRows,
     "partial[warp] = value",
     "partial[32 + warp] = value",
     {"is out of range for 'float [32]'"}},
    {"StoreMissing",
     kRows,
     "if (thread == 0) {",
     "if (thread == 0 && row != 1) {",
     {"output 'out0': no kernel writes byte 4 of 12"}},
    {"TwoBlocksStoreOnePlace",
     kRows,
     "const int at = (int)fl_block();",
     "const int at = (int)fl_block() / 2;",
     {"a race: block", "in the same launch"}},
    {"TwoThreadsStoreOnePlace", kRows, "if (thread == 0) {", "if (thread < 2) {", {"a race", "output 'out0'"}},
    {"ArgmaxWithoutBarrier",
     kArgmax,
     "partial_at[warp] = at;\n    fl_barrier();",
     "partial_at[warp] = at;",
     {"shared array 'partial'", "`value = partial["}},
};

// Loads and stores of every storage type, one element at a time and by vectors, are seen: each is found where it is
// moved by one element.
TEST(EveryAccessTest, IsCheckedWhateverItsTypeAndWidth) {
  absl::StatusOr<std::unique_ptr<HostKernelCompiler>> compiler = HostKernelCompiler::Create();
  if (!compiler.ok()) GTEST_SKIP() << compiler.status().message();
  struct Variant {
    std::string name;
    HostProgram program;
    std::string message;
  };
  std::vector<Variant> variants;
  std::vector<KernelSource> sources;
  for (const char* dtype : {"f64", "f32", "f16", "bf16", "f8e4m3", "f8e5m2", "i64", "i32", "i16", "i8", "u8", "bool"}) {
    for (const char* copy : {"x", "%f"}) {
      const absl::StatusOr<GeneratedCode> code = Generate(
          StrCat("graph g(x: ", dtype, "[1000]) {\n  %f = flip(x) {dims = [0]}\n  return y = ", copy, "\n}\n"));
      ASSERT_THAT(code, IsOk());
      ASSERT_EQ(code->kernels.sources.size(), 1u);
      for (const char* moved : {"", "in0", "out0"}) {
        KernelSource source = code->kernels.sources[0];
        if (moved[0] != '\0') {
          const std::string given = StrCat("__restrict__ ", moved);
          const size_t at = source.text.find(given);
          ASSERT_NE(at, std::string::npos);
          source.text.replace(at, given.size(), given + "_given");
          const size_t body = source.text.find(" {\n", at) + 3;
          source.text.insert(body, StrCat("  const auto ", moved, " = ", moved, "_given + 1;\n"));
        }
        sources.push_back(std::move(source));
        variants.push_back({StrCat(dtype, " ", copy, " ", moved), {code->kernels.plan, {}}, moved});
      }
    }
  }
  const absl::StatusOr<std::vector<HostKernelPtr>> kernels = (*compiler)->Compile(sources);
  ASSERT_THAT(kernels, IsOk());
  for (size_t i = 0; i < variants.size(); ++i) {
    Variant& variant = variants[i];
    variant.program.kernels = {(*kernels)[i]};
    const PlanTensor& input = variant.program.plan.inputs[0];
    Tensor tensor = Tensor::Allocate(input.dtype, input.shape);
    std::memset(tensor.data(), 1, static_cast<size_t>(tensor.size_bytes()));
    const absl::Status status = HostCudaRunner().Run(variant.program, {tensor}, {}).status();
    if (variant.message.empty()) {
      EXPECT_THAT(status, IsOk()) << variant.name;
    } else {
      EXPECT_THAT(status, StatusIs(absl::StatusCode::kInternal, StrCat("put '", variant.message, "'"))) << variant.name;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Kernels, PlantedBugsTest, ::testing::ValuesIn(kBugs),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace fuseline::cuda_host
