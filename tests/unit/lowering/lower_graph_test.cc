// What graphs become as loops: the loops compute what the reference interpreter does, and views cost no loop of their
// own.
#include "server/lowering/lower_graph.h"

#include <random>
#include <string>
#include <vector>

#include "common/ir/text_form.h"
#include "common/status/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/reference/reference_interpreter.h"
#include "tests/testing/status_matchers.h"
#include "tests/unit/lowering/loop_interpreter.h"

namespace fuseline::lowering {
namespace {

using ::testing::HasSubstr;
using testing::IsOk;
using ::testing::Not;
using testing::StatusIs;

Graph Parse(const std::string& text) {
  absl::StatusOr<Graph> graph = ParseGraph(text);
  EXPECT_THAT(graph.status(), IsOk()) << text;
  return *std::move(graph);
}

LoopProgram Lower(const std::string& text, const CompileOptions& options = {}) {
  absl::StatusOr<LoopProgram> loops = LowerGraph(Parse(text), options);
  EXPECT_THAT(loops.status(), IsOk()) << text;
  return *std::move(loops);
}

CompileOptions Eager() {
  CompileOptions options;
  options.numerics = Numerics::kEager;
  return options;
}

// Small integers, which every dtype holds and whose sums and products are exact.
std::vector<Tensor> SmallIntegers(const Graph& graph) {
  std::mt19937 random(7);
  std::vector<Tensor> out;
  for (ValueId id : graph.inputs) {
    Tensor t = Tensor::Allocate(graph.type(id).dtype, graph.type(id).shape());
    for (int64_t i = 0; i < t.element_count(); ++i)
      t.SetDouble(i, static_cast<double>(static_cast<int>(random() % 9) - 4));
    out.push_back(std::move(t));
  }
  return out;
}

std::string Values(const Tensor& t) {
  std::string out;
  for (int64_t i = 0; i < t.element_count(); ++i) StrAppend(&out, i ? " " : "", t.GetDouble(i));
  return out;
}

// The graph's statements with one input x of the type given; the loops must give what the reference gives, to the bit.
void ExpectLoopsComputeTheGraph(const std::string& text, const CompileOptions& options = {}) {
  const Graph graph = Parse(text);
  const std::vector<Tensor> inputs = SmallIntegers(graph);
  const absl::StatusOr<std::vector<Tensor>> want = reference::Interpret(graph, inputs, options);
  ASSERT_THAT(want.status(), IsOk()) << text;
  const absl::StatusOr<LoopProgram> loops = LowerGraph(graph, options);
  ASSERT_THAT(loops.status(), IsOk()) << text;
  const absl::StatusOr<std::vector<Tensor>> got = RunLoopProgram(*loops, inputs);
  ASSERT_THAT(got.status(), IsOk()) << text;
  ASSERT_EQ(got->size(), want->size()) << text;
  for (size_t o = 0; o < want->size(); ++o) {
    EXPECT_EQ((*got)[o].dtype(), (*want)[o].dtype()) << text;
    EXPECT_EQ((*got)[o].element_count(), (*want)[o].element_count()) << text;
    EXPECT_EQ(Values((*got)[o]), Values((*want)[o])) << text << PrintLoopProgram(*loops);
  }
}

std::string OneInput(const std::string& type, const std::string& statements) {
  return StrCat("graph g(x: ", type, ") {\n", statements, "\n}\n");
}

TEST(LowerGraphTest, ViewsAndTheirChainsComputeWhatTheReferenceDoes) {
  const struct {
    const char* type;
    const char* statements;
  } cases[] = {
      {"f32[4, 6]", "%v = permute(x) {dims = [1, 0]}\n%y = neg(%v)\nreturn %y"},
      {"f32[4, 6]",
       "%v = transpose(x) {dim0 = 0, dim1 = 1}\n%w = reshape(%v) {shape = [3, 8]}\n%y = neg(%w)\nreturn %y"},
      {"f32[2, 3, 4]",
       "%v = permute(x) {dims = [2, 0, 1]}\n%w = reshape(%v) {shape = [8, 3]}\n%f = flip(%w) {dims = [0]}\n%y = "
       "neg(%f)\nreturn %y"},
      {"f32[6]", "%v = broadcast_to(x) {shape = [4, 6]}\n%w = reshape(%v) {shape = [2, 12]}\n%y = neg(%w)\nreturn %y"},
      {"f32[1, 6]", "%v = broadcast_to(x) {shape = [4, 6]}\n%y = neg(%v)\nreturn %y"},
      {"f32[10, 3]",
       "%v = slice(x) {starts = [8], ends = [1], steps = [-2], dims = [0]}\n%w = reshape(%v) {shape = [-1]}\n%y = "
       "neg(%w)\nreturn %y"},
      {"f32[4, 6]",
       "%a = slice(x) {starts = [1], ends = [4], dims = [0]}\n%b = slice(%a) {starts = [-2], ends = [9], dims = "
       "[0]}\n%y = neg(%b)\nreturn %y"},
      {"f32[4, 1, 6]", "%a = squeeze(x) {dims = [1]}\n%b = unsqueeze(%a) {dim = 0}\n%y = neg(%b)\nreturn %y"},
      {"f32[6, 35]",
       "%n = neg(x)\n%p = permute(%n) {dims = [1, 0]}\n%r = reshape(%p) {shape = [10, 21]}\n%q = permute(%r) {dims = "
       "[1, 0]}\n%y = neg(%q)\nreturn %y"},
      {"f32[4, 6]", "%v = permute(x) {dims = [1, 0]}\nreturn %v"},
      {"f32[0, 3]", "%v = permute(x) {dims = [1, 0]}\n%y = neg(%v)\nreturn %y"},
      {"f32[]", "%v = reshape(x) {shape = [1, 1]}\n%y = neg(%v)\nreturn %y"},
  };
  for (const auto& c : cases) ExpectLoopsComputeTheGraph(OneInput(c.type, c.statements));
}

TEST(LowerGraphTest, OperandsBroadcastAsNumPysDo) {
  ExpectLoopsComputeTheGraph("graph g(x: f32[4, 1], y: f32[6]) {\n%r = add(x, y)\nreturn %r\n}\n");
  ExpectLoopsComputeTheGraph("graph g(x: f32[2, 1, 3], y: f32[4, 1]) {\n%r = sub(x, y)\nreturn %r\n}\n");
  ExpectLoopsComputeTheGraph("graph g(x: f32[], y: f32[2, 2]) {\n%r = mul(x, y)\nreturn %r\n}\n");
  ExpectLoopsComputeTheGraph("graph g(x: f32[1], y: f32[0]) {\n%r = mul(x, y)\nreturn %r\n}\n");
  ExpectLoopsComputeTheGraph(
      "graph g(x: f32[3, 4], y: f32[4, 3]) {\n%t = permute(y) {dims = [1, 0]}\n%r = mul(x, %t)\nreturn %r\n}\n");
}

TEST(LowerGraphTest, ReductionsKeepAndDropDims) {
  for (const char* attrs : {"", " {dims = [0]}", " {dims = [1]}", " {dims = [-1, 0]}", " {dims = []}",
                            " {dims = [1], keepdim = true}", " {dims = [0, 2], keepdim = true}", " {keepdim = true}"}) {
    for (const char* op : {"sum", "amax", "prod"}) {
      ExpectLoopsComputeTheGraph(OneInput("f32[2, 3, 4]", StrCat("%y = ", op, "(x)", attrs, "\nreturn %y")));
    }
    // What is read with kept dims is a view of the result.
    ExpectLoopsComputeTheGraph(
        OneInput("f32[2, 3, 4]", StrCat("%s = sum(x)", attrs, "\n%y = mul(%s, 2.0)\nreturn %y")));
  }
  ExpectLoopsComputeTheGraph(
      OneInput("f32[3, 4]", "%s = sum(x) {dims = [1], keepdim = true}\n%y = sub(x, %s)\nreturn %y"));
  ExpectLoopsComputeTheGraph(OneInput("f32[3, 0]", "%y = sum(x) {dims = [1]}\nreturn %y"));
  ExpectLoopsComputeTheGraph(OneInput("f32[0, 3]", "%y = sum(x) {dims = [1]}\nreturn %y"));
  ExpectLoopsComputeTheGraph(
      OneInput("bool[3, 4]", "%y = any(x) {dims = [1]}\n%z = all(x) {dims = [0]}\nreturn %y, %z"));
  ExpectLoopsComputeTheGraph(OneInput("i32[3, 4]", "%y = sum(x) {dims = [1]}\nreturn %y"));
}

TEST(LowerGraphTest, PositionsOfTheGreatestAreThoseOfTheOperand) {
  for (const char* attrs : {"", " {dim = 0}", " {dim = -1}", " {dim = 1, keepdim = true}", " {keepdim = true}"}) {
    for (const char* op : {"argmax", "argmin"}) {
      ExpectLoopsComputeTheGraph(OneInput("f32[4, 5]", StrCat("%y = ", op, "(x)", attrs, "\nreturn %y")));
      ExpectLoopsComputeTheGraph(
          OneInput("f32[5, 4]", StrCat("%t = permute(x) {dims = [1, 0]}\n%y = ", op, "(%t)", attrs, "\nreturn %y")));
    }
  }
  ExpectLoopsComputeTheGraph(OneInput("f32[4, 1]", "%y = argmax(x) {dim = 1}\nreturn %y"));
}

TEST(LowerGraphTest, VarianceAndMeanTakeTwoPasses) {
  // Powers of two, so that the divisions are exact.
  for (const char* attrs : {"{dims = [1], correction = 0}", "{dims = [0], correction = 0}", "{correction = 0}",
                            "{dims = [1], correction = 0, keepdim = true}"}) {
    ExpectLoopsComputeTheGraph(OneInput("f32[4, 8]", StrCat("%v, %m = var_mean(x) ", attrs, "\nreturn %v, %m")));
  }
  // correction = 4 of 8 elements leaves a divisor of 4.
  ExpectLoopsComputeTheGraph(OneInput("f32[2, 8]", "%v, %m = var_mean(x) {dims = [1], correction = 4}\nreturn %v, %m"));
  const LoopProgram loops = Lower(OneInput("f32[4, 8]", "%v, %m = var_mean(x) {dims = [1]}\nreturn %v, %m"));
  int reductions = 0;
  for (const LoopNode& n : loops.nodes) reductions += n.is_reduction();
  EXPECT_EQ(reductions, 2);
}

TEST(LowerGraphTest, NothingCancelsInTheVarianceOfLargeValues) {
  const Graph graph = Parse(OneInput("f32[4]", "%v, %m = var_mean(x) {correction = 0}\nreturn %v, %m"));
  Tensor x = Tensor::Allocate(DType::kF32, {4});
  const double values[] = {16777200, 16777202, 16777204, 16777206};  // just below 2^24
  for (int i = 0; i < 4; ++i) x.SetDouble(i, values[i]);
  const absl::StatusOr<std::vector<Tensor>> got = RunLoopProgram(Lower(PrintGraph(graph)), {x});
  ASSERT_THAT(got.status(), IsOk());
  EXPECT_EQ((*got)[0].GetDouble(0), 5);
  EXPECT_EQ((*got)[1].GetDouble(0), 16777203);
}

TEST(LowerGraphTest, ReturningAnInputCopiesIt) {
  const LoopProgram loops = Lower(OneInput("f32[3]", "return y = x"));
  ASSERT_EQ(loops.nodes.size(), 1u);
  EXPECT_EQ(loops.nodes[0].label, "copy");
  EXPECT_EQ(loops.tensor(loops.outputs[0]).kind, LoopTensor::Kind::kComputed);
  ExpectLoopsComputeTheGraph(OneInput("bf16[3, 2]", "return a = x, b = x"));
}

TEST(LowerGraphTest, ReturningAValueTwiceGivesTwoTensors) {
  const LoopProgram loops = Lower(OneInput("f32[3]", "%n = neg(x)\nreturn a = %n, b = %n"));
  ASSERT_EQ(loops.outputs.size(), 2u);
  EXPECT_NE(loops.outputs[0], loops.outputs[1]);
  EXPECT_EQ(loops.tensor(loops.outputs[0]).output, 0);
  EXPECT_EQ(loops.tensor(loops.outputs[1]).output, 1);
  ExpectLoopsComputeTheGraph(OneInput("f32[3]", "%n = neg(x)\nreturn a = %n, b = %n"));
}

TEST(LowerGraphTest, ReturningAReshapeNeedsNoCopy) {
  const LoopProgram loops =
      Lower(OneInput("f32[4, 6]", "%n = neg(x)\n%r = reshape(%n) {shape = [3, 8]}\nreturn y = %r"));
  EXPECT_EQ(loops.nodes.size(), 1u);
  ExpectLoopsComputeTheGraph(OneInput("f32[4, 6]", "%n = neg(x)\n%r = reshape(%n) {shape = [3, 8]}\nreturn %n, %r"));
}

TEST(LowerGraphTest, ReturningAPermutedValueCopiesIt) {
  const LoopProgram loops =
      Lower(OneInput("f32[4, 6]", "%n = neg(x)\n%p = permute(%n) {dims = [1, 0]}\nreturn y = %p"));
  EXPECT_EQ(loops.nodes.size(), 2u);
  EXPECT_EQ(loops.tensor(loops.outputs[0]).shape, (Shape{6, 4}));
}

TEST(LowerGraphTest, LiteralsTakeTheDtypeOfTheOtherOperand) {
  EXPECT_THAT(PrintLoopProgram(Lower(OneInput("i32[2]", "%y = mul(x, 3)\nreturn %y"))), HasSubstr("i32 3"));
  EXPECT_THAT(PrintLoopProgram(Lower(OneInput("f64[2]", "%y = mul(x, 3)\nreturn %y"))), HasSubstr("f64 3"));
  ExpectLoopsComputeTheGraph(OneInput("i32[4]", "%y = mul(3, x)\nreturn %y"));
  ExpectLoopsComputeTheGraph(OneInput("f32[4]", "%c = gt(x, 0)\n%y = where(%c, x, -1.5)\nreturn %y"));
  ExpectLoopsComputeTheGraph(OneInput("f32[4]", "%c = gt(x, 0)\n%y = where(%c, 2.0, x)\nreturn %y"));
  ExpectLoopsComputeTheGraph(OneInput("f32[4]", "%y = where(true, x, 2.0)\nreturn %y"));
  ExpectLoopsComputeTheGraph(OneInput("i32[4]", "%y = where(true, x, 2)\nreturn %y"));
  ExpectLoopsComputeTheGraph(OneInput("i32[4]", "%y = where(false, x, 2)\nreturn %y"));
  // A literal beside a 16-bit operand is a value of that dtype: 0.1 is 0.10009765625 in bf16.
  ExpectLoopsComputeTheGraph(
      OneInput("bf16[4]", "%c = cast(x) {dtype = f32}\n%y = add(x, 0.1)\n%z = cast(%y) {dtype = f32}\nreturn %c, %z"));
}

TEST(LowerGraphTest, ConstantsAndCreatedValuesNeedNoInput) {
  ExpectLoopsComputeTheGraph(OneInput(
      "f32[2, 2]",
      "%c = constant() {dtype = f32, shape = [2, 2], data = [1.0, 2.0, 3.0, 4.0]}\n%y = add(x, %c)\nreturn %y"));
  ExpectLoopsComputeTheGraph(
      OneInput("f32[2, 3]", "%c = full() {shape = [3], value = 2.5, dtype = f32}\n%y = add(x, %c)\nreturn %y"));
  ExpectLoopsComputeTheGraph(
      OneInput("i64[2, 3]", "%c = iota() {shape = [2, 3], dim = 1, dtype = i64}\n%y = add(x, %c)\nreturn %y"));
  ExpectLoopsComputeTheGraph(OneInput(
      "f32[2, 3]", "%c = iota() {shape = [2, 3], dim = -2, dtype = f32}\n%t = permute(%c) {dims = [1, 0]}\nreturn %t"));
  ExpectLoopsComputeTheGraph(
      "graph g() {\n%c = constant() {dtype = i32, shape = [3], data = [1, 2, 3]}\nreturn %c\n}\n");
}

TEST(LowerGraphTest, EagerNumericsRoundAfterEveryOp) {
  const std::string text =
      OneInput("bf16[4, 8]", "%a = mul(x, 1.01)\n%b = add(%a, 0.003)\n%s = sum(%b) {dims = [1]}\nreturn %s");
  const std::string fused = PrintLoopProgram(Lower(text));
  const std::string eager = PrintLoopProgram(Lower(text, Eager()));
  EXPECT_NE(fused, eager);
  // The literals are rounded in either case.
  const auto roundings = [](const std::string& s) {
    int n = 0;
    for (size_t at = s.find("round"); at != std::string::npos; at = s.find("round", at + 1)) ++n;
    return n;
  };
  EXPECT_EQ(roundings(fused), 2);
  EXPECT_EQ(roundings(eager), 4);
  const LoopProgram loops = Lower(text, Eager());
  EXPECT_EQ(loops.nodes.back().round_result, DType::kBF16);
  ExpectLoopsComputeTheGraph(text, Eager());
}

TEST(LowerGraphTest, CastSeesItsOperandRounded) {
  const LoopProgram loops = Lower(OneInput("bf16[4]", "%a = mul(x, 1.01)\n%b = cast(%a) {dtype = f32}\nreturn %b"));
  EXPECT_EQ(loops.nodes.back().label, "cast");
  EXPECT_THAT(PrintLoopProgram(loops), HasSubstr("to bf16"));
}

TEST(LowerGraphTest, ViewsAddNoLoops) {
  const LoopProgram loops = Lower(
      "graph g(x: f32[64, 32], y: f32[32, 64]) {\n  %p = permute(x) {dims = [1, 0]}\n  %f = flip(%p) {dims = [0]}\n"
      "  %s = add(%f, y)\n  return %s\n}\n");
  EXPECT_EQ(PrintLoopProgram(loops),
            "input x: f32[64, 32]\ninput y: f32[32, 64]\ns: f32[32, 64] = add over [d0<32, d1<64] -> out0\n"
            "    s0 = load x[d1, -1*d0 + 31]\n    s1 = load y[d0, d1]\n    s2 = add(s0, s1)\n    store s2\n");
}

TEST(LowerGraphTest, ChainsOfViewsThatDoNotSimplifyAreStored) {
  std::string text;
  std::string value = "x";
  for (int i = 0; i < 12; ++i) {
    StrAppend(&text, "%p", i, " = permute(", value, ") {dims = [1, 0]}\n%r", i, " = reshape(%p", i,
              ") {shape = ", i % 2 == 0 ? "[10, 21]" : "[6, 35]", "}\n");
    value = StrCat("%r", i);
  }
  const LoopProgram loops = Lower(OneInput("f32[6, 35]", StrCat(text, "%y = neg(", value, ")\nreturn %y")));
  EXPECT_GT(loops.nodes.size(), 1u);
  // The view that passes the bound is itself read by the loop that stores it.
  for (const LoopNode& n : loops.nodes) {
    for (const LoopInput& in : n.inputs) EXPECT_LE(NodeCount(in.index), 2 * kMaxIndexNodes);
  }
  ExpectLoopsComputeTheGraph(OneInput("f32[6, 35]", StrCat(text, "%y = neg(", value, ")\nreturn %y")));
}

TEST(LowerGraphTest, CompositesComputeWhatTheReferenceDoes) {
  ExpectLoopsComputeTheGraph(OneInput("f32[4, 8]", "%y = mean(x) {dims = [1]}\nreturn %y"));
  const LoopProgram loops = Lower(OneInput("f32[4, 8]", "%y = softmax(x) {dim = -1}\nreturn %y"));
  for (const LoopNode& n : loops.nodes) EXPECT_EQ(n.source, 0) << n.label;
  EXPECT_THAT(PrintLoopProgram(loops), Not(HasSubstr("= softmax")));
}

TEST(LowerGraphTest, SourcesDescribeEachOpAlone) {
  const LoopProgram loops = Lower(
      "graph g(x: f32[4, 8], w: f32[8]) {\n  %m = mul(x, w)\n  %q = mul(%m, %m)\n  %r = reshape(%q) {shape = [32]}\n  "
      "return %r\n}\n");
  ASSERT_EQ(loops.sources.size(), 3u);
  EXPECT_EQ(loops.sources[0].op, "mul");
  EXPECT_EQ(loops.sources[0].name, "%m");
  EXPECT_EQ(loops.sources[0].transfers, 3);
  EXPECT_EQ(loops.sources[0].bytes, 4 * (32 + 8 + 32));
  EXPECT_TRUE(loops.sources[0].makes_intermediate);
  EXPECT_EQ(loops.sources[1].transfers, 2);  // an operand read twice moves once
  EXPECT_TRUE(loops.sources[2].is_view);
  EXPECT_EQ(loops.sources[2].bytes, 0);
}

}  // namespace
}  // namespace fuseline::lowering
