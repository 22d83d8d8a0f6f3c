// Integer index expressions over loop variables: sums of terms, where a term is a coefficient times a variable, a value
// known at run time only, a floor division or a remainder by a positive constant. Views become maps made of these; the
// constructors simplify with the variables' ranges. Pipeline: view rules -> IndexExpr -> LoopProgram -> offsets in
// kernels. Units: elements. Ownership: values that share immutable parts. Thread-safety: immutable. Complexity: every
// function is linear in the expression, whose size callers bound by kMaxIndexNodes. Tested by
// tests/unit/lowering/index_expr_test.cc
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "common/ir/types.h"

namespace fuseline::lowering {

// Past this many nodes an expression is not composed any further: the value is stored instead, so that chains of views
// that do not simplify stay linear. 64 is several times what the views of a transformer need.
inline constexpr int kMaxIndexNodes = 64;

class IndexExpr {
 public:
  struct Term;

  IndexExpr() = default;  // zero
  static IndexExpr Const(int64_t c);
  static IndexExpr Var(int32_t var);
  // A position that is known at run time only: body instruction or local number `id`, within [0, extent).
  static IndexExpr Value(int32_t id, int64_t extent);

  bool is_const() const { return terms_.empty(); }
  int64_t constant() const { return constant_; }
  const std::vector<Term>& terms() const { return terms_; }
  // The coefficient of a plain variable term; 0 where it does not occur so.
  int64_t Coefficient(int32_t var) const;
  // True where the variable occurs inside a division or remainder.
  bool UsesNonlinearly(int32_t var) const;
  bool Uses(int32_t var) const;
  bool HasValues() const;
  // Calls `visit` with the id of each value, possibly several times.
  void VisitValues(const std::function<void(int32_t)>& visit) const;
  // Replaces each value's id by rename(id).
  IndexExpr RenameValues(const std::function<int32_t(int32_t)>& rename) const;
  int node_count() const;

  friend IndexExpr operator+(const IndexExpr& a, const IndexExpr& b);
  friend IndexExpr operator*(const IndexExpr& a, int64_t k);
  friend bool operator==(const IndexExpr& a, const IndexExpr& b);
  size_t Hash() const;

  // "8*d0 + (d1 / 4) % 3", with variables named by `name`; a value's name is name(-1 - id), by default "v" and the id.
  std::string ToString(const std::function<std::string(int32_t)>& name = nullptr) const;

 private:
  friend class IndexExprBuilder;
  void AddTerm(Term term);
  void Recombine();
  int64_t constant_ = 0;
  std::vector<Term> terms_;  // sorted, no two alike, no zero coefficient
};

struct IndexExpr::Term {
  enum class Kind : uint8_t { kVar, kFloorDiv, kMod, kValue } kind = Kind::kVar;
  int64_t coefficient = 1;
  int32_t var = -1;                          // kVar; kValue: its id
  std::shared_ptr<const IndexExpr> operand;  // kFloorDiv, kMod
  int64_t divisor = 1;                       // kFloorDiv, kMod; kValue: the extent
};

struct IndexRange {
  int64_t low = 0;
  int64_t high = 0;  // inclusive
};

// A condition: low <= value < high.
struct IndexBound {
  IndexExpr value;
  int64_t low = 0;
  int64_t high = 0;
  friend bool operator==(const IndexBound& a, const IndexBound& b) {
    return a.low == b.low && a.high == b.high && a.value == b.value;
  }
};
// The bounds with variables replaced. Those that always hold are left out; `never` is set where one never holds.
std::vector<IndexBound> SubstituteBounds(absl::Span<const IndexBound> bounds, absl::Span<const IndexExpr> values,
                                         absl::Span<const int64_t> extents, bool& never);

// `extents[v]` bounds variable v to [0, extents[v]). An extent of 0 counts as 1: the loop does not run at all.
IndexRange RangeOf(const IndexExpr& expr, absl::Span<const int64_t> extents);
IndexExpr FloorDiv(const IndexExpr& expr, int64_t divisor, absl::Span<const int64_t> extents);
IndexExpr Mod(const IndexExpr& expr, int64_t divisor, absl::Span<const int64_t> extents);
// Replaces variable v by values[v]; `extents` are those of the new variables.
IndexExpr Substitute(const IndexExpr& expr, absl::Span<const IndexExpr> values, absl::Span<const int64_t> extents);
std::vector<IndexExpr> SubstituteAll(absl::Span<const IndexExpr> exprs, absl::Span<const IndexExpr> values,
                                     absl::Span<const int64_t> extents);

// The row-major position of `index` in `shape`, and back.
IndexExpr Flatten(absl::Span<const IndexExpr> index, absl::Span<const int64_t> shape);
std::vector<IndexExpr> Unflatten(const IndexExpr& flat, absl::Span<const int64_t> shape,
                                 absl::Span<const int64_t> extents);
// d0, d1, …; a dim of size 1 becomes 0.
std::vector<IndexExpr> IdentityIndex(absl::Span<const int64_t> shape);
int NodeCount(absl::Span<const IndexExpr> exprs);

}  // namespace fuseline::lowering
