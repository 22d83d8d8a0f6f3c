// What the tests of pointwise rows need for each row: attributes that it asks for, and values worth trying.
// Thread-safety: pure functions.
#pragma once

#include <vector>

#include "absl/status/statusor.h"
#include "common/ir/graph.h"
#include "common/ir/op_table.h"

namespace fuseline {

// Sets of attributes to try the op with.
std::vector<AttrMap> SampleAttrs(const OpDef& def);
// The verified node of a graph with that op over 0-d operands of `dtype` (`where`: after a bool). An error where the
// row refuses them.
absl::StatusOr<Graph> SampleGraph(const OpDef& def, DType dtype, const AttrMap& attrs);

std::vector<double> SampleFloats(DType dtype);     // special values and some of every size, representable in `dtype`
std::vector<int64_t> SampleIntegers(DType dtype);  // likewise for integers and bool

}  // namespace fuseline
