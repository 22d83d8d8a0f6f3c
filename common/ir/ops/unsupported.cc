// Ops of docs/ir.md that are not built yet: known by name, so that a graph with one is answered UNIMPLEMENTED and not
// "no such op".
#include "common/ir/ops/op_rows.h"

namespace fuseline::ops {

void AddUnsupportedRows(std::vector<OpDef>& rows) {
  static constexpr const char* kNames[] = {"concat", "diagonal", "dropout",           "glu",  "one_hot", "pad",
                                           "rand",   "randn",    "repeat_interleave", "roll", "stack",   "tile",
                                           "tril",   "triu"};
  for (const char* name : kNames) {
    OpDef row;
    row.name = name;
    row.kind = OpKind::kUnsupported;
    rows.push_back(row);
  }
}

}  // namespace fuseline::ops
