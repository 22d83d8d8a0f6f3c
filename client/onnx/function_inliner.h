// Replaces calls of functions that a model brings with it by their bodies.
// Pipeline: Model -> InlineFunctions -> nodes without calls. With a work list, not recursion.
// Errors: INVALID_ARGUMENT where the result has too many nodes or calls are nested too deep (functions that call each
// other). Thread-safety: pure functions.
// Tested by tests/unit/client/onnx/import_model_test.cc
#pragma once

#include <vector>

#include "absl/status/statusor.h"
#include "client/onnx/importers.h"
#include "client/onnx/model.h"

namespace fuseline::onnx_import {

// Ops that the table has keep their importer even where the model brings a body.
absl::StatusOr<std::vector<ModelNode>> InlineFunctions(const Model& model, const ImporterTable& table);

}  // namespace fuseline::onnx_import
