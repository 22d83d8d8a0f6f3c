// Graph <-> fuseline.v1.Graph: the form in which graphs travel.
// Pipeline: message -> GraphFromProto -> Graph -> VerifyGraph.
// Thread-safety: pure functions; linear in the graph, no recursion.
// Errors: INVALID_ARGUMENT naming the node, input or field (kGraphSyntax: malformed; kGraphStructure: a reference to
// nothing; kLimitExceeded); UNIMPLEMENTED for an op set newer than this program's. Hostile messages never crash. Tested
// by tests/unit/codec/graph_codec_test.cc
#pragma once

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/ir/graph.h"

namespace fuseline::v1 {
class Graph;
}

namespace fuseline {

// The newest op set that this program knows.
inline constexpr int64_t kOpsetVersion = 1;

// `graph` as its producer made it, or verified; references are written as numbers. Overwrites `proto`.
void GraphToProto(const Graph& graph, v1::Graph* proto);
// Decodes and resolves references; does not verify. Unnamed results get the names v<number>, unnamed outputs
// out<position>.
absl::StatusOr<Graph> GraphFromProto(const v1::Graph& proto, const GraphLimits& limits = {});

}  // namespace fuseline
