// The canonical form of a graph and its byte encoding: what the fingerprint is made of.
// Pipeline: Graph (verified, static) -> Canonicalize -> Graph -> CanonicalBytes -> ComputeFingerprint.
// Thread-safety: pure functions; linear in the graph, no recursion.
#pragma once

#include <string>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "common/ir/graph.h"

namespace fuseline {

// Drops dead nodes, orders nodes by a deterministic topological order that does not depend on the order they were
// written in, names values by position and drops origins, graph name and declared types. Names of inputs and outputs
// are kept aside: inputs become in0, in1, …; outputs out0, out1, … in their order.
Graph Canonicalize(const Graph& graph);

// The names that Canonicalize gives to inputs and live results, each with the graph's own: {"in0", "x"}, {"v0", "t0"}.
// For showing people what a report on the canonical graph is about. Looks at the structure alone: types may be missing,
// and dims symbolic.
absl::flat_hash_map<std::string, std::string> CanonicalNames(const Graph& graph);

// An injective encoding of a canonical graph: everything that changes the meaning, nothing else. NaN payloads, -0.0 and
// infinities are kept bit for bit.
std::string CanonicalBytes(const Graph& canonical);

}  // namespace fuseline
