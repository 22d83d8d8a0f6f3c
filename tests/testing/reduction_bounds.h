// Error bounds of reductions (error_bounds.h has the rules).
// Thread-safety: pure functions. Errors: those of the reference interpreter.
#pragma once

#include <vector>

#include "absl/status/statusor.h"
#include "common/ir/graph.h"
#include "tests/testing/shadow.h"

namespace fuseline::testing {

// The results of a primitive reduction, before they are rounded to their dtype.
absl::StatusOr<std::vector<Shadow>> ReductionShadows(const Node& node, const std::vector<TensorType>& results,
                                                     const Shadow& operand);

}  // namespace fuseline::testing
