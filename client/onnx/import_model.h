// Imports an ONNX model into the graph IR.
// Pipeline: Model (model_reader.h) -> ImportModel -> Graph, weights. Linear in the model; calls of functions are
// replaced by their bodies, with no recursion.
// Errors: INVALID_ARGUMENT and UNIMPLEMENTED; the message names every node, op and attribute that can't be imported,
// not only the first. Thread-safety: pure functions. Tested by tests/unit/client/onnx/import_model_test.cc
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "client/onnx/model.h"
#include "common/ir/graph.h"

namespace fuseline::onnx_import {

inline constexpr int64_t kMinOpset = 6;
inline constexpr int64_t kMaxOpset = 28;

struct ImportOptions {
  // Initializers become inputs of the graph, in place of constants. Those of up to 64 elements, and those whose values
  // decide about shapes, stay constants.
  bool weights_as_inputs = false;
  std::map<std::string, int64_t, std::less<>> symbols;  // sizes of the model's symbolic dims
  std::map<std::string, Shape, std::less<>> shapes;     // of inputs whose shape the model leaves open
  // Values of inputs that may be needed at import: those on which a shape depends become constants and are no inputs of
  // the graph.
  std::map<std::string, Tensor, std::less<>> known_inputs;
  GraphLimits limits;
};

struct GraphWeight {
  std::string input;  // of the graph
  Tensor tensor;
};

struct ImportedModel {
  Graph graph;
  // For the graph's inputs, in order, the name that the model gives them; a weight's is the initializer's.
  std::vector<std::string> input_names;
  std::vector<std::string> output_names;
  std::vector<GraphWeight> weights;       // weights_as_inputs
  std::set<std::string> constant_inputs;  // the inputs of `known_inputs` that became constants
};

absl::StatusOr<ImportedModel> ImportModel(const Model& model, const ImportOptions& options = {});
// The same from a file's bytes.
absl::StatusOr<ImportedModel> ImportModelBytes(const std::string& bytes, const ImportOptions& options = {});

}  // namespace fuseline::onnx_import
