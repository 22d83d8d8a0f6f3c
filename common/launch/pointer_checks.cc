#include "common/launch/pointer_checks.h"

#include "common/status/error.h"
#include "common/status/str_cat.h"

namespace fuseline::launch {
namespace {

constexpr uintptr_t kArenaAlignmentBytes = 256;

}  // namespace

PointerChecks::PointerChecks(const LaunchPlan& plan) : plan_(plan) {
  const auto rule = [](const PlanTensor& tensor) {
    return Rule{static_cast<uintptr_t>(tensor.alignment_bytes) - 1, ElementCount(tensor.shape) == 0};
  };
  for (const PlanTensor& tensor : plan.inputs) inputs_.push_back(rule(tensor));
  for (const PlanTensor& tensor : plan.outputs) outputs_.push_back(rule(tensor));
}

absl::Status PointerChecks::Check(void* const* inputs, void* const* outputs, const void* arena) const {
  for (size_t i = 0; i < inputs_.size(); ++i) {
    if (!Holds(inputs_[i], inputs[i])) return Complaint(false, i, inputs[i]);
  }
  for (size_t i = 0; i < outputs_.size(); ++i) {
    if (!Holds(outputs_[i], outputs[i])) return Complaint(true, i, outputs[i]);
  }
  if (reinterpret_cast<uintptr_t>(arena) % kArenaAlignmentBytes != 0) {
    return InvalidArgument(ErrorReason::kTensorMismatch, "arena",
                           StrCat("the arena is not ", kArenaAlignmentBytes, "-byte aligned"));
  }
  return absl::OkStatus();
}

absl::Status PointerChecks::Complaint(bool is_output, size_t index, const void* pointer) const {
  const PlanTensor& tensor = is_output ? plan_.outputs[index] : plan_.inputs[index];
  return InvalidArgument(ErrorReason::kTensorMismatch, tensor.name,
                         StrCat(is_output ? "output '" : "input '", tensor.name, "': ",
                                pointer == nullptr ? StrCat("the pointer is null")
                                                   : StrCat("the pointer is not ", tensor.alignment_bytes,
                                                            "-byte aligned, which the kernels assume")));
}

}  // namespace fuseline::launch
