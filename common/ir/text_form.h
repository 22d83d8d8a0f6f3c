// The text form of a graph (docs/ir.md): parser and printer, exact inverses on canonical text.
// Thread-safety: pure functions. Neither recurses on the input.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "common/ir/graph.h"

namespace fuseline {

// Parses and resolves names; does not verify. Errors: INVALID_ARGUMENT with "line L, column C: …".
absl::StatusOr<Graph> ParseGraphText(std::string_view text, const GraphLimits& limits = {});
// Parse, then VerifyGraph.
absl::StatusOr<Graph> ParseGraph(std::string_view text, const GraphLimits& limits = {});
// The canonical text: two-space indents, attributes in the order of their names, the shortest number that reads back
// equal.
std::string PrintGraph(const Graph& graph);

}  // namespace fuseline
