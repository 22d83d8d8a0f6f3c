#include "tests/testing/differential.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <utility>

#include "common/ir/op_table.h"
#include "common/ir/text_form.h"
#include "common/status/error.h"
#include "common/status/status_macros.h"
#include "common/status/str_cat.h"
#include "server/reference/reference_interpreter.h"
#include "tests/testing/error_bounds.h"
#include "tests/testing/op_by_op.h"
#include "tests/testing/structure_bounds.h"

namespace fuseline::testing {
namespace {

// Bit for bit, whatever the NaN. Empty where equal.
std::string FirstBitDifference(const Tensor& a, const Tensor& b) {
  if (a.dtype() != b.dtype() || a.shape() != b.shape()) return "the types differ";
  const auto size = static_cast<size_t>(DTypeSizeBytes(a.dtype()));
  for (int64_t i = 0; i < a.element_count(); ++i) {
    const char* x = static_cast<const char*>(a.data()) + static_cast<size_t>(i) * size;
    const char* y = static_cast<const char*>(b.data()) + static_cast<size_t>(i) * size;
    if (std::memcmp(x, y, size) == 0) continue;
    if (IsFloat(a.dtype()) && a.GetDouble(i) != a.GetDouble(i) && b.GetDouble(i) != b.GetDouble(i)) continue;
    return StrCat("at ", ElementPosition(a.shape(), i), ": ", ElementText(a, i), " and ", ElementText(b, i));
  }
  return "";
}

// Ops whose results in f32 and f64 do not depend on what they are fused with. A NaN's bits may, so bitcasts are left
// out.
bool IsPointwiseF32OrF64(const Graph& graph) {
  for (const Node& node : graph.nodes) {
    const OpKind kind = node.def->kind;
    if ((kind != OpKind::kPointwise && kind != OpKind::kView && kind != OpKind::kCreation) || node.op == "bitcast")
      return false;
  }
  return std::none_of(graph.values.begin(), graph.values.end(),
                      [](const Value& v) { return IsHalf(v.type.dtype) || IsF8(v.type.dtype); });
}

// Whether the own bits of a NaN, which nothing fixes, can be seen: a bitcast takes one apart.
bool ShowsBitsOfNan(const Graph& graph, const std::vector<Tensor>& inputs, const CompileOptions& options) {
  Graph seen = graph;
  seen.outputs.clear();
  for (const Node& node : graph.nodes) {
    if (node.op != "bitcast" || node.operands[0].is_literal()) continue;
    if (!IsFloat(graph.type(node.operands[0].value).dtype)) continue;
    seen.outputs.push_back({StrCat("y", seen.outputs.size()), node.operands[0].value});
  }
  if (seen.outputs.empty()) return false;
  const absl::StatusOr<std::vector<Tensor>> values = reference::Interpret(seen, inputs, options);
  if (!values.ok()) return true;
  for (const Tensor& t : *values) {
    for (int64_t i = 0; i < t.element_count(); ++i) {
      if (t.GetDouble(i) != t.GetDouble(i)) return true;
    }
  }
  return false;
}

std::string Where(EngineKind engine, Numerics numerics) {
  return StrCat(EngineName(engine), ", numerics ", NumericsName(numerics), ": ");
}

using Outputs = std::vector<Tensor>;

std::optional<Mismatch> CheckSameBits(const Graph& graph, Numerics numerics,
                                      const std::map<EngineKind, Outputs>& results) {
  const std::pair<EngineKind, EngineKind> pairs[] = {{EngineKind::kCpu, EngineKind::kCpuUnfused},
                                                     {EngineKind::kCuda, EngineKind::kCudaUnfused},
                                                     {EngineKind::kCudaHost, EngineKind::kCudaHostUnfused}};
  for (const auto& [fused, unfused] : pairs) {
    const auto a = results.find(fused), b = results.find(unfused);
    if (a == results.end() || b == results.end()) continue;
    for (size_t i = 0; i < a->second.size(); ++i) {
      const std::string difference = FirstBitDifference(a->second[i], b->second[i]);
      if (difference.empty()) continue;
      return Mismatch{fused, numerics, false,
                      StrCat(Where(fused, numerics), "output '", graph.outputs[i].name, "' is not bit-equal to ",
                             EngineName(unfused), "'s ", difference)};
    }
  }
  return std::nullopt;
}

}  // namespace

bool HasHalfValues(const Graph& graph) {
  return std::any_of(graph.values.begin(), graph.values.end(), [](const Value& v) { return IsHalf(v.type.dtype); });
}

std::optional<Mismatch> CheckGraph(EngineSet& engines, const Graph& graph, const std::vector<Tensor>& inputs,
                                   const CheckOptions& check, CheckCounts* counts) {
  const Graph& given = check.symbolic != nullptr ? *check.symbolic : graph;
  for (const Numerics numerics : check.numerics) {
    CompileOptions options;
    options.numerics = numerics;
    const auto failed = [&](EngineKind engine, const std::string& text) {
      return Mismatch{engine, numerics, true, StrCat(Where(engine, numerics), text)};
    };
    const absl::StatusOr<Outputs> want = reference::Interpret(graph, inputs, options);
    if (!want.ok()) return failed(EngineKind::kReference, want.status().ToString());
    const absl::StatusOr<Outputs> bounds = BoundErrors(graph, inputs, options);
    if (!bounds.ok()) return failed(EngineKind::kReference, StrCat("bounds: ", bounds.status().ToString()));
    if (counts != nullptr) {
      for (size_t i = 0; i < want->size(); ++i) {
        ++counts->outputs;
        counts->checked_outputs += CheckedShare((*want)[i], (*bounds)[i]);
      }
    }
    std::map<EngineKind, Outputs> results;
    for (const EngineKind engine : check.engines) {
      absl::StatusOr<Outputs> got = engines.Run(engine, given, inputs, options);
      if (!got.ok()) return failed(engine, got.status().ToString());
      if (counts != nullptr) ++counts->runs;
      if (got->size() != want->size())
        return failed(engine, StrCat(got->size(), " outputs in place of ", want->size()));
      for (size_t i = 0; i < got->size(); ++i) {
        const OutputComparison c = CompareWithin(graph.outputs[i].name, (*got)[i], (*want)[i], (*bounds)[i]);
        if (c.passed()) continue;
        return Mismatch{engine, numerics, false,
                        StrCat(Where(engine, numerics), "output '", c.name, "' ", c.first_mismatch, " (", c.mismatches,
                               " of ", c.elements, " elements)")};
      }
      if (check.run_twice) {
        const absl::StatusOr<Outputs> again = engines.Run(engine, given, inputs, options);
        if (!again.ok()) return failed(engine, again.status().ToString());
        for (size_t i = 0; i < got->size(); ++i) {
          const std::string difference = FirstBitDifference((*got)[i], (*again)[i]);
          if (!difference.empty()) {
            return Mismatch{engine, numerics, false,
                            StrCat(Where(engine, numerics), "output '", graph.outputs[i].name,
                                   "' differs between two runs ", difference)};
          }
        }
      }
      results[engine] = *std::move(got);
    }
    const bool eager = numerics == Numerics::kEager && check.eager_bits && !ShowsBitsOfNan(graph, inputs, options);
    if (IsPointwiseF32OrF64(graph) || eager) {
      if (std::optional<Mismatch> mismatch = CheckSameBits(graph, numerics, results); mismatch.has_value())
        return mismatch;
    }
    if (eager && check.op_by_op) {
      for (const auto& [engine, got] : results) {
        if (IsUnfused(engine)) continue;
        const absl::StatusOr<Outputs> alone = RunOpByOp(engines, engine, graph, inputs, options);
        if (!alone.ok()) return failed(engine, StrCat("op by op: ", alone.status().ToString()));
        if (counts != nullptr) ++counts->op_by_op;
        for (size_t i = 0; i < got.size(); ++i) {
          const std::string difference = FirstBitDifference(got[i], (*alone)[i]);
          if (difference.empty()) continue;
          return Mismatch{engine, numerics, false,
                          StrCat(Where(engine, numerics), "output '", graph.outputs[i].name,
                                 "' is not that of op-by-op execution ", difference)};
        }
      }
    }
  }
  return std::nullopt;
}

CaseFile MakeCaseFile(const std::string& name, const GraphWithInputs& failing, const Mismatch& mismatch) {
  CaseFile file;
  file.name = name;
  file.source = "tests/conformance/differential_test";
  file.why = mismatch.text;
  file.graph_text = PrintGraph(failing.graph);
  for (size_t i = 0; i < failing.inputs.size(); ++i) {
    file.inputs.push_back({failing.graph.value(failing.graph.inputs[i]).name, failing.inputs[i]});
  }
  file.options.numerics = mismatch.numerics;
  file.options.fuse = !IsUnfused(mismatch.engine);
  const absl::StatusOr<Outputs> want = reference::Interpret(failing.graph, failing.inputs, file.options);
  for (size_t i = 0; i < failing.graph.outputs.size(); ++i) {
    CaseOutput output;
    output.name = failing.graph.outputs[i].name;
    output.reference = !want.ok();
    if (want.ok()) output.tensor = (*want)[i];
    file.outputs.push_back(std::move(output));
  }
  file.tolerance = {1e-5, 1e-6, true};
  return file;
}

}  // namespace fuseline::testing
