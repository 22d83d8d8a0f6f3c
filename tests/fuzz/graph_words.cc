#include "tests/fuzz/graph_words.h"

#include <set>

#include "common/ir/op_table.h"
#include "common/ir/types.h"

namespace fuseline::fuzz {

std::vector<std::string> GraphWords() {
  std::set<std::string> words = {"none", "tanh", "mean", "sum", "x", "y", "t0"};
  for (const OpDef* op : AllOps()) {
    words.insert(op->name);
    for (const AttrSpec& attr : op->attrs) words.insert(attr.name);
  }
  for (int d = 1; d < kDTypeCount; ++d) words.insert(std::string(DTypeName(static_cast<DType>(d))));
  return {words.begin(), words.end()};
}

}  // namespace fuseline::fuzz
