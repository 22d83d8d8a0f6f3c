// Compares engines with the reference interpreter on one graph.
// Pipeline: graph, inputs -> CheckGraph -> mismatch, if any -> ReduceGraph (common/case_file) -> the least graph that
// still shows it -> MakeCaseFile.
// Thread-safety: thread-safe, as EngineSet is.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "common/case_file/case_file.h"
#include "common/case_file/reduce_graph.h"
#include "tests/testing/engines.h"

namespace fuseline::testing {

struct Mismatch {
  EngineKind engine = EngineKind::kCpu;
  Numerics numerics = Numerics::kFused;
  bool is_error = false;  // the engine failed, rather than gave other values
  std::string text;       // "cpu, numerics fused: output 'y1' at [3]: got 1, want 2 within 1e-7 (4 of 16 elements)"
};

struct CheckOptions {
  std::vector<EngineKind> engines;
  std::vector<Numerics> numerics = {Numerics::kFused};
  bool run_twice = false;           // the same artifact must give the same bits
  const Graph* symbolic = nullptr;  // given to the engines in place of the graph, which is it at the inputs' sizes
  // Under numerics = eager, fused engines must give the bits of the unfused ones that run too …
  bool eager_bits = true;
  bool op_by_op = false;  // … and of each node as a graph of its own (op_by_op.h)
};

// What was looked at, so that a test which compares nothing is noticed.
struct CheckCounts {
  int64_t runs = 0;
  int64_t op_by_op = 0;
  int64_t symbolic = 0;  // bindings of graphs with symbols
  int64_t outputs = 0;
  double checked_outputs = 0;  // outputs weighted with the share of their elements that are compared in earnest
};

// The first mismatch. Pointwise graphs of f32 and f64, and under numerics = eager all graphs, must give the same bits
// on `cpu` and `cpu_unfused` (and so on), whatever the distance from the reference; save where a bitcast takes a NaN
// apart.
std::optional<Mismatch> CheckGraph(EngineSet& engines, const Graph& graph, const std::vector<Tensor>& inputs,
                                   const CheckOptions& options, CheckCounts* counts = nullptr);

// The graph as a case whose outputs are the reference's.
CaseFile MakeCaseFile(const std::string& name, const GraphWithInputs& failing, const Mismatch& mismatch);

// Whether numerics matters: some value is f16 or bf16.
bool HasHalfValues(const Graph& graph);

}  // namespace fuseline::testing
