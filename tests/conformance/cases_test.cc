// Every case file of tests/cases on the CPU target.
#include <algorithm>
#include <atomic>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "common/case_file/case_file.h"
#include "common/ir/text_form.h"
#include "common/ir/verify_graph.h"
#include "common/status/error.h"
#include "common/status/status_macros.h"
#include "common/status/str_cat.h"
#include "gtest/gtest.h"
#include "server/reference/reference_interpreter.h"
#include "tests/testing/engines.h"

namespace fuseline::testing {
namespace {

struct Outcome {
  bool passed = false;
  std::string text;  // what went wrong
};

std::vector<std::string> CasePaths() {
  std::vector<std::string> paths;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(FUSELINE_SOURCE_DIR "/tests/cases")) {
    if (entry.path().extension() == ".json") paths.push_back(entry.path().string());
  }
  std::sort(paths.begin(), paths.end());
  return paths;
}

absl::StatusOr<std::vector<Tensor>> InGraphOrder(const Graph& graph, const CaseFile& file) {
  std::vector<Tensor> inputs;
  for (const ValueId id : graph.inputs) {
    const auto named = [&](const CaseInput& input) { return input.name == graph.value(id).name; };
    const auto at = std::find_if(file.inputs.begin(), file.inputs.end(), named);
    if (at == file.inputs.end()) {
      return InvalidArgument(ErrorReason::kCaseFile, graph.value(id).name,
                             StrCat("the case gives no input '", graph.value(id).name, "'"));
    }
    inputs.push_back(at->tensor);
  }
  return inputs;
}

// The outputs of the engine; `want`: of the reference, where the case asks for it.
absl::Status RunBoth(EngineSet& engines, const Graph& graph, const CaseFile& file, std::vector<Tensor>* got,
                     std::vector<Tensor>* want) {
  FUSELINE_ASSIGN_OR_RETURN(const std::vector<Tensor> inputs, InGraphOrder(graph, file));
  CompileRequest request;
  request.graph = graph;
  request.symbols = file.symbols;
  request.options = file.options;
  FUSELINE_ASSIGN_OR_RETURN(ExecuteResult executed, engines.engine().Execute(request, executor::Arguments(inputs), {}));
  *got = std::move(executed.execution.outputs);
  if (std::none_of(file.outputs.begin(), file.outputs.end(),
                   [](const CaseOutput& output) { return output.reference; })) {
    return absl::OkStatus();
  }
  Graph bound = graph;
  if (file.symbols.empty()) {
    FUSELINE_RETURN_IF_ERROR(VerifyGraph(bound));
  } else {
    FUSELINE_ASSIGN_OR_RETURN(bound, BindSymbols(graph, file.symbols));
  }
  FUSELINE_ASSIGN_OR_RETURN(*want, reference::Interpret(bound, inputs, file.options));
  return absl::OkStatus();
}

std::string CompareOutputs(const Graph& graph, const CaseFile& file, const std::vector<Tensor>& got,
                           const std::vector<Tensor>& reference) {
  for (const CaseOutput& output : file.outputs) {
    const auto named = [&](const GraphOutput& o) { return o.name == output.name; };
    const auto at = std::find_if(graph.outputs.begin(), graph.outputs.end(), named);
    if (at == graph.outputs.end()) return StrCat("the graph has no output '", output.name, "'");
    const auto i = static_cast<size_t>(at - graph.outputs.begin());
    const OutputComparison c =
        CompareTensors(output.name, got[i], output.reference ? reference[i] : output.tensor, file.tolerance);
    if (!c.passed()) {
      return StrCat("output '", c.name, "' ", c.first_mismatch, " (", c.mismatches, " of ", c.elements,
                    ", largest relative error ", c.max_rel_error, ")");
    }
  }
  return "";
}

Outcome RunCase(EngineSet& engines, const std::string& path) {
  Outcome outcome;
  const absl::StatusOr<CaseFile> file = ReadCaseFile(path);
  if (!file.ok()) {
    outcome.text = file.status().ToString();
    return outcome;
  }
  const absl::StatusOr<Graph> graph = ParseGraphText(file->graph_text);
  std::vector<Tensor> got, reference;
  const absl::Status status = graph.ok() ? RunBoth(engines, *graph, *file, &got, &reference) : graph.status();
  if (file->error.has_value()) {
    const bool right =
        status.code() == file->error->code && status.message().find(file->error->contains) != absl::string_view::npos;
    outcome.passed = right;
    if (!right) {
      outcome.text = StrCat("wants ", absl::StatusCodeToString(file->error->code), " with '", file->error->contains,
                            "', got ", status.ToString());
    }
    return outcome;
  }
  outcome.text = status.ok() ? CompareOutputs(*graph, *file, got, reference) : status.ToString();
  outcome.passed = outcome.text.empty();
  return outcome;
}

TEST(CasesTest, EveryCaseGivesItsOutputs) {
  auto created = EngineSet::Create();
  ASSERT_TRUE(created.ok()) << created.status();
  const absl::Status can_run = (*created)->CanRun(EngineKind::kCpu);
  if (!can_run.ok()) GTEST_SKIP() << can_run.message();

  const std::vector<std::string> paths = CasePaths();
  std::vector<Outcome> outcomes(paths.size());
  std::atomic<size_t> next = 0;
  std::vector<std::thread> threads;
  for (unsigned t = 0; t < std::max(1u, std::thread::hardware_concurrency()); ++t) {
    threads.emplace_back([&] {
      for (size_t i = next++; i < paths.size(); i = next++) outcomes[i] = RunCase(**created, paths[i]);
    });
  }
  for (std::thread& thread : threads) thread.join();

  int passed = 0;
  for (size_t i = 0; i < paths.size(); ++i) {
    EXPECT_TRUE(outcomes[i].passed) << paths[i] << ": " << outcomes[i].text;
    if (outcomes[i].passed) ++passed;
  }
  EXPECT_GE(passed, 400);
}

}  // namespace
}  // namespace fuseline::testing
