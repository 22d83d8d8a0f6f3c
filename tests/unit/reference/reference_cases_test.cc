// Every case file whose ops exist, run on the reference interpreter.
#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "common/case_file/case_file.h"
#include "common/ir/text_form.h"
#include "common/ir/verify_graph.h"
#include "gtest/gtest.h"
#include "server/reference/reference_interpreter.h"

namespace fuseline {
namespace {

std::vector<std::string> CasePaths() {
  std::vector<std::string> paths;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(FUSELINE_SOURCE_DIR "/tests/cases")) {
    if (entry.path().extension() == ".json") paths.push_back(entry.path().string());
  }
  std::sort(paths.begin(), paths.end());
  return paths;
}

absl::StatusOr<Graph> LoadGraph(const CaseFile& file) {
  if (file.symbols.empty()) return ParseGraph(file.graph_text);
  absl::StatusOr<Graph> graph = ParseGraphText(file.graph_text);
  if (!graph.ok()) return graph;
  return BindSymbols(*graph, file.symbols);
}

TEST(ReferenceCasesTest, EveryRunnableCaseGivesItsOutputs) {
  int passed = 0;
  const std::vector<std::string> paths = CasePaths();
  for (const std::string& path : paths) {
    SCOPED_TRACE(path);
    const absl::StatusOr<CaseFile> file = ReadCaseFile(path);
    ASSERT_TRUE(file.ok()) << file.status();
    absl::StatusOr<Graph> graph = LoadGraph(*file);
    if (!graph.ok()) {
      ASSERT_TRUE(file->error.has_value()) << graph.status();
      EXPECT_EQ(graph.status().code(), file->error->code) << graph.status();
      EXPECT_NE(std::string(graph.status().message()).find(file->error->contains), std::string::npos) << graph.status();
      ++passed;
      continue;
    }
    std::vector<Tensor> inputs;
    for (ValueId id : graph->inputs) {
      for (const CaseInput& input : file->inputs) {
        if (input.name == graph->value(id).name) inputs.push_back(input.tensor);
      }
    }
    const absl::StatusOr<std::vector<Tensor>> outputs = reference::Interpret(*graph, inputs, file->options);
    if (file->error.has_value()) {
      EXPECT_EQ(outputs.status().code(), file->error->code) << outputs.status();
      EXPECT_NE(std::string(outputs.status().message()).find(file->error->contains), std::string::npos)
          << outputs.status();
      passed += outputs.status().code() == file->error->code;
      continue;
    }
    if (!outputs.ok()) {
      ADD_FAILURE() << outputs.status();
      continue;
    }
    bool all = true;
    for (const CaseOutput& want : file->outputs) {
      if (want.reference) continue;
      const auto named = [&](const GraphOutput& output) { return output.name == want.name; };
      const auto at = std::find_if(graph->outputs.begin(), graph->outputs.end(), named);
      ASSERT_NE(at, graph->outputs.end()) << want.name;
      const Tensor& got = (*outputs)[static_cast<size_t>(at - graph->outputs.begin())];
      const OutputComparison comparison = CompareTensors(want.name, got, want.tensor, file->tolerance);
      EXPECT_TRUE(comparison.passed()) << want.name << ": " << comparison.mismatches << " of " << comparison.elements
                                       << ", " << comparison.first_mismatch << ", largest relative error "
                                       << comparison.max_rel_error;
      all = all && comparison.passed();
    }
    if (all) ++passed;
  }
  RecordProperty("passed", passed);
  EXPECT_EQ(passed, static_cast<int>(paths.size()));
  EXPECT_GE(passed, 400);
}

}  // namespace
}  // namespace fuseline
