// How far a correct result may lie from the reference's, element by element: what differential tests compare with.
// Pipeline: graph, inputs, options -> BoundErrors -> one tensor of bounds an output; CompareWithin(got, want, bounds).
// A running error analysis: composites are decomposed, every op is evaluated in f64, and each element carries a bound
// of the difference that two correct implementations may show.
// - Inputs, moved elements, integer and bool arithmetic: 0.
// - What is correctly rounded (add, mul, div, sqrt, rounding, comparisons): 0 on exact operands, so that the results
//   must be equal; otherwise what the operands' bounds come to, and one ulp.
// - Elementary functions: 4 ulp, and half an ulp for the reference (8 in f64). Activations and others made of several
//   steps: 8 ulp, and as much as moving their operands by 4 ulp makes, so that cancellation is allowed for.
// - Bounds pass through an op by evaluating it at both ends of each operand's range, one operand at a time. Where that
//   crosses a jump (floor, comparisons, casts to integers), the jump's height is the bound: as good as unchecked.
// - sum, mean: min(n, 64 + sqrt(n)) roundings of the sum of magnitudes; prod: 2n ulp of it; var: what the rounded
//   deviations make, and the sum's roundings; amax, amin: the largest bound; argmax, argmin, any, all: 0 where the
//   operands' bounds leave no doubt, otherwise infinite.
// - Moves (gather, pad, …): the moved element's. Contractions, pooling, scans, scattered sums: one rounding for each
//   term, of the sum of magnitudes. sort, topk, cummax: the largest bound; positions are not compared in doubt.
// - f16 and bf16: under numerics = eager, equal operands give equal results, others differ by one more ulp of the
//   storage dtype. Under fused, a value that is not an output may or may not be rounded: half an ulp of it.
// Infinite: not to be compared. Thread-safety: pure functions. Errors: those of the reference interpreter.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/case_file/compare_tensors.h"
#include "common/ir/graph.h"
#include "common/target/compile_options.h"
#include "common/tensor/tensor.h"

namespace fuseline::testing {

// f64 tensors, one for each output, of its shape.
absl::StatusOr<std::vector<Tensor>> BoundErrors(const Graph& graph, const std::vector<Tensor>& inputs,
                                                const CompileOptions& options);

// |got - want| <= bound for every element; NaN equals NaN, infinities are equal, either zero meets zero. `scale` widens
// the bounds.
OutputComparison CompareWithin(const std::string& name, const Tensor& got, const Tensor& want, const Tensor& bounds,
                               double scale = 1);

// The share of elements whose bound is below a hundredth of the wanted magnitude, so that the comparison means
// something.
double CheckedShare(const Tensor& want, const Tensor& bounds);

}  // namespace fuseline::testing
