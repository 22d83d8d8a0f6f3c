// The losses of common/ir/ops/losses.cc, for the interpreter.
// Pipeline: operands (dense) -> EvaluateLoss -> the loss.
// Errors: INVALID_ARGUMENT (kIndexOutOfRange) for a target outside the classes. Thread-safety: pure functions.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "server/reference/array.h"
#include "server/reference/reference_ops.h"

namespace fuseline::reference {

bool IsLoss(const std::string& op);
absl::StatusOr<Array> EvaluateLoss(const OpContext& context, const std::vector<Array>& operands);

}  // namespace fuseline::reference
