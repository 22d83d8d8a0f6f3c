// Checks a graph, resolves its ops, fills in attribute defaults and infers every value's type.
// Pipeline: Graph (parsed) -> VerifyGraph -> Graph (verified). Linear in the graph; no recursion.
// Errors: INVALID_ARGUMENT (names the node or input), UNIMPLEMENTED (another op set version).
#pragma once

#include <map>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/ir/graph.h"

namespace fuseline {

// Verifies `graph` in place. A graph with symbolic dims is checked in structure only (names, order, arity, attributes);
// its types are inferred once BindSymbols has made it static.
absl::Status VerifyGraph(Graph& graph, const GraphLimits& limits = {});

using SymbolSizes = std::map<std::string, int64_t, std::less<>>;

// The names of the symbols in the inputs' types, in order of first appearance.
std::vector<std::string> GraphSymbols(const Graph& graph);
// Replaces each symbol by its size and verifies the result. Errors: INVALID_ARGUMENT for an unbound, unknown or
// negative symbol.
absl::StatusOr<Graph> BindSymbols(const Graph& graph, const SymbolSizes& sizes, const GraphLimits& limits = {});
// The symbols' sizes from the actual shapes of the inputs (in order). Errors: INVALID_ARGUMENT where rank or size
// contradict.
absl::StatusOr<SymbolSizes> SolveSymbols(const Graph& graph, const std::vector<Shape>& input_shapes);

}  // namespace fuseline
