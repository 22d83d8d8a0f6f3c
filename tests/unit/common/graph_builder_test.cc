#include "common/ir/graph_builder.h"

#include <chrono>
#include <cstring>
#include <string>
#include <vector>

#include "common/ir/text_form.h"
#include "common/ir/verify_graph.h"
#include "gtest/gtest.h"
#include "tests/testing/status_matchers.h"
#include "tests/unit/common/graph_comparison.h"

namespace fuseline {
namespace {

using ::fuseline::testing::StatusIs;
constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;

TEST(GraphBuilderTest, BuiltGraphEqualsTheParsedOne) {
  GraphBuilder builder("g");
  const ValueId x = *builder.AddInput("x", TensorType::Make(DType::kF32, {2, 3}));
  const ValueId a = *builder.Add("mul", {GraphBuilder::Value(x), GraphBuilder::Integer(2)});
  EXPECT_EQ(builder.type(a).ToString(), "f32[2, 3]");
  const absl::StatusOr<std::vector<ValueId>> vm =
      builder.AddNode("var_mean", {GraphBuilder::Value(a)}, {{"dims", std::vector<int64_t>{1}}}, "v", "model.py:3");
  ASSERT_OK(vm);
  ASSERT_EQ(vm->size(), 2u);
  const ValueId c = *builder.AddConstant(TensorType::Make(DType::kU8, {2}), std::string("\1\2"), "c");
  EXPECT_OK(builder.AddOutput("y", (*vm)[1]));
  EXPECT_OK(builder.AddOutput("z", c));
  const Graph graph = builder.Build();
  EXPECT_EQ(graph.nodes[1].origin, "model.py:3");

  const absl::StatusOr<Graph> parsed = ParseGraph(
      "graph g(x: f32[2, 3]) {\n  %t0 = mul(x, 2.0)\n  %v, %t1 = var_mean(%t0) {dims = [1]}\n"
      "  %c = constant() {data = [1, 2], dtype = u8, shape = [2]}\n  return y = %t1, z = %c\n}\n");
  ASSERT_OK(parsed);
  EXPECT_EQ(testing::GraphDifference(graph, *parsed), "") << PrintGraph(graph);
  Graph verified = graph;
  EXPECT_OK(VerifyGraph(verified));
  EXPECT_TRUE(builder.graph().values.empty());
}

TEST(GraphBuilderTest, RefusedNodeLeavesTheGraphAsItWas) {
  GraphBuilder builder("g");
  const ValueId x = *builder.AddInput("x", TensorType::Make(DType::kF32, {2, 3}));
  const ValueId k = *builder.AddInput("k", TensorType::Make(DType::kI32, {3}));
  const auto value = [](ValueId id) { return GraphBuilder::Value(id); };
  EXPECT_THAT(builder.Add("add", {value(x), value(k)}), StatusIs(kInvalid, "node '%t0': add: "));
  EXPECT_THAT(builder.Add("add", {value(k), GraphBuilder::Number(1.5)}),
              StatusIs(kInvalid, "node '%t0': add: literal 1.5 does not fit i32"));
  EXPECT_THAT(builder.Add("add", {value(x), value(7)}), StatusIs(kInvalid, "node '%t0': add: there is no value #7"));
  EXPECT_THAT(builder.Add("nothing", {}), StatusIs(kInvalid, "node '%t0': nothing: unknown op"));
  EXPECT_THAT(builder.Add("var_mean", {value(x)}), StatusIs(kInvalid, "gives 2 results, not one"));
  EXPECT_THAT(builder.AddNode("neg", {value(x)}, {{"a", true}}, "n"),
              StatusIs(kInvalid, "node '%n': neg: unknown attribute 'a'"));
  EXPECT_THAT(builder.AddConstant(TensorType::Make(DType::kF32, {2}), "abc"),
              StatusIs(kInvalid, "node '%t0': constant: data has"));
  EXPECT_EQ(builder.graph().nodes.size(), 0u);
  EXPECT_EQ(builder.graph().values.size(), 2u);
  EXPECT_OK(builder.Add("neg", {value(x)}));
}

TEST(GraphBuilderTest, NamesAreUnique) {
  GraphBuilder builder("g");
  const ValueId x = *builder.AddInput("x", TensorType::Make(DType::kF32, {2}));
  const Operand operand = GraphBuilder::Value(x);
  EXPECT_THAT(builder.AddInput("x", TensorType::Make(DType::kF32, {2})),
              StatusIs(kInvalid, "the name 'x' is used twice"));
  EXPECT_THAT(builder.AddInput("1", TensorType::Make(DType::kF32, {2})), StatusIs(kInvalid, "'1' is not a name"));
  EXPECT_THAT(builder.AddInput("nan", TensorType::Make(DType::kF32, {2})), StatusIs(kInvalid, "literal"));
  EXPECT_THAT(builder.AddNode("neg", {operand}, {}, "x"), StatusIs(kInvalid, "the name 'x' is used twice"));
  ASSERT_OK(builder.AddNode("neg", {operand}, {}, "t0"));
  const absl::StatusOr<ValueId> next = builder.Add("neg", {operand});
  ASSERT_OK(next);
  EXPECT_EQ(builder.graph().value(*next).name, "t1");
  EXPECT_OK(builder.AddOutput("y", *next));
  EXPECT_THAT(builder.AddOutput("y", *next), StatusIs(kInvalid, "output 'y': the name is used twice"));
  EXPECT_THAT(builder.AddOutput("z", 99), StatusIs(kInvalid, "output 'z': there is no value #99"));
  EXPECT_THAT(builder.AddOutput("a b", *next), StatusIs(kInvalid, "not a name"));
}

TEST(GraphBuilderTest, InputsAndConstantsAreStatic) {
  GraphBuilder builder("g");
  TensorType type;
  type.dtype = DType::kF32;
  type.dims = {Dim::Symbol("n")};
  EXPECT_THAT(builder.AddInput("x", type), StatusIs(kInvalid, "input 'x': the type has symbolic dims"));
  EXPECT_THAT(builder.AddConstant(type, ""), StatusIs(kInvalid, "symbolic dims"));
  EXPECT_THAT(builder.AddInput("x", TensorType::Make(DType::kF32, {-1})),
              StatusIs(kInvalid, "input 'x': size -1 is negative"));
}

TEST(GraphBuilderTest, LimitsAreChecked) {
  GraphLimits limits;
  limits.max_nodes = 2;
  limits.max_constant_bytes = 4;
  GraphBuilder builder("g", limits);
  const TensorType scalar = TensorType::Make(DType::kF32, {});
  ASSERT_OK(builder.AddConstant(scalar, std::string(4, '\0')));
  EXPECT_THAT(builder.AddConstant(scalar, std::string(4, '\0')),
              StatusIs(kInvalid, "constants take more than 4 bytes"));
  ASSERT_OK(builder.Add("neg", {GraphBuilder::Value(0)}));
  EXPECT_THAT(builder.Add("neg", {GraphBuilder::Value(0)}), StatusIs(kInvalid, "more than 2 nodes"));
}

TEST(GraphBuilderTest, LongChainIsBuiltInLinearTime) {
  GraphBuilder builder("g");
  const auto start = std::chrono::steady_clock::now();
  ValueId value = *builder.AddInput("t5", TensorType::Make(DType::kF32, {2}));
  for (int i = 0; i < 100'000; ++i) {
    const absl::StatusOr<ValueId> next = builder.Add("neg", {GraphBuilder::Value(value)});
    ASSERT_OK(next);
    value = *next;
  }
  EXPECT_OK(builder.AddOutput("y", value));
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(10));  // about 0.1 s on an idle core
  Graph graph = builder.Build();
  EXPECT_OK(VerifyGraph(graph));
}

}  // namespace
}  // namespace fuseline
