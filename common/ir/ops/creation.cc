// Ops without operands: they make values.
#include "absl/strings/str_cat.h"
#include "common/ir/ops/op_rows.h"
#include "common/ir/ops/type_rules.h"
#include "common/status/status_macros.h"

namespace fuseline::ops {
namespace {

absl::StatusOr<std::vector<TensorType>> FullRule(const InferArgs& args) {
  FUSELINE_RETURN_IF_ERROR(CheckShape(args.Ints("shape"), args.limits));
  FUSELINE_RETURN_IF_ERROR(CheckAttrHolds(args, "value", args.Type("dtype")));
  return std::vector<TensorType>{TensorType::Make(args.Type("dtype"), args.Ints("shape"))};
}

absl::StatusOr<std::vector<TensorType>> IotaRule(const InferArgs& args) {
  FUSELINE_RETURN_IF_ERROR(CheckShape(args.Ints("shape"), args.limits));
  if (IsBool(args.Type("dtype"))) return TypeError("takes every dtype but bool");
  FUSELINE_RETURN_IF_ERROR(NormalizeDim(args.Int("dim"), static_cast<int>(args.Ints("shape").size())).status());
  return std::vector<TensorType>{TensorType::Make(args.Type("dtype"), args.Ints("shape"))};
}

// The elements are in Node::constant_bytes; VerifyGraph checks that their number fits the type.
absl::StatusOr<std::vector<TensorType>> ConstantRule(const InferArgs& args) {
  FUSELINE_RETURN_IF_ERROR(CheckShape(args.Ints("shape"), args.limits));
  return std::vector<TensorType>{TensorType::Make(args.Type("dtype"), args.Ints("shape"))};
}

void AddRow(std::vector<OpDef>& rows, const char* name, TypeRule infer, std::vector<AttrSpec> attrs) {
  OpDef row;
  row.name = name;
  row.kind = OpKind::kCreation;
  row.infer = infer;
  row.attrs = std::move(attrs);
  rows.push_back(std::move(row));
}

}  // namespace

void AddCreationRows(std::vector<OpDef>& rows) {
  AddRow(rows, "full", FullRule,
         {{"shape", AttrType::kIntList, true}, {"value", AttrType::kScalar, true}, {"dtype", AttrType::kDType, true}});
  AddRow(rows, "iota", IotaRule,
         {{"shape", AttrType::kIntList, true}, {"dim", AttrType::kInt, true}, {"dtype", AttrType::kDType, true}});
  AddRow(rows, "constant", ConstantRule,
         {{"dtype", AttrType::kDType, true}, {"shape", AttrType::kIntList, true}, {"data", AttrType::kData}});
}

}  // namespace fuseline::ops
