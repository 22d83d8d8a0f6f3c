#include "common/ir/graph.h"

#include "common/status/str_cat.h"

namespace fuseline {

std::string Graph::DisplayName(ValueId id) const {
  // Messages about a broken graph must not break on it.
  if (id < 0 || static_cast<size_t>(id) >= values.size()) return StrCat("#", id);
  const Value& v = value(id);
  return v.producer == kNoNode ? v.name : StrCat("%", v.name);
}

std::string Graph::NodeName(NodeId id) const {
  if (id < 0 || static_cast<size_t>(id) >= nodes.size()) return StrCat("#", id);
  const Node& node = nodes[static_cast<size_t>(id)];
  if (node.results.empty()) return StrCat("#", id);
  const ValueId first = node.results[0];
  if (first < 0 || static_cast<size_t>(first) >= values.size()) return StrCat("#", id);
  return StrCat("%", value(first).name);
}

bool Graph::is_static() const {
  for (ValueId id : inputs) {
    if (!type(id).is_static()) return false;
  }
  return true;
}

}  // namespace fuseline
