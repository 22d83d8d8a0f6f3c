#include "server/engine/symbolic_artifact.h"

#include <memory>
#include <string>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/ir/canonical.h"
#include "common/ir/text_form.h"
#include "common/ir/verify_graph.h"

namespace fuseline {
namespace {

// The canonical bytes of graphs without symbols begin otherwise.
constexpr absl::string_view kPrefix = "symbolic:";
constexpr int64_t kMaxConstantBytes = 1 << 20;

int64_t ConstantBytes(const Graph& graph) {
  int64_t bytes = 0;
  for (const Node& node : graph.nodes) {
    if (node.constant_bytes != nullptr) bytes += static_cast<int64_t>(node.constant_bytes->size());
  }
  return bytes;
}

Graph WithCanonicalNames(const Graph& graph) {
  Graph out = Canonicalize(graph);
  absl::flat_hash_map<std::string, std::string> names;
  for (const std::string& symbol : GraphSymbols(graph)) names.emplace(symbol, absl::StrCat("s", names.size()));
  for (const ValueId id : out.inputs) {
    for (Dim& dim : out.values[static_cast<size_t>(id)].type.dims) {
      if (dim.is_symbolic()) dim.symbol = names[dim.symbol];
    }
  }
  return out;
}

}  // namespace

ArtifactPtr MakeSymbolicArtifact(const Graph& graph, const Target& target, const CompileOptions& options,
                                 const std::string& compiler_identity) {
  if (ConstantBytes(graph) > kMaxConstantBytes) return nullptr;
  auto artifact = std::make_shared<Artifact>();
  artifact->canonical_graph = absl::StrCat(kPrefix, PrintGraph(WithCanonicalNames(graph)));
  artifact->target = target;
  artifact->options = options;
  artifact->compiler_identity = compiler_identity;
  artifact->fingerprint = ComputeFingerprint({artifact->canonical_graph, target, options, compiler_identity});
  return artifact;
}

bool IsSymbolicArtifact(const Artifact& artifact) {
  const absl::string_view graph(artifact.canonical_graph);
  return graph.substr(0, kPrefix.size()) == kPrefix;
}

absl::StatusOr<Graph> ReadSymbolicArtifact(const Artifact& artifact, const GraphLimits& limits) {
  absl::string_view text(artifact.canonical_graph);
  absl::ConsumePrefix(&text, kPrefix);
  return ParseGraphText(std::string_view(text.data(), text.size()), limits);
}

}  // namespace fuseline
