// Bytes as graph text: the parser answers or blames the text, what it takes is printed so that it reads back equal, and
// both mean the same.
#include <string>

#include "common/ir/canonical.h"
#include "common/ir/text_form.h"
#include "common/ir/verify_graph.h"
#include "tests/fuzz/fuzz_input.h"

namespace fuseline::fuzz {
namespace {

// Every symbol gets a size; some get 1, which broadcasts.
SymbolSizes SomeSizes(const Graph& graph) {
  SymbolSizes sizes;
  int64_t next = 1;
  for (const std::string& symbol : GraphSymbols(graph)) sizes[symbol] = next++ % 4;
  return sizes;
}

// Verified and static, or the error.
absl::StatusOr<Graph> Resolve(Graph graph, const GraphLimits& limits) {
  const absl::Status status = VerifyGraph(graph, limits);
  RequireBlamesInput(status, "verify");
  if (!status.ok()) return status;
  if (graph.is_static()) return graph;
  absl::StatusOr<Graph> bound = BindSymbols(graph, SomeSizes(graph), limits);
  RequireBlamesInput(bound.status(), "bind symbols");
  return bound;
}

}  // namespace
}  // namespace fuseline::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace fuseline;
  using namespace fuseline::fuzz;
  const GraphLimits limits = SmallLimits();
  const absl::StatusOr<Graph> graph = ParseGraphText(AsText(data, size), limits);
  RequireBlamesInput(graph.status(), "parse");
  if (!graph.ok()) return 0;
  const std::string text = PrintGraph(*graph);
  GraphLimits text_limits = limits;
  text_limits.max_text_bytes = 1 << 30;  // the printed form may be longer
  const absl::StatusOr<Graph> again = ParseGraphText(text, text_limits);
  RequireOk(again.status(), "parse what was printed");
  RequireEqual(PrintGraph(*again), text, "printed a second time");

  const absl::StatusOr<Graph> resolved = Resolve(*graph, limits);
  const absl::StatusOr<Graph> resolved_again = Resolve(*again, limits);
  const absl::string_view want = resolved.status().message();
  const absl::string_view got = resolved_again.status().message();
  RequireEqual({got.data(), got.size()}, {want.data(), want.size()}, "verify what was printed");
  if (!resolved.ok()) return 0;
  const Graph canonical = Canonicalize(*resolved);
  const std::string bytes = CanonicalBytes(canonical);
  RequireEqual(CanonicalBytes(Canonicalize(*resolved_again)), bytes, "canonical bytes of what was printed");
  RequireEqual(CanonicalBytes(Canonicalize(canonical)), bytes, "canonical form made twice");
  return 0;
}
