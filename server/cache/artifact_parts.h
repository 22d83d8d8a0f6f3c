// An artifact in parts, as the disk keeps it: a body and blobs that other artifacts may share (each kernel's bytes and
// source). Pipeline: Artifact -> SplitArtifact -> blobs -> JoinArtifact -> Artifact. Thread-safety: pure functions.
// Errors of JoinArtifact: INVALID_ARGUMENT (kDataLoss) as DeserializeArtifact, or where parts are missing. Tested by
// tests/unit/server/artifact_parts_test.cc
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "common/artifact/artifact.h"
#include "common/fingerprint/fingerprint.h"

namespace fuseline::cache {

// Part 0 is the body: the serialised artifact, its kernels without bytes and source. Then each kernel's bytes and
// source in turn.
std::vector<std::string> SplitArtifact(const Artifact& artifact);
absl::StatusOr<Artifact> JoinArtifact(std::vector<std::string> parts);

// The index record of an entry: the digests of its parts, in order, with a checksum that covers the key as well.
std::string EncodeIndexRecord(const Fingerprint& key, const std::vector<Digest>& parts);
// Errors: INVALID_ARGUMENT (kDataLoss) for a record that is malformed, damaged or another key's.
absl::StatusOr<std::vector<Digest>> DecodeIndexRecord(const Fingerprint& key, std::string_view record);

}  // namespace fuseline::cache
