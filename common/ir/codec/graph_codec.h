// Graph <-> fuseline.v1.Graph. Thread-safety: pure functions. Errors: INVALID_ARGUMENT naming the field.
#pragma once

#include "absl/status/statusor.h"
#include "common/ir/graph.h"

namespace fuseline::v1 {
class Graph;
}

namespace fuseline {

void GraphToProto(const Graph& graph, v1::Graph* proto);
// Decodes and resolves names; does not verify.
absl::StatusOr<Graph> GraphFromProto(const v1::Graph& proto, const GraphLimits& limits = {});

}  // namespace fuseline
