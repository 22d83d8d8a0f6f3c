// fuseline run GRAPH: compiles, runs, prints or saves the results.
#include <algorithm>
#include <iostream>
#include <map>
#include <memory>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/cli/command.h"
#include "client/cli/file_io.h"
#include "client/cli/graph_file.h"
#include "client/cli/graph_inputs.h"
#include "client/cli/json_output.h"
#include "client/cli/text_output.h"
#include "common/case_file/case_file.h"
#include "common/ir/text_form.h"
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
  std::vector<std::string> keep;
  int64_t lease_seconds = 0;
  int repeat = 1;
  int64_t values = 8;
  bool verify = false;
  std::string save_case;
  std::string lock;
  CompileFlags compile;
};

// Rounding of the coarsest output, with room for another order of summation; atol suits values of order 1, as random
// inputs give.
Tolerance DefaultTolerance(const std::vector<NamedTensor>& outputs) {
  double rtol = 0;
  for (const NamedTensor& output : outputs) {
    switch (output.tensor.dtype()) {
      case DType::kF64:
        rtol = std::max(rtol, 1e-12);
        break;
      case DType::kF32:
        rtol = std::max(rtol, 1e-5);
        break;
      case DType::kF16:
        rtol = std::max(rtol, 2e-3);
        break;
      case DType::kBF16:
        rtol = std::max(rtol, 2e-2);
        break;
      case DType::kF8E4M3:
      case DType::kF8E5M2:
        rtol = std::max(rtol, 0.25);
        break;
      default:
        break;
    }
  }
  return {.rtol = rtol, .atol = 10 * rtol};
}

// The run as a case file whose outputs are the reference's: what a bug report carries.
std::string BugReport(const CompileSpec& spec, const std::vector<NamedTensor>& inputs, const Tolerance& tolerance) {
  CaseFile c;
  c.name = spec.graph->name;
  c.source = "fuseline run --save-case";
  c.graph_text = PrintGraph(*spec.graph);
  for (const NamedTensor& input : inputs) c.inputs.push_back({input.name, input.tensor});
  for (const GraphOutput& output : spec.graph->outputs) c.outputs.push_back({output.name, /*reference=*/true, {}});
  c.tolerance = tolerance;
  c.options = spec.options;
  c.symbols = spec.symbols;
  return WriteCaseFile(c);
}

// Checked before the run, so that a misspelt name costs none.
absl::StatusOr<std::map<std::string, std::string>> OutputFiles(const Graph& graph,
                                                               const std::vector<std::string>& assignments) {
  std::set<std::string> names;
  for (const GraphOutput& output : graph.outputs) names.insert(output.name);
  std::map<std::string, std::string> files;
  for (const std::string& text : assignments) {
    FUSELINE_ASSIGN_OR_RETURN(const auto assignment, ParseAssignment(text, "--output"));
    if (names.count(assignment.first) == 0) {
      return InvalidArgument(ErrorReason::kOptionInvalid, "--output",
                             absl::StrCat("'", assignment.first, "' is not an output of the graph"));
    }
    files.insert(assignment);
  }
  return files;
}

// "y=handle", or "y" for a handle that the server makes up.
std::vector<client::KeptOutput> KeptOutputs(const RunFlags& flags) {
  std::vector<client::KeptOutput> kept;
  for (const std::string& text : flags.keep) {
    const size_t equals = text.find('=');
    client::KeptOutput output;
    output.name = text.substr(0, equals);
    if (equals != std::string::npos) output.options.handle = text.substr(equals + 1);
    output.options.lease = absl::Seconds(flags.lease_seconds);
    kept.push_back(std::move(output));
  }
  return kept;
}

