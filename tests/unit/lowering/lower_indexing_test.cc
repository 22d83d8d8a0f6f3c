// Indexing, scans and sorting as loops: what is checked, in which order things run, and what is kept in which dtype.
#include <algorithm>
#include <string>
#include <vector>

#include "common/ir/text_form.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/lowering/lower_graph.h"
#include "tests/testing/status_matchers.h"

namespace fuseline::lowering {
namespace {

using ::testing::HasSubstr;
using testing::IsOk;
using Kind = LoopNode::Kind;

LoopProgram Lower(const std::string& inputs, const std::string& body) {
  absl::StatusOr<Graph> graph = ParseGraph("graph g(" + inputs + ") {\n" + body + "\n  return %r\n}");
  EXPECT_THAT(graph.status(), IsOk()) << body;
  absl::StatusOr<LoopProgram> loops = LowerGraph(*graph, {});
  EXPECT_THAT(loops.status(), IsOk()) << body;
  return *std::move(loops);
}

int CountKind(const LoopProgram& loops, Kind kind) {
  return static_cast<int>(
      std::count_if(loops.nodes.begin(), loops.nodes.end(), [&](const LoopNode& n) { return n.kind == kind; }));
}

const LoopNode& OfKind(const LoopProgram& loops, Kind kind) {
  return *std::find_if(loops.nodes.begin(), loops.nodes.end(), [&](const LoopNode& n) { return n.kind == kind; });
}

TEST(LowerIndexingTest, GatherIsOnePointwiseNodeWithACheckedPosition) {
  for (const char* statement : {"%r = gather(x, i) {dim = 0}", "%r = take_along_dim(x, i) {dim = 0}",
                                "%r = embedding(x, i)", "%r = gather_nd(x, i)"}) {
    const LoopProgram loops = Lower("x: f32[7, 3], i: i32[5, 1]", statement);
    ASSERT_EQ(loops.nodes.size(), 1u) << statement;
    EXPECT_EQ(loops.nodes[0].kind, Kind::kPointwise);
    ASSERT_EQ(loops.nodes[0].values.size(), 1u) << statement;
    ASSERT_EQ(loops.checks.size(), 1u) << statement;
    EXPECT_EQ(loops.checks[0].extent, 7);
    EXPECT_TRUE(loops.nodes[0].inputs.back().index[0].HasValues()) << statement;
  }
}

// Each position of a tuple has a range of its own; the node's name is the client's, though a composite is decomposed.
TEST(LowerIndexingTest, ChecksNameTheClientsNodeAndTheirRange) {
  const LoopProgram loops = Lower("x: f32[7, 3], i: i64[5, 2]",
                                  "  %soft = softmax(x) {dim = 1}\n  %pick = gather_nd(%soft, i)\n  %r = neg(%pick)");
  ASSERT_EQ(loops.checks.size(), 2u);
  EXPECT_EQ(loops.checks[0].node, "%pick");
  EXPECT_EQ(loops.checks[0].extent, 7);
  EXPECT_EQ(loops.checks[1].node, "%pick");
  EXPECT_EQ(loops.checks[1].extent, 3);
}

TEST(LowerIndexingTest, LossesCheckTheirTargetAndNameTheLoss) {
  const LoopProgram loops = Lower("x: f32[4, 9], t: i64[4]", "  %r = cross_entropy(x, t)");
  ASSERT_EQ(loops.checks.size(), 1u);
  EXPECT_EQ(loops.checks[0].node, "%r");
  EXPECT_EQ(loops.checks[0].extent, 9);
}

TEST(LowerIndexingTest, ScatterWritesIntoACopyThatNothingElseReads) {
  const LoopProgram loops = Lower("x: f32[7, 3], i: i64[5, 3], s: f32[5, 3]",
                                  "  %d = mul(x, 2.0)\n  %p = scatter_add(%d, i, s) {dim = 0}\n  %r = add(%p, %d)");
  ASSERT_EQ(CountKind(loops, Kind::kScatter), 1);
  const LoopNode& scatter = OfKind(loops, Kind::kScatter);
  EXPECT_EQ(scatter.reduced, (std::vector<bool>{true, false}));
  EXPECT_EQ(scatter.reduction, ReductionKind::kSum);
  for (const LoopNode& n : loops.nodes) {
    for (const LoopInput& in : n.inputs) EXPECT_NE(in.tensor, scatter.into);
  }
}

TEST(LowerIndexingTest, SumsOf16BitFloatsAreKeptInF32) {
  for (const char* reduction : {"add", "mul", "max", "none"}) {
    const LoopProgram loops =
        Lower("x: f16[7], i: i64[5], s: f16[5]",
              std::string("  %r = scatter(x, i, s) {dim = 0, reduction = \"") + reduction + "\"}");
    const LoopNode& scatter = OfKind(loops, Kind::kScatter);
    const bool wide = std::string(reduction) == "add" || std::string(reduction) == "mul";
    EXPECT_EQ(loops.tensor(scatter.into).dtype, wide ? DType::kF32 : DType::kF16) << reduction;
    EXPECT_EQ(loops.tensor(scatter.tensor).dtype, wide ? DType::kF32 : DType::kF16) << reduction;
    EXPECT_EQ(loops.tensor(loops.outputs[0]).dtype, DType::kF16) << reduction;
  }
}

TEST(LowerIndexingTest, AllTuplesOfAScatterRunInOrderAndSlicesDoNot) {
  const LoopProgram loops = Lower("x: f32[7, 3, 2], i: i64[4, 5, 2], s: f32[4, 5, 2]", "  %r = scatter_nd(x, i, s)");
  const LoopNode& scatter = OfKind(loops, Kind::kScatter);
  EXPECT_EQ(scatter.domain, (Shape{4, 5, 2}));
  EXPECT_EQ(scatter.reduced, (std::vector<bool>{true, true, false}));
  EXPECT_EQ(scatter.values.size(), 2u);
}

TEST(LowerOrderedTest, ScanRunsBackwardsThroughItsPositions) {
  const LoopProgram loops = Lower("x: f32[4, 9]", "  %r = cumsum(x) {dim = 1, reverse = true, exclusive = true}");
  ASSERT_EQ(loops.nodes.size(), 1u);
  const LoopNode& scan = loops.nodes[0];
  EXPECT_EQ(scan.kind, Kind::kScan);
  ASSERT_EQ(scan.position.size(), 2u);
  EXPECT_EQ(scan.position[1].ToString(), "-1*d1 + 8");
  ASSERT_FALSE(scan.inputs[0].guards.empty());  // the element before the first
  EXPECT_THAT(PrintLoopProgram(loops), HasSubstr("scan sum of"));
}

// The values are read where the positions say, so that what reads them only may be computed with them.
TEST(LowerOrderedTest, SortGivesPositionsAndReadsValuesThere) {
  const LoopProgram loops = Lower("x: f32[4, 9]", "  %v, %r = topk(x) {k = 2, largest = false}\n  %n = neg(%v)");
  const LoopNode& sort = OfKind(loops, Kind::kSort);
  EXPECT_FALSE(sort.descending);
  EXPECT_EQ(loops.tensor(sort.tensor).dtype, DType::kI64);
  EXPECT_EQ(loops.tensor(sort.tensor).shape, (Shape{4, 9}));
  EXPECT_TRUE(loops.checks.empty());  // they are within the range
}

}  // namespace
}  // namespace fuseline::lowering
