#include "absl/strings/str_cat.h"
#include "common/status/error.h"
#include "server/reference/reference_ops.h"

namespace fuseline::reference {

absl::StatusOr<Array> EvaluateLayout(const OpContext& context, const std::vector<Array>& operands) {
  (void)operands;
  return Unimplemented("", absl::StrCat("op '", context.node.op, "' has no reference"));
}

}  // namespace fuseline::reference
