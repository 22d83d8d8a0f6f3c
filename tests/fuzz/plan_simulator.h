// Runs a launch plan on memory that only exists as a record of who wrote what: finds what a plan may never do, without
// the reasoning of ValidateArtifact. Written from launch_plan.h alone.
// Pipeline: Artifact (accepted by ValidateArtifact) -> SimulatePlan -> OK, or what went wrong.
// Errors: INTERNAL naming the step. Thread-safety: a pure function.
#pragma once

#include "absl/status/status.h"
#include "common/artifact/artifact.h"

namespace fuseline::fuzz {

absl::Status SimulatePlan(const Artifact& artifact);

}  // namespace fuseline::fuzz
