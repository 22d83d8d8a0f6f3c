#include "common/ir/verify_graph.h"

#include <chrono>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/ir/attr_values.h"
#include "common/ir/op_table.h"
#include "common/ir/text_form.h"
#include "common/status/error.h"
#include "gtest/gtest.h"
#include "tests/testing/status_matchers.h"

namespace fuseline {
namespace {

using ::fuseline::testing::StatusIs;
constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;

std::string WithStatements(std::string_view statements) {
  return absl::StrCat("graph g(x: f32[2, 3], h: f16[3], k: i32[3], u: u8[3], c: bool[3]) {\n", std::string(statements),
                      "\n  return %r\n}\n");
}

TEST(VerifyGraphTest, TypesAreInferredAndDefaultsFilledIn) {
  const absl::StatusOr<Graph> graph =
      ParseGraph(WithStatements("%a = add(x, 2)\n %r = sum(%a) {dims = [-1]} : f32[2]"));
  ASSERT_OK(graph);
  EXPECT_EQ(graph->type(graph->nodes[0].results[0]).ToString(), "f32[2, 3]");
  EXPECT_EQ(graph->type(graph->nodes[1].results[0]).ToString(), "f32[2]");
  EXPECT_EQ(graph->nodes[1].def, FindOp("sum"));
  EXPECT_EQ(std::get<bool>(graph->nodes[1].attrs.find("keepdim")->second), false);
}

TEST(VerifyGraphTest, LiteralsGetTheKindOfTheirDType) {
  const absl::StatusOr<Graph> graph =
      ParseGraph(WithStatements("%a = add(x, 2)\n %b = mul(3.0, k)\n %r = where(true, x, 1)"));
  ASSERT_OK(graph);
  EXPECT_EQ(graph->nodes[0].operands[1].literal.kind, Literal::Kind::kFloat);
  EXPECT_EQ(graph->nodes[0].operands[1].literal.f, 2.0);
  EXPECT_EQ(graph->nodes[1].operands[0].literal.kind, Literal::Kind::kInt);
  EXPECT_EQ(graph->nodes[1].operands[0].literal.i, 3);
  EXPECT_EQ(graph->nodes[2].operands[0].literal.kind, Literal::Kind::kBool);
}

TEST(VerifyGraphTest, LiteralBesideAConditionTakesTheOtherBranchesDType) {
  EXPECT_OK(ParseGraph(WithStatements("%r = where(c, 1.0, h)")));
  EXPECT_OK(ParseGraph(WithStatements("%r = where(c, h, 1.0)")));
  EXPECT_OK(ParseGraph(WithStatements("%r = where(c, true, c)")));
}

// (G3) and (G4) of graph.h.
TEST(VerifyGraphTest, WrongNodesAreRefusedAndNamed) {
  const struct {
    const char* statements;
    const char* message;
  } kRows[] = {
      {"%r = frobnicate(x)", "node '%r': frobnicate: unknown op"},
      {"%r = add(x)", "node '%r': add: takes 2 operands, got 1"},
      {"%r = neg(x, x)", "node '%r': neg: takes 1 operand, got 2"},
      {"%r = neg()", "node '%r': neg: takes 1 operand, got 0"},
      {"%r, %s = neg(x)", "node '%r': neg: gives 1 result, not 2"},
      {"%r = var_mean(x)", "node '%r': var_mean: gives 2 results, not 1"},
      {"%r = neg(x) {a = 1}", "node '%r': neg: unknown attribute 'a'"},
      {"%r = sum(x) {dims = 1}", "node '%r': sum: attribute 'dims' must be a list of integers"},
      {"%r = sum(x) {dims = [1.5]}", "attribute 'dims' must be a list of integers"},
      {"%r = sum(x) {keepdim = 1}", "attribute 'keepdim' must be true or false"},
      {"%r = cast(x) {dtype = 3}", "attribute 'dtype' must be a dtype"},
      {"%r = cast(x)", "node '%r': cast: attribute 'dtype' is required"},
      {"%r = softmax(x) {dim = 1.0}", "attribute 'dim' must be an integer"},
      {"%r = gelu(x) {approximate = 1}", "attribute 'approximate' must be a string"},
      {"%r = leaky_relu(x) {slope = true}", "attribute 'slope' must be a number"},
      {"%r = clamp(x) {min = \"0\"}", "attribute 'min' must be a number or a boolean"},
      {"%r = sum(x) {dims = [2]}", "node '%r': sum: "},
      {"%r = add(x, h)", "node '%r': add: "},
      {"%r = add(k, 1.5)", "node '%r': add: literal 1.5 does not fit i32"},
      {"%r = add(k, 2147483648)", "node '%r': add: literal 2147483648 does not fit i32"},
      {"%r = add(300, u)", "node '%r': add: literal 300 does not fit u8"},
      {"%r = add(x, true)", "node '%r': add: literal true does not fit f32"},
      {"%r = logical_and(c, 1)", "node '%r': logical_and: literal 1 does not fit bool"},
      {"%r = where(c, 1.0, 2.0)", "node '%r': where: a literal takes its dtype from another operand"},
      {"%r = where(1, x, x)", "node '%r': where: literal 1 does not fit bool"},
      {"%r = where(c, 1.5, k)", "node '%r': where: literal 1.5 does not fit i32"},
      {"%r = add(1, 2)", "node '%r': add: a literal takes its dtype from another operand"},
      {"%r = leaky_relu(x) {slope = 1e39}", "node '%r': leaky_relu: attribute 'slope': 1e+39 does not fit f32"},
      {"%r = clamp(h) {max = -1e39}", "node '%r': clamp: attribute 'max': -1e+39 does not fit f32"},
      {"%r = rms_norm(x) {eps = 1e300}", "node '%r': rms_norm: attribute 'eps': 1e+300 does not fit f32"},
      {"%r = norm(x) {p = 1e308}", "node '%r': norm: attribute 'p': 1e+308 does not fit f32"},
      {"%r = norm(x) {p = -1e-39}", "node '%r': norm: attribute 'p': 1 / -1e-39 does not fit f32"},
      {"%r = neg(x) : f32[3, 2]", "node '%r': neg: the declared type f32[3, 2] is not the inferred f32[2, 3]"},
      {"%r = neg(x) : f32[n, 3]", "the declared type f32[n, 3] is not the inferred"},
      {"%r = full() {shape = [-1], value = 1.0, dtype = f32}", "node '%r': full: "},
      {"%r = full() {shape = [4611686018427387904, 8], value = 1.0, dtype = f32}", "node '%r': full: "},
      {"%r = constant() {dtype = f32, shape = [2]}", "node '%r': constant: attribute 'data' is required"},
      {"%r = constant() {dtype = f32, shape = [2], data = [1.0]}",
       "node '%r': constant: data has 1 elements, f32[2] has 2"},
      {"%r = constant() {dtype = f32, data = [1.0]}", "node '%r': constant: attribute 'shape' is required"},
  };
  for (const auto& row : kRows) {
    const absl::StatusOr<Graph> graph = ParseGraph(WithStatements(row.statements));
    EXPECT_THAT(graph, StatusIs(kInvalid, row.message)) << row.statements;
    EXPECT_EQ(GetErrorSubject(graph.status()), "%r") << row.statements;
    EXPECT_NE(GetErrorReason(graph.status()), ErrorReason::kUnspecified) << row.statements;
  }
}

TEST(VerifyGraphTest, ReasonsTellStructureFromTypes) {
  EXPECT_EQ(GetErrorReason(ParseGraph(WithStatements("%r = add(x)")).status()), ErrorReason::kGraphStructure);
  EXPECT_EQ(GetErrorReason(ParseGraph(WithStatements("%r = add(k, 1.5)")).status()), ErrorReason::kGraphTypeMismatch);
  EXPECT_EQ(GetErrorReason(ParseGraph(WithStatements("%r = add(x, h)")).status()), ErrorReason::kGraphTypeMismatch);
}

TEST(VerifyGraphTest, NumbersAndEmptyListsAreNormalised) {
  const absl::StatusOr<Graph> graph =
      ParseGraph(WithStatements("%a = leaky_relu(x) {slope = 1}\n %r = sum(%a) {dims = []}"));
  ASSERT_OK(graph);
  EXPECT_EQ(std::get<double>(graph->nodes[0].attrs.find("slope")->second), 1.0);
  Graph with_empty_floats = *graph;
  with_empty_floats.nodes[1].attrs.find("dims")->second = std::vector<double>();
  ASSERT_OK(VerifyGraph(with_empty_floats));
  EXPECT_TRUE(std::holds_alternative<std::vector<int64_t>>(with_empty_floats.nodes[1].attrs.find("dims")->second));
}

TEST(VerifyGraphTest, DefaultsAreOfTheirRowsTypes) {
  for (const OpDef* def : AllOps()) {
    for (const AttrSpec& spec : def->attrs) {
      if (!spec.default_value.has_value()) continue;
      AttrValue value = *spec.default_value;
      EXPECT_OK(NormalizeAttrValue(spec, value)) << def->name << " " << spec.name;
    }
  }
}

TEST(VerifyGraphTest, VerifyingTwiceChangesNothing) {
  Graph graph = *ParseGraph(WithStatements("%a = add(k, 2.0)\n %r = mean(x)"));
  const std::string text = PrintGraph(graph);
  ASSERT_OK(VerifyGraph(graph));
  EXPECT_EQ(PrintGraph(graph), text);
}

// (G5) of graph.h.
TEST(VerifyGraphTest, LimitsAreChecked) {
  const std::string text =
      "graph g(x: f32[2, 3]) {\n  %a = neg(x)\n  %b = constant() {dtype = f32, shape = [], data = [1.0]}\n  return %a, "
      "%b\n}";
  GraphLimits limits;
  limits.max_nodes = 2;
  limits.max_rank = 2;
  limits.max_elements = 6;
  limits.max_constant_bytes = 4;
  Graph graph = *ParseGraphText(text);
  ASSERT_OK(VerifyGraph(graph, limits));
  for (int64_t GraphLimits::*limit : {&GraphLimits::max_nodes, &GraphLimits::max_rank, &GraphLimits::max_elements,
                                      &GraphLimits::max_constant_bytes}) {
    GraphLimits tight = limits;
    --(tight.*limit);
    const absl::Status status = VerifyGraph(graph, tight);
    EXPECT_EQ(status.code(), kInvalid);
    EXPECT_EQ(GetErrorReason(status), ErrorReason::kLimitExceeded) << status;
  }
}

TEST(VerifyGraphTest, ResultLargerThanTheLimitIsRefused) {
  GraphLimits limits;
  limits.max_elements = 5;
  EXPECT_THAT(ParseGraph("graph g(x: f32[3, 1], y: f32[3]) {\n  %r = add(x, y)\n  return %r\n}", limits),
              StatusIs(kInvalid, "node '%r': add: "));
}

TEST(VerifyGraphTest, InputsAreChecked) {
  EXPECT_THAT(ParseGraph("graph g(x: f32[2, 3]{1}) {\n  return x\n}"),
              StatusIs(kInvalid, "input 'x': 1 strides for rank 2"));
  EXPECT_THAT(ParseGraph("graph g(x: f32[2, 3]{-1, 1}) {\n  return x\n}"),
              StatusIs(kInvalid, "input 'x': stride -1 is negative"));
  EXPECT_THAT(ParseGraph("graph g(x: f32[1099511627777]) {\n  return x\n}"), StatusIs(kInvalid, "input 'x': "));
  EXPECT_OK(ParseGraph("graph g(x: f32[2, 3]{0, 0}) {\n  return x, y = x\n}"));
}

// (G1) and (G2) of graph.h, in graphs that no text gives: what a message may hold.
TEST(VerifyGraphTest, BrokenStructuresAreRefused) {
  const Graph good = *ParseGraph(WithStatements("%a = neg(x)\n %r = abs(%a)"));
  const auto broken = [&good](auto change) {
    Graph graph = good;
    change(graph);
    return VerifyGraph(graph);
  };
  EXPECT_THAT(broken([](Graph& g) { std::swap(g.nodes[0].operands[0].value, g.nodes[1].operands[0].value); }),
              StatusIs(kInvalid, "node '%a': neg: operand 0 ('%a') is not defined before its use"));
  EXPECT_THAT(broken([](Graph& g) { g.nodes[1].operands[0].value = 99; }),
              StatusIs(kInvalid, "operand 0 ('#99') is not defined"));
  EXPECT_THAT(broken([](Graph& g) { g.nodes[1].operands[0].value = -7; }),
              StatusIs(kInvalid, "operand 0 ('#-7') is not defined"));
  EXPECT_THAT(broken([](Graph& g) { g.nodes[1].results[0] = 99; }), StatusIs(kInvalid, "there is no value #99"));
  EXPECT_THAT(broken([](Graph& g) { g.nodes[1].results[0] = g.nodes[0].results[0]; }),
              StatusIs(kInvalid, "defined twice"));
  EXPECT_THAT(broken([](Graph& g) { g.nodes[1].results.clear(); }), StatusIs(kInvalid, "gives 1 result, not 0"));
  EXPECT_THAT(broken([](Graph& g) { g.values.back().producer = 0; }), StatusIs(kInvalid, "names another producer"));
  EXPECT_THAT(broken([](Graph& g) { g.values.back().result_index = 1; }), StatusIs(kInvalid, "names another producer"));
  EXPECT_THAT(broken([](Graph& g) { g.values.back().name = "x"; }), StatusIs(kInvalid, "the name 'x' is used twice"));
  EXPECT_THAT(broken([](Graph& g) { g.values.back().name = "1x"; }), StatusIs(kInvalid, "'1x' is not a name"));
  EXPECT_THAT(broken([](Graph& g) { g.values.back().name = ""; }), StatusIs(kInvalid, "'' is not a name"));
  EXPECT_THAT(broken([](Graph& g) { g.values[0].name = "nan"; }), StatusIs(kInvalid, "'nan' is not a name"));
  EXPECT_THAT(broken([](Graph& g) { g.values.emplace_back().name = "z"; }),
              StatusIs(kInvalid, "value 'z' is neither an input nor a result"));
  EXPECT_THAT(broken([](Graph& g) { g.inputs.push_back(g.inputs[0]); }), StatusIs(kInvalid, "defined twice"));
  EXPECT_THAT(broken([](Graph& g) { g.values[0].type.dtype = static_cast<DType>(77); }),
              StatusIs(kInvalid, "input 'x': the type has no valid dtype"));
  EXPECT_THAT(broken([](Graph& g) { g.values[0].declared_type = g.values[0].type; }),
              StatusIs(kInvalid, "input 'x': a declared type"));
  EXPECT_THAT(broken([](Graph& g) { g.outputs.clear(); }), StatusIs(kInvalid, "returns nothing"));
  EXPECT_THAT(broken([](Graph& g) {
                g.outputs.push_back({"out0", 0});
              }),
              StatusIs(kInvalid, "output 1: the name 'out0' is used twice"));
  EXPECT_THAT(broken([](Graph& g) { g.outputs[0].value = kNoValue; }),
              StatusIs(kInvalid, "output 'out0': there is no value #-1"));
  EXPECT_THAT(broken([](Graph& g) { g.outputs[0].name = "a b"; }), StatusIs(kInvalid, "'a b' is not a name"));
  EXPECT_THAT(broken([](Graph& g) { g.name = "a-b"; }), StatusIs(kInvalid, "'a-b' is not a name"));
  EXPECT_THAT(broken([](Graph& g) { g.nodes[0].constant_bytes = std::make_shared<const std::string>("x"); }),
              StatusIs(kInvalid, "only a constant has data"));
  EXPECT_THAT(broken([](Graph& g) { g.opset_version = 2; }),
              StatusIs(absl::StatusCode::kUnimplemented, "opset version 2"));
}

TEST(VerifyGraphTest, BoolConstantHoldsZerosAndOnes) {
  Graph graph =
      *ParseGraph("graph g() {\n  %r = constant() {dtype = bool, shape = [2], data = [true, false]}\n  return %r\n}");
  graph.nodes[0].constant_bytes = std::make_shared<const std::string>("\1\2");
  EXPECT_THAT(VerifyGraph(graph), StatusIs(kInvalid, "neither 0 nor 1"));
}

TEST(VerifyGraphTest, UnusedAndRepeatedValuesAreFine) {
  EXPECT_OK(ParseGraph("graph g(x: f32[2], y: f32[3]) {\n  %a = neg(y)\n  return p = x, q = x\n}"));
}

TEST(VerifyGraphTest, SymbolicGraphIsCheckedInStructureOnly) {
  const absl::StatusOr<Graph> graph =
      ParseGraph("graph g(x: f32[n, 4], y: f32[m, 4]) {\n  %r = add(x, y)\n  return %r\n}");
  ASSERT_OK(graph);
  EXPECT_EQ(graph->type(graph->nodes[0].results[0]).dtype, DType::kInvalid);
  EXPECT_NE(graph->nodes[0].def, nullptr);
  EXPECT_THAT(ParseGraph("graph g(x: f32[n]) {\n  %r = add(x)\n  return %r\n}"),
              StatusIs(kInvalid, "node '%r': add: takes 2 operands"));
}

TEST(SymbolsTest, SymbolsAreListedInOrder) {
  const absl::StatusOr<Graph> graph = ParseGraph("graph g(x: f32[n, 4, b], y: f32[b, a, n]) {\n  return x\n}");
  ASSERT_OK(graph);
  EXPECT_EQ(GraphSymbols(*graph), (std::vector<std::string>{"n", "b", "a"}));
}

TEST(SymbolsTest, BoundGraphIsStaticAndTyped) {
  const absl::StatusOr<Graph> graph =
      ParseGraph("graph g(x: f32[n, 4], y: f32[m, 4]) {\n  %r = add(x, y) : f32[n, 4]\n  return %r\n}");
  ASSERT_OK(graph);
  const absl::StatusOr<Graph> bound = BindSymbols(*graph, {{"n", 3}, {"m", 1}});
  ASSERT_OK(bound);
  EXPECT_TRUE(bound->is_static());
  EXPECT_EQ(bound->type(bound->outputs[0].value).ToString(), "f32[3, 4]");
  EXPECT_THAT(BindSymbols(*graph, {{"n", 3}, {"m", 2}}),
              StatusIs(kInvalid, "node '%r': add: shapes [3, 4] and [2, 4] do not broadcast"));
  EXPECT_THAT(BindSymbols(*graph, {{"n", 1}, {"m", 2}}),
              StatusIs(kInvalid, "the declared type f32[1, 4] is not the inferred f32[2, 4]"));
  EXPECT_THAT(BindSymbols(*graph, {{"n", 3}}), StatusIs(kInvalid, "input 'y': symbol 'm' has no size"));
  EXPECT_THAT(BindSymbols(*graph, {{"n", 3}, {"m", 1}, {"k", 1}}),
              StatusIs(kInvalid, "symbol 'k' is in no input's type"));
  EXPECT_THAT(BindSymbols(*graph, {{"n", 3}, {"m", -1}}), StatusIs(kInvalid, "symbol 'm': size -1 is negative"));
  EXPECT_THAT(BindSymbols(*graph, {{"n", int64_t{1} << 60}, {"m", 1}}), StatusIs(kInvalid, "input 'x': "));
}

TEST(SymbolsTest, SizesAreSolvedFromShapes) {
  const absl::StatusOr<Graph> graph = ParseGraph("graph g(x: f32[n, 4], y: f32[m, n]) {\n  return x\n}");
  ASSERT_OK(graph);
  const absl::StatusOr<SymbolSizes> sizes = SolveSymbols(*graph, {{3, 4}, {0, 3}});
  ASSERT_OK(sizes);
  EXPECT_EQ(*sizes, (SymbolSizes{{"n", 3}, {"m", 0}}));
  EXPECT_THAT(SolveSymbols(*graph, {{3, 4}}), StatusIs(kInvalid, "got 1 tensors for 2 inputs"));
  EXPECT_THAT(SolveSymbols(*graph, {{3, 5}, {0, 3}}),
              StatusIs(kInvalid, "input 'x': shape [3, 5] does not fit f32[n, 4]"));
  EXPECT_THAT(SolveSymbols(*graph, {{3}, {0, 3}}), StatusIs(kInvalid, "input 'x': shape [3]"));
  EXPECT_THAT(SolveSymbols(*graph, {{3, 4}, {0, 2}}),
              StatusIs(kInvalid, "input 'y': shape [0, 2] does not fit f32[m, n]: symbol 'n' is 3 elsewhere"));
  EXPECT_THAT(SolveSymbols(*graph, {{-3, 4}, {0, -3}}), StatusIs(kInvalid, "a size is negative"));
}

TEST(VerifyGraphTest, LongChainIsVerifiedInLinearTime) {
  std::string text = "graph g(x: f32[4]) {\n  %t0 = neg(x)\n";
  for (int i = 1; i < 100'000; ++i) absl::StrAppend(&text, "  %t", i, " = add(%t", i - 1, ", x)\n");
  absl::StrAppend(&text, "  return %t99999\n}\n");
  Graph graph = *ParseGraphText(text);
  const auto start = std::chrono::steady_clock::now();
  ASSERT_OK(VerifyGraph(graph));
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(10));  // about 0.1 s on an idle core
}

}  // namespace
}  // namespace fuseline
