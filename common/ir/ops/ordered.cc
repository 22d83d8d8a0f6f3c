// Scans and ordering.
#include "common/ir/ops/op_rows.h"

namespace fuseline::ops {

void AddOrderedRows(std::vector<OpDef>& rows) { (void)rows; }

}  // namespace fuseline::ops
