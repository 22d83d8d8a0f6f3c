// Runs a loop program element by element: what the loops mean, with none of the stages that follow.
// Floats and integers alike are computed in double; values of f32 are rounded to f32 after every instruction. Only the
// operations that the tests need: others give a failure.
#pragma once

#include <vector>

#include "absl/status/statusor.h"
#include "common/tensor/tensor.h"
#include "server/lowering/loop_program.h"

namespace fuseline::lowering {

// `positions`: the values of IndexExpr::Value.
int64_t EvaluateIndex(const IndexExpr& expr, const std::vector<int64_t>& at,
                      const std::vector<int64_t>& positions = {});
// One scalar operation. Errors: UNIMPLEMENTED naming it.
absl::StatusOr<double> EvaluateScalar(const ScalarInstr& instr, const double args[3]);
// An accumulator and one more value; `kind` is a reduction that gives a value.
double CombineValues(ReductionKind kind, double a, double b);
double IdentityValue(ReductionKind kind);

// The outputs, in signature order, with the shapes of the loops' tensors.
absl::StatusOr<std::vector<Tensor>> RunLoopProgram(const LoopProgram& program, const std::vector<Tensor>& inputs);

}  // namespace fuseline::lowering
