// Runs kernel bodies on buffers of doubles: what a kernel computes before it is printed.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/target/target.h"
#include "common/tensor/tensor.h"
#include "server/codegen/kernel_body.h"
#include "server/codegen/schedule/scheduled_kernel.h"
#include "server/fuser/fusion_plan.h"
#include "server/lowering/loop_program.h"

namespace fuseline::codegen {

using Buffer = std::vector<double>;

// `buffers`: one for each parameter of the body, in order, large enough for every offset. Errors: INTERNAL for an
// access outside a buffer, an element that is written twice, or a value used before it can be known; UNIMPLEMENTED for
// a scalar operation of no interest here.
absl::Status RunBody(const KernelBody& body, const std::vector<Buffer*>& buffers);

// Fuses, builds bodies, schedules them and runs the scheduled bodies. Inputs are dense.
absl::StatusOr<std::vector<Tensor>> RunScheduledPlan(const lowering::LoopProgram& program,
                                                     const fuser::FusionPlan& plan, const Target& target,
                                                     const std::vector<Tensor>& inputs);

}  // namespace fuseline::codegen
