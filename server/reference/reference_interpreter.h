// The reference interpreter: one op at a time, plain and slow. The arbiter of correctness for `verify` and the
// differential tests. Floats are computed in double (long double where it matters) and rounded once; under
// Numerics::kFused 16-bit values stay in f32 precision until they are stored (returned), cast or multiplied in a
// contraction; under kEager each result is rounded. Thread-safety: a pure function.
#pragma once

#include <vector>

#include "absl/status/statusor.h"
#include "common/ir/graph.h"
#include "common/target/compile_options.h"
#include "common/tensor/tensor.h"

namespace fuseline::reference {

// `graph`: verified and static; `inputs` in its order. Errors: INVALID_ARGUMENT (kTensorMismatch, or a run-time index
// out of range); UNIMPLEMENTED for an op without a reference; RESOURCE_EXHAUSTED for values that do not fit into
// memory.
absl::StatusOr<std::vector<Tensor>> Interpret(const Graph& graph, const std::vector<Tensor>& inputs,
                                              const CompileOptions& options = {});

}  // namespace fuseline::reference
