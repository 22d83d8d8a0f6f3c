// A serialised fuseline.v1.Artifact, read without protobuf: for the launch library, which must not bring protobuf into
// another's process. The codec (common/artifact/codec) reads the same form with protobuf, and writes it.
// Pipeline: bytes -> ReadArtifact -> Artifact -> launch. Thread-safety: a pure function.
// Errors: INVALID_ARGUMENT (kDataLoss) with what is wrong; hostile bytes never crash. Tested by
// tests/unit/codec/artifact_reader_test.cc
#pragma once

#include <string_view>

#include "absl/status/statusor.h"
#include "common/artifact/artifact.h"

namespace fuseline {

// Goes into every artifact; a reader refuses others. Change it with docs/cache_format.md.
inline constexpr int32_t kArtifactFormatVersion = 1;

// Checked as by DeserializeArtifact, so that the result can be run without further checks. Without what launching has
// no use for: the report, the kernels' source.
absl::StatusOr<Artifact> ReadArtifact(std::string_view bytes);

}  // namespace fuseline
