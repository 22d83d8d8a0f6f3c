// Artifact <-> fuseline.v1.Artifact and bytes: the form kept in caches and sent to clients (docs/cache_format.md).
// Pipeline: Artifact -> SerializeArtifact -> caches, clients -> DeserializeArtifact -> Artifact.
// Thread-safety: pure functions. Errors: bad data is INVALID_ARGUMENT (kDataLoss) with what is wrong; hostile bytes
// never crash. Whether that is a data loss is for the caller to say. Tested by tests/unit/codec/artifact_codec_test.cc
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/artifact/artifact.h"
#include "common/artifact/artifact_reader.h"
#include "common/artifact/validate_artifact.h"

namespace fuseline::v1 {
class Artifact;
class Report;
}  // namespace fuseline::v1

namespace fuseline {

// Equal artifacts give equal bytes.
std::string SerializeArtifact(const Artifact& artifact);
// Checks every count, size and index, so that the result can be run without further checks.
absl::StatusOr<Artifact> DeserializeArtifact(std::string_view bytes);
// Overwrites `proto`.
void ArtifactToProto(const Artifact& artifact, v1::Artifact* proto);
// As DeserializeArtifact.
absl::StatusOr<Artifact> ArtifactFromProto(const v1::Artifact& proto);
// The report alone, as responses carry it. Overwrites `proto`.
void ReportToProto(const ArtifactReport& report, v1::Report* proto);
ArtifactReport ReportFromProto(const v1::Report& proto);

}  // namespace fuseline