// What the runs return: all outputs that are not kept, and the kept ones that are also asked for.
std::vector<std::string> ReturnedOutputs(const Graph& graph, const std::vector<client::KeptOutput>& kept,
                                         const std::map<std::string, std::string>& files, bool verify) {
  std::set<std::string> left_out;
  for (const client::KeptOutput& output : kept) {
    if (!verify && files.count(output.name) == 0) left_out.insert(output.name);
  }
  std::vector<std::string> names;
  for (const GraphOutput& output : graph.outputs) {
    if (left_out.count(output.name) == 0) names.push_back(output.name);
  }
  // None listed would be all that are not kept, which is none as well.
  return names;
}

// The tensors themselves where they are needed here.
absl::Status FetchHandles(Backend& backend, std::vector<NamedTensor>& inputs) {
  for (NamedTensor& input : inputs) {
    if (input.handle.empty()) continue;
    FUSELINE_ASSIGN_OR_RETURN(input.tensor, backend.GetTensor(input.handle));
    input.handle.clear();
  }
  return absl::OkStatus();
}

absl::StatusOr<int> RunGraph(const RunFlags& flags, CommandContext& context) {
  FUSELINE_RETURN_IF_ERROR(context.PinTo(flags.lock));
  FUSELINE_ASSIGN_OR_RETURN(const CompileSpec spec, MakeSpec(context, flags.graph, flags.compile));
  FUSELINE_ASSIGN_OR_RETURN(const auto files, OutputFiles(*spec.graph, flags.outputs));
  InputFlags input_flags = flags.inputs;
  if (flags.random_given) input_flags.random_seed = flags.random_seed;
  FUSELINE_ASSIGN_OR_RETURN(std::vector<NamedTensor> inputs, MakeInputs(*spec.graph, spec.symbols, input_flags));
  FUSELINE_ASSIGN_OR_RETURN(Backend * backend, context.GetBackend());
  if (flags.verify || !flags.save_case.empty()) FUSELINE_RETURN_IF_ERROR(FetchHandles(*backend, inputs));
  if (!flags.save_case.empty()) {
    // Before the run: a report is wanted most where that fails. The outputs' dtypes are not known yet; f32's tolerance
    // is a start.
    FUSELINE_RETURN_IF_ERROR(WriteFile(flags.save_case, BugReport(spec, inputs, {.rtol = 1e-5, .atol = 1e-4})));
  }
  context.Progress("compiling and running…");
  ExecuteOptions options;
  options.keep = KeptOutputs(flags);
  if (!options.keep.empty()) options.outputs = ReturnedOutputs(*spec.graph, options.keep, files, flags.verify);
  FUSELINE_ASSIGN_OR_RETURN(const ExecuteResult first, backend->Execute(spec, inputs, options));
  options.keep.clear();  // the first run's are kept
  std::vector<double> micros = {absl::ToDoubleMicroseconds(first.run_time)};
  std::string last_outcome = first.summary.outcome;
  for (int i = 1; i < flags.repeat; ++i) {
    context.Progress(absl::StrCat("run ", i + 1, " of ", flags.repeat));
    FUSELINE_ASSIGN_OR_RETURN(const ExecuteResult again, backend->Execute(spec, inputs, options));
    micros.push_back(absl::ToDoubleMicroseconds(again.run_time));
    last_outcome = again.summary.outcome;
  }
  context.ClearProgress();
  for (const NamedTensor& output : first.outputs) {
    const auto it = files.find(output.name);
    if (it != files.end()) FUSELINE_RETURN_IF_ERROR(WriteNpyFile(it->second, output.tensor));
  }
  const Tolerance tolerance = DefaultTolerance(first.outputs);
  VerifyResult verified;
  if (flags.verify) {
    context.Progress("comparing with the reference interpreter…");
    FUSELINE_ASSIGN_OR_RETURN(verified, backend->VerifyWithReference(spec, inputs, tolerance));
    context.ClearProgress();
  }
  const int exit_code = flags.verify && !verified.passed ? 1 : 0;
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
    for (const NamedTensor& output : first.outputs)
      outputs.push_back(TensorJson(output.name, output.tensor, flags.values));
    json["outputs"] = std::move(outputs);
    if (!first.kept.empty()) {
      Json kept = Json::array();
      for (const KeptTensor& tensor : first.kept) kept.push_back(KeptTensorJson(tensor));
      json["kept"] = std::move(kept);
    }
    if (flags.verify) {
      Json comparisons = Json::array();
      for (const OutputComparison& c : verified.outputs) comparisons.push_back(ComparisonJson(c));
      json["verify"] = {{"passed", verified.passed},
                        {"rtol", tolerance.rtol},
                        {"atol", tolerance.atol},
                        {"outputs", std::move(comparisons)}};
    }
    PrintJson(json);
    return exit_code;
  }
  for (const NamedTensor& output : first.outputs) {
    std::cout << TensorText(output.name, output.tensor, flags.values) << "\n";
    const auto it = files.find(output.name);
    if (it != files.end()) std::cout << "  saved to " << it->second << "\n";
  }
  for (const KeptTensor& tensor : first.kept) std::cout << KeptTensorText(tensor) << "\n";
  std::cout << "compile: " << SummaryText(first.summary) << "\n";
  std::cout << "run:     " << MillisText(first.run_time) << " on device " << first.device;
  if (flags.repeat > 1) {
    std::cout << "; " << micros.size() << " runs: median " << MicrosText(micros[micros.size() / 2]) << ", least "
              << MicrosText(micros.front()) << ", last compile " << last_outcome;
  }
  std::cout << "\n";
  for (const OutputComparison& c : verified.outputs) {
    std::cout << absl::StreamFormat(
        "verify:  %s %s, %d elements, largest error %.3g absolute, %.3g relative (allowed: %g + %g |want|)%s\n",
        c.passed() ? "PASS" : "FAIL", c.name, c.elements, c.max_abs_error, c.max_rel_error, tolerance.atol,
        tolerance.rtol, c.passed() ? "" : ": " + c.first_mismatch);
  }
  std::cout << std::flush;
  return exit_code;
}

}  // namespace

