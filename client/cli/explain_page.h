// The page of `fuseline explain --html`: a graph and its fusion as one self-contained HTML file.
// Pipeline: Graph, artifact, report -> ExplainPageData -> JSON -> ExplainPage -> client/cli/explain_page/page.html,
// which draws it in the browser. client/python/fuseline/explain_page.py makes the same JSON:
//   {"summary": …, "report": …      as --json prints them, values by the graph's names
//    "graph": null, or {"name", "inputs": [[name, type]], "nodes": [[op, operands, results, attributes]],
//             "outputs": [[name, value]]}    an operand is "%t" or "x", or [text] for a literal; a result is [name,
//             type]
//    "plan": null, or {"buffers": [[kind, index, bytes]], "launches": [{"image": index or -1, "buffers": [index]}]}
//    "images": [{"name", "source", …}], "benchmark": null or {…}, "stages": {name: text}, "key": [{…}]}
// Types are empty where they are not known. Thread-safety: pure functions. Tested by
// tests/unit/client/explain_page_test.cc, and in a browser by tests/tools/explain_page_test.py
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "client/cli/json_output.h"
#include "client/cpp/client.h"
#include "common/artifact/artifact.h"
#include "common/ir/graph.h"
#include "common/ir/verify_graph.h"

namespace fuseline::cli {

struct ExplainPageInput {
  const Graph& graph;  // need not be verified
  const SymbolSizes& symbols;
  const client::CompileSummary& summary;
  const Artifact& artifact;                 // with source
  const ArtifactReport& report;             // in the graph's own names
  const std::vector<KeyField>& key_fields;  // none unless asked for
  const std::optional<client::BenchmarkResult>& benchmark;
};

Json ExplainPageData(const ExplainPageInput& input);
// The whole page. Nothing in `data` can end the script that holds it.
std::string ExplainPage(const Json& data);

}  // namespace fuseline::cli
