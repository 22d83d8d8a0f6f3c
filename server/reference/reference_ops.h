// The interpreter's ops by kind: each takes the operands' values and gives the results' values, of the types in
// `result_types`. Errors: UNIMPLEMENTED for an op that has no reference. Thread-safety: pure functions.
#pragma once

#include <vector>

#include "absl/status/statusor.h"
#include "common/ir/graph.h"
#include "common/ir/op_table.h"
#include "common/target/compile_options.h"
#include "server/reference/array.h"

namespace fuseline::reference {

struct OpContext {
  const Node& node;
  const std::vector<TensorType>& result_types;
  Numerics numerics = Numerics::kFused;

  bool Has(const char* name) const { return node.attrs.find(name) != node.attrs.end(); }
  int64_t Int(const char* name) const;
  double Number(const char* name) const;
  bool Bool(const char* name) const;
  // An empty list where it is absent.
  const std::vector<int64_t>& Ints(const char* name) const;
  std::string String(const char* name) const;
  double Round(double value, size_t result = 0) const {
    return RoundResult(result_types[result].dtype, numerics, value);
  }
};

absl::StatusOr<Array> EvaluatePointwise(const OpContext& context, const std::vector<Array>& operands);
absl::StatusOr<Array> EvaluateCreation(const OpContext& context);
absl::StatusOr<Array> EvaluateLayout(const OpContext& context, const std::vector<Array>& operands);
// Errors: INVALID_ARGUMENT (kIndexOutOfRange) for an index outside the range.
absl::StatusOr<Array> EvaluateIndexing(const OpContext& context, const std::vector<Array>& operands);
absl::StatusOr<std::vector<Array>> EvaluateOrdered(const OpContext& context, const std::vector<Array>& operands);
absl::StatusOr<Array> EvaluateContraction(const OpContext& context, const std::vector<Array>& operands);
absl::StatusOr<std::vector<Array>> EvaluateWindow(const OpContext& context, const std::vector<Array>& operands);
absl::StatusOr<Array> EvaluateAttention(const OpContext& context, const std::vector<Array>& operands);
absl::StatusOr<Array> EvaluateView(const OpContext& context, const Array& operand);
absl::StatusOr<std::vector<Array>> EvaluateReduction(const OpContext& context, const Array& operand);
Array EvaluateResize(const OpContext& context, const Array& operand);
// rand, randn, dropout.
absl::StatusOr<Array> EvaluateRandom(const OpContext& context, const std::vector<Array>& operands);
// mean, var, softmax, layer_norm and so on, by their definitions and not by their decompositions.
absl::StatusOr<std::vector<Array>> EvaluateComposite(const OpContext& context, const std::vector<Array>& operands);

// Composites too; operands are dense.
Array EvaluateQuantize(const OpContext& context, const std::vector<Array>& operands);
Array EvaluateDequantize(const OpContext& context, const std::vector<Array>& operands);

}  // namespace fuseline::reference
