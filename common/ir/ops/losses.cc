// Losses: composites that compare predictions with targets.
#include "common/ir/ops/op_rows.h"

namespace fuseline::ops {

void AddLossRows(std::vector<OpDef>& rows) { (void)rows; }

}  // namespace fuseline::ops
