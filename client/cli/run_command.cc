// fuseline run GRAPH: compiles, runs, prints or saves the results.
#include <algorithm>
#include <iostream>
#include <map>
#include <memory>
#include <set>

#include "absl/strings/str_cat.h"
#include "client/cli/command.h"
#include "client/cli/graph_file.h"
#include "client/cli/graph_inputs.h"
#include "client/cli/json_output.h"
#include "client/cli/text_output.h"
#include "common/status/error.h"
#include "common/status/status_macros.h"
#include "common/tensor/npy.h"

namespace fuseline::cli {
namespace {

struct RunFlags {
  std::string graph;
  InputFlags inputs;
  int64_t random_seed = 0;
  bool random_given = false;
  std::vector<std::string> outputs;
  int repeat = 1;
  int64_t values = 8;
  CompileFlags compile;
};

// Checked before the run, so that a misspelt name costs none.
absl::StatusOr<std::map<std::string, std::string>> OutputFiles(const Graph& graph, const std::vector<std::string>& assignments) {
  std::set<std::string> names;
  for (const GraphOutput& output : graph.outputs) names.insert(output.name);
  std::map<std::string, std::string> files;
  for (const std::string& text : assignments) {
    FUSELINE_ASSIGN_OR_RETURN(const auto assignment, ParseAssignment(text, "--output"));
    if (names.count(assignment.first) == 0) {
      return InvalidArgument(ErrorReason::kOptionInvalid, "--output", absl::StrCat("'", assignment.first, "' is not an output of the graph"));
    }
    files.insert(assignment);
  }
  return files;
}

absl::StatusOr<int> RunGraph(const RunFlags& flags, CommandContext& context) {
  FUSELINE_ASSIGN_OR_RETURN(const CompileSpec spec, MakeSpec(context, flags.graph, flags.compile));
  FUSELINE_ASSIGN_OR_RETURN(const auto files, OutputFiles(*spec.graph, flags.outputs));
  InputFlags input_flags = flags.inputs;
  if (flags.random_given) input_flags.random_seed = flags.random_seed;
  FUSELINE_ASSIGN_OR_RETURN(const std::vector<NamedTensor> inputs, MakeInputs(*spec.graph, spec.symbols, input_flags));
  FUSELINE_ASSIGN_OR_RETURN(Backend * backend, context.GetBackend());
  context.Progress("compiling and running…");
  FUSELINE_ASSIGN_OR_RETURN(const ExecuteResult first, backend->Execute(spec, inputs));
  std::vector<double> micros = {absl::ToDoubleMicroseconds(first.run_time)};
  std::string last_outcome = first.summary.outcome;
  for (int i = 1; i < flags.repeat; ++i) {
    context.Progress(absl::StrCat("run ", i + 1, " of ", flags.repeat));
    FUSELINE_ASSIGN_OR_RETURN(const ExecuteResult again, backend->Execute(spec, inputs));
    micros.push_back(absl::ToDoubleMicroseconds(again.run_time));
    last_outcome = again.summary.outcome;
  }
  context.ClearProgress();
  for (const NamedTensor& output : first.outputs) {
    const auto it = files.find(output.name);
    if (it != files.end()) FUSELINE_RETURN_IF_ERROR(WriteNpyFile(it->second, output.tensor));
  }
  std::sort(micros.begin(), micros.end());
  if (context.json()) {
    Json json = SummaryJson(first.summary);
    json["last_outcome"] = last_outcome;
    json["queue_ms"] = absl::ToDoubleMilliseconds(first.queue_time);
    json["run_ms"] = absl::ToDoubleMilliseconds(first.run_time);
    json["run_ms_median"] = micros[micros.size() / 2] / 1000;
    json["run_ms_min"] = micros.front() / 1000;
    json["runs"] = micros.size();
    json["device"] = first.device;
    Json outputs = Json::array();
    for (const NamedTensor& output : first.outputs) outputs.push_back(TensorJson(output.name, output.tensor, flags.values));
    json["outputs"] = std::move(outputs);
    PrintJson(json);
    return 0;
  }
  for (const NamedTensor& output : first.outputs) {
    std::cout << TensorText(output.name, output.tensor, flags.values) << "\n";
    const auto it = files.find(output.name);
    if (it != files.end()) std::cout << "  saved to " << it->second << "\n";
  }
  std::cout << "compile: " << SummaryText(first.summary) << "\n";
  std::cout << "run:     " << MillisText(first.run_time) << " on device " << first.device;
  if (flags.repeat > 1) {
    std::cout << "; " << micros.size() << " runs: median " << MicrosText(micros[micros.size() / 2]) << ", least " << MicrosText(micros.front())
              << ", last compile " << last_outcome;
  }
  std::cout << std::endl;
  return 0;
}

}  // namespace

void RegisterRunCommand(CLI::App& app, const SetBody& set_body) {
  auto flags = std::make_shared<RunFlags>();
  CLI::App* command = app.add_subcommand("run", "compile and run a graph");
  command->add_option("graph", flags->graph, "GRAPH: .fl, .pb, or -")->required();
  command->add_option("--input", flags->inputs.files, "NAME=FILE.npy")->expected(1)->take_all();
  CLI::Option* random = command->add_option("--random", flags->random_seed, "SEED of random values for inputs without a file");
  command->add_option("--output", flags->outputs, "NAME=FILE.npy, where to save an output")->expected(1)->take_all();
  command->add_option("--repeat", flags->repeat, "runs")->check(CLI::PositiveNumber)->capture_default_str();
  command->add_option("--values", flags->values, "elements of each output to print")->check(CLI::NonNegativeNumber)->capture_default_str();
  AddCompileFlags(*command, flags->compile);
  command->callback([=] {
    flags->random_given = random->count() > 0;
    set_body([flags](CommandContext& context) { return RunGraph(*flags, context); });
  });
}

}  // namespace fuseline::cli