void RegisterRunCommand(CLI::App& app, const SetBody& set_body) {
  auto flags = std::make_shared<RunFlags>();
  CLI::App* command = app.add_subcommand("run", "compile and run a graph");
  command->add_option("graph", flags->graph, "GRAPH: .fl, .pb, .onnx, or -")->required();
  command
      ->add_option("--input", flags->inputs.files, "NAME=FILE.npy, or NAME=@HANDLE of a tensor that the server keeps")
      ->expected(1)
      ->take_all();
  command->add_option("--inputs-dir", flags->inputs.directory, "folder with NAME.npy of inputs without --input")
      ->check(CLI::ExistingDirectory);
  CLI::Option* random =
      command->add_option("--random", flags->random_seed, "SEED of random values for inputs without a file");
  command->add_option("--output", flags->outputs, "NAME=FILE.npy, where to save an output")->expected(1)->take_all();
  command
      ->add_option("--keep", flags->keep, "NAME=HANDLE: keep an output on the server; NAME alone: it makes a handle up")
      ->expected(1)
      ->take_all();
  command
      ->add_option("--lease", flags->lease_seconds,
                   "SECONDS without use that outputs are kept; 0: the server's default")
      ->check(CLI::NonNegativeNumber);
  command->add_option("--repeat", flags->repeat, "runs")->check(CLI::PositiveNumber)->capture_default_str();
  command->add_option("--values", flags->values, "elements of each output to print")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  command->add_flag("--verify", flags->verify,
                    "also compare with the reference interpreter; exit code 1 where it differs");
  command->add_option("--save-case", flags->save_case, "save graph and inputs as a case file, for a bug report");
  command->add_option(
      "--lock", flags->lock,
      "use the artifacts of this lock file alone (fuseline warm --lock); results of others are withheld");
  AddCompileFlags(*command, flags->compile);
  command->callback([=] {
    flags->random_given = random->count() > 0;
    set_body([flags](CommandContext& context) { return RunGraph(*flags, context); });
  });
}

}  // namespace fuseline::cli
