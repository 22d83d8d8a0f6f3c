// Rules of the index simplifier, each shown by its text, and all of them held against brute force.
#include "server/lowering/index_expr.h"

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "common/status/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace fuseline::lowering {
namespace {

using Kind = IndexExpr::Term::Kind;
using Point = std::vector<int64_t>;

IndexExpr C(int64_t c) { return IndexExpr::Const(c); }
IndexExpr V(int32_t v) { return IndexExpr::Var(v); }
int64_t FloorDivision(int64_t a, int64_t b) { return a / b - (a % b < 0 ? 1 : 0); }
int64_t FloorModulo(int64_t a, int64_t b) { return a - FloorDivision(a, b) * b; }

// The value at a point, as the emitted C text computes it: / and % truncate. `negative_numerator` tells whether one was
// met.
int64_t Evaluate(const IndexExpr& e, const Point& at, bool* negative_numerator) {
  int64_t sum = e.constant();
  for (const IndexExpr::Term& t : e.terms()) {
    int64_t value = 0;
    if (t.kind == Kind::kVar) {
      value = at[static_cast<size_t>(t.var)];
    } else {
      const int64_t numerator = Evaluate(*t.operand, at, negative_numerator);
      if (numerator < 0) *negative_numerator = true;
      value = t.kind == Kind::kFloorDiv ? numerator / t.divisor : numerator % t.divisor;
    }
    sum += t.coefficient * value;
  }
  return sum;
}

// Calls `visit` with every point of the box.
template <typename Visit>
void ForEachPoint(const std::vector<int64_t>& extents, Visit visit) {
  Point at(extents.size(), 0);
  for (;;) {
    visit(at);
    size_t d = extents.size();
    while (d > 0 && ++at[d - 1] >= extents[d - 1]) at[--d] = 0;
    if (d == 0) return;
  }
}

std::string Text(const std::vector<IndexExpr>& exprs) {
  std::string out;
  for (const IndexExpr& e : exprs) out += (out.empty() ? "" : ", ") + e.ToString();
  return out;
}

TEST(IndexExprTest, RulesGiveTheSimplestText) {
  const std::vector<int64_t> n = {4, 8, 16};  // extents of d0, d1, d2
  const IndexExpr flat = V(0) * 128 + V(1) * 16 + V(2);
  const struct {
    const char* rule;
    IndexExpr expr;
    const char* text;
  } cases[] = {
      {"zero", IndexExpr(), "0"},
      {"terms add up", V(0) + V(0) * 2 + C(1), "3*d0 + 1"},
      {"terms cancel", V(0) + V(1) + V(0) * -1, "d1"},
      {"times zero", (V(0) + C(5)) * 0, "0"},
      {"sorted by variable", V(2) + V(0), "d0 + d2"},
      {"negative coefficient and constant", V(0) * -1 + C(3), "-1*d0 + 3"},
      {"subtraction", V(0) + V(1) * -2 + C(-3), "d0 - 2*d1 - 3"},
      {"x / 1", FloorDiv(flat, 1, n), "128*d0 + 16*d1 + d2"},
      {"x % 1", Mod(flat, 1, n), "0"},
      {"small / c", FloorDiv(V(2), 16, n), "0"},
      {"small % c", Mod(V(2), 16, n), "d2"},
      {"multiples leave a division", FloorDiv(flat, 16, n), "8*d0 + d1"},
      {"multiples leave a remainder", Mod(flat, 16, n), "d2"},
      {"outer dims drop out", Mod(flat, 128, n), "16*d1 + d2"},
      {"outer dim alone", FloorDiv(flat, 128, n), "d0"},
      {"middle dim", Mod(FloorDiv(flat, 16, n), 8, n), "d1"},
      {"parts below a common factor", FloorDiv(flat, 64, n), "2*d0 + (d1 / 4)"},
      {"remainder keeps the parts below", Mod(flat, 64, n), "d2 + 16*(d1 % 4)"},
      {"(x / a) / b", FloorDiv(FloorDiv(V(2), 2, n), 3, n), "(d2 / 6)"},
      {"(x % ab) / b", FloorDiv(Mod(V(2), 6, n), 2, n), "(((d2 / 2)) % 3)"},
      {"(x % ab) % b", Mod(Mod(V(2), 6, n), 3, n), "(d2 % 3)"},
      {"the division is the same everywhere", FloorDiv(V(0) + C(8), 4, n), "2"},
      {"the remainder is an offset", Mod(V(0) + C(9), 5, n), "((d0 + 4) % 5)"},
      {"offset without wrapping", Mod(V(0) + C(8), 12, n), "d0 + 8"},
      {"constant folds", FloorDiv(C(-7), 2, n), "-4"},
      {"constant remainder is not negative", Mod(C(-7), 2, n), "1"},
      {"negative numerators are lifted", FloorDiv(V(0) * -1 + C(1), 3, n), "((-1*d0 + 4) / 3) - 1"},
      {"negative remainders are lifted", Mod(V(0) * -1 + C(1), 3, n), "((-1*d0 + 4) % 3)"},
      {"c(x / c) + x % c", FloorDiv(V(2), 3, n) * 3 + Mod(V(2), 3, n), "d2"},
      {"the same, scaled", FloorDiv(V(2), 3, n) * 30 + Mod(V(2), 3, n) * 10, "10*d2"},
      {"other factors stay", FloorDiv(V(2), 3, n) * 6 + Mod(V(2), 3, n), "6*(d2 / 3) + (d2 % 3)"},
  };
  for (const auto& c : cases) EXPECT_EQ(c.expr.ToString(), c.text) << c.rule;
}

TEST(IndexExprTest, NamesOfVariablesArePrinted) {
  const auto name = [](int32_t v) { return v == 0 ? std::string("row") : std::string("(col + lane)"); };
  EXPECT_EQ((V(0) * 8 + V(1)).ToString(name), "8*row + (col + lane)");
  EXPECT_EQ(FloorDiv(V(1), 4, std::vector<int64_t>{1, 8}).ToString(name), "((col + lane) / 4)");
}

// A random sum of variables, divisions and remainders, with the value it stands for.
struct Sample {
  IndexExpr expr;
  std::vector<int64_t> values;  // at each point of the box
  std::string history;          // how it was made
};

class RandomSamples {
 public:
  explicit RandomSamples(uint32_t seed) : random_(seed) {
    const int rank = Pick(1, 3);
    for (int i = 0; i < rank; ++i) extents_.push_back(Pick(1, 7));
    ForEachPoint(extents_, [&](const Point& p) { points_.push_back(p); });
  }

