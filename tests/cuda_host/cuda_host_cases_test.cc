// Every case file of tests/cases on the CUDA target's code, built for the host, in each order of threads. Left out and
// counted: cases that must be refused (the emitter does not see them), and ops that this version can't compile.
#include <algorithm>
#include <atomic>
#include <filesystem>
#include <iostream>
#include <map>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "common/case_file/case_file.h"
#include "common/ir/text_form.h"
#include "common/ir/verify_graph.h"
#include "common/status/error.h"
#include "common/status/status_macros.h"
#include "common/status/str_cat.h"
#include "gtest/gtest.h"
#include "server/reference/reference_interpreter.h"
#include "tests/cuda_host/host_cuda_engine.h"

namespace fuseline::cuda_host {
namespace {

// A bound on the time that one case takes. Only cases about 64-bit indices are over it.
constexpr int64_t kMostElements = 8 << 20;

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
    if (at == file.inputs.end()) return Internal(StrCat("the case gives no input '", graph.value(id).name, "'"));
    inputs.push_back(at->tensor);
  }
  return inputs;
}

absl::StatusOr<Graph> Bind(const Graph& graph, const CaseFile& file, const std::vector<Tensor>& inputs) {
  Graph bound = graph;
  if (graph.is_static()) {
    FUSELINE_RETURN_IF_ERROR(VerifyGraph(bound));
    return bound;
  }
  std::vector<Shape> shapes;
  for (const Tensor& input : inputs) shapes.push_back(input.shape());
  FUSELINE_ASSIGN_OR_RETURN(SymbolSizes sizes, SolveSymbols(graph, shapes));
  sizes.insert(file.symbols.begin(), file.symbols.end());
  return BindSymbols(graph, sizes);
}

// OK, UNIMPLEMENTED where the case is left out, or what went wrong.
absl::Status RunCase(HostCudaEngine& engine, const CaseFile& file) {
  FUSELINE_ASSIGN_OR_RETURN(const Graph parsed, ParseGraphText(file.graph_text));
  FUSELINE_ASSIGN_OR_RETURN(const std::vector<Tensor> inputs, InGraphOrder(parsed, file));
  FUSELINE_ASSIGN_OR_RETURN(const Graph graph, Bind(parsed, file, inputs));
  for (const Value& value : graph.values) {
    if (ElementCount(value.type.shape()) > kMostElements)
      return Unimplemented(value.name, StrCat("case '", file.name, "' has more than ", kMostElements, " elements"));
  }
  FUSELINE_ASSIGN_OR_RETURN(const std::vector<Tensor> got, engine.Run(graph, inputs, file.options));
  std::vector<Tensor> reference;
  for (const CaseOutput& output : file.outputs) {
    const auto named = [&](const GraphOutput& o) { return o.name == output.name; };
    const auto at = std::find_if(graph.outputs.begin(), graph.outputs.end(), named);
    if (at == graph.outputs.end()) return Internal(StrCat("the graph has no output '", output.name, "'"));
    const auto i = static_cast<size_t>(at - graph.outputs.begin());
    if (output.reference && reference.empty()) {
      FUSELINE_ASSIGN_OR_RETURN(reference, reference::Interpret(graph, inputs, file.options));
    }
    const OutputComparison c =
        CompareTensors(output.name, got[i], output.reference ? reference[i] : output.tensor, file.tolerance);
    if (!c.passed())
      return Internal(StrCat("output '", c.name, "' ", c.first_mismatch, " (", c.mismatches, " of ", c.elements, ")"));
  }
  return absl::OkStatus();
}

TEST(CudaHostCasesTest, EveryCaseThatCanBeCompiledGivesItsOutputsInEveryOrder) {
  const auto engine = HostCudaEngine::Create();
  if (!engine.ok()) GTEST_SKIP() << engine.status().message();
  ASSERT_GE(HostCudaEngine::Orders().size(), 3u);
  const std::vector<std::string> paths = CasePaths();
  std::vector<absl::Status> results(paths.size());
  std::atomic<size_t> next = 0;
  std::vector<std::thread> threads;
  for (unsigned t = 0; t < std::max(1u, std::thread::hardware_concurrency()); ++t) {
    threads.emplace_back([&] {
      for (size_t i = next++; i < paths.size(); i = next++) {
        const absl::StatusOr<CaseFile> file = ReadCaseFile(paths[i]);
        if (file.ok() && file->error.has_value()) {
          results[i] = absl::CancelledError("must be refused");
        } else {
          results[i] = file.ok() ? RunCase(**engine, *file) : file.status();
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();

  int passed = 0;
  std::map<std::string, int> left_out;  // by reason
  for (size_t i = 0; i < paths.size(); ++i) {
    if (results[i].ok()) {
      ++passed;
    } else if (absl::IsUnimplemented(results[i]) || absl::IsCancelled(results[i])) {
      // "node '%t0': concat: …": by op.
      const std::string reason(results[i].message());
      const size_t node = reason.rfind("node '", 0) == 0 ? reason.find(": ") : std::string::npos;
      ++left_out[node == std::string::npos ? reason : reason.substr(node + 2)];
    } else {
      ADD_FAILURE() << paths[i] << ": " << results[i];
    }
  }
  std::cout << passed << " of " << paths.size() << " cases passed; left out:\n";
  for (const auto& [reason, count] : left_out) std::cout << "  " << count << " " << reason << "\n";
  EXPECT_GE(passed, 400);
}

}  // namespace
}  // namespace fuseline::cuda_host
