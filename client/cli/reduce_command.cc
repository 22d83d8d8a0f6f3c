// fuseline reduce CASE: shrinks a failing case to the least graph, shapes and values that fail the same way.
#include <algorithm>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "client/cli/command.h"
#include "client/cli/file_io.h"
#include "client/cli/json_output.h"
#include "common/case_file/case_file.h"
#include "common/case_file/reduce_graph.h"
#include "common/ir/text_form.h"
#include "common/status/error.h"
#include "common/status/status_macros.h"

namespace fuseline::cli {
namespace {

struct ReduceFlags {
  std::string path;
  std::string out = "-";
  int64_t max_tries = 500;
  double max_seconds = 600;
  CompileFlags compile;
};

// How a case fails; two failures are the same if all of it but `text` is.
struct Failure {
  enum class Kind { kNone, kError, kUnlikeReference, kUnlikeCase } kind = Kind::kNone;
  absl::StatusCode code = absl::StatusCode::kOk;   // kError
  ErrorReason reason = ErrorReason::kUnspecified;  // kError
  std::string text;                                // the error, or the first mismatch
  bool IsSame(const Failure& other) const { return kind == other.kind && code == other.code && reason == other.reason; }
};

const char* KindName(Failure::Kind kind) {
  switch (kind) {
    case Failure::Kind::kNone:
      return "none";
    case Failure::Kind::kError:
      return "error";
    case Failure::Kind::kUnlikeReference:
      return "unlike the reference";
    case Failure::Kind::kUnlikeCase:
      return "unlike the case's outputs";
  }
  return "";
}

// Runs graphs as the case says, and says how they fail.
class CaseProbe {
 public:
  CaseProbe(Backend& backend, CompileSpec spec, const CaseFile& c) : backend_(backend), spec_(std::move(spec)), c_(c) {}

  // Against the reference interpreter; an error is its code and reason.
  Failure WithReference(const GraphWithInputs& g) {
    const absl::StatusOr<VerifyResult> verified = backend_.VerifyWithReference(SpecOf(g), NamedInputs(g), c_.tolerance);
    if (!verified.ok()) return ErrorOf(verified.status());
    for (const OutputComparison& output : verified->outputs) {
      if (!output.passed()) return Mismatch(Failure::Kind::kUnlikeReference, output);
    }
    return {};
  }

  // Against the outputs that the case gives, as far as the graph still has them.
  Failure WithCase(const GraphWithInputs& g) {
    const absl::StatusOr<ExecuteResult> executed = backend_.Execute(SpecOf(g), NamedInputs(g));
    if (!executed.ok()) return ErrorOf(executed.status());
    for (const NamedTensor& got : executed->outputs) {
      for (const CaseOutput& want : c_.outputs) {
        if (want.reference || want.name != got.name) continue;
        const OutputComparison output = CompareTensors(got.name, got.tensor, want.tensor, c_.tolerance);
        if (!output.passed()) return Mismatch(Failure::Kind::kUnlikeCase, output);
      }
    }
    return {};
  }

  std::optional<std::vector<Tensor>> Values(const GraphWithInputs& g) {
    CompileSpec spec = SpecOf(g);
    spec.options.fuse = false;
    const absl::StatusOr<ExecuteResult> executed = backend_.Execute(spec, NamedInputs(g));
    if (!executed.ok()) return std::nullopt;
    std::vector<Tensor> values;
    for (const NamedTensor& output : executed->outputs) values.push_back(output.tensor);
    return values;
  }

 private:
  CompileSpec SpecOf(const GraphWithInputs& g) const {
    CompileSpec spec = spec_;
    spec.graph = std::make_shared<const Graph>(g.graph);
    return spec;
  }
  static std::vector<NamedTensor> NamedInputs(const GraphWithInputs& g) {
    std::vector<NamedTensor> inputs;
    for (size_t i = 0; i < g.inputs.size(); ++i) inputs.push_back({g.graph.value(g.graph.inputs[i]).name, g.inputs[i]});
    return inputs;
  }
  static Failure ErrorOf(const absl::Status& status) {
    return {Failure::Kind::kError, status.code(), GetErrorReason(status), ErrorText(status)};
  }
  static Failure Mismatch(Failure::Kind kind, const OutputComparison& output) {
    Failure failure;
    failure.kind = kind;
    failure.text = absl::StrCat("output '", output.name, "' ", output.first_mismatch);
    return failure;
  }

