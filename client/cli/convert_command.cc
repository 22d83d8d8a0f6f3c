// fuseline convert MODEL.onnx: an ONNX model as a graph. Needs neither server nor engine.
#include <iostream>
#include <memory>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "client/cli/command.h"
#include "client/cli/file_io.h"
#include "client/cli/graph_file.h"
#include "client/cli/json_output.h"
#include "client/onnx/import_model.h"
#include "client/onnx/model_reader.h"
#include "common/ir/codec/graph_codec.h"
#include "common/ir/text_form.h"
#include "common/status/error.h"
#include "common/status/status_macros.h"
#include "common/tensor/npy.h"
#include "fuseline/v1/graph.pb.h"

namespace fuseline::cli {
namespace {

struct ConvertFlags {
  std::string model;
  std::string output = "-";
  std::string weights = "constants";
  std::string weights_dir;
  std::vector<std::string> symbols, shapes, constants;
};

absl::StatusOr<Shape> ParseShape(const std::string& text) {
  Shape shape;
  if (text.empty()) return shape;
  for (const absl::string_view part : absl::StrSplit(text, 'x')) {
    int64_t size = 0;
    if (!absl::SimpleAtoi(part, &size) || size < 0) {
      return InvalidArgument(ErrorReason::kOptionInvalid, "--shape",
                             absl::StrCat("--shape: '", text, "' is not sizes with an x between them, as 1x3x224x224"));
    }
    shape.push_back(size);
  }
  return shape;
}

absl::StatusOr<Tensor> ReadConstant(const std::string& path) {
  FUSELINE_ASSIGN_OR_RETURN(const std::string bytes, ReadFile(path));
  if (!absl::EndsWith(path, ".pb")) {
    absl::StatusOr<Tensor> tensor = ParseNpy(bytes);
    if (!tensor.ok()) return Wrap(tensor.status(), path);
    return tensor;
  }
  absl::StatusOr<onnx_import::FileTensor> file = onnx_import::ReadTensorFile(bytes);
  if (!file.ok()) return Wrap(file.status(), path);
  if (!file->problem.empty()) return Unimplemented("onnx", absl::StrCat(path, ": ", file->problem));
  return file->tensor;
}

absl::StatusOr<onnx_import::ImportOptions> MakeOptions(const ConvertFlags& flags) {
  onnx_import::ImportOptions options;
  options.weights_as_inputs = flags.weights == "inputs";
  FUSELINE_ASSIGN_OR_RETURN(const SymbolSizes symbols, ParseSymbols(flags.symbols));
  options.symbols.insert(symbols.begin(), symbols.end());
  for (const std::string& text : flags.shapes) {
    FUSELINE_ASSIGN_OR_RETURN(const auto assignment, ParseAssignment(text, "--shape"));
    FUSELINE_ASSIGN_OR_RETURN(options.shapes[assignment.first], ParseShape(assignment.second));
  }
  for (const std::string& text : flags.constants) {
    FUSELINE_ASSIGN_OR_RETURN(const auto assignment, ParseAssignment(text, "--constant"));
    FUSELINE_ASSIGN_OR_RETURN(options.known_inputs[assignment.first], ReadConstant(assignment.second));
  }
  return options;
}

absl::StatusOr<std::string> Serialize(const Graph& graph, const std::string& path) {
  if (!absl::EndsWith(path, ".pb")) return PrintGraph(graph);
  v1::Graph proto;
  GraphToProto(graph, &proto);
  return proto.SerializeAsString();
}

absl::StatusOr<int> RunConvert(const ConvertFlags& flags, CommandContext& context) {
  FUSELINE_ASSIGN_OR_RETURN(const onnx_import::ImportOptions options, MakeOptions(flags));
  FUSELINE_ASSIGN_OR_RETURN(const std::string bytes, ReadFile(flags.model));
  absl::StatusOr<onnx_import::ImportedModel> imported = onnx_import::ImportModelBytes(bytes, options);
  if (!imported.ok()) return Wrap(imported.status(), flags.model);
  const Graph& graph = imported->graph;
  FUSELINE_ASSIGN_OR_RETURN(const std::string text, Serialize(graph, flags.output));
  FUSELINE_RETURN_IF_ERROR(WriteFile(flags.output, text));
  for (const onnx_import::GraphWeight& weight : imported->weights) {
    if (flags.weights_dir.empty()) break;
    FUSELINE_RETURN_IF_ERROR(WriteNpyFile(absl::StrCat(flags.weights_dir, "/", weight.input, ".npy"), weight.tensor));
  }
  if (flags.output == "-") return 0;
  if (context.json()) {
    Json inputs = Json::array();
    for (size_t i = 0; i < graph.inputs.size(); ++i) {
      inputs.push_back({{"name", graph.value(graph.inputs[i]).name},
                        {"model_name", imported->input_names[i]},
                        {"type", graph.type(graph.inputs[i]).ToString()}});
    }
    PrintJson({{"path", flags.output},
               {"nodes", graph.nodes.size()},
               {"inputs", inputs},
               {"weights", imported->weights.size()},
               {"constant_inputs", imported->constant_inputs}});
  } else {
    std::cout << flags.output << ": " << graph.nodes.size() << " nodes, " << graph.inputs.size() << " inputs ("
              << imported->weights.size() << " of them weights), " << graph.outputs.size() << " outputs\n"
              << std::flush;
  }
  return 0;
}

}  // namespace

void RegisterConvertCommand(CLI::App& app, const SetBody& set_body) {
  auto flags = std::make_shared<ConvertFlags>();
  CLI::App* command = app.add_subcommand("convert", "an ONNX model as a graph");
  command->add_option("model", flags->model, "MODEL.onnx")->required();
  command->add_option("-o,--output", flags->output, "GRAPH to write: .fl (text), .pb (protobuf) or -");
  command->add_option("--weights", flags->weights, "what initializers become: constants, or inputs of the graph")
      ->check(CLI::IsMember({"constants", "inputs"}));
  command->add_option("--weights-dir", flags->weights_dir, "with --weights=inputs: folder for INPUT.npy of each");
  command->add_option("--symbol", flags->symbols, "NAME=SIZE of a symbolic dim of the model");
  command->add_option("--shape", flags->shapes, "INPUT=1x3x224x224: of an input whose shape the model leaves open");
  command->add_option("--constant", flags->constants,
                      "INPUT=FILE (.npy, or .pb with a TensorProto): a value that shapes depend on");
  command->callback([=] { set_body([flags](CommandContext& context) { return RunConvert(*flags, context); }); });
}

}  // namespace fuseline::cli
