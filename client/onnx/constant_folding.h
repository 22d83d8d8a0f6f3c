// Evaluates the ops that models compute shapes with, where all operands are known and small: their results are needed
// to say what the graph is. Written out plainly; anything else becomes nodes of the graph. Pipeline: OpCall with known
// operands -> FoldKnown -> known results. Thread-safety: pure functions. Tested by
// tests/unit/client/onnx/constant_folding_test.cc
#pragma once

#include "client/onnx/op_call.h"

namespace fuseline::onnx_import {

// Larger tensors are not folded: they are computed by the graph.
inline constexpr int64_t kMaxFoldedElements = 4096;

// True where the results were set, or an error was reported.
bool FoldKnown(OpCall& call);

}  // namespace fuseline::onnx_import
