// The random graphs of the differential test: valid, repeatable, and of everything that there is.
#include <cmath>
#include <map>
#include <set>
#include <string>

#include "common/ir/text_form.h"
#include "gtest/gtest.h"
#include "server/reference/reference_interpreter.h"
#include "tests/testing/error_bounds.h"
#include "tests/testing/random_graph.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/symbolic_graph.h"

namespace fuseline::testing {
namespace {

constexpr uint64_t kSeeds = 600;

TEST(RandomGraphTest, SameSeedGivesTheSameGraphAndInputs) {
  for (uint64_t seed = 1; seed <= 50; ++seed) {
    const absl::StatusOr<RandomGraph> a = MakeRandomGraph(seed), b = MakeRandomGraph(seed);
    ASSERT_OK(a.status());
    ASSERT_OK(b.status());
    EXPECT_EQ(PrintGraph(a->graph), PrintGraph(b->graph));
    ASSERT_EQ(a->inputs.size(), b->inputs.size());
    for (size_t i = 0; i < a->inputs.size(); ++i) EXPECT_EQ(a->inputs[i].bytes(), b->inputs[i].bytes());
  }
}

TEST(RandomGraphTest, TextFormReadsBackEqual) {
  for (uint64_t seed = 1; seed <= 100; ++seed) {
    const absl::StatusOr<RandomGraph> random = MakeRandomGraph(seed);
    ASSERT_OK(random.status());
    const std::string text = PrintGraph(random->graph);
    const absl::StatusOr<Graph> again = ParseGraph(text);
    ASSERT_OK(again.status());
    EXPECT_EQ(PrintGraph(*again), text);
  }
}

TEST(SymbolicGraphTest, ItsFirstBindingIsTheGraphItself) {
  int symbolic = 0;
  for (uint64_t seed = 1; seed <= 100; ++seed) {
    const absl::StatusOr<RandomGraph> random = MakeRandomGraph(seed);
    ASSERT_OK(random.status());
    const std::optional<SymbolicGraph> made = MakeSymbolic(random->graph, random->inputs, 1'000'000);
    if (!made.has_value()) continue;
    ++symbolic;
    EXPECT_FALSE(made->graph.is_static());
    ASSERT_GE(made->bindings.size(), 2u);
    for (const SymbolicBinding& binding : made->bindings) {
      EXPECT_TRUE(binding.graph.is_static());
      for (size_t i = 0; i < binding.inputs.size(); ++i)
        EXPECT_EQ(binding.inputs[i].shape(), binding.graph.type(binding.graph.inputs[i]).shape());
    }
    for (size_t v = 0; v < random->graph.values.size(); ++v) {
      EXPECT_EQ(made->bindings[0].graph.values[v].type.shape(), random->graph.values[v].type.shape());
    }
  }
  EXPECT_GT(symbolic, 50);
}

TEST(RandomGraphTest, EveryOpDTypeAndRankOccurs) {
  std::map<std::string, int> ops;
  std::set<DType> dtypes;
  std::set<int> ranks;
  int strided = 0, empty = 0, several_outputs = 0;
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    const absl::StatusOr<RandomGraph> random = MakeRandomGraph(seed);
    ASSERT_OK(random.status());
    const Graph& graph = random->graph;
    EXPECT_GE(graph.nodes.size(), 1u);
    EXPECT_GE(graph.outputs.size(), 1u);
    for (const Node& node : graph.nodes) ++ops[node.op];
    for (const Value& value : graph.values) {
      dtypes.insert(value.type.dtype);
      ranks.insert(value.type.rank());
      EXPECT_LE(value.type.element_count(), RandomGraphOptions().max_elements);
      empty += value.type.element_count() == 0 ? 1 : 0;
      strided += value.type.strides.has_value() ? 1 : 0;
    }
    several_outputs += graph.outputs.size() > 1 ? 1 : 0;
  }
  for (const OpDef* op : RandomGraphOps())
    EXPECT_GE(ops[op->name], 3) << op->name << ": add a rule to tests/testing/sampler_*.cc";
  EXPECT_EQ(dtypes.size(), static_cast<size_t>(kDTypeCount - 1));
  for (int rank = 0; rank <= 5; ++rank) EXPECT_TRUE(ranks.count(rank)) << rank;
  EXPECT_GE(strided, 20);
  EXPECT_GE(empty, 20);
  EXPECT_GE(several_outputs, static_cast<int>(kSeeds / 2));
}

TEST(RandomGraphTest, MostResultsAreFiniteAndComparedInEarnest) {
  int64_t finite = 0, elements = 0, outputs = 0;
  double checked = 0;
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    const absl::StatusOr<RandomGraph> random = MakeRandomGraph(seed);
    ASSERT_OK(random.status());
    CompileOptions options;
    options.numerics = seed % 2 == 0 ? Numerics::kEager : Numerics::kFused;
    const auto results = reference::Interpret(random->graph, random->inputs, options);
    ASSERT_OK(results.status()) << PrintGraph(random->graph);
    const auto bounds = BoundErrors(random->graph, random->inputs, options);
    ASSERT_OK(bounds.status()) << PrintGraph(random->graph);
    for (size_t i = 0; i < results->size(); ++i) {
      const Tensor& result = (*results)[i];
      ++outputs;
      checked += CheckedShare(result, (*bounds)[i]);
      if (!IsFloat(result.dtype())) continue;
      elements += result.element_count();
      for (int64_t k = 0; k < result.element_count(); ++k) finite += std::isfinite(result.GetDouble(k)) ? 1 : 0;
    }
  }
  EXPECT_GT(static_cast<double>(finite), 0.85 * static_cast<double>(elements));
  EXPECT_GT(checked, 0.88 * static_cast<double>(outputs));
}