  Backend& backend_;
  const CompileSpec spec_;
  const CaseFile& c_;
};

absl::StatusOr<GraphWithInputs> LoadCase(const CaseFile& c) {
  FUSELINE_ASSIGN_OR_RETURN(Graph graph, ParseGraphText(c.graph_text));
  SymbolSizes symbols = c.symbols;
  GraphWithInputs result;
  std::vector<Shape> shapes;
  for (const ValueId id : graph.inputs) {
    const auto it = std::find_if(c.inputs.begin(), c.inputs.end(),
                                 [&](const CaseInput& input) { return input.name == graph.value(id).name; });
    if (it == c.inputs.end()) {
      return InvalidArgument(ErrorReason::kCaseFile, graph.value(id).name,
                             absl::StrCat("the case has no input '", graph.value(id).name, "'"));
    }
    result.inputs.push_back(it->tensor);
    shapes.push_back(it->tensor.shape());
  }
  if (symbols.empty() && !graph.is_static()) {
    FUSELINE_ASSIGN_OR_RETURN(symbols, SolveSymbols(graph, shapes));
  }
  FUSELINE_ASSIGN_OR_RETURN(result.graph, BindSymbols(graph, symbols));
  return result;
}

CaseFile ReducedCase(const CaseFile& c, const GraphWithInputs& smallest, const Failure& failure,
                     const CompileOptions& options) {
  CaseFile reduced;
  reduced.name = absl::StrCat(c.name, "_reduced");
  reduced.source = absl::StrCat("fuseline reduce, from ", c.name);
  reduced.why = failure.text;
  reduced.graph_text = PrintGraph(smallest.graph);
  for (size_t i = 0; i < smallest.inputs.size(); ++i)
    reduced.inputs.push_back({smallest.graph.value(smallest.graph.inputs[i]).name, smallest.inputs[i]});
  for (const GraphOutput& output : smallest.graph.outputs) {
    CaseOutput wanted;
    wanted.name = output.name;
    wanted.reference = true;
    for (const CaseOutput& given : c.outputs) {
      if (failure.kind == Failure::Kind::kUnlikeCase && given.name == output.name) wanted = given;
    }
    reduced.outputs.push_back(std::move(wanted));
  }
  reduced.tolerance = c.tolerance;
  reduced.options = options;
  return reduced;
}

absl::StatusOr<int> RunReduce(const ReduceFlags& flags, CommandContext& context) {
  FUSELINE_ASSIGN_OR_RETURN(const CaseFile c, ReadCaseFile(flags.path));
  if (c.error.has_value()) {
    return InvalidArgument(ErrorReason::kCaseFile, c.name, "a case that must be refused has nothing to reduce");
  }
  FUSELINE_ASSIGN_OR_RETURN(const GraphWithInputs original, LoadCase(c));
  CompileSpec spec;
  spec.options = c.options;
  spec.bypass_cache = flags.compile.no_cache;
  FUSELINE_RETURN_IF_ERROR(ApplyCompileFlags(flags.compile, spec.options));
  FUSELINE_ASSIGN_OR_RETURN(spec.target, context.ResolveTarget(flags.compile.target));
  FUSELINE_ASSIGN_OR_RETURN(Backend * backend, context.GetBackend());
  CaseProbe probe(*backend, spec, c);

  // What holds against the reference holds for any part of the graph; what the file says, for these values alone.
  Failure failure = probe.WithReference(original);
  const bool by_reference = failure.kind != Failure::Kind::kNone;
  if (!by_reference) failure = probe.WithCase(original);
  if (failure.kind == Failure::Kind::kNone) {
    return InvalidArgument(ErrorReason::kCaseFile, c.name, absl::StrCat("case '", c.name, "' does not fail"));
  }
  Failure last = failure;
  int64_t tries = 0;
  const auto fails = [&](const GraphWithInputs& candidate) {
    context.Progress(absl::StrCat(++tries, " tries"));
    const Failure now = by_reference ? probe.WithReference(candidate) : probe.WithCase(candidate);
    if (!now.IsSame(failure)) return false;
    last = now;
    return true;
  };
  ReduceOptions options;
  options.max_tries = flags.max_tries;
  options.max_time = absl::Seconds(flags.max_seconds);
  options.outputs_only = failure.kind == Failure::Kind::kUnlikeCase;
  options.values = [&](const GraphWithInputs& g) { return probe.Values(g); };
  const ReducedGraph reduced = ReduceGraph(original, fails, options);
  context.ClearProgress();
  const CaseFile file = ReducedCase(c, reduced.smallest, last, spec.options);
  if (context.json()) {
    Json json = {{"failure", KindName(failure.kind)},
                 {"detail", last.text},
                 {"tries", reduced.tries},
                 {"is_minimal", reduced.is_minimal},
                 {"nodes_before", original.graph.nodes.size()},
                 {"nodes", reduced.smallest.graph.nodes.size()},
                 {"graph", file.graph_text}};
    if (flags.out != "-") FUSELINE_RETURN_IF_ERROR(WriteFile(flags.out, WriteCaseFile(file)));
    PrintJson(json);
    return 0;
  }
  FUSELINE_RETURN_IF_ERROR(WriteFile(flags.out, WriteCaseFile(file)));
  std::cerr << original.graph.nodes.size() << " nodes to " << reduced.smallest.graph.nodes.size() << " in "
            << reduced.tries << " tries" << (reduced.is_minimal ? "" : "; more would take more tries or time") << ": "
            << last.text << "\n";
  return 0;
}

}  // namespace

void RegisterReduceCommand(CLI::App& app, const SetBody& set_body) {
  auto flags = std::make_shared<ReduceFlags>();
  CLI::App* command = app.add_subcommand("reduce", "shrink a failing case to the least graph that fails the same way");
  command->add_option("case", flags->path, "a case file")->required();
  command->add_option("--out,-o", flags->out, "where the reduced case goes; -: standard output")->capture_default_str();
  command->add_option("--max-tries,--max_tries", flags->max_tries, "runs at most")
      ->check(CLI::Range(1, 1'000'000))
      ->capture_default_str();
  command->add_option("--max-seconds,--max_seconds", flags->max_seconds, "time at most")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  AddCompileFlags(*command, flags->compile);
  command->callback([=] { set_body([flags](CommandContext& context) { return RunReduce(*flags, context); }); });
}

}  // namespace fuseline::cli
