// Attribute values against the specs of the op table: lookup, types, defaults. Thread-safety: pure functions.
#pragma once

#include <string_view>

#include "absl/status/status.h"
#include "common/ir/graph.h"
#include "common/ir/op_table.h"

namespace fuseline {

// The spec, or null.
const AttrSpec* FindAttrSpec(const OpDef& def, std::string_view name);

// Checks that `value` is of the spec's type and gives it the one form that later code sees: an integer where a float is
// asked becomes that float, an empty list a list of integers. Errors: INVALID_ARGUMENT.
absl::Status NormalizeAttrValue(const AttrSpec& spec, AttrValue& value);

// The default in that form. Only where the spec has one.
AttrValue DefaultAttrValue(const AttrSpec& spec);

// Equal type and equal bits: 0.0 differs from -0.0 and a NaN equals itself.
bool SameAttrValue(const AttrValue& a, const AttrValue& b);

}  // namespace fuseline
