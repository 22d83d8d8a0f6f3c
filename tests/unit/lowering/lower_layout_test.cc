// pad, concat, stack, tril, triu and one_hot as loops: they compute what the reference does, read nothing where a guard
// does not hold (the interpreter gives NaN there), and are views where nothing is chosen.
#include <random>
#include <string>
#include <vector>

#include "common/ir/text_form.h"
#include "common/status/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/lowering/lower_graph.h"
#include "server/reference/reference_interpreter.h"
#include "tests/testing/status_matchers.h"
#include "tests/unit/lowering/loop_interpreter.h"

namespace fuseline::lowering {
namespace {

using testing::IsOk;
using ::testing::Not;

std::vector<Tensor> SmallIntegers(const Graph& graph) {
  std::mt19937 random(11);
  std::vector<Tensor> out;
  for (ValueId id : graph.inputs) {
    Tensor t = Tensor::Allocate(graph.type(id).dtype, graph.type(id).shape());
    for (int64_t i = 0; i < t.element_count(); ++i) {
      t.SetDouble(i, IsBool(t.dtype()) ? static_cast<double>(random() % 2) : static_cast<double>(random() % 5));
    }
    out.push_back(std::move(t));
  }
  return out;
}

std::string Values(const Tensor& t) {
  std::string out;
  for (int64_t i = 0; i < t.element_count(); ++i) StrAppend(&out, i ? " " : "", t.GetDouble(i));
  return out;
}

struct Loops {
  LoopProgram program;
  std::string values;  // of the first output
};

// The loops of the graph with the inputs and statements given, whose last one is %r.
Loops Check(const std::string& inputs, const std::string& statements) {
  const std::string text = StrCat("graph g(", inputs, ") {\n", statements, "\n  return %r\n}\n");
  absl::StatusOr<Graph> graph = ParseGraph(text);
  EXPECT_THAT(graph.status(), IsOk()) << text;
  if (!graph.ok()) return {};
  const std::vector<Tensor> tensors = SmallIntegers(*graph);
  const absl::StatusOr<std::vector<Tensor>> want = reference::Interpret(*graph, tensors, {});
  EXPECT_THAT(want.status(), IsOk()) << text;
  absl::StatusOr<LoopProgram> loops = LowerGraph(*graph, {});
  EXPECT_THAT(loops.status(), IsOk()) << text;
  if (!want.ok() || !loops.ok()) return {};
  const absl::StatusOr<std::vector<Tensor>> got = RunLoopProgram(*loops, tensors);
  EXPECT_THAT(got.status(), IsOk()) << text;
  if (!got.ok()) return {};
  EXPECT_EQ(Values((*got)[0]), Values((*want)[0])) << text << PrintLoopProgram(*loops);
  return {*std::move(loops), Values((*got)[0])};
}

TEST(LowerLayoutTest, LayoutOpsComputeWhatTheReferenceDoes) {
  const struct {
    const char* inputs;
    const char* statements;
  } cases[] = {
      {"x: f32[2, 3]", "%r = pad(x) {low = [1, 2], high = [0, 1], value = 7.0}"},
      {"x: f32[5, 7]", "%r = pad(x) {low = [-1, 2], high = [-2, -3], value = -7.0}"},
      {"x: f32[4, 3]", "%r = pad(x) {low = [-3, 0], high = [4, 1]}"},
      {"x: f32[1, 4]", "%r = pad(x) {low = [0, 4], high = [0, -4], value = 2.0}"},
      {"x: f32[0, 2]", "%r = pad(x) {low = [1, 0], high = [1, 0], value = 3.0}"},
      {"x: f32[2, 2]", "%r = pad(x) {low = [-1, 0], high = [-1, 0]}"},
      {"x: bool[3]", "%r = pad(x) {low = [1], high = [2], value = true}"},
      {"x: bf16[3]", "%r = pad(x) {low = [1], high = [2], value = 0.1}"},
      {"x: f8e4m3[3]", "%r = pad(x) {low = [1], high = [2], value = 0.1}"},
      {"x: u8[3]", "%r = pad(x) {low = [1], high = [2], value = 255}"},
      {"x: i64[4]", "%r = pad(x) {low = [3], high = [3], mode = \"reflect\"}"},
      {"x: f32[3, 4]", "%r = pad(x) {low = [2, 1], high = [1, 3], mode = \"reflect\"}"},
      {"x: f32[3, 4]", "%r = pad(x) {low = [5, -1], high = [-1, 9], mode = \"edge\"}"},
      {"x: f32[3, 4]", "%r = pad(x) {low = [3, 1], high = [1, 4], mode = \"wrap\"}"},
      {"x: f32[1, 4]", "%r = pad(x) {low = [3, 0], high = [0, 0], mode = \"edge\"}"},
      {"x: f32[2, 3], y: f32[2, 1]", "%r = concat(x, y, x) {dim = -1}"},
      {"x: f32[1, 2]", "%r = concat(x, x) {dim = 0}"},
      {"x: f32[0, 2], y: f32[3, 2]", "%r = concat(x, y, x) {dim = 0}"},
      {"x: f32[0, 2]", "%r = concat(x, x) {dim = 0}"},
      {"x: bool[2], y: bool[3]", "%r = concat(x, y) {dim = 0}"},
      {"x: f8e5m2[2], y: f8e5m2[3]", "%r = concat(x, y) {dim = 0}"},
      {"x: f32[2, 3]{1, 2}, y: f32[2, 3]", "%r = stack(x, y) {dim = 1}"},
      {"x: i32[3]", "%r = stack(x, x, x) {dim = -1}"},
      {"x: i32[3]", "%r = stack(x) {dim = 0}"},
      {"x: f32[]", "%r = stack(x, 2.0) {dim = 0}"},
      {"x: f32[3, 4]", "%r = tril(x)"},
      {"x: f32[3, 4]", "%r = tril(x) {diagonal = -1}"},
      {"x: f32[3, 4]", "%r = triu(x) {diagonal = 2}"},
      {"x: i8[2, 4, 3]", "%r = triu(x) {diagonal = -2}"},
      {"x: bool[3, 3]", "%r = tril(x)"},
      {"x: f32[3, 4]", "%r = tril(x) {diagonal = -9223372036854775808}"},
      {"x: f32[3, 4]", "%r = tril(x) {diagonal = 9223372036854775807}"},
      {"x: f32[3, 4]", "%r = triu(x) {diagonal = 9223372036854775807}"},
      {"x: f32[1, 1]", "%r = triu(x) {diagonal = 1}"},
      {"x: i64[2, 3]", "%r = one_hot(x) {classes = 5}"},
      {"x: u8[3]", "%r = one_hot(x) {classes = 5, dtype = bf16}"},
      {"x: i32[]", "%r = one_hot(x) {classes = 5, dtype = bool}"},
      {"x: i32[0]", "%r = one_hot(x) {classes = 1, dtype = f8e4m3}"},
      {"x: i32[3]", "%n = sub(x, 5)\n  %r = one_hot(%n) {classes = 5, dtype = f64}"},
  };
  for (const auto& c : cases) Check(c.inputs, c.statements);
}

TEST(LowerLayoutTest, WhatChoosesNothingIsAView) {
  for (const char* statement : {
           "pad(x) {low = [-1, 0], high = [0, -1]}",
           "pad(x) {low = [1, 2], high = [1, 0], mode = \"wrap\"}",
           "concat(x) {dim = 0}",
           "concat(%e, x, %e) {dim = 0}",
           "stack(x) {dim = 1}",
           "tril(x) {diagonal = 3}",
           "triu(x) {diagonal = -3}",
       }) {
    const Loops loops = Check(
        "x: f32[3, 4]", StrCat("  %e = slice(x) {starts = [0], ends = [0]}\n  %v = ", statement, "\n  %r = neg(%v)"));
    EXPECT_EQ(loops.program.nodes.size(), 1u) << statement;
  }
}

TEST(LowerLayoutTest, LongConcatJoinsGroupsFirst) {
  std::string inputs, operands;
  for (int k = 0; k < 100; ++k) {
    StrAppend(&inputs, k ? ", " : "", "x", k, ": i32[", k % 3, ", 2]");
    StrAppend(&operands, k ? ", " : "", "x", k);
  }
  const Loops loops = Check(inputs, StrCat("%r = concat(", operands, ") {dim = 0}"));
  EXPECT_GT(loops.program.nodes.size(), 1u);
  for (const LoopNode& n : loops.program.nodes) {
    int tensors = 0;
    for (const LoopInput& in : n.inputs) tensors += in.reads_tensor() ? 1 : 0;
    EXPECT_LE(tensors, 32);
  }
}

TEST(LowerLayoutTest, LongStackJoinsGroupsFirst) {
  std::string operands;
  for (int k = 0; k < 70; ++k) StrAppend(&operands, k ? ", " : "", "x");
  EXPECT_EQ(Check("x: i32[2]", StrCat("%r = stack(", operands, ") {dim = 1}")).program.nodes.size(), 4u);
}

TEST(LowerLayoutTest, IndexOutsideTheClassesIsChecked) {
  const Loops loops = Check("x: i32[3]", "%r = one_hot(x) {classes = 5}");
  ASSERT_EQ(loops.program.checks.size(), 1u);
  EXPECT_EQ(loops.program.checks[0].extent, 5);
  EXPECT_EQ(loops.program.checks[0].node, "%r");
}

}  // namespace
}  // namespace fuseline::lowering