// The bound of the only output's first element.
double BoundOf(const std::string& text, const std::vector<double>& values, Numerics numerics = Numerics::kFused,
               DType dtype = DType::kF32) {
  const absl::StatusOr<Graph> graph = ParseGraph(text);
  EXPECT_OK(graph.status());
  Tensor input = Tensor::Allocate(dtype, {static_cast<int64_t>(values.size())});
  for (size_t i = 0; i < values.size(); ++i) input.SetDouble(static_cast<int64_t>(i), values[i]);
  CompileOptions options;
  options.numerics = numerics;
  const auto bounds = BoundErrors(*graph, {input}, options);
  EXPECT_OK(bounds.status());
  return (*bounds)[0].GetDouble(0);
}

TEST(ErrorBoundsTest, CorrectlyRoundedOpsOnExactOperandsMustBeEqual) {
  EXPECT_EQ(
      BoundOf("graph g(x: f32[1]) {\n  %a = mul(x, 3.0)\n  %b = sqrt(%a)\n  %c = div(%b, x)\n  return y = %c\n}", {2}),
      0);
  EXPECT_EQ(BoundOf("graph g(x: f16[1]) {\n  %a = mul(x, x)\n  %b = add(%a, x)\n  return y = %b\n}", {1.1},
                    Numerics::kEager, DType::kF16),
            0);
}

TEST(ErrorBoundsTest, ElementaryFunctionsHaveAFewUlps) {
  const double bound = BoundOf("graph g(x: f32[1]) {\n  %a = exp(x)\n  return y = %a\n}", {0.1});
  EXPECT_GT(bound, 3 * std::ldexp(1, -23));
  EXPECT_LT(bound, 9 * std::ldexp(1, -23));
}

TEST(ErrorBoundsTest, CancellationKeepsTheAbsoluteError) {
  // exp(x) - 1 for a small x: as wrong as exp, although the result is small.
  const double bound = BoundOf("graph g(x: f32[1]) {\n  %a = exp(x)\n  %b = sub(%a, 1.0)\n  return y = %b\n}", {1e-4});
  EXPECT_GT(bound, 3 * std::ldexp(1, -23));
  EXPECT_LT(bound, 12 * std::ldexp(1, -23));
}

TEST(ErrorBoundsTest, JumpInDoubtIsNotCompared) {
  const char* const text = "graph g(x: f32[1]) {\n  %a = log(x)\n  %b = floor(%a)\n  return y = %b\n}";
  EXPECT_EQ(BoundOf(text, {5}), 0);
  EXPECT_GE(BoundOf(text, {std::exp(1.0)}), 1);
}

TEST(ErrorBoundsTest, UnroundedHalvesAreHalfAnUlpApart) {
  const char* const text =
      "graph g(x: f16[1]) {\n  %a = mul(x, x)\n  %b = cast(%a) {dtype = f32}\n  %c = mul(%a, 3.0)\n  return y = %c\n}";
  const double fused = BoundOf(text, {1.1}, Numerics::kFused, DType::kF16);
  EXPECT_GT(fused, std::ldexp(1, -11));
  EXPECT_LT(fused, 0.02);
  EXPECT_EQ(BoundOf(text, {1.1}, Numerics::kEager, DType::kF16), 0);
}

TEST(ErrorBoundsTest, OverflowOfPartialProductsIsNotComparedBehindABoundedFunction) {
  const double bound =
      BoundOf("graph g(x: f32[3]) {\n  %p = prod(x)\n  %t = tanh(%p)\n  return y = %t\n}", {1e30, 1e30, 0});
  EXPECT_TRUE(std::isinf(bound)) << bound;
}

TEST(ErrorBoundsTest, WrongElementIsFound) {
  const Shape shape = {3};
  Tensor want = Tensor::Allocate(DType::kF32, shape), got = Tensor::Allocate(DType::kF32, shape),
         bounds = Tensor::Allocate(DType::kF64, shape);
  for (int64_t i = 0; i < 3; ++i) {
    want.SetDouble(i, 1 + i);
    got.SetDouble(i, 1 + i);
    bounds.SetDouble(i, 0.25);
  }
  EXPECT_TRUE(CompareWithin("y", got, want, bounds).passed());
  got.SetDouble(1, 2.5);
  const OutputComparison comparison = CompareWithin("y", got, want, bounds);
  EXPECT_EQ(comparison.mismatches, 1);
  EXPECT_NE(comparison.first_mismatch.find("at [1]: got 2.5, want 2"), std::string::npos) << comparison.first_mismatch;
  got.SetDouble(1, std::nan(""));
  EXPECT_FALSE(CompareWithin("y", got, want, bounds).passed());
  want.SetDouble(1, std::nan(""));
  EXPECT_TRUE(CompareWithin("y", got, want, bounds).passed());
}

}  // namespace
}  // namespace fuseline::testing
