#include "client/cli/graph_file.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "client/cli/file_io.h"
#include "client/onnx/import_model.h"
#include "common/ir/codec/graph_codec.h"
#include "common/ir/text_form.h"
#include "common/status/error.h"
#include "common/status/status_macros.h"
#include "fuseline/v1/graph.pb.h"

namespace fuseline::cli {
namespace {

absl::StatusOr<Graph> DecodeGraph(const std::string& bytes) {
  v1::Graph proto;
  if (!proto.ParseFromString(bytes))
    return InvalidArgument(ErrorReason::kGraphSyntax, "", "not a fuseline.v1.Graph message");
  return GraphFromProto(proto);
}

// Text has no control bytes but white space; a serialised graph has lengths and field tags among them within its first
// bytes.
bool LooksLikeProto(const std::string& bytes) {
  const std::string head = bytes.substr(0, 4096);
  return std::any_of(head.begin(), head.end(), [](unsigned char c) { return c < 0x09 || (c > 0x0d && c < 0x20); });
}

absl::StatusOr<Graph> ImportOnnx(const std::string& bytes, const SymbolSizes& symbols) {
  onnx_import::ImportOptions options;
  options.symbols.insert(symbols.begin(), symbols.end());
  FUSELINE_ASSIGN_OR_RETURN(onnx_import::ImportedModel imported, onnx_import::ImportModelBytes(bytes, options));
  return std::move(imported.graph);
}

}  // namespace

absl::StatusOr<Graph> ParseGraphBytes(const std::string& path, const std::string& bytes, const SymbolSizes& symbols) {
  const bool is_proto = absl::EndsWith(path, ".pb") || (path == "-" && LooksLikeProto(bytes));
  absl::StatusOr<Graph> graph = IsOnnx(path) ? ImportOnnx(bytes, symbols)
                                : is_proto   ? DecodeGraph(bytes)
                                             : ParseGraphText(bytes);
  if (!graph.ok()) return Wrap(graph.status(), path == "-" ? "standard input" : path);
  return graph;
}

bool IsOnnx(const std::string& path) { return absl::EndsWith(path, ".onnx"); }

absl::StatusOr<Graph> LoadGraph(const std::string& path, const SymbolSizes& symbols) {
  FUSELINE_ASSIGN_OR_RETURN(const std::string bytes, ReadFile(path));
  return ParseGraphBytes(path, bytes, symbols);
}

absl::StatusOr<std::pair<std::string, std::string>> ParseAssignment(const std::string& text, const std::string& flag) {
  const size_t equals = text.find('=');
  if (equals == std::string::npos || equals == 0 || equals + 1 == text.size()) {
    return InvalidArgument(ErrorReason::kOptionInvalid, flag,
                           absl::StrCat(flag, ": expected NAME=VALUE, got '", text, "'"));
  }
  return std::make_pair(text.substr(0, equals), text.substr(equals + 1));
}

absl::StatusOr<SymbolSizes> ParseSymbols(const std::vector<std::string>& assignments) {
  SymbolSizes sizes;
  for (const std::string& text : assignments) {
    FUSELINE_ASSIGN_OR_RETURN(const auto assignment, ParseAssignment(text, "--symbol"));
    int64_t size = 0;
    if (!absl::SimpleAtoi(assignment.second, &size) || size < 0) {
      return InvalidArgument(ErrorReason::kOptionInvalid, "--symbol",
                             absl::StrCat("--symbol: '", assignment.second, "' is not a size"));
    }
    sizes[assignment.first] = size;
  }
  return sizes;
}

}  // namespace fuseline::cli
