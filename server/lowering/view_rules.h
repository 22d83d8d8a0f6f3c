// How a view op's result elements map to its operand's: the index map of each op of kind kView.
// Thread-safety: pure functions. Tested by tests/unit/lowering/view_rules_test.cc
#pragma once

#include <vector>

#include "absl/status/statusor.h"
#include "common/ir/graph.h"
#include "server/lowering/index_expr.h"

namespace fuseline::lowering {

// For the result's index (d0, d1, …) the index into the operand. Errors: UNIMPLEMENTED for a view op that has no rule.
absl::StatusOr<std::vector<IndexExpr>> ViewIndexMap(const Node& node, const Shape& operand, const Shape& result);

}  // namespace fuseline::lowering
