// Loads GRAPH, the argument of most commands: text (.fl), protobuf (.pb), an ONNX model (.onnx), or "-" for one of
// the first two on standard input.
// Pipeline: path -> LoadGraph -> Graph (not verified: the engine or the server does that and names the node).
// Errors: INVALID_ARGUMENT as the parser says, with the path before it; as the importer of ONNX; what reading the
// file says. Tested by tests/unit/client/cli_test.cc
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/ir/graph.h"
#include "common/ir/verify_graph.h"

namespace fuseline::cli {

// `symbols`: sizes of the symbolic dims of an ONNX model, whose graph has none; other graphs keep theirs.
absl::StatusOr<Graph> LoadGraph(const std::string& path, const SymbolSizes& symbols = {});
// The same for bytes that were read from `path` already.
absl::StatusOr<Graph> ParseGraphBytes(const std::string& path, const std::string& bytes,
                                      const SymbolSizes& symbols = {});
bool IsOnnx(const std::string& path);

// "n=64" -> {"n": 64}. Errors: INVALID_ARGUMENT (kOptionInvalid).
absl::StatusOr<SymbolSizes> ParseSymbols(const std::vector<std::string>& assignments);
// "x=x.npy" -> {"x", "x.npy"}. `flag` is for the message.
absl::StatusOr<std::pair<std::string, std::string>> ParseAssignment(const std::string& text, const std::string& flag);

}  // namespace fuseline::cli
