#include "server/lowering/index_expr.h"

#include <algorithm>
#include <numeric>
#include <tuple>
#include <utility>

#include "absl/hash/hash.h"
#include "absl/strings/str_cat.h"

namespace fuseline::lowering {
namespace {

using Term = IndexExpr::Term;

int64_t FloorDivInt(int64_t a, int64_t b) { return a >= 0 ? a / b : -((-a + b - 1) / b); }
int64_t ModInt(int64_t a, int64_t b) { return a - FloorDivInt(a, b) * b; }

// A total order on terms without their coefficients. Operands are compared by value; sizes are bounded by
// kMaxIndexNodes.
int CompareExpr(const IndexExpr& a, const IndexExpr& b);
int CompareAtom(const Term& a, const Term& b) {
  if (a.kind != b.kind) return a.kind < b.kind ? -1 : 1;
  if (a.kind == Term::Kind::kVar || a.kind == Term::Kind::kValue) return a.var == b.var ? 0 : (a.var < b.var ? -1 : 1);
  if (a.divisor != b.divisor) return a.divisor < b.divisor ? -1 : 1;
  if (a.operand == b.operand) return 0;
  return CompareExpr(*a.operand, *b.operand);
}
int CompareExpr(const IndexExpr& a, const IndexExpr& b) {
  if (a.constant() != b.constant()) return a.constant() < b.constant() ? -1 : 1;
  if (a.terms().size() != b.terms().size()) return a.terms().size() < b.terms().size() ? -1 : 1;
  for (size_t i = 0; i < a.terms().size(); ++i) {
    const int c = CompareAtom(a.terms()[i], b.terms()[i]);
    if (c != 0) return c;
    if (a.terms()[i].coefficient != b.terms()[i].coefficient) {
      return a.terms()[i].coefficient < b.terms()[i].coefficient ? -1 : 1;
    }
  }
  return 0;
}

}  // namespace

// Builds expressions from pieces; the only one that touches their inside.
class IndexExprBuilder {
 public:
  void AddConst(int64_t c) { expr_.constant_ += c; }
  void AddTerm(Term t) { expr_.AddTerm(std::move(t)); }
  void Add(const IndexExpr& e, int64_t k) {
    expr_.constant_ += e.constant_ * k;
    for (Term t : e.terms_) {
      t.coefficient *= k;
      expr_.AddTerm(std::move(t));
    }
  }
  IndexExpr Build() {
    expr_.Recombine();
    return std::move(expr_);
  }

