// Lays a dense row-major tensor out with other strides, as a plan's input asks for.
// Pipeline: Tensor -> LayOut -> host buffer -> device. Strides are in elements and not negative (ValidateArtifact).
// Errors: INTERNAL (kInternalInvariant) where strides and shape do not fit or sizes overflow. Thread-safety: pure
// functions. Tested by tests/unit/server/strided_layout_test.cc
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/artifact/launch_plan.h"
#include "common/ir/types.h"

namespace fuseline::executor {

// Whether `strides` lay `shape` out as a dense row-major tensor. Strides of dims of size 1 do not matter; empty
// `strides` are dense.
bool IsDense(const Shape& shape, const std::vector<int64_t>& strides);

// The bytes from the first element to the end of the last one; 0 for an empty tensor.
absl::StatusOr<int64_t> LaidOutBytes(const PlanTensor& tensor);

// Writes the elements of `dense` to their places in `to`, LaidOutBytes long; what lies between them becomes zero. Where
// strides give several elements one place, the last in row-major order stays.
absl::Status LayOut(const PlanTensor& tensor, const void* dense, void* to);

}  // namespace fuseline::executor
