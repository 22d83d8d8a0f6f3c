// The index map of each view op against its meaning, element by element.
#include "server/lowering/view_rules.h"

#include <functional>
#include <string>
#include <vector>

#include "common/ir/text_form.h"
#include "common/status/str_cat.h"
#include "gtest/gtest.h"
#include "tests/testing/status_matchers.h"

namespace fuseline::lowering {
namespace {

using testing::IsOk;

using Point = std::vector<int64_t>;

int64_t Evaluate(const IndexExpr& e, const Point& at) {
  int64_t sum = e.constant();
  for (const IndexExpr::Term& t : e.terms()) {
    int64_t value = 0;
    if (t.kind == IndexExpr::Term::Kind::kVar) {
      value = at[static_cast<size_t>(t.var)];
    } else {
      const int64_t x = Evaluate(*t.operand, at);
      value = t.kind == IndexExpr::Term::Kind::kFloorDiv ? x / t.divisor : x % t.divisor;
    }
    sum += t.coefficient * value;
  }
  return sum;
}

int64_t Position(const Point& at, const Shape& shape) {
  int64_t p = 0;
  for (size_t i = 0; i < at.size(); ++i) p = p * shape[i] + at[i];
  return p;
}
Point PointAt(int64_t position, const Shape& shape) {
  Point at(shape.size());
  for (size_t i = shape.size(); i-- > 0;) {
    at[i] = position % shape[i];
    position /= shape[i];
  }
  return at;
}

struct ViewCase {
  const char* type;  // of x
  const char* view;  // the op with its attributes, applied to x
  Shape result;
  // Where in x the result's element `at` lies.
  std::function<Point(const Point& at)> source;
};

class ViewRulesTest : public ::testing::Test {
 protected:
  // The map, and the types that the verifier infers.
  void Check(const ViewCase& c) {
    const std::string op(c.view, std::string_view(c.view).find(' '));
    const std::string attrs = c.view + op.size();
    const absl::StatusOr<Graph> graph =
        ParseGraph(StrCat("graph g(x: ", c.type, ") {\n  %y = ", op, "(x)", attrs, "\n  return y = %y\n}\n"));
    ASSERT_THAT(graph.status(), IsOk()) << c.view;
    const Node& node = graph->nodes[0];
    const Shape operand = graph->type(graph->inputs[0]).shape();
    const Shape result = graph->type(node.results[0]).shape();
    ASSERT_EQ(result, c.result) << c.view;
    const absl::StatusOr<std::vector<IndexExpr>> map = ViewIndexMap(node, operand, result);
    ASSERT_THAT(map.status(), IsOk()) << c.view;
    ASSERT_EQ(map->size(), operand.size()) << c.view;
    for (int64_t p = 0; p < ElementCount(result); ++p) {
      const Point at = PointAt(p, result);
      Point got;
      for (const IndexExpr& e : *map) got.push_back(Evaluate(e, at));
      ASSERT_EQ(got, c.source(at)) << c.view << " of " << c.type << " at element " << p;
    }
  }
};

// Reshaping keeps the row-major position.
std::function<Point(const Point&)> SamePosition(Shape from, Shape to) {
  return [from, to](const Point& at) { return PointAt(Position(at, to), from); };
}

TEST_F(ViewRulesTest, ReshapesKeepTheRowMajorPosition) {
  const struct {
    const char* type;
    const char* view;
    Shape from, to;
  } cases[] = {
      {"f32[4, 6]", "reshape {shape = [24]}", {4, 6}, {24}},
      {"f32[24]", "reshape {shape = [4, 6]}", {24}, {4, 6}},
      {"f32[4, 6]", "reshape {shape = [6, 4]}", {4, 6}, {6, 4}},
      {"f32[4, 6]", "reshape {shape = [2, -1, 3]}", {4, 6}, {2, 4, 3}},
      {"f32[6, 35]", "reshape {shape = [10, 21]}", {6, 35}, {10, 21}},
      {"f32[]", "reshape {shape = [1, 1]}", {}, {1, 1}},
      {"f32[1, 1]", "reshape {shape = []}", {1, 1}, {}},
      {"f32[0, 3]", "reshape {shape = [3, 0]}", {0, 3}, {3, 0}},
      {"f32[2, 1, 3, 1]", "squeeze {dims = [1]}", {2, 1, 3, 1}, {2, 3, 1}},
      {"f32[2, 1, 3, 1]", "squeeze {dims = [-1, 1]}", {2, 1, 3, 1}, {2, 3}},
      {"f32[2, 3]", "unsqueeze {dim = 0}", {2, 3}, {1, 2, 3}},
      {"f32[2, 3]", "unsqueeze {dim = -1}", {2, 3}, {2, 3, 1}},
      {"f32[2, 3]", "unsqueeze {dim = 1}", {2, 3}, {2, 1, 3}},
  };
  for (const auto& c : cases) Check({c.type, c.view, c.to, SamePosition(c.from, c.to)});
}

TEST_F(ViewRulesTest, PermutationsMoveDims) {
  Check({"f32[2, 3, 4]", "permute {dims = [2, 0, 1]}", {4, 2, 3}, [](const Point& at) {
           return Point{at[1], at[2], at[0]};
         }});
  Check({"f32[2, 3, 4]", "permute {dims = [-1, -3, -2]}", {4, 2, 3}, [](const Point& at) {
           return Point{at[1], at[2], at[0]};
         }});
  Check({"f32[2, 3, 4]", "permute {dims = [0, 1, 2]}", {2, 3, 4}, [](const Point& at) { return at; }});
  Check({"f32[1, 3]", "permute {dims = [1, 0]}", {3, 1}, [](const Point& at) { return Point{0, at[0]}; }});
  Check({"f32[2, 3, 4]", "transpose {dim0 = 0, dim1 = -1}", {4, 3, 2}, [](const Point& at) {
           return Point{at[2], at[1], at[0]};
         }});
  Check({"f32[2, 3]", "transpose {dim0 = 1, dim1 = 1}", {2, 3}, [](const Point& at) { return at; }});
}

TEST_F(ViewRulesTest, BroadcastReadsDimsOfSizeOneAtZero) {
  Check({"f32[3]", "broadcast_to {shape = [2, 3]}", {2, 3}, [](const Point& at) { return Point{at[1]}; }});
  Check({"f32[2, 1]", "broadcast_to {shape = [4, 2, 3]}", {4, 2, 3}, [](const Point& at) { return Point{at[1], 0}; }});
  Check({"f32[]", "broadcast_to {shape = [2, 2]}", {2, 2}, [](const Point&) { return Point{}; }});
  Check({"f32[1]", "broadcast_to {shape = [0]}", {0}, [](const Point&) { return Point{0}; }});
}

TEST_F(ViewRulesTest, SlicesStartAndStepAsInPython) {
  Check({"f32[10]", "slice {starts = [2], ends = [9], steps = [3]}", {3}, [](const Point& at) {
           return Point{2 + 3 * at[0]};
         }});
  Check({"f32[10]", "slice {starts = [-3], ends = [100]}", {3}, [](const Point& at) { return Point{7 + at[0]}; }});
  Check({"f32[10]", "slice {starts = [8], ends = [2], steps = [-2]}", {3}, [](const Point& at) {
           return Point{8 - 2 * at[0]};
         }});
  Check({"f32[10]", "slice {starts = [100], ends = [-100], steps = [-1]}", {10}, [](const Point& at) {
           return Point{9 - at[0]};
         }});
  Check({"f32[10]", "slice {starts = [-100], ends = [4]}", {4}, [](const Point& at) { return at; }});
  Check({"f32[10]", "slice {starts = [5], ends = [5]}", {0}, [](const Point& at) { return at; }});
  Check({"f32[4, 6]", "slice {starts = [1, 2], ends = [3, 5]}", {2, 3}, [](const Point& at) {
           return Point{1 + at[0], 2 + at[1]};
         }});
  Check({"f32[4, 6]", "slice {starts = [1], ends = [6], steps = [2], dims = [-1]}", {4, 3}, [](const Point& at) {
           return Point{at[0], 1 + 2 * at[1]};
         }});
  Check({"f32[4, 6]",
         "slice {starts = [5, 3], ends = [2, -5], steps = [-1, -2], dims = [1, 0]}",
         {2, 3},
         [](const Point& at) {
           return Point{3 - 2 * at[0], 5 - at[1]};
         }});
  Check({"f32[1, 4]", "slice {starts = [0], ends = [1], steps = [-1], dims = [0]}", {0, 4}, [](const Point& at) {
           return at;
         }});
}

TEST_F(ViewRulesTest, FlipsCountFromTheEnd) {
  Check({"f32[3, 4]", "flip {dims = [1]}", {3, 4}, [](const Point& at) { return Point{at[0], 3 - at[1]}; }});
  Check({"f32[3, 4]", "flip {dims = [-2, 1]}", {3, 4}, [](const Point& at) { return Point{2 - at[0], 3 - at[1]}; }});
  Check({"f32[1, 4]", "flip {dims = [0]}", {1, 4}, [](const Point& at) { return Point{0, at[1]}; }});
  Check({"f32[0]", "flip {dims = [0]}", {0}, [](const Point& at) { return at; }});
}

TEST_F(ViewRulesTest, TilesAreReadOverAndOver) {
  Check({"f32[2, 3]", "tile {repeats = [2, 3]}", {4, 9}, [](const Point& at) { return Point{at[0] % 2, at[1] % 3}; }});
  Check({"f32[3]", "tile {repeats = [2, 2]}", {2, 6}, [](const Point& at) { return Point{at[1] % 3}; }});
  Check({"f32[2, 3]", "tile {repeats = [2]}", {2, 6}, [](const Point& at) { return Point{at[0], at[1] % 3}; }});
  Check({"f32[1, 3]", "tile {repeats = [4, 1]}", {4, 3}, [](const Point& at) { return Point{0, at[1]}; }});
  Check({"f32[]", "tile {repeats = [3]}", {3}, [](const Point&) { return Point{}; }});
  Check({"f32[2]", "tile {repeats = [0]}", {0}, [](const Point& at) { return at; }});
  Check({"f32[0, 2]", "tile {repeats = [2, 2]}", {0, 4}, [](const Point& at) { return at; }});
}

TEST_F(ViewRulesTest, RepeatsStandInARow) {
  Check({"f32[2, 3]", "repeat_interleave {repeats = 2, dim = -1}", {2, 6}, [](const Point& at) {
           return Point{at[0], at[1] / 2};
         }});
  Check({"f32[1]", "repeat_interleave {repeats = 4, dim = 0}", {4}, [](const Point&) { return Point{0}; }});
  Check({"f32[3]", "repeat_interleave {repeats = 1, dim = 0}", {3}, [](const Point& at) { return at; }});
  Check({"f32[3]", "repeat_interleave {repeats = 0, dim = 0}", {0}, [](const Point& at) { return at; }});
}

TEST_F(ViewRulesTest, RollsGoRound) {
  Check({"f32[2, 5]", "roll {shifts = [2], dims = [1]}", {2, 5}, [](const Point& at) {
           return Point{at[0], (at[1] + 3) % 5};
         }});
  Check({"f32[3, 4]", "roll {shifts = [-1, 9], dims = [0, -1]}", {3, 4}, [](const Point& at) {
           return Point{(at[0] + 1) % 3, (at[1] + 3) % 4};
         }});
  Check({"f32[2, 3]", "roll {shifts = [1]}", {2, 3}, [](const Point& at) {
           return PointAt((Position(at, {2, 3}) + 5) % 6, {2, 3});
         }});
  Check({"f32[4]", "roll {shifts = [-9223372036854775808], dims = [0]}", {4}, [](const Point& at) { return at; }});
  Check({"f32[1]", "roll {shifts = [7], dims = [0]}", {1}, [](const Point&) { return Point{0}; }});
  Check({"f32[0]", "roll {shifts = [7]}", {0}, [](const Point& at) { return at; }});
}

TEST_F(ViewRulesTest, DiagonalsMoveAlongTwoDims) {
  Check({"f32[3, 4]", "diagonal ", {3}, [](const Point& at) { return Point{at[0], at[0]}; }});
  Check({"f32[3, 4]", "diagonal {offset = 2}", {2}, [](const Point& at) { return Point{at[0], at[0] + 2}; }});
  Check({"f32[3, 4]", "diagonal {offset = -1}", {2}, [](const Point& at) { return Point{at[0] + 1, at[0]}; }});
  Check({"f32[3, 2, 4]", "diagonal {offset = 1, dim0 = 2, dim1 = 0}", {2, 2}, [](const Point& at) {
           return Point{at[1] + 1, at[0], at[1]};
         }});
  Check({"f32[3, 4]", "diagonal {offset = 4}", {0}, [](const Point& at) { return Point{at[0], at[0]}; }});
  Check({"f32[3, 4]", "diagonal {offset = -9223372036854775808}", {0}, [](const Point& at) {
           return Point{at[0], at[0]};
         }});
}

TEST_F(ViewRulesTest, ViewWithoutARuleIsUnimplemented) {
  Node node;
  node.op = "unfold";
  EXPECT_THAT(ViewIndexMap(node, {4}, {4}).status(),
              testing::StatusIs(absl::StatusCode::kUnimplemented, "view op 'unfold' has no index map"));
}

}  // namespace
}  // namespace fuseline::lowering