 private:
  IndexExpr expr_;
};

IndexExpr IndexExpr::Const(int64_t c) {
  IndexExpr e;
  e.constant_ = c;
  return e;
}

IndexExpr IndexExpr::Var(int32_t var) {
  IndexExpr e;
  e.terms_.push_back(Term{Term::Kind::kVar, 1, var, nullptr, 1});
  return e;
}

IndexExpr IndexExpr::Value(int32_t id, int64_t extent) {
  IndexExpr e;
  if (extent > 1) e.terms_.push_back(Term{Term::Kind::kValue, 1, id, nullptr, extent});
  return e;
}

void IndexExpr::AddTerm(Term term) {
  if (term.coefficient == 0) return;
  auto it = std::lower_bound(terms_.begin(), terms_.end(), term,
                             [](const Term& a, const Term& b) { return CompareAtom(a, b) < 0; });
  if (it != terms_.end() && CompareAtom(*it, term) == 0) {
    it->coefficient += term.coefficient;
    if (it->coefficient == 0) terms_.erase(it);
    return;
  }
  terms_.insert(it, std::move(term));
}

// k*c*(x / c) + k*(x % c) = k*x, and k*c*((x / c) % m) + k*(x % c) = k*(x % (c*m)): what a reshape followed by its
// inverse leaves.
void IndexExpr::Recombine() {
  for (bool changed = true; changed;) {
    changed = false;
    for (size_t m = 0; m < terms_.size() && !changed; ++m) {
      if (terms_[m].kind != Term::Kind::kMod) continue;
      for (size_t d = 0; d < terms_.size() && !changed; ++d) {
        if (d == m || terms_[d].kind != Term::Kind::kMod) continue;
        if (terms_[d].coefficient != terms_[m].coefficient * terms_[m].divisor) continue;
        const IndexExpr& quotient = *terms_[d].operand;
        if (quotient.constant_ != 0 || quotient.terms_.size() != 1) continue;
        const Term& q = quotient.terms_[0];
        if (q.kind != Term::Kind::kFloorDiv || q.coefficient != 1 || q.divisor != terms_[m].divisor) continue;
        if (CompareExpr(*q.operand, *terms_[m].operand) != 0 || terms_[d].divisor > INT64_MAX / q.divisor) continue;
        Term merged = terms_[m];
        merged.divisor = q.divisor * terms_[d].divisor;
        terms_.erase(terms_.begin() + static_cast<std::ptrdiff_t>(std::max(m, d)));
        terms_.erase(terms_.begin() + static_cast<std::ptrdiff_t>(std::min(m, d)));
        AddTerm(std::move(merged));
        changed = true;
      }
    }
    for (size_t m = 0; m < terms_.size() && !changed; ++m) {
      if (terms_[m].kind != Term::Kind::kMod) continue;
      for (size_t d = 0; d < terms_.size() && !changed; ++d) {
        if (terms_[d].kind != Term::Kind::kFloorDiv || terms_[d].divisor != terms_[m].divisor) continue;
        if (terms_[d].coefficient != terms_[m].coefficient * terms_[m].divisor) continue;
        if (CompareExpr(*terms_[d].operand, *terms_[m].operand) != 0) continue;
        const std::shared_ptr<const IndexExpr> x = terms_[m].operand;
        const int64_t k = terms_[m].coefficient;
        terms_.erase(terms_.begin() + static_cast<std::ptrdiff_t>(std::max(m, d)));
        terms_.erase(terms_.begin() + static_cast<std::ptrdiff_t>(std::min(m, d)));
        constant_ += k * x->constant_;
        for (Term t : x->terms_) {
          t.coefficient *= k;
          AddTerm(std::move(t));
        }
        changed = true;
      }
    }
  }
}

int64_t IndexExpr::Coefficient(int32_t var) const {
  for (const Term& t : terms_) {
    if (t.kind == Term::Kind::kVar && t.var == var) return t.coefficient;
  }
  return 0;
}

bool IndexExpr::UsesNonlinearly(int32_t var) const {
  for (const Term& t : terms_) {
    if (t.operand != nullptr && t.operand->Uses(var)) return true;
  }
  return false;
}

bool IndexExpr::Uses(int32_t var) const { return Coefficient(var) != 0 || UsesNonlinearly(var); }

// Recursion in these: as deep as divisions are nested, which kMaxIndexNodes bounds.
bool IndexExpr::HasValues() const {
  return std::any_of(terms_.begin(), terms_.end(), [](const Term& t) {
    return t.kind == Term::Kind::kValue || (t.operand != nullptr && t.operand->HasValues());
  });
}

void IndexExpr::VisitValues(const std::function<void(int32_t)>& visit) const {
  for (const Term& t : terms_) {
    if (t.kind == Term::Kind::kValue) visit(t.var);
    if (t.operand != nullptr) t.operand->VisitValues(visit);
  }
}

IndexExpr IndexExpr::RenameValues(const std::function<int32_t(int32_t)>& rename) const {
  if (!HasValues()) return *this;
  IndexExpr out;
  out.constant_ = constant_;
  for (Term t : terms_) {
    if (t.kind == Term::Kind::kValue) t.var = rename(t.var);
    if (t.operand != nullptr) t.operand = std::make_shared<IndexExpr>(t.operand->RenameValues(rename));
    out.AddTerm(std::move(t));
  }
  return out;
}

int IndexExpr::node_count() const {
  int n = 1;
  for (const Term& t : terms_) n += t.operand == nullptr ? 1 : 1 + t.operand->node_count();
  return n;
}

IndexExpr operator+(const IndexExpr& a, const IndexExpr& b) {
  IndexExprBuilder builder;
  builder.Add(a, 1);
  builder.Add(b, 1);
  return builder.Build();
}

IndexExpr operator*(const IndexExpr& a, int64_t k) {
  IndexExprBuilder builder;
  builder.Add(a, k);
  return builder.Build();
}

bool operator==(const IndexExpr& a, const IndexExpr& b) { return CompareExpr(a, b) == 0; }

size_t IndexExpr::Hash() const {
  size_t h = absl::HashOf(constant_, terms_.size());
  for (const Term& t : terms_) {
    h = absl::HashOf(h, static_cast<int>(t.kind), t.coefficient, t.var, t.divisor, t.operand ? t.operand->Hash() : 0);
  }
  return h;
}

std::string IndexExpr::ToString(const std::function<std::string(int32_t)>& name) const {
  if (terms_.empty()) return absl::StrCat(constant_);
  std::string out;
  for (const Term& t : terms_) {
    std::string atom;
    if (t.kind == Term::Kind::kVar) {
      atom = name ? name(t.var) : absl::StrCat("d", t.var);
    } else if (t.kind == Term::Kind::kValue) {
      atom = name ? name(-1 - t.var) : absl::StrCat("v", t.var);
    } else {
      const bool simple = t.operand->terms_.size() == 1 && t.operand->constant_ == 0 &&
                          t.operand->terms_[0].coefficient == 1 && t.operand->terms_[0].operand == nullptr;
      const std::string inner = t.operand->ToString(name);
      atom = absl::StrCat("(", simple ? inner : absl::StrCat("(", inner, ")"),
                          t.kind == Term::Kind::kMod ? " % " : " / ", t.divisor, ")");
    }
    if (out.empty()) {
      out = t.coefficient == 1 ? atom : absl::StrCat(t.coefficient, "*", atom);
    } else if (t.coefficient < 0) {
      absl::StrAppend(&out, " - ", t.coefficient == -1 ? "" : absl::StrCat(-t.coefficient, "*"), atom);
    } else {
      absl::StrAppend(&out, " + ", t.coefficient == 1 ? "" : absl::StrCat(t.coefficient, "*"), atom);
    }
  }
  if (constant_ > 0) absl::StrAppend(&out, " + ", constant_);
  if (constant_ < 0) absl::StrAppend(&out, " - ", -constant_);
  return out;
}

IndexRange RangeOf(const IndexExpr& expr, absl::Span<const int64_t> extents) {
  IndexRange r{expr.constant(), expr.constant()};
  for (const Term& t : expr.terms()) {
    IndexRange a;
    switch (t.kind) {
      case Term::Kind::kVar:
        a = {0, std::max<int64_t>(extents[static_cast<size_t>(t.var)], 1) - 1};
        break;
      case Term::Kind::kValue:
        a = {0, t.divisor - 1};
        break;
      case Term::Kind::kFloorDiv: {
        const IndexRange inner = RangeOf(*t.operand, extents);
        a = {FloorDivInt(inner.low, t.divisor), FloorDivInt(inner.high, t.divisor)};
        break;
      }
      case Term::Kind::kMod: {
        const IndexRange inner = RangeOf(*t.operand, extents);
        a = inner.low >= 0 && inner.high < t.divisor ? inner : IndexRange{0, t.divisor - 1};
        break;
      }
    }
    if (t.coefficient >= 0) {
      r.low += t.coefficient * a.low;
      r.high += t.coefficient * a.high;
    } else {
      r.low += t.coefficient * a.high;
      r.high += t.coefficient * a.low;
    }
  }
  return r;
}

namespace {

// Adds the least multiple of `divisor` that makes `expr` non-negative, so that the emitters' truncating division and
// remainder are the floor ones.
IndexExpr MakeNonNegative(const IndexExpr& expr, int64_t low, int64_t divisor, int64_t* multiples) {
  *multiples = low >= 0 ? 0 : (-low + divisor - 1) / divisor;
  return expr + IndexExpr::Const(*multiples * divisor);
}

// expr = multiple * g + rest with 0 <= rest < g for some g that divides `divisor`; the largest such g below it, or 1.
// Then expr / divisor = multiple / (divisor / g), and expr % divisor = (multiple % (divisor / g)) * g + rest.
struct Partition {
  int64_t g = 1;
  IndexExpr multiple;
  IndexExpr rest;
};

Partition FindPartition(const IndexExpr& expr, int64_t divisor, absl::Span<const int64_t> extents) {
  std::vector<int64_t> candidates;
  for (const Term& t : expr.terms()) {
    const int64_t g = std::gcd(std::abs(t.coefficient), divisor);
    if (g > 1 && g < divisor) candidates.push_back(g);
  }
  std::sort(candidates.rbegin(), candidates.rend());
  candidates.erase(std::unique(candidates.begin(), candidates.end()), candidates.end());
  for (int64_t g : candidates) {
    IndexExprBuilder multiple, rest;
    for (Term t : expr.terms()) {
      if (t.coefficient % g == 0) {
        t.coefficient /= g;
        multiple.AddTerm(std::move(t));
      } else {
        rest.AddTerm(std::move(t));
      }
    }
    multiple.AddConst(FloorDivInt(expr.constant(), g));
    rest.AddConst(ModInt(expr.constant(), g));
    Partition p{g, multiple.Build(), rest.Build()};
    const IndexRange range = RangeOf(p.rest, extents);
    if (range.low >= 0 && range.high < g) return p;
  }
  return {1, expr, IndexExpr()};
}

// The terms whose coefficients divide (quotient) and the remaining ones (with the constant reduced into [0, divisor)).
void SplitDivisible(const IndexExpr& expr, int64_t divisor, IndexExpr* quotient, IndexExpr* remaining) {
  IndexExprBuilder q, r;
  for (Term t : expr.terms()) {
    if (t.coefficient % divisor == 0) {
      t.coefficient /= divisor;
      q.AddTerm(std::move(t));
    } else {
      r.AddTerm(std::move(t));
    }
  }
  q.AddConst(FloorDivInt(expr.constant(), divisor));
  r.AddConst(ModInt(expr.constant(), divisor));
  *quotient = q.Build();
  *remaining = r.Build();
}

}  // namespace

IndexExpr FloorDiv(const IndexExpr& expr, int64_t divisor, absl::Span<const int64_t> extents) {
  if (divisor == 1) return expr;
  IndexExpr quotient, rest;
  SplitDivisible(expr, divisor, &quotient, &rest);
  const IndexRange range = RangeOf(rest, extents);
  if (range.low >= 0 && range.high < divisor) return quotient;
  if (FloorDivInt(range.low, divisor) == FloorDivInt(range.high, divisor)) {
    return quotient + IndexExpr::Const(FloorDivInt(range.low, divisor));
  }
  const Partition p = FindPartition(rest, divisor, extents);
  if (p.g > 1) return quotient + FloorDiv(p.multiple, divisor / p.g, extents);
  if (rest.terms().size() == 1 && rest.constant() == 0 && rest.terms()[0].coefficient == 1) {
    const Term& t = rest.terms()[0];
    if (t.kind == Term::Kind::kFloorDiv && t.divisor <= INT64_MAX / divisor) {
      return quotient + FloorDiv(*t.operand, t.divisor * divisor, extents);  // (x / a) / b = x / (a*b)
    }
    if (t.kind == Term::Kind::kMod && t.divisor % divisor == 0) {
      return quotient +
             Mod(FloorDiv(*t.operand, divisor, extents), t.divisor / divisor, extents);  // (x % ab) / b = (x / b) % a
    }
  }
  int64_t multiples;
  rest = MakeNonNegative(rest, range.low, divisor, &multiples);
  IndexExprBuilder b;
  b.Add(quotient, 1);
  b.AddConst(-multiples);
  b.AddTerm(Term{Term::Kind::kFloorDiv, 1, -1, std::make_shared<IndexExpr>(rest), divisor});
  return b.Build();
}

IndexExpr Mod(const IndexExpr& expr, int64_t divisor, absl::Span<const int64_t> extents) {
  if (divisor == 1) return IndexExpr();
  IndexExpr quotient, rest;
  SplitDivisible(expr, divisor, &quotient, &rest);
  const IndexRange range = RangeOf(rest, extents);
  if (range.low >= 0 && range.high < divisor) return rest;
  if (FloorDivInt(range.low, divisor) == FloorDivInt(range.high, divisor)) {
    return rest + IndexExpr::Const(-FloorDivInt(range.low, divisor) * divisor);
  }
  const Partition p = FindPartition(rest, divisor, extents);
  if (p.g > 1) return Mod(p.multiple, divisor / p.g, extents) * p.g + p.rest;
  if (rest.terms().size() == 1 && rest.constant() == 0 && rest.terms()[0].coefficient == 1) {
    const Term& t = rest.terms()[0];
    if (t.kind == Term::Kind::kMod && t.divisor % divisor == 0) return Mod(*t.operand, divisor, extents);
  }
  int64_t multiples;
  rest = MakeNonNegative(rest, range.low, divisor, &multiples);
  IndexExprBuilder b;
  b.AddTerm(Term{Term::Kind::kMod, 1, -1, std::make_shared<IndexExpr>(rest), divisor});
  return b.Build();
}

IndexExpr Substitute(const IndexExpr& expr, absl::Span<const IndexExpr> values, absl::Span<const int64_t> extents) {
  IndexExprBuilder b;
  b.AddConst(expr.constant());
  for (const Term& t : expr.terms()) {
    switch (t.kind) {
      case Term::Kind::kVar:
        b.Add(values[static_cast<size_t>(t.var)], t.coefficient);
        break;
      case Term::Kind::kValue:
        b.AddTerm(t);
        break;
      case Term::Kind::kFloorDiv:
        b.Add(FloorDiv(Substitute(*t.operand, values, extents), t.divisor, extents), t.coefficient);
        break;
      case Term::Kind::kMod:
        b.Add(Mod(Substitute(*t.operand, values, extents), t.divisor, extents), t.coefficient);
        break;
    }
  }
  return b.Build();
}

std::vector<IndexExpr> SubstituteAll(absl::Span<const IndexExpr> exprs, absl::Span<const IndexExpr> values,
                                     absl::Span<const int64_t> extents) {
  std::vector<IndexExpr> out;
  out.reserve(exprs.size());
  for (const IndexExpr& e : exprs) out.push_back(Substitute(e, values, extents));
  return out;
}

std::vector<IndexBound> SubstituteBounds(absl::Span<const IndexBound> bounds, absl::Span<const IndexExpr> values,
                                         absl::Span<const int64_t> extents, bool& never) {
  std::vector<IndexBound> out;
  for (const IndexBound& bound : bounds) {
    IndexBound b{Substitute(bound.value, values, extents), bound.low, bound.high};
    const IndexRange range = RangeOf(b.value, extents);
    if (range.high < b.low || range.low >= b.high) never = true;
    if (range.low >= b.low && range.high < b.high) continue;
    if (std::find(out.begin(), out.end(), b) == out.end()) out.push_back(std::move(b));
  }
  return out;
}

IndexExpr Flatten(absl::Span<const IndexExpr> index, absl::Span<const int64_t> shape) {
  IndexExprBuilder b;
  int64_t stride = 1;
  for (size_t i = shape.size(); i-- > 0;) {
    b.Add(index[i], stride);
    stride *= std::max<int64_t>(shape[i], 1);
  }
  return b.Build();
}

std::vector<IndexExpr> Unflatten(const IndexExpr& flat, absl::Span<const int64_t> shape,
                                 absl::Span<const int64_t> extents) {
  std::vector<IndexExpr> out(shape.size());
  int64_t stride = 1;
  for (size_t i = shape.size(); i-- > 0;) {
    const int64_t extent = std::max<int64_t>(shape[i], 1);
    // The outermost dim needs no remainder: `flat` is within the shape.
    const IndexExpr quotient = FloorDiv(flat, stride, extents);
    out[i] = extent == 1 ? IndexExpr() : Mod(quotient, extent, extents);
    stride *= extent;
  }
  return out;
}

std::vector<IndexExpr> IdentityIndex(absl::Span<const int64_t> shape) {
  std::vector<IndexExpr> out(shape.size());
  for (size_t i = 0; i < shape.size(); ++i) {
    if (shape[i] != 1) out[i] = IndexExpr::Var(static_cast<int32_t>(i));
  }
  return out;
}

int NodeCount(absl::Span<const IndexExpr> exprs) {
  int n = 0;
  for (const IndexExpr& e : exprs) n += e.node_count();
  return n;
}

}  // namespace fuseline::lowering
