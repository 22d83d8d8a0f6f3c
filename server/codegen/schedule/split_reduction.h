// Splits a reduction over long rows into two kernels: the first reduces pieces of each row into partial results, the
// second combines the pieces and goes on with what is computed per row. Before:  for row: s = sum(x[row, 0..n)) After:
// for piece, row: p[piece, row] = sum(x[row, piece*m .. piece*m+m))      for row: s = sum over piece of p[piece, row]
// Thread-safety: a pure function. Errors: INTERNAL where a full value depends on the reduction (the fuser keeps those
// Tested by tests/unit/codegen/split_reduction_test.cc
// apart).
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "server/codegen/kernel_body.h"

namespace fuseline::codegen {

struct SplitBodies {
  KernelBody pieces;
  KernelBody combine;
};
// Splits loop `var` into `piece_count` pieces of `piece_extent` (the last may be short).
absl::StatusOr<SplitBodies> SplitReduction(const KernelBody& body, int32_t var, int64_t piece_count,
                                           int64_t piece_extent, int32_t first_partial);

}  // namespace fuseline::codegen
