#include "server/codegen/schedule/split_reduction.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/status/error.h"

namespace fuseline::codegen {
namespace {

struct Partial {
  DType dtype;
  int32_t number;
};

int32_t AddPartialParam(KernelBody& body, const Partial& partial, int64_t count, bool written) {
  BodyParam p;
  int32_t here = 0;
  for (const BodyParam& other : body.params) here += other.partial >= 0;
  p.name = absl::StrCat("partial", here);
  p.partial = partial.number;
  p.dtype = partial.dtype;
  p.element_count = count;
  p.written = written;
  body.params.push_back(std::move(p));
  return static_cast<int32_t>(body.params.size() - 1);
}

}  // namespace

absl::StatusOr<SplitBodies> SplitReduction(const KernelBody& body, int32_t var, int64_t piece_count,
                                           int64_t piece_extent, int32_t first_partial) {
  if (body.passes > 1) return Internal("split reduction: a full value depends on a reduction");
  SplitBodies out;
  const int64_t rows = body.row_count();
  // Loops of the first kernel: the piece, then the old ones with `var` running within a piece.
  out.pieces = body;
  out.pieces.stores.clear();
  for (const BodyStore& s : body.stores) {
    if (s.full) out.pieces.stores.push_back(s);
  }
  std::vector<IndexExpr> values;
  std::vector<int64_t> extents = {piece_count};
  std::vector<bool> reduced = {false};
  IndexExpr row;  // row-major position among the rows, over the new loops
  {
    std::vector<IndexExpr> row_index;
    Shape row_shape;
    for (size_t i = 0; i < body.extents.size(); ++i) {
      const IndexExpr v = IndexExpr::Var(static_cast<int32_t>(i + 1));
      const bool split_here = static_cast<int32_t>(i) == var;
      values.push_back(split_here ? IndexExpr::Var(0) * piece_extent + v : v);
      extents.push_back(split_here ? piece_extent : body.extents[i]);
      reduced.push_back(body.reduced[i]);
      if (body.reduced[i]) continue;
      row_index.push_back(v);
      row_shape.push_back(body.extents[i]);
    }
    row = lowering::Flatten(row_index, row_shape);
  }
  SubstituteLoops(out.pieces, values, extents, reduced);
  const int64_t limit = body.extents[static_cast<size_t>(var)];
  if (piece_count * piece_extent != limit) {
    out.pieces.bound = BodyBound{var + 1, IndexExpr::Var(0) * piece_extent, limit};
  }

  // The second kernel: the rows, and one reduced loop over the pieces.
  KernelBody& combine = out.combine;
  combine.inner = rows == 1;
  std::vector<IndexExpr> row_values(body.extents.size());
  {
    std::vector<IndexExpr> row_index;
    Shape row_shape;
    for (size_t i = 0; i < body.extents.size(); ++i) {
      if (body.reduced[i]) continue;
      row_values[i] = IndexExpr::Var(static_cast<int32_t>(combine.extents.size()));
      row_index.push_back(row_values[i]);
      row_shape.push_back(body.extents[i]);
      combine.extents.push_back(body.extents[i]);
      combine.reduced.push_back(false);
    }
    combine.extents.push_back(piece_count);
    combine.reduced.push_back(true);
    const IndexExpr piece = IndexExpr::Var(static_cast<int32_t>(combine.extents.size() - 1));
    const IndexExpr partial_at = piece * rows + lowering::Flatten(row_index, row_shape);
    combine.params = body.params;
    std::vector<int32_t> renamed(body.instrs.size(), -1);
    std::vector<int32_t> reduction_renamed(body.reductions.size(), -1);
    int32_t next_partial = first_partial;
    for (size_t i = 0; i < body.instrs.size(); ++i) {
      BodyInstr instr = body.instrs[i];
      if (instr.full) continue;
      if (instr.kind == BodyInstr::Kind::kReduction) {
        int32_t& again = reduction_renamed[static_cast<size_t>(instr.reduction)];
        if (again < 0) {
          BodyReduction r = body.reductions[static_cast<size_t>(instr.reduction)];
          const auto exchange = [&](DType dtype, int32_t which) {
            const Partial partial{dtype, next_partial++};
            // The first kernel stores it …
            BodyInstr result;
            result.kind = BodyInstr::Kind::kReduction;
            result.reduction = instr.reduction;
            result.scalar.index = which;
            result.scalar.type = dtype;
            result.hint = "partial";
            out.pieces.instrs.push_back(std::move(result));
            BodyStore store;
            store.param = AddPartialParam(out.pieces, partial, piece_count * rows, true);
            store.offset = IndexExpr::Var(0) * rows + row;
            store.value = static_cast<int32_t>(out.pieces.instrs.size() - 1);
            out.pieces.stores.push_back(std::move(store));
            // … and the second loads it.
            BodyInstr load;
            load.kind = BodyInstr::Kind::kLoad;
            load.scalar.type = dtype;
            load.param = AddPartialParam(combine, partial, piece_count * rows, false);
            load.offset = partial_at;
            load.hint = combine.params.back().name;
            combine.instrs.push_back(std::move(load));
            return static_cast<int32_t>(combine.instrs.size() - 1);
          };
          if (r.returns_index()) {
            r.value = exchange(r.type, 1);
            r.arg = exchange(DType::kI64, 0);
          } else {
            r.value = exchange(r.type, 0);
          }
          combine.reductions.push_back(r);
          again = static_cast<int32_t>(combine.reductions.size() - 1);
        }
        instr.reduction = again;
      } else {
        RenameUses(instr, [&](int32_t id) { return renamed[static_cast<size_t>(id)]; });
        instr.offset = lowering::Substitute(instr.offset, row_values, combine.extents);
        for (lowering::IndexBound& bound : instr.bounds)
          bound.value = lowering::Substitute(bound.value, row_values, combine.extents);
      }
      combine.instrs.push_back(std::move(instr));
      renamed[i] = static_cast<int32_t>(combine.instrs.size() - 1);
    }
    for (const BodyStore& s : body.stores) {
      if (s.full) continue;
      BodyStore store = s;
      RenameUses(store, [&](int32_t id) { return renamed[static_cast<size_t>(id)]; });
      store.offset = lowering::Substitute(store.offset, row_values, combine.extents);
      combine.stores.push_back(std::move(store));
    }
  }
  RemoveDeadCode(out.pieces);
  RemoveDeadCode(combine);
  return out;
}

}  // namespace fuseline::codegen
