// numerics = eager gives the bits of op-by-op execution: graphs of the kinds for which a fused kernel would combine in
// another order, or with other roundings, than the ops' own kernels do. Random graphs are differential_test's.
// FUSELINE_EAGER_ENGINES: the engines, fused ones; those without a device are left out.
#include <iterator>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "common/case_file/random_inputs.h"
#include "common/ir/text_form.h"
#include "common/status/str_cat.h"
#include "gtest/gtest.h"
#include "tests/testing/differential.h"
#include "tests/testing/status_matchers.h"

#ifndef FUSELINE_EAGER_ENGINES
#define FUSELINE_EAGER_ENGINES "cpu,cuda_host"
#endif

namespace fuseline::testing {
namespace {

struct Case {
  const char* name;
  const char* text;  // F: the dtype
};

const Case kCases[] = {
    // Alone the sum runs over a row of products; in a kernel with them it would be a contraction.
    {"ProductsSummed",
     "graph (x: F[40, 1, 70], y: F[1, 30, 70]) {\n  %p = mul(x, y)\n  %s = sum(%p) {dims = [2]}\n"
     "  return s = %s\n}"},
    // The operand lies along the kept dim, and something narrower is stored beside: other lanes.
    {"TransposedOperand",
     "graph (x: F[300, 40]) {\n  %t = transpose(x) {dim0 = 0, dim1 = 1}\n  %e = exp(%t)\n"
     "  %h = cast(%e) {dtype = bf16}\n  %s = sum(%e) {dims = [1]}\n  return s = %s, h = %h\n}"},
    {"ReducedLoopsThatAreNotOne",
     "graph (x: F[40, 24, 50]) {\n  %t = transpose(x) {dim0 = 0, dim1 = 1}\n  %c = exp(%t)\n"
     "  %r = reshape(%c) {shape = [24, 2000]}\n  %s = sum(%r) {dims = [1]}\n  return s = %s\n}"},
    {"DimsAroundAKeptOne",
     "graph (x: F[9, 12, 33]) {\n  %e = tanh(x)\n  %s = sum(%e) {dims = [0, 2]}\n  %y = mul(%s, 0.3)\n"
     "  return y = %y\n}"},
    {"LongRowsSplit",
     "graph (x: F[2, 130, 151]) {\n  %e = exp(x)\n  %s = sum(%e) {dims = [1, 2]}\n  %l = log(%s)\n"
     "  %m = mean(x)\n  return s = %l, m = %m\n}"},
    {"LongColumnsSplit",
     "graph (x: F[9001, 5]) {\n  %e = exp(x)\n  %s = sum(%e) {dims = [0]}\n  %y = div(%e, %s)\n"
     "  return y = %y\n}"},
    {"ProductsOfMany",
     "graph (x: F[20, 999]) {\n  %u = mul(x, 0.001)\n  %v = add(%u, 1.0)\n  %p = prod(%v) {dims = [1]}\n"
     "  return p = %p\n}"},
    {"SoftmaxThenNorm",
     "graph (x: F[33, 257], w: F[257]) {\n  %s = softmax(x) {dim = 1}\n  %y = rms_norm(%s, w) {dims = [1]}\n"
     "  %z = layer_norm(%y, w, w) {dims = [1]}\n  return y = %y, z = %z\n}"},
    {"NormOverColumns",
     "graph (x: F[19, 7, 11, 3]) {\n  %e = silu(x)\n  %y, %m, %v = batch_norm_train(%e)\n"
     "  %g = group_norm(%y) {groups = 7}\n  %s = std(%g) {dims = [0, 3]}\n"
     "  return y = %y, m = %m, v = %v, s = %s\n}"},
    {"ContractionWithBothEnds",
     "graph (a: F[50, 65], b: F[65, 70], c: F[70]) {\n  %f = mul(a, 0.3)\n  %m = matmul(%f, b)\n"
     "  %s = add(%m, c)\n  %y = gelu(%s)\n  return y = %y\n}"},
    // A factor that is the same for all rows leaves no tiles in the fused kernel.
    {"FactorWithoutRows",
     "graph (b: F[64], w: F[64, 48]) {\n  %o = full() {shape = [32, 64], value = 0.7, dtype = F}\n"
     "  %a = mul(%o, b)\n  %y = matmul(%a, w)\n  return y = %y\n}"},
    {"ExpandedFactor",
     "graph (b: F[1, 64], w: F[64, 48]) {\n  %a = broadcast_to(b) {shape = [32, 64]}\n"
     "  %y = matmul(%a, w)\n  %z = relu(%y)\n  return z = %z\n}"},
    {"SmallContractions",
     "graph (a: F[3, 100], b: F[100, 2], v: F[100]) {\n  %m = matmul(a, b)\n  %n = matmul(a, v)\n"
     "  %d = matmul(v, v)\n  %y = add(%m, 1.0)\n  return y = %y, n = %n, d = %d\n}"},
    {"EinsumOfThree",
     "graph (a: F[6, 20], b: F[20, 9, 8], c: F[8, 30]) {\n  %y = einsum(a, b, c) {equation = \"ij,jkl,lm->ikm\"}\n"
     "  %s = sum(%y) {dims = [2]}\n  return y = %y, s = %s\n}"},
    {"Attention",
     "graph (q: F[2, 4, 17, 16], k: F[2, 2, 23, 16], v: F[2, 2, 23, 12]) {\n"
     "  %y = attention(q, k, v) {causal = true}\n  %z = mul(%y, 2.0)\n  return z = %z\n}"},
    {"Convolutions",
     "graph (x: F[2, 6, 11, 10], w: F[8, 3, 3, 3], b: F[8], u: F[8, 5, 2, 2]) {\n  %p = relu(x)\n"
     "  %c = conv(%p, w, b) {padding = [1, 1], groups = 2}\n  %s = silu(%c)\n"
     "  %t = conv_transpose(%s, u) {strides = [2, 2]}\n  %m = mean(%t) {dims = [2, 3]}\n  return t = %t, m = %m\n}"},
    {"Pooling",
     "graph (x: F[2, 3, 13, 12]) {\n  %e = exp(x)\n  %a = avg_pool(%e) {kernel = [5, 5], padding = [2, 2]}\n"
     "  %l = lp_pool(%a) {kernel = [3, 3], p = 3}\n  %d = adaptive_avg_pool(%e) {output_size = [3, 5]}\n"
     "  return a = %a, l = %l, d = %d\n}"},
    {"Resizing",
     "graph (x: F[2, 5, 7]) {\n  %e = sin(x)\n  %r = resize(%e) {sizes = [2, 11, 4], mode = \"cubic\"}\n"
     "  %s = resize(%r) {sizes = [2, 6, 9], mode = \"linear\"}\n  %m = var(%s) {dims = [1, 2]}\n"
     "  return s = %s, m = %m\n}"},
    {"Scans",
     "graph (x: F[3, 2000], z: F[50, 70]) {\n  %e = mul(x, 0.7)\n  %c = cumsum(%e) {dim = 1, reverse = true}\n"
     "  %u = add(z, 1.0)\n  %p = cumprod(%u) {dim = 0, exclusive = true}\n  %q = cumsum(%p) {dim = 1}\n"
     "  return c = %c, q = %q\n}"},
    {"Scatters",
     "graph (x: F[8, 40], i: i64[8, 90], s: F[8, 90]) {\n  %t = mul(s, 0.7)\n  %y = scatter_add(x, i, %t) {dim = 1}\n"
     "  %z = logsumexp(%y) {dims = [1]}\n  return y = %y, z = %z\n}"},
    {"Losses",
     "graph (x: F[30, 8], t: i64[30], y: F[30, 8]) {\n  %l = mul(x, 2.0)\n"
     "  %a = cross_entropy(%l, t) {label_smoothing = 0.1}\n  %b = smooth_l1_loss(%l, y)\n"
     "  %p = log_softmax(y) {dim = 1}\n  %c = kl_div(%p, y) {log_target = true, reduction = \"sum\"}\n"
     "  return a = %a, b = %b, c = %c\n}"},
    {"OneRowManyReaders",
     "graph (x: F[60, 500]) {\n  %m = mean(x) {dims = [1], keepdim = true}\n  %c = sub(x, %m)\n"
     "  %q = square(%c)\n  %v = sum(%q) {dims = [1]}\n  %n = norm(%c) {p = 3, dims = [1]}\n"
     "  %k = argmax(%c) {dim = 1}\n  return v = %v, n = %n, k = %k\n}"},
};

class EagerBitsTest : public ::testing::TestWithParam<size_t> {
 protected:
  static void SetUpTestSuite() {
    auto engines = EngineSet::Create();
    ASSERT_OK(engines);
    engines_ = std::move(*engines).release();
  }
  static void TearDownTestSuite() {
    delete engines_;
    engines_ = nullptr;
  }
  static EngineSet* engines_;
};
EngineSet* EagerBitsTest::engines_ = nullptr;

TEST_P(EagerBitsTest, FusedGivesOpByOpsBits) {
  CheckOptions check;
  check.numerics = {Numerics::kEager};
  check.op_by_op = true;
  for (const std::string& name : std::vector<std::string>(absl::StrSplit(FUSELINE_EAGER_ENGINES, ','))) {
    const std::optional<EngineKind> fused = ParseEngineKind(name), unfused = ParseEngineKind(name + "_unfused");
    ASSERT_TRUE(fused.has_value() && unfused.has_value()) << name;
    if (engines_->CanRun(*fused).ok()) check.engines.insert(check.engines.end(), {*fused, *unfused});
  }
  if (check.engines.empty()) GTEST_SKIP() << "no device for " << FUSELINE_EAGER_ENGINES;
  // f32, and one of the others in turn.
  static constexpr const char* kOthers[] = {"f16", "bf16", "f64"};
  for (const char* dtype : {"f32", kOthers[GetParam() % std::size(kOthers)]}) {
    const std::string text = absl::StrReplaceAll(
        kCases[GetParam()].text, {{" F[", StrCat(" ", dtype, "[")}, {"= F}", StrCat("= ", dtype, "}")}});
    const absl::StatusOr<Graph> graph = ParseGraph(text);
    ASSERT_OK(graph.status()) << text;
    std::vector<Tensor> inputs;
    for (const ValueId id : graph->inputs) {
      inputs.push_back(MakeRandomInput(graph->type(id), 40 + inputs.size(), 1 << 20));
    }
    const std::optional<Mismatch> mismatch = CheckGraph(*engines_, *graph, inputs, check);
    EXPECT_FALSE(mismatch.has_value()) << mismatch->text << "\n" << text;
  }
}

INSTANTIATE_TEST_SUITE_P(Graphs, EagerBitsTest, ::testing::Range(size_t{0}, std::size(kCases)),
                         [](const ::testing::TestParamInfo<size_t>& info) { return kCases[info.param].name; });

}  // namespace
}  // namespace fuseline::testing
