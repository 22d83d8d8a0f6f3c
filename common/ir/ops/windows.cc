// Pooling: reductions over sliding windows.
#include "common/ir/ops/op_rows.h"

namespace fuseline::ops {

void AddWindowRows(std::vector<OpDef>& rows) { (void)rows; }

}  // namespace fuseline::ops
