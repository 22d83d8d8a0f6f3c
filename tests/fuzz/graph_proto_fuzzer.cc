// Bytes as a graph, by way of every stage before the compilers: it is decoded, verified and compiled, or blamed; after
// VerifyGraph the only error is UNIMPLEMENTED. An input is a message (message_input.h); or 'G', two bytes of seed, and
// the choices of the random graphs' generator, so that deep valid graphs are changed one decision at a time.
#include <algorithm>
#include <string>
#include <vector>

#include "common/artifact/codec/artifact_codec.h"
#include "common/ir/canonical.h"
#include "common/ir/codec/graph_codec.h"
#include "common/ir/op_table.h"
#include "common/ir/text_form.h"
#include "common/ir/verify_graph.h"
#include "common/status/str_cat.h"
#include "fuseline/v1/graph.pb.h"
#include "server/engine/build_artifact.h"
#include "tests/fuzz/fuzz_input.h"
#include "tests/fuzz/graph_words.h"
#include "tests/fuzz/message_fuzzer.h"
#include "tests/testing/random_graph.h"

namespace fuseline::fuzz {
namespace {

constexpr char kGeneratorMark = 'G';

// A graph as a client sends it: not verified.
absl::StatusOr<Graph> ReadGraph(std::string_view bytes, const GraphLimits& limits) {
  if (!bytes.empty() && bytes[0] == kGeneratorMark) {
    testing::RandomGraphOptions options;
    options.max_elements = 5'000;
    uint64_t seed = 0;
    for (const char c : bytes.substr(1, 2)) seed = seed << 8 | static_cast<uint8_t>(c);
    options.choices = bytes.substr(std::min<size_t>(bytes.size(), 3));
    absl::StatusOr<testing::RandomGraph> random = testing::MakeRandomGraph(seed, options);
    RequireOk(random.status(), "generate");
    v1::Graph message;
    GraphToProto(random->graph, &message);
    return GraphFromProto(message, limits);
  }
  v1::Graph message;
  if (!ParseMessage(bytes, &message)) return absl::CancelledError("no message");
  absl::StatusOr<Graph> graph = GraphFromProto(message, limits);
  RequireBlamesInput(graph.status(), "decode");
  return graph;
}

void CheckRoundTrip(const Graph& graph) {
  v1::Graph message;
  GraphToProto(graph, &message);
  GraphLimits limits;
  const absl::StatusOr<Graph> again = GraphFromProto(message, limits);
  RequireOk(again.status(), "decode what was encoded");
  RequireEqual(PrintGraph(*again), PrintGraph(graph), "decoded a second time");
}

// What the compilers would be given, made into an artifact whose kernels are stand-ins.
void CheckStages(const Graph& canonical, const Target& target, const CompileOptions& options) {
  const std::string what = StrCat("compile for ", target.ToString(), options.fuse ? "" : ", unfused",
                                  options.numerics == Numerics::kEager ? ", eager" : "");
  absl::StatusOr<GeneratedCode> code = GenerateCode(canonical, target, options);
  if (!code.ok()) {
    if (code.status().code() != absl::StatusCode::kUnimplemented) ReportFinding(what, code.status().ToString());
    return;
  }
  Artifact artifact;
  artifact.target = target;
  artifact.options = options;
  for (const KernelSource& source : code->kernels.sources) {
    KernelImage image;
    image.format = target.is_cuda() ? ImageFormat::kCubin : ImageFormat::kSharedObject;
    image.entry = source.entry;
    image.bytes = "image";
    artifact.kernels.push_back(std::move(image));
  }
  artifact.plan = std::move(code->kernels.plan);
  RequireOk(ValidateArtifact(artifact), what);
}

}  // namespace
}  // namespace fuseline::fuzz

FUSELINE_MESSAGE_FUZZER(fuseline::v1::Graph, fuseline::fuzz::GraphWords)

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace fuseline;
  using namespace fuseline::fuzz;
  const GraphLimits limits = SmallLimits();
  absl::StatusOr<Graph> graph = ReadGraph(AsText(data, size), limits);
  if (!graph.ok()) return 0;
  CheckRoundTrip(*graph);
  absl::Status status = VerifyGraph(*graph, limits);
  RequireBlamesInput(status, "verify");
  if (!status.ok()) return 0;
  if (!graph->is_static()) {
    SymbolSizes sizes;
    for (const std::string& symbol : GraphSymbols(*graph)) sizes[symbol] = static_cast<int64_t>(sizes.size() + 2) % 4;
    graph = BindSymbols(*graph, sizes, limits);
    RequireBlamesInput(graph.status(), "bind symbols");
    if (!graph.ok()) return 0;
  }
  const Graph canonical = Canonicalize(*graph);
  const std::string bytes = CanonicalBytes(canonical);
  RequireEqual(CanonicalBytes(Canonicalize(canonical)), bytes, "canonical form made twice");
  // One of the option sets, so that a run stays short; the input decides which.
  const unsigned choice = size == 0 ? 0 : data[size / 2] ^ data[size - 1];
  CompileOptions options;
  options.numerics = (choice & 1) != 0 ? Numerics::kEager : Numerics::kFused;
  options.fuse = (choice & 6) != 0;
  CheckStages(canonical, Target::Cpu(), options);
  CheckStages(canonical, Target::Cuda(90), options);
  return 0;
}
