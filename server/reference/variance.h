// What the primitive reductions and the composites share: which dims are reduced, and mean and variance of one kept
// position. Thread-safety: pure functions.
#pragma once

#include <cstdint>
#include <vector>

#include "server/reference/array.h"
#include "server/reference/reduced_loop.h"
#include "server/reference/reference_ops.h"

namespace fuseline::reference {

// From "dim", "dims", or all; sorted and non-negative.
std::vector<int64_t> ReducedDims(const OpContext& context, size_t rank);

struct Moments {
  long double mean = 0;
  long double variance = 0;
};
// Two passes over the elements of the kept position that starts at `base`; NaN for none.
Moments MomentsOf(const Array& operand, const ReducedLoop& loop, int64_t base, double correction);

}  // namespace fuseline::reference
