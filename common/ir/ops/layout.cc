// Layout: ops whose result takes its elements from several operands, or from none.
#include "common/ir/ops/op_rows.h"

namespace fuseline::ops {

void AddLayoutRows(std::vector<OpDef>& rows) { (void)rows; }

}  // namespace fuseline::ops
