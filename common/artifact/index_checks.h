// What the kernels of a plan have noted of indices that are out of range.
// Pipeline: LaunchPlan::checks, the buffer of kind kChecks after the last step -> IndexCheckStatus -> the call's
// status. Units: two i64s a check. Thread-safety: a pure function. Tested by tests/unit/codec/index_checks_test.cc
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "common/artifact/launch_plan.h"

namespace fuseline {

// The size of a plan's buffer of kind kChecks.
inline int64_t ChecksBytes(const LaunchPlan& plan) { return static_cast<int64_t>(plan.checks.size()) * 16; }

// OK, or INVALID_ARGUMENT (kIndexOutOfRange) for the first check that failed: "node '%g': index 12 is out of range for
// size 10". `noted` has two elements for each check.
absl::Status IndexCheckStatus(const std::vector<PlanCheck>& checks, absl::Span<const int64_t> noted);

}  // namespace fuseline
