// Artifact <-> bytes: the form kept in caches and sent to clients (docs/cache_format.md). A protobuf message inside
// (fuseline.v1.Artifact); only this file and ir's graph_codec know the generated classes in common/.
// Thread-safety: pure functions. Errors: DATA_LOSS-worthy input is reported as INVALID_ARGUMENT with what is wrong; never crashes.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "common/artifact/artifact.h"

namespace fuseline::v1 {
class Artifact;
}

namespace fuseline {

std::string SerializeArtifact(const Artifact& artifact);
// Checks every count, size and index, so that the result can be run without further checks.
absl::StatusOr<Artifact> DeserializeArtifact(std::string_view bytes);
void ArtifactToProto(const Artifact& artifact, v1::Artifact* proto);
absl::StatusOr<Artifact> ArtifactFromProto(const v1::Artifact& proto);
// The plan's invariants (launch_plan.h), also used after deserialising.
absl::Status ValidateArtifact(const Artifact& artifact);

}  // namespace fuseline