  Sample Next() {
    Sample s = Leaf();
    for (int step = Pick(1, 6); step > 0; --step) Step(s);
    return s;
  }

  const std::vector<int64_t>& extents() const { return extents_; }
  const std::vector<Point>& points() const { return points_; }
  int Pick(int low, int high) { return std::uniform_int_distribution<int>(low, high)(random_); }

 private:
  Sample Leaf() {
    const int var = Pick(0, static_cast<int>(extents_.size()) - 1);
    Sample s{V(var), {}, StrCat("d", var)};
    for (const Point& p : points_) s.values.push_back(p[static_cast<size_t>(var)]);
    return s;
  }

  void Step(Sample& s) {
    const int64_t k = Pick(-6, 6);
    const int64_t divisor = Pick(1, 12);
    switch (Pick(0, 4)) {
      case 0: {
        const Sample other = Leaf();
        s.expr = s.expr + other.expr * k;
        for (size_t i = 0; i < points_.size(); ++i) s.values[i] += k * other.values[i];
        s.history = StrCat("(", s.history, " + ", k, "*", other.history, ")");
        break;
      }
      case 1:
        s.expr = s.expr * k + C(3 * k);
        for (int64_t& v : s.values) v = v * k + 3 * k;
        s.history = StrCat("(", s.history, "*", k, " + ", 3 * k, ")");
        break;
      case 2:
        s.expr = FloorDiv(s.expr, divisor, extents_);
        for (int64_t& v : s.values) v = FloorDivision(v, divisor);
        s.history = StrCat("(", s.history, " / ", divisor, ")");
        break;
      case 3:
        s.expr = Mod(s.expr, divisor, extents_);
        for (int64_t& v : s.values) v = FloorModulo(v, divisor);
        s.history = StrCat("(", s.history, " % ", divisor, ")");
        break;
      default: {
        // The two parts of a division, which may or may not come together again.
        const IndexExpr whole = s.expr;
        s.expr = FloorDiv(whole, divisor, extents_) * (divisor * k) + Mod(whole, divisor, extents_) * k;
        for (int64_t& v : s.values) v = v * k;
        s.history = StrCat("(", k, "*(", s.history, " / ", divisor, " * ", divisor, " + % ))");
      }
    }
  }

