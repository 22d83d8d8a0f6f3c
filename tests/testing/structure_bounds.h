// Error bounds of ops that move elements, run along a dim, contract or pool (error_bounds.h has the rules).
// Thread-safety: pure functions. Errors: those of the reference interpreter.
#pragma once

#include <vector>

#include "absl/status/statusor.h"
#include "common/ir/graph.h"
#include "tests/testing/shadow.h"

namespace fuseline::testing {

// The results of one node, before they are rounded to their dtype.
absl::StatusOr<std::vector<Shadow>> StructureShadows(const Node& node, const std::vector<TensorType>& results,
                                                     const std::vector<Shadow>& operands);

// Whether the op gives elements of its operands as they are, with no arithmetic.
bool OnlyMoves(const Node& node);

}  // namespace fuseline::testing
