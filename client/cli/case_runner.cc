#include "client/cli/case_runner.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "client/cli/json_output.h"
#include "common/case_file/case_file.h"
#include "common/ir/text_form.h"
#include "common/status/error.h"
#include "common/status/status_macros.h"

namespace fuseline::cli {
namespace {

// The comparisons of all outputs, in the file's order.
absl::StatusOr<std::vector<OutputComparison>> RunAndCompare(Backend& backend, const CompileSpec& spec,
                                                            const CaseFile& c) {
  std::vector<NamedTensor> inputs;
  for (const CaseInput& input : c.inputs) inputs.push_back({input.name, input.tensor});
  std::vector<OutputComparison> comparisons;
  const bool any_reference =
      std::any_of(c.outputs.begin(), c.outputs.end(), [](const CaseOutput& o) { return o.reference; });
  const bool all_reference =
      std::all_of(c.outputs.begin(), c.outputs.end(), [](const CaseOutput& o) { return o.reference; });
  std::vector<OutputComparison> with_reference;
  if (any_reference) {
    FUSELINE_ASSIGN_OR_RETURN(VerifyResult verified, backend.VerifyWithReference(spec, inputs, c.tolerance));
    with_reference = std::move(verified.outputs);
  }
  ExecuteResult executed;
  // A case that must be refused has no outputs, and is run for its error.
  if (!all_reference || c.outputs.empty()) {
    FUSELINE_ASSIGN_OR_RETURN(executed, backend.Execute(spec, inputs));
  }
  for (const CaseOutput& output : c.outputs) {
    OutputComparison comparison;
    comparison.name = output.name;
    comparison.mismatches = 1;
    comparison.first_mismatch = "the graph has no such output";
    if (output.reference) {
      for (const OutputComparison& v : with_reference) {
        if (v.name == output.name) comparison = v;
      }
    } else {
      for (const NamedTensor& got : executed.outputs) {
        if (got.name == output.name) comparison = CompareTensors(output.name, got.tensor, output.tensor, c.tolerance);
      }
    }
    comparisons.push_back(std::move(comparison));
  }
  return comparisons;
}

CaseOutcome JudgeError(CaseOutcome outcome, const ExpectedError& expected, const absl::Status& status) {
  if (status.ok()) {
    outcome.detail = absl::StrCat("ran, but must be refused with ", absl::StatusCodeToString(expected.code));
  } else if (status.code() != expected.code) {
    outcome.detail = absl::StrCat("want ", absl::StatusCodeToString(expected.code), ", got ", ErrorText(status));
  } else if (!absl::StrContains(status.message(), expected.contains)) {
    outcome.detail = absl::StrCat("the error does not contain '", expected.contains, "': ", ErrorText(status));
  } else {
    outcome.verdict = CaseOutcome::Verdict::kPass;
  }
  return outcome;
}

}  // namespace

CaseOutcome RunCase(Backend& backend, const std::string& path, const Target& target, const CompileFlags& flags) {
  CaseOutcome outcome;
  outcome.path = path;
  absl::StatusOr<CaseFile> c = ReadCaseFile(path);
  if (!c.ok()) {
    outcome.detail = ErrorText(c.status());
    return outcome;
  }
  outcome.name = c->name;
  CompileSpec spec;
  spec.symbols = c->symbols;
  spec.options = c->options;
  spec.target = target;
  spec.bypass_cache = flags.no_cache;
  absl::Status status = ApplyCompileFlags(flags, spec.options);
  absl::StatusOr<Graph> graph = status.ok() ? ParseGraphText(c->graph_text) : absl::StatusOr<Graph>(status);
  std::vector<OutputComparison> outputs;
  if (!graph.ok()) {
    status = graph.status();
  } else {
    spec.graph = std::make_shared<const Graph>(*std::move(graph));
    absl::StatusOr<std::vector<OutputComparison>> compared = RunAndCompare(backend, spec, *c);
    status = compared.status();
    if (compared.ok()) outputs = *std::move(compared);
  }
  const bool wants_unimplemented = c->error.has_value() && c->error->code == absl::StatusCode::kUnimplemented;
  if (absl::IsUnimplemented(status) && !wants_unimplemented) {
    outcome.verdict = CaseOutcome::Verdict::kSkip;
    const std::string subject = GetErrorSubject(status);
    outcome.skipped_for = subject.empty() ? "other" : subject;
    outcome.detail = std::string(status.message());
    return outcome;
  }
  if (c->error.has_value()) return JudgeError(std::move(outcome), *c->error, status);
  if (!status.ok()) {
    outcome.detail = ErrorText(status);
    return outcome;
  }
  outcome.outputs = std::move(outputs);
  for (const OutputComparison& output : outcome.outputs) {
    if (output.passed()) continue;
    outcome.detail = absl::StrCat("output '", output.name, "' ", output.first_mismatch);
    if (output.mismatches > 1)
      absl::StrAppend(&outcome.detail, " (", output.mismatches, " of ", output.elements, " elements)");
    return outcome;
  }
  outcome.verdict = CaseOutcome::Verdict::kPass;
  return outcome;
}

}  // namespace fuseline::cli
