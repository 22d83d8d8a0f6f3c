// The equation of einsum: "bij,jk->bik", with "..." for any number of broadcast dims, labels repeated within an operand
// for its diagonal, and without "->" the labels that occur once, in alphabetical order.
// Pipeline: equation and operand shapes -> ParseEinsum -> EinsumPlan -> type rule, lowering.
// Errors: INVALID_ARGUMENT without the node's name. Thread-safety: pure functions.
// Tested by tests/unit/common/contraction_rules_test.cc
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/ir/types.h"

namespace fuseline::ops {

// Labels are numbered; dims of the "..." have numbers of their own, aligned at the right as in broadcasting.
struct EinsumPlan {
  std::vector<std::vector<int32_t>> operands;  // the label of each dim
  std::vector<int32_t> result;                 // the label of each dim of the result
  std::vector<int64_t> sizes;                  // by label
};

// The labels of the partial result that operands 0 to `last` give, which is multiplied by the next operand: those that
// a later operand or the result needs, in order of label. For the last operand, the result's.
std::vector<int32_t> PartialLabels(const EinsumPlan& plan, size_t last);

absl::StatusOr<EinsumPlan> ParseEinsum(const std::string& equation, const std::vector<Shape>& shapes);

}  // namespace fuseline::ops
