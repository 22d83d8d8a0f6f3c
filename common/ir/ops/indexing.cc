// Indexing: ops that read or write at positions which another operand gives.
#include "common/ir/ops/op_rows.h"

namespace fuseline::ops {

void AddIndexingRows(std::vector<OpDef>& rows) { (void)rows; }

}  // namespace fuseline::ops
