// Says where two graphs differ, for tests. Constants, floats and NaNs are compared bit for bit; ids by where they
// point.
#pragma once

#include <bit>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/ir/attr_values.h"
#include "common/ir/graph.h"

namespace fuseline::testing {

inline bool SameLiteral(const Literal& a, const Literal& b) {
  if (a.kind != b.kind) return false;
  if (a.kind == Literal::Kind::kFloat) return std::bit_cast<uint64_t>(a.f) == std::bit_cast<uint64_t>(b.f);
  return a.i == b.i;
}

inline bool SameAttrs(const AttrMap& a, const AttrMap& b) {
  if (a.size() != b.size()) return false;
  for (auto i = a.begin(), j = b.begin(); i != a.end(); ++i, ++j) {
    if (i->first != j->first || !SameAttrValue(i->second, j->second)) return false;
  }
  return true;
}

// The first difference; empty where the graphs are equal in everything but origins and rows.
inline std::string GraphDifference(const Graph& a, const Graph& b) {
  if (a.name != b.name) return "graph name";
  if (a.inputs != b.inputs) return "inputs";
  if (a.values.size() != b.values.size()) return "number of values";
  for (size_t i = 0; i < a.values.size(); ++i) {
    const Value& x = a.values[i];
    const Value& y = b.values[i];
    if (x.name != y.name || x.producer != y.producer || x.result_index != y.result_index || x.type != y.type ||
        x.declared_type != y.declared_type) {
      return absl::StrCat("value ", x.name, ": ", x.type.ToString(), " and ", y.type.ToString());
    }
  }
  if (a.nodes.size() != b.nodes.size()) return "number of nodes";
  for (size_t i = 0; i < a.nodes.size(); ++i) {
    const Node& x = a.nodes[i];
    const Node& y = b.nodes[i];
    const std::string where = absl::StrCat("node ", i, " (", x.op, "): ");
    if (x.op != y.op) return where + "op";
    if (x.results != y.results) return where + "results";
    if (!SameAttrs(x.attrs, y.attrs)) return where + "attributes";
    if ((x.constant_bytes == nullptr) != (y.constant_bytes == nullptr)) return where + "data";
    if (x.constant_bytes != nullptr && *x.constant_bytes != *y.constant_bytes) return where + "data";
    if (x.operands.size() != y.operands.size()) return where + "number of operands";
    for (size_t k = 0; k < x.operands.size(); ++k) {
      if (x.operands[k].value != y.operands[k].value) return where + "operand";
      if (x.operands[k].is_literal() && !SameLiteral(x.operands[k].literal, y.operands[k].literal))
        return where + "literal";
    }
  }
  if (a.outputs.size() != b.outputs.size()) return "number of outputs";
  for (size_t i = 0; i < a.outputs.size(); ++i) {
    if (a.outputs[i].name != b.outputs[i].name || a.outputs[i].value != b.outputs[i].value)
      return absl::StrCat("output ", i);
  }
  return "";
}

}  // namespace fuseline::testing
