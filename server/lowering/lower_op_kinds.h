// How the ops of each kind become loops; LowerGraph calls the one of an op's row. Each sets the view of every result.
// Errors: UNIMPLEMENTED naming the node; nothing that a user can cause.
// Tested by tests/unit/lowering, a file for each.
#pragma once

#include "absl/status/status.h"
#include "common/ir/graph.h"
#include "server/lowering/lowering_context.h"

namespace fuseline::lowering {

// pad, concat, stack, tril, triu, one_hot: elements of the operands elsewhere, chosen by conditions on the loop
// variables.
absl::Status LowerLayout(LoweringContext& context, NodeId id);
// resize, which LowerLayout hands on.
absl::Status LowerResize(LoweringContext& context, NodeId id);
// gather, index_select, embedding, take_along_dim; scatter, scatter_add, index_add.
absl::Status LowerIndexing(LoweringContext& context, NodeId id);
// cumsum, cumprod, cummax, sort, topk.
absl::Status LowerOrdered(LoweringContext& context, NodeId id);
// matmul, linear, einsum, conv, conv_transpose.
absl::Status LowerContraction(LoweringContext& context, NodeId id);
// Pooling.
absl::Status LowerWindow(LoweringContext& context, NodeId id);

}  // namespace fuseline::lowering
