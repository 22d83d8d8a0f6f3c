// Which positions of a dim `resize` reads: what its type rule and its lowering share. Pipeline: attributes of a
// verified node -> ResizedDim -> lowering. Thread-safety: pure functions.
#pragma once

#include <cstddef>
#include <cstdint>

#include "common/ir/graph.h"
#include "common/ir/types.h"

namespace fuseline::ops {

struct ResizedDim {
  int64_t from = 0;
  int64_t to = 0;
  double scale = 0;  // as given; 0: to / from
  bool is_resized() const { return from != to || scale != 0; }
};

// The operand's sizes and the attributes "sizes" and "scales". A scale that says no more than the sizes do counts as
// not given.
ResizedDim ResizedDimOf(const Shape& from, const AttrMap& attrs, size_t dim);

}  // namespace fuseline::ops
