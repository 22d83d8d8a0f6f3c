#include "absl/strings/str_cat.h"
#include "common/status/error.h"
#include "server/lowering/lower_op_kinds.h"

namespace fuseline::lowering {

absl::Status LowerOrdered(LoweringContext& context, NodeId id) {
  return Unimplemented(context.graph().NodeName(id), absl::StrCat("op '", context.node(id).op, "' has no lowering"));
}

}  // namespace fuseline::lowering
