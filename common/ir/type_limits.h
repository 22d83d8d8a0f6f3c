// Checks of a single tensor type: sizes that do not overflow, bounds, strides. Thread-safety: pure functions.
#pragma once

#include "absl/status/status.h"
#include "common/ir/graph.h"

namespace fuseline {

// Errors: INVALID_ARGUMENT for an invalid dtype, a negative size, a symbol that is no name, a rank or a number of
// elements over its limit, strides of another rank, negative strides, a span over the limit. Symbolic dims count as 1.
// No size or stride product that later code forms of a type that passed overflows.
absl::Status CheckTensorType(const TensorType& type, const GraphLimits& limits);

// Strides are kept only where they differ from dense row-major: drops the others.
void DropDenseStrides(TensorType& type);

}  // namespace fuseline
