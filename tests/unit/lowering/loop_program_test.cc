// VerifyLoopProgram: a program that breaks one constraint is refused with the constraint's number.
#include "server/lowering/loop_program.h"

#include <functional>
#include <string>

#include "common/ir/text_form.h"
#include "gtest/gtest.h"
#include "server/lowering/lower_graph.h"
#include "tests/testing/status_matchers.h"

namespace fuseline::lowering {
namespace {

using testing::IsOk;
using testing::StatusIs;

// Tensors: x, t = mul(x, 2), s = sum(t), y = sub(t, s); outputs s and y.
LoopProgram Valid() {
  const absl::StatusOr<Graph> graph = ParseGraph(
      "graph g(x: f32[4, 8]) {\n  %t = mul(x, 2.0)\n  %s = sum(%t) {dims = [1]}\n  %k = unsqueeze(%s) {dim = 1}\n  %y "
      "= sub(%t, %k)\n"
      "  return %s, %y\n}\n");
  EXPECT_THAT(graph.status(), IsOk());
  absl::StatusOr<LoopProgram> loops = LowerGraph(*graph, {});
  EXPECT_THAT(loops.status(), IsOk());
  EXPECT_EQ(loops->nodes.size(), 3u);
  return *std::move(loops);
}

TEST(LoopProgramTest, ValidProgramPasses) { EXPECT_THAT(VerifyLoopProgram(Valid()), IsOk()); }

TEST(LoopProgramTest, EachBrokenConstraintIsNamed) {
  const struct {
    const char* constraint;
    const char* what;
    std::function<void(LoopProgram&)> break_it;
  } cases[] = {
      {"L1", "reads a tensor of a later node", [](LoopProgram& p) { p.nodes[0].inputs[0].tensor = p.nodes[2].tensor; }},
      {"L1", "reads its own tensor", [](LoopProgram& p) { p.nodes[0].inputs[0].tensor = p.nodes[0].tensor; }},
      {"L2", "index of another rank", [](LoopProgram& p) { p.nodes[0].inputs[0].index.pop_back(); }},
      {"L2", "index past the end",
       [](LoopProgram& p) { p.nodes[0].inputs[0].index[1] = IndexExpr::Var(1) + IndexExpr::Const(1); }},
      {"L2", "negative index",
       [](LoopProgram& p) { p.nodes[0].inputs[0].index[0] = IndexExpr::Var(0) + IndexExpr::Const(-1); }},
      {"L3", "operand that comes later", [](LoopProgram& p) { p.nodes[0].body.back().args[0] = p.nodes[0].result; }},
      {"L3", "input that the node does not have", [](LoopProgram& p) { p.nodes[0].body[0].index = 5; }},
      {"L3", "value of a storage dtype", [](LoopProgram& p) { p.nodes[0].body[0].type = DType::kBF16; }},
      {"L3", "no result", [](LoopProgram& p) { p.nodes[0].result = -1; }},
      {"L3", "result past the body",
       [](LoopProgram& p) { p.nodes[0].result = static_cast<int32_t>(p.nodes[0].body.size()); }},
      {"L4", "pointwise tensor of another shape",
       [](LoopProgram& p) {
         p.tensors[static_cast<size_t>(p.nodes[2].tensor)].shape = {8, 4};
       }},
      {"L4", "reduction that keeps the wrong dim",
       [](LoopProgram& p) {
         p.nodes[1].reduced = {true, false};
       }},
      {"L4", "reduction without a kind", [](LoopProgram& p) { p.nodes[1].reduction = ReductionKind::kNone; }},
      {"L5", "two nodes for one tensor", [](LoopProgram& p) { p.nodes[2].tensor = p.nodes[0].tensor; }},
      {"L5", "node without a tensor", [](LoopProgram& p) { p.nodes[2].tensor = -1; }},
      {"L5", "returned input", [](LoopProgram& p) { p.outputs[0] = p.nodes[0].inputs[0].tensor; }},
      {"L5", "tensor returned twice", [](LoopProgram& p) { p.outputs[1] = p.outputs[0]; }},
  };
  for (const auto& c : cases) {
    LoopProgram program = Valid();
    c.break_it(program);
    EXPECT_THAT(VerifyLoopProgram(program), StatusIs(absl::StatusCode::kInternal, c.constraint)) << c.what;
  }
}

TEST(LoopProgramTest, EmptyLoopsMayHaveAnyIndex) {
  const absl::StatusOr<Graph> graph =
      ParseGraph("graph g(x: f32[0, 3]) {\n  %f = flip(x) {dims = [0]}\n  %y = neg(%f)\n  return %y\n}\n");
  ASSERT_THAT(graph.status(), IsOk());
  EXPECT_THAT(LowerGraph(*graph, {}).status(), IsOk());
}

// (L2) says "over the node's loop variables"; the verifier reads past the extents instead of refusing.
TEST(LoopProgramTest, VariableThatTheLoopsDoNotHaveIsRefused) {
  LoopProgram program = Valid();
  program.nodes[0].inputs[0].index[0] = IndexExpr::Var(7);
  EXPECT_THAT(VerifyLoopProgram(program), StatusIs(absl::StatusCode::kInternal, "L2"));
}

// (L3) says "with operand types that the operation takes"; nothing compares them.
TEST(LoopProgramTest, OperandsOfUnequalTypesAreRefused) {
  LoopProgram program = Valid();
  program.nodes[0].body[1].type = DType::kI64;  // the literal 2 of mul(x, 2)
  EXPECT_THAT(VerifyLoopProgram(program), StatusIs(absl::StatusCode::kInternal, "L3"));
}

TEST(LoopProgramTest, ReductionResultTypes) {
  LoopNode n;
  n.body.push_back(ScalarInstr{});
  n.body[0].type = DType::kF32;
  n.result = 0;
  n.reduction = ReductionKind::kAmax;
  EXPECT_EQ(ReductionResultType(n), DType::kF32);
  n.reduction = ReductionKind::kArgmin;
  EXPECT_EQ(ReductionResultType(n), DType::kI64);
}

}  // namespace
}  // namespace fuseline::lowering
