// Lets a pointwise kernel write its result over an operand that nothing reads afterwards, so that both share memory.
// Pipeline: ScheduledKernel -> WriteInPlace -> ScheduledKernel with one parameter less -> emitters, launch plan.
// Legal where each element of the operand is read at the element that is written, and only there: the one store of the
// kernel then comes after all that needs the old value. The kernel reads and writes through one pointer, so that no two
// pointers of it ever meet. Thread-safety: pure functions. Tested by tests/unit/codegen/write_in_place_test.cc
#pragma once

#include <optional>

#include "absl/functional/function_ref.h"
#include "server/codegen/schedule/scheduled_kernel.h"

namespace fuseline::codegen {

struct TakenOver {
  TensorId operand = -1;
  TensorId result = -1;
};

// Changes the kernel where some operand for which `dies_here` holds can be written over, and says which; `may_move`:
// whether the result may lie in a temporary's memory. Linear in the body.
std::optional<TakenOver> WriteInPlace(ScheduledKernel& kernel, absl::FunctionRef<bool(TensorId)> dies_here,
                                      absl::FunctionRef<bool(TensorId)> may_move);

}  // namespace fuseline::codegen
