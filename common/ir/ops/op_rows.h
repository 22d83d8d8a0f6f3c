// The rows of the op table, by kind; op_table.cc puts them together. To add an op, add a row to the file of its kind.
// Thread-safety: pure functions.
#pragma once

#include <vector>

#include "common/ir/op_table.h"

namespace fuseline::ops {

void AddPointwiseArithRows(std::vector<OpDef>& rows);
void AddPointwiseMathRows(std::vector<OpDef>& rows);
void AddActivationRows(std::vector<OpDef>& rows);
void AddCreationRows(std::vector<OpDef>& rows);
void AddViewRows(std::vector<OpDef>& rows);
void AddReductionRows(std::vector<OpDef>& rows);
void AddCompositeRows(std::vector<OpDef>& rows);
void AddLayoutRows(std::vector<OpDef>& rows);
void AddIndexingRows(std::vector<OpDef>& rows);
void AddOrderedRows(std::vector<OpDef>& rows);
void AddContractionRows(std::vector<OpDef>& rows);
void AddWindowRows(std::vector<OpDef>& rows);
void AddLossRows(std::vector<OpDef>& rows);
void AddRandomRows(std::vector<OpDef>& rows);
void AddResizeRow(std::vector<OpDef>& rows);
void AddQuantizationRows(std::vector<OpDef>& rows);

// A pointwise row. `operands` is exact.
inline OpDef PointwiseRow(const char* name, int operands, TypeRule infer, ScalarRule scalar,
                          FloatReference reference_float, IntReference reference_int,
                          std::vector<AttrSpec> attrs = {}) {
  OpDef row;
  row.name = name;
  row.kind = OpKind::kPointwise;
  row.min_operands = row.max_operands = operands;
  row.attrs = std::move(attrs);
  row.infer = infer;
  row.scalar = scalar;
  row.reference_float = reference_float;
  row.reference_int = reference_int;
  return row;
}

}  // namespace fuseline::ops
