// How far a correct result may lie from the reference's, element by element: what differential tests compare with.
// Pipeline: graph, inputs, options -> BoundErrors -> one tensor of bounds an output; CompareWithin(got, want, bounds).
// A running error analysis: the graph is decomposed and evaluated in f64, one op at a time, and every element carries a bound of the
// difference that two correct implementations may show:
//   - inputs, moved elements, integer and bool arithmetic: 0;
//   - add, sub, mul, div, sqrt, comparisons, rounding and all else that is correctly rounded: 0 on exact operands, so that the result
//     must be equal; otherwise what the operands' bounds come to, and one ulp;
//   - elementary functions: 4 ulp each and half an ulp for the reference (8 in f64), activations and others that are made of several
//     steps 8 ulp, and as much as a change of their operands by 4 ulp makes (so the bound knows where they cancel);
//   - the operands' bounds pass through an op by evaluating it on both ends of each operand's range, one operand at a time. Where that
//     crosses a jump (floor, comparisons, casts to integers) the jump's height is the bound: such an element is as good as unchecked;
//   - sum, mean: min(n, 64 + sqrt(n)) rounding errors of the sum of magnitudes; prod: n of the product; var: the spread of the rounded
//     deviations, and the rounding of the sum; amax, amin: the largest bound; argmax, argmin, any, all: 0 where the operands' bounds
//     leave no doubt, otherwise infinite;
//   - f16 and bf16: under numerics = eager equal operands give equal results, others differ by one ulp of the storage dtype more. Under
//     fused a value may or may not be rounded where it is not an output, which is half an ulp of the storage dtype.
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
absl::StatusOr<std::vector<Tensor>> BoundErrors(const Graph& graph, const std::vector<Tensor>& inputs, const CompileOptions& options);

// |got - want| <= bound for every element; NaN equals NaN, infinities are equal, either zero meets zero. `scale` widens the bounds.
OutputComparison CompareWithin(const std::string& name, const Tensor& got, const Tensor& want, const Tensor& bounds, double scale = 1);

// The share of elements whose bound is below a hundredth of the wanted magnitude, so that the comparison means something.
double CheckedShare(const Tensor& want, const Tensor& bounds);

}  // namespace fuseline::testing
