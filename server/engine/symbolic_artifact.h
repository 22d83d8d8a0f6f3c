// An artifact that stands for a graph with symbols at every size of them: it has the graph and no kernels. Kept in the
// cache beside those for single sizes, so that one fingerprint asks for all.
// Pipeline: Graph (with symbols) -> MakeSymbolicArtifact -> ArtifactStore -> ReadSymbolicArtifact -> CompileRequest.
// Thread-safety: pure functions. Tested by tests/unit/engine/engine_test.cc
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "common/artifact/artifact.h"
#include "common/ir/graph.h"
#include "common/target/compile_options.h"
#include "common/target/target.h"

namespace fuseline {

// Names are canonical: inputs in0, in1, …, symbols s0, s1, … in order of first appearance. `graph`: verified, with
// symbols. Null where the graph is too large to be kept as text (constants).
ArtifactPtr MakeSymbolicArtifact(const Graph& graph, const Target& target, const CompileOptions& options,
                                 const std::string& compiler_identity);

bool IsSymbolicArtifact(const Artifact& artifact);
// The graph, parsed. Errors: those of ParseGraphText, where the artifact is none of ours.
absl::StatusOr<Graph> ReadSymbolicArtifact(const Artifact& artifact, const GraphLimits& limits);

}  // namespace fuseline
