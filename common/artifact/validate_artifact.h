// The checks of an artifact that comes from outside, so that it can be run without further ones.
// Pipeline: bytes -> DeserializeArtifact, ReadArtifact -> ValidateArtifact -> caches, launches.
// Thread-safety: a pure function. Tested by tests/unit/codec/artifact_codec_test.cc
#pragma once

#include "absl/status/status.h"
#include "common/artifact/artifact.h"

namespace fuseline {

// The plan's invariants (launch_plan.h) that keep a run inside its buffers: indices, sizes, bounds, launch dims, image
// formats that fit the target; every output is written, nothing is copied that was not written, and temporaries do not
// overlap while both are in use. Errors: INVALID_ARGUMENT (kDataLoss).
absl::Status ValidateArtifact(const Artifact& artifact);

}  // namespace fuseline