  std::mt19937 random_;
  std::vector<int64_t> extents_;
  std::vector<Point> points_;
};

TEST(IndexExprTest, EveryRuleKeepsTheValueAtEveryPoint) {
  for (uint32_t seed = 0; seed < 4000; ++seed) {
    RandomSamples samples(seed);
    const Sample s = samples.Next();
    const IndexRange range = RangeOf(s.expr, samples.extents());
    for (size_t i = 0; i < s.values.size(); ++i) {
      bool negative = false;
      const int64_t value = Evaluate(s.expr, samples.points()[i], &negative);
      ASSERT_EQ(value, s.values[i]) << "seed " << seed << ": " << s.history << " became " << s.expr.ToString();
      ASSERT_FALSE(negative) << "seed " << seed
                             << ": a truncating division of a negative number: " << s.expr.ToString();
      ASSERT_GE(value, range.low) << "seed " << seed << ": " << s.expr.ToString();
      ASSERT_LE(value, range.high) << "seed " << seed << ": " << s.expr.ToString();
    }
  }
}

TEST(IndexExprTest, SubstitutionKeepsTheValueAtEveryPoint) {
  for (uint32_t seed = 0; seed < 2000; ++seed) {
    // An expression over new variables for each old one; the old ones' ranges are what those expressions take.
    RandomSamples inner(seed);
    std::vector<IndexExpr> values;
    std::vector<std::vector<int64_t>> taken;
    std::vector<int64_t> old_extents;
    for (int v = 0; v < 2; ++v) {
      Sample s = inner.Next();
      const int64_t low = *std::min_element(s.values.begin(), s.values.end());
      const int64_t high = *std::max_element(s.values.begin(), s.values.end());
      for (int64_t& x : s.values) x -= low;
      values.push_back(s.expr + C(-low));
      taken.push_back(s.values);
      old_extents.push_back(high - low + 1);
    }
    const int64_t a = inner.Pick(1, 9), b = inner.Pick(1, 9), k = inner.Pick(-4, 4);
    const IndexExpr whole = V(0) * k + V(1) + C(k);
    const IndexExpr outer = FloorDiv(whole, a, old_extents) * 3 + Mod(whole, b, old_extents);
    const IndexExpr result = Substitute(outer, values, inner.extents());
    for (size_t i = 0; i < inner.points().size(); ++i) {
      const int64_t w = taken[0][i] * k + taken[1][i] + k;
      bool negative = false;
      ASSERT_EQ(Evaluate(result, inner.points()[i], &negative), FloorDivision(w, a) * 3 + FloorModulo(w, b))
          << "seed " << seed << ": " << outer.ToString() << " with " << Text(values) << " became " << result.ToString();
      ASSERT_FALSE(negative) << "seed " << seed << ": " << result.ToString();
    }
  }
}

TEST(IndexExprTest, UnflattenUndoesFlatten) {
  const std::vector<std::vector<int64_t>> shapes = {{}, {1}, {5}, {2, 3}, {1, 4, 1}, {3, 1, 5, 2}, {7, 2, 2, 3}};
  for (const std::vector<int64_t>& shape : shapes) {
    const std::vector<IndexExpr> id = IdentityIndex(shape);
    EXPECT_EQ(Text(Unflatten(Flatten(id, shape), shape, shape)), Text(id));
  }
}

// Whether `to` and back leaves nothing of the way there.
void ExpectReshapeAndBackIsTheIdentity(const std::vector<int64_t>& from, const std::vector<int64_t>& to) {
  const std::vector<IndexExpr> there = Unflatten(Flatten(IdentityIndex(from), from), to, from);
  EXPECT_EQ(Flatten(there, to).ToString(), Flatten(IdentityIndex(from), from).ToString()) << Text(there);
  EXPECT_EQ(Text(Unflatten(Flatten(there, to), from, from)), Text(IdentityIndex(from))) << Text(there);
}

TEST(IndexExprTest, ReshapeThereAndBackIsTheIdentity) {
  const std::vector<std::vector<int64_t>> shapes = {{6, 35}, {35, 6}, {210}, {10, 21}, {7, 30}, {1, 210}, {30, 7}};
  for (const std::vector<int64_t>& from : shapes) {
    for (const std::vector<int64_t>& to : shapes) ExpectReshapeAndBackIsTheIdentity(from, to);
  }
  ExpectReshapeAndBackIsTheIdentity({2, 3, 5, 7}, {210});
  ExpectReshapeAndBackIsTheIdentity({2, 3, 35}, {6, 35});
  ExpectReshapeAndBackIsTheIdentity({6, 35}, {2, 3, 35});
}

// c*((x / c) % m) + x % c is x % (c*m): without that rule a dim that is split in three does not come together again,
// and what follows a softmax or group norm through such a reshape gets a kernel of its own.
TEST(IndexExprTest, ReshapeIntoThreePartsAndBackIsTheIdentity) {
  ExpectReshapeAndBackIsTheIdentity({210}, {2, 3, 35});
  ExpectReshapeAndBackIsTheIdentity({8, 1024}, {8, 16, 8, 8});
}

TEST(IndexExprTest, ReshapesThatCutAtTheSamePlacesNeedNoDivision) {
  const std::vector<int64_t> merged = {24, 32};
  const std::vector<IndexExpr> map = Unflatten(Flatten(IdentityIndex({4, 6, 32}), {4, 6, 32}), merged, {4, 6, 32});
  EXPECT_EQ(Text(map), "6*d0 + d1, d2");
}

TEST(IndexExprTest, EmptyDimsCountAsOne) {
  EXPECT_EQ(Text(Unflatten(Flatten(IdentityIndex({0, 3}), {0, 3}), {3, 0}, {0, 3})), "d1, 0");
  const IndexRange r = RangeOf(V(0) * 5 + C(2), std::vector<int64_t>{0});
  EXPECT_EQ(r.low, 2);
  EXPECT_EQ(r.high, 2);
}

TEST(IndexExprTest, IdentityOfADimOfSizeOneIsZero) { EXPECT_EQ(Text(IdentityIndex({2, 1, 3})), "d0, 0, d2"); }

TEST(IndexExprTest, CoefficientsAndUsesAreReported) {
  const std::vector<int64_t> n = {4, 10};
  const IndexExpr e = V(0) * 5 + FloorDiv(V(1), 3, n);
  EXPECT_EQ(e.Coefficient(0), 5);
  EXPECT_EQ(e.Coefficient(1), 0);
  EXPECT_TRUE(e.UsesNonlinearly(1));
  EXPECT_FALSE(e.UsesNonlinearly(0));
  EXPECT_TRUE(e.Uses(0));
  EXPECT_TRUE(e.Uses(1));
  EXPECT_FALSE(e.Uses(2));
  EXPECT_EQ(e.node_count(), 1 + 1 + (1 + 2));  // the sum, d0, the division, and its operand's sum and variable
}

TEST(IndexExprTest, EqualExpressionsHaveEqualHashes) {
  const std::vector<int64_t> n = {4, 10};
  const IndexExpr a = V(0) + Mod(V(1), 3, n) + C(1);
  const IndexExpr b = C(1) + Mod(V(1), 3, n) + V(0);
  EXPECT_EQ(a, b);
  EXPECT_EQ(a.Hash(), b.Hash());
  EXPECT_FALSE(a == b + C(1));
}

TEST(IndexExprTest, LargeShapesDoNotOverflow) {
  const std::vector<int64_t> shape = {1 << 20, 1 << 20};
  const IndexExpr flat = Flatten(IdentityIndex(shape), shape);
  EXPECT_EQ(RangeOf(flat, shape).high, (int64_t{1} << 40) - 1);
  EXPECT_EQ(Text(Unflatten(flat, shape, shape)), "d0, d1");
}

}  // namespace
}  // namespace fuseline::lowering
