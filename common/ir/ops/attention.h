// Scaled dot-product attention: a composite of two products and a softmax.
// Pipeline: op table -> DecomposeComposites. Thread-safety: pure functions.
#pragma once

#include <vector>

#include "common/ir/op_table.h"

namespace fuseline::ops {

// attention(q[…, l, d], k[…, s, d], v[…, s, e], mask?[…, l, s]){scale, causal}.
void AddAttentionRow(std::vector<OpDef>& rows);

}  // namespace fuseline::ops
