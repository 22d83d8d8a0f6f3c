// The reducer against planted failures: what is left is what the failure needs, and nothing else.
#include "common/case_file/reduce_graph.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/case_file/random_inputs.h"
#include "common/ir/text_form.h"
#include "common/ir/verify_graph.h"
#include "gtest/gtest.h"
#include "server/reference/reference_interpreter.h"
#include "tests/testing/status_matchers.h"

namespace fuseline {
namespace {

GraphWithInputs Parse(const std::string& text) {
  GraphWithInputs result;
  absl::StatusOr<Graph> graph = ParseGraph(text);
  EXPECT_OK(graph.status()) << text;
  if (!graph.ok()) return result;
  result.graph = *std::move(graph);
  for (size_t i = 0; i < result.graph.inputs.size(); ++i)
    result.inputs.push_back(MakeRandomInput(result.graph.type(result.graph.inputs[i]), 7 + i, 0));
  return result;
}

// The first node of the op, or null.
const Node* FindNode(const Graph& graph, const std::string& op) {
  const auto it = std::find_if(graph.nodes.begin(), graph.nodes.end(), [&](const Node& n) { return n.op == op; });
  return it == graph.nodes.end() ? nullptr : &*it;
}

FailureOracle HasOp(const std::string& op) {
  return [op](const GraphWithInputs& g) { return FindNode(g.graph, op) != nullptr; };
}

// A chain of `length` ops with one tanh in the middle.
std::string Chain(int length) {
  std::string text = "graph chain(x: f32[8, 6], w: f32[6]) {\n";
  std::string last = "x";
  for (int k = 0; k < length; ++k) {
    const std::string name = absl::StrCat("%n", k);
    absl::StrAppend(&text, "  ", name, " = ",
                    k == length / 2 ? absl::StrCat("tanh(", last, ")")
                    : k % 2 == 0    ? absl::StrCat("add(", last, ", w)")
                                    : absl::StrCat("mul(", last, ", 0.5)"),
                    "\n");
    last = name;
  }
  return absl::StrCat(text, "  return y = ", last, ", first = %n0\n}");
}

struct Planted {
  const char* name;
  const char* text;
  FailureOracle fails;
  const char* smallest;
};

const Tensor* InputOf(const GraphWithInputs& g, const Operand& operand) {
  for (size_t i = 0; i < g.graph.inputs.size(); ++i) {
    if (!operand.is_literal() && g.graph.inputs[i] == operand.value) return &g.inputs[i];
  }
  return nullptr;
}

TEST(ReduceGraphTest, PlantedFailuresShrinkToWhatTheyNeed) {
  const std::vector<Planted> cases = {
      {"one op of several outputs",
       "graph g(x: f32[4, 4], y: f32[4, 4]) {\n  %a = exp(x)\n  %b = add(%a, y)\n  %c = sum(%b) {dims = [1]}\n"
       "  %d = sqrt(y)\n  return c = %c, d = %d\n}",
       HasOp("sum"), "graph g(t1: f32[1, 1]) {\n  %t0 = sum(t1)\n  return c = %t0\n}"},
      {"attributes that matter stay",
       "graph g(x: f32[5, 7]) {\n  %a = neg(x)\n  %b = var(%a) {dims = [1], keepdim = true, correction = 3}\n"
       "  return v = %b\n}",
       [](const GraphWithInputs& g) {
         const Node* node = FindNode(g.graph, "var");
         return node != nullptr && std::get<bool>(node->attrs.find("keepdim")->second);
       },
       "graph g(a: f32[1, 1]) {\n  %t0 = var(a) {keepdim = true}\n  return v = %t0\n}"},
      {"optional operands go",
       "graph g(x: bf16[3, 8], w: bf16[8], b: bf16[8]) {\n  %a = layer_norm(x, w, b) {dims = [-1]}\n  return y = %a\n}",
       HasOp("layer_norm"), "graph g(x: bf16[1, 1]) {\n  %t0 = layer_norm(x)\n  return y = %t0\n}"},
      {"sizes shrink to the least that fails",
       "graph g(x: f32[100, 3]) {\n  %a = exp(x)\n  %r = reshape(%a) {shape = [300]}\n  %b = neg(%r)\n  return y = "
       "%b\n}",
       [](const GraphWithInputs& g) {
         const Node* node = FindNode(g.graph, "neg");
         return node != nullptr && g.graph.type(node->results[0]).element_count() > 5;
       },
       "graph g(r: f32[6]) {\n  %t0 = neg(r)\n  return y = %t0\n}"},
      {"reshapes of products follow",
       "graph g(x: f32[64, 64]) {\n  %r = reshape(x) {shape = [4096]}\n  return y = %r\n}",
       [](const GraphWithInputs& g) {
         const Node* node = FindNode(g.graph, "reshape");
         return node != nullptr && g.graph.type(node->results[0]).element_count() >= 9;
       },
       "graph g(x: f32[3, 3]) {\n  %t0 = reshape(x) {shape = [9]}\n  return y = %t0\n}"},
  };
  for (const Planted& planted : cases) {
    const ReducedGraph reduced = ReduceGraph(Parse(planted.text), planted.fails);
    EXPECT_TRUE(reduced.is_minimal) << planted.name;
    std::string text = PrintGraph(reduced.smallest.graph);
    while (!text.empty() && text.back() == '\n') text.pop_back();
    EXPECT_EQ(text, planted.smallest) << planted.name;
  }
}

TEST(ReduceGraphTest, OpInALongChainIsFoundInFewTries) {
  const ReducedGraph reduced = ReduceGraph(Parse(Chain(2000)), HasOp("tanh"));
  EXPECT_TRUE(reduced.is_minimal);
  EXPECT_EQ(reduced.smallest.graph.nodes.size(), 1u) << PrintGraph(reduced.smallest.graph);
  EXPECT_LT(reduced.tries, 150);
}

TEST(ReduceGraphTest, ElementThatMattersIsTheOnlyOneLeft) {
  GraphWithInputs failing = Parse("graph g(x: f32[12]) {\n  %a = exp(x)\n  return y = %a\n}");
  failing.inputs[0].SetDouble(5, std::numeric_limits<double>::quiet_NaN());
  const auto fails = [](const GraphWithInputs& g) {
    if (FindNode(g.graph, "exp") == nullptr || g.inputs.empty() || g.inputs[0].element_count() < 8) return false;
    return std::isnan(g.inputs[0].GetDouble(5));
  };
  const ReducedGraph reduced = ReduceGraph(failing, fails);
  ASSERT_EQ(reduced.smallest.inputs.size(), 1u);
  const Tensor& x = reduced.smallest.inputs[0];
  ASSERT_EQ(x.shape(), Shape({8}));
  for (int64_t i = 0; i < 8; ++i) {
    if (i != 5) {
      EXPECT_EQ(x.GetDouble(i), 0) << i;
    }
  }
}

TEST(ReduceGraphTest, ValuesInTheMiddleKeepWhatTheyWere) {
  GraphWithInputs failing =
      Parse("graph g(x: f32[2]) {\n  %a = mul(x, 3.0)\n  %b = add(%a, 1.0)\n  %c = neg(%b)\n  return y = %c\n}");
  for (int64_t i = 0; i < 2; ++i) failing.inputs[0].SetDouble(i, 2.0);
  const auto fails = [](const GraphWithInputs& g) {
    const Node* node = FindNode(g.graph, "neg");
    if (node == nullptr) return false;
    const absl::StatusOr<std::vector<Tensor>> results = reference::Interpret(g.graph, g.inputs);
    return results.ok() && results->at(0).element_count() > 0 && results->at(0).GetDouble(0) == -7.0;
  };
  ReduceOptions options;
  options.values = [](const GraphWithInputs& g) -> std::optional<std::vector<Tensor>> {
    absl::StatusOr<std::vector<Tensor>> results = reference::Interpret(g.graph, g.inputs);
    if (!results.ok()) return std::nullopt;
    return *std::move(results);
  };
  const ReducedGraph reduced = ReduceGraph(failing, fails, options);
  ASSERT_EQ(reduced.smallest.graph.nodes.size(), 1u) << PrintGraph(reduced.smallest.graph);
  const Tensor* b = InputOf(reduced.smallest, reduced.smallest.graph.nodes[0].operands[0]);
  ASSERT_NE(b, nullptr);
  EXPECT_EQ(b->GetDouble(0), 7.0);
}

TEST(ReduceGraphTest, OracleSeesOnlyVerifiedGraphsWithFittingInputs) {
  const GraphWithInputs failing = Parse(Chain(40));
  int64_t asked = 0;
  const auto fails = [&](const GraphWithInputs& g) {
    ++asked;
    Graph copy = g.graph;
    EXPECT_OK(VerifyGraph(copy)) << PrintGraph(g.graph);
    EXPECT_EQ(g.graph.inputs.size(), g.inputs.size());
    for (size_t i = 0; i < g.inputs.size(); ++i) {
      EXPECT_EQ(g.graph.type(g.graph.inputs[i]).shape(), g.inputs[i].shape());
      EXPECT_EQ(g.graph.type(g.graph.inputs[i]).dtype, g.inputs[i].dtype());
    }
    return FindNode(g.graph, "tanh") != nullptr && FindNode(g.graph, "mul") != nullptr;
  };
  const ReducedGraph reduced = ReduceGraph(failing, fails);
  EXPECT_EQ(reduced.tries, asked);
  EXPECT_EQ(reduced.smallest.graph.nodes.size(), 2u) << PrintGraph(reduced.smallest.graph);
}

TEST(ReduceGraphTest, SameFailureGivesTheSameGraph) {
  const GraphWithInputs failing = Parse(Chain(60));
  const ReducedGraph a = ReduceGraph(failing, HasOp("mul")), b = ReduceGraph(failing, HasOp("mul"));
  EXPECT_EQ(PrintGraph(a.smallest.graph), PrintGraph(b.smallest.graph));
  EXPECT_EQ(a.tries, b.tries);
}

TEST(ReduceGraphTest, TriesAndTimeAreBounded) {
  ReduceOptions options;
  options.max_tries = 3;
  const ReducedGraph few = ReduceGraph(Parse(Chain(60)), HasOp("tanh"), options);
  EXPECT_EQ(few.tries, 3);
  EXPECT_FALSE(few.is_minimal);
  options.max_tries = 1000;
  options.max_time = absl::ZeroDuration();
  EXPECT_EQ(ReduceGraph(Parse(Chain(60)), HasOp("tanh"), options).tries, 0);
}

TEST(ReduceGraphTest, OutputsAloneAreDroppedWhereValuesMustStay) {
  const GraphWithInputs failing = Parse(
      "graph g(x: f32[4], y: f32[4]) {\n  %a = exp(x)\n  %b = neg(%a)\n  %c = sqrt(y)\n  return b = %b, c = %c\n}");
  ReduceOptions options;
  options.outputs_only = true;
  const ReducedGraph reduced = ReduceGraph(failing, HasOp("neg"), options);
  EXPECT_EQ(reduced.smallest.graph.nodes.size(), 2u);
  ASSERT_EQ(reduced.smallest.graph.outputs.size(), 1u);
  EXPECT_EQ(reduced.smallest.graph.outputs[0].name, "b");
  ASSERT_EQ(reduced.smallest.inputs.size(), 1u);
  EXPECT_EQ(reduced.smallest.inputs[0].bytes(), failing.inputs[0].bytes());
}

}  // namespace
}  // namespace fuseline
