// What a launch checks of the pointers it is given, laid out when the artifact is loaded.
// Pipeline: LaunchPlan -> PointerChecks -> every launch. Thread-safety: immutable.
// Errors: INVALID_ARGUMENT (kTensorMismatch), naming the input or output. Tested by
// tests/unit/client/launch/launch_api_test.cc
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "common/artifact/launch_plan.h"

namespace fuseline::launch {

class PointerChecks {
 public:
  explicit PointerChecks(const LaunchPlan& plan);
  // Aligned as the kernels assume, and not null unless the tensor has no elements.
  absl::Status Check(void* const* inputs, void* const* outputs, const void* arena) const;

 private:
  struct Rule {
    uintptr_t alignment_mask = 0;  // bits that must be zero
    bool may_be_null = false;
  };
  static bool Holds(const Rule& rule, const void* pointer) {
    const auto address = reinterpret_cast<uintptr_t>(pointer);
    return (address & rule.alignment_mask) == 0 && (address != 0 || rule.may_be_null);
  }
  absl::Status Complaint(bool is_output, size_t index, const void* pointer) const;

  const LaunchPlan& plan_;  // the artifact's, which outlives this
  std::vector<Rule> inputs_;
  std::vector<Rule> outputs_;
};

}  // namespace fuseline::launch
