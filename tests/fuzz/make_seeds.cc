// Makes corpus entries from graphs in text form:
//   make_seeds OUTPUT-FOLDER GRAPH.fl…
// Writes OUTPUT-FOLDER/<fuzzer>/<graph>.txt: the graph as a message, its launch plan and artifact (with stand-ins for
// kernels) for both targets, and the request to compile it. A graph that is refused gives the first and the last alone.
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <utility>

#include "common/artifact/codec/artifact_codec.h"
#include "common/ir/canonical.h"
#include "common/ir/codec/graph_codec.h"
#include "common/ir/text_form.h"
#include "common/ir/verify_graph.h"
#include "fuseline/v1/artifact.pb.h"
#include "fuseline/v1/compile_service.pb.h"
#include "server/engine/build_artifact.h"
#include "tests/fuzz/message_input.h"

namespace fuseline::fuzz {
namespace {

namespace fs = std::filesystem;

void WriteSeed(const fs::path& folder, const std::string& name, const google::protobuf::Message& message) {
  fs::create_directories(folder);
  std::ofstream(folder / (name + ".txt"), std::ios::binary) << PrintMessage(message);
}

absl::StatusOr<Artifact> MakeArtifact(const Graph& canonical, const Target& target) {
  absl::StatusOr<GeneratedCode> code = GenerateCode(canonical, target, {});
  if (!code.ok()) return code.status();
  Artifact artifact;
  artifact.target = target;
  artifact.canonical_graph = "graph";
  artifact.compiler_identity = "compiler";
  for (const KernelSource& source : code->kernels.sources) {
    KernelImage image;
    image.format = target.is_cuda() ? ImageFormat::kCubin : ImageFormat::kSharedObject;
    image.entry = source.entry;
    image.bytes = "image";
    artifact.kernels.push_back(std::move(image));
  }
  artifact.plan = std::move(code->kernels.plan);
  artifact.report = std::move(code->kernels.report);
  return artifact;
}

// False where the file is no graph.
bool MakeSeeds(const fs::path& folder, const fs::path& file) {
  std::ifstream stream(file, std::ios::binary);
  const std::string text((std::istreambuf_iterator<char>(stream)), std::istreambuf_iterator<char>());
  absl::StatusOr<Graph> graph = ParseGraphText(text);
  if (!graph.ok()) {
    std::fprintf(stderr, "%s: %s\n", file.c_str(), graph.status().ToString().c_str());
    return false;
  }
  const std::string name = file.stem().string();
  v1::Graph message;
  GraphToProto(*graph, &message);
  WriteSeed(folder / "graph_proto", name, message);
  SymbolSizes sizes;
  for (const std::string& symbol : GraphSymbols(*graph)) sizes[symbol] = 3;
  v1::CompileRequest request;
  if (name.size() % 2 == 0) {
    *request.mutable_spec()->mutable_graph() = message;
  } else {
    request.mutable_spec()->set_graph_text(text);
  }
  request.mutable_spec()->set_target(name.size() % 3 == 0 ? "cuda:sm_90" : "cpu");
  for (const auto& [symbol, size] : sizes) (*request.mutable_spec()->mutable_symbol_sizes())[symbol] = size;
  WriteSeed(folder / "compile_handler", name, request);

  absl::Status status = VerifyGraph(*graph);
  if (!status.ok()) return true;
  if (!graph->is_static()) {
    graph = BindSymbols(*graph, sizes);
    if (!graph.ok()) return true;
  }
  for (const Target& target : {Target::Cpu(), Target::Cuda(90)}) {
    const absl::StatusOr<Artifact> artifact = MakeArtifact(Canonicalize(*graph), target);
    if (!artifact.ok()) continue;
    v1::Artifact proto;
    ArtifactToProto(*artifact, &proto);
    const std::string target_name = name + (target.is_cuda() ? "_cuda" : "_cpu");
    WriteSeed(folder / "artifact_decoder", target_name, proto);
    WriteSeed(folder / "launch_plan", target_name, proto.plan());
  }
  return true;
}

}  // namespace
}  // namespace fuseline::fuzz

int main(int argc, char** argv) {
  if (argc < 3) {
    std::fprintf(stderr, "usage: make_seeds OUTPUT-FOLDER GRAPH.fl...\n");
    return 2;
  }
  bool ok = true;
  for (int i = 2; i < argc; ++i) ok = fuseline::fuzz::MakeSeeds(argv[1], argv[i]) && ok;
  return ok ? 0 : 1;
}
