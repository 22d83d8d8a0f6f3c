// Reports in the client's own names. An artifact is shared by all graphs that mean the same, so its report names values
// as the canonical graph does.
// Pipeline: ArtifactReport, CanonicalNames (common/ir/canonical.h) -> RenameReportValues -> ArtifactReport for people.
// Thread-safety: a pure function. Tested by tests/unit/codec/artifact_report_test.cc
#pragma once

#include <string>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "common/artifact/artifact.h"

namespace fuseline {

// Replaces each "%name" in ops and refusals that `names` has. To be done once: a client may have a "%v0" of its own.
void RenameReportValues(const absl::flat_hash_map<std::string, std::string>& names, ArtifactReport& report);
// The same for the message and the subject of an error that running an artifact gave (kIndexOutOfRange); others are
// left as they are.
absl::Status RenameIndexError(const absl::flat_hash_map<std::string, std::string>& names, const absl::Status& status);

}  // namespace fuseline
