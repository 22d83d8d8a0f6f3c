// Ops of docs/ir.md that are not built yet: known by name, so that a graph with one is answered UNIMPLEMENTED and not
// "no such op". There is none at present.
#include "absl/types/span.h"
#include "common/ir/ops/op_rows.h"

namespace fuseline::ops {

void AddUnsupportedRows(std::vector<OpDef>& rows) {
  constexpr absl::Span<const char* const> kNames;
  for (const char* name : kNames) {
    OpDef row;
    row.name = name;
    row.kind = OpKind::kUnsupported;
    rows.push_back(row);
  }
}

}  // namespace fuseline::ops
