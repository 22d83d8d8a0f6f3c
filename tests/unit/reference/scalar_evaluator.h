// Evaluates a scalar expression for the tests of the op table's rules: a tiny interpreter of ScalarInstr, each
// primitive correctly rounded to its type. Thread-safety: pure functions.
#pragma once

#include <cstdint>
#include <vector>

#include "common/ir/scalar_expr.h"

namespace fuseline {

struct ScalarValue {
  double f = 0;   // of floats
  int64_t i = 0;  // of integers and bool
};

ScalarValue EvaluateScalar(const std::vector<ScalarInstr>& instrs, int32_t result,
                           const std::vector<ScalarValue>& inputs);

}  // namespace fuseline
