// Lock files: which artifacts a set of graphs compiles to, so that a job can say that all of its processes run the same
// kernels. JSON text; docs/warm.md describes it.
// Pipeline: fuseline warm --lock -> WriteLockFile -> text -> ReadLockFile -> fuseline warm.
// Thread-safety: pure functions. Errors: INVALID_ARGUMENT (kInputOutput) naming the entry and field. Tested by
// tests/unit/client/lock_file_test.cc
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "common/artifact/artifact.h"
#include "common/fingerprint/fingerprint.h"
#include "common/ir/verify_graph.h"
#include "common/target/compile_options.h"
#include "common/target/target.h"

namespace fuseline::cli {

// One graph for one target.
struct LockEntry {
  std::string graph;  // its file, relative to the lock file's folder
  Target target;
  SymbolSizes symbols;
  CompileOptions options;
  Fingerprint fingerprint;      // the graph's key
  std::string artifact_sha256;  // ArtifactDigest, 64 hex digits
};

// SHA-256 in hex of the artifact in its serialised form, without report and source: of what is run.
std::string ArtifactDigest(const Artifact& artifact);

std::string WriteLockFile(const std::vector<LockEntry>& entries);
absl::StatusOr<std::vector<LockEntry>> ReadLockFile(std::string_view text);

}  // namespace fuseline::cli
