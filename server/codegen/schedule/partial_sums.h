// In which order a kernel combines where the order must not depend on the kernel (lowering::Accumulation::kByShape and
// kChained): the one place where that is pinned.
//   Element r of a row's reduced elements, numbered in row-major order, goes to partial sum r % count, each of which
//   takes its elements in ascending order from the identity; then neighbours are combined, 2i with 2i + 1, until one
//   is left. For columns (the kept dims lie innermost) partial sum i is combined with i + half instead. Long rows are
//   split first (split_reduction.h) where NeedsSplit of the fuser says so, into pieces of contiguous elements whose
//   number follows from the same; each piece, and then the pieces' results, are combined as above.
// All of it follows from how many rows there are, how many elements each has and which of the two lie innermost, which
// every reduction of a kernel has in common and keeps when it stands alone. How many threads and lanes share the
// partial sums is the schedule's choice: lanes are the lowest bits of a partial sum's number, threads the ones above.
// Pipeline: KernelBody -> CountPartialSums -> schedule, emitters. Thread-safety: pure functions.
// Tested by tests/unit/codegen/partial_sums_test.cc
#pragma once

#include <cstdint>

#include "server/codegen/kernel_body.h"

namespace fuseline::codegen {

// A power of two; 1 where the elements are combined one after the other. 0: in any order.
int32_t CountPartialSums(const KernelBody& body, bool cuda);

}  // namespace fuseline::codegen
