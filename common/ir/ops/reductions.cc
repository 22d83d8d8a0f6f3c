// The primitive reductions. mean, var, std, logsumexp and norm are composites of them.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/ir/ops/op_rows.h"
#include "common/ir/ops/type_rules.h"
#include "common/status/status_macros.h"

namespace fuseline::ops {
namespace {

using Types = absl::StatusOr<std::vector<TensorType>>;

// sum and prod: of integers and bool in i64, unless `dtype` says otherwise. The operand is converted before it is
// reduced.
Types SumRule(const InferArgs& args) {
  FUSELINE_ASSIGN_OR_RETURN(const DType to, SumDType(args, "reduced"));
  FUSELINE_ASSIGN_OR_RETURN(const Shape shape, ReducedShape(args));
  return std::vector<TensorType>{TensorType::Make(to, shape)};
}

absl::Status CheckNotEmpty(const InferArgs& args) {
  FUSELINE_ASSIGN_OR_RETURN(const std::vector<int64_t> dims, ReducedDims(args));
  const Shape shape = args.operands[0].shape();
  for (int64_t d : dims) {
    if (shape[static_cast<size_t>(d)] == 0) {
      return TypeError(
          absl::StrCat("dim ", d, " of ", args.operands[0].ToString(), " is empty, and there is no identity"));
    }
  }
  return absl::OkStatus();
}

Types ExtremumRule(const InferArgs& args) {
  FUSELINE_RETURN_IF_ERROR(CheckDType(args.operands[0].dtype, DTypeSet::kNumbers));
  FUSELINE_RETURN_IF_ERROR(CheckNotEmpty(args));
  FUSELINE_ASSIGN_OR_RETURN(const Shape shape, ReducedShape(args));
  return std::vector<TensorType>{TensorType::Make(args.operands[0].dtype, shape)};
}

Types TruthRule(const InferArgs& args) {
  FUSELINE_RETURN_IF_ERROR(CheckDType(args.operands[0].dtype, DTypeSet::kAll));
  FUSELINE_ASSIGN_OR_RETURN(const Shape shape, ReducedShape(args));
  return std::vector<TensorType>{TensorType::Make(DType::kBool, shape)};
}

Types ArgExtremumRule(const InferArgs& args) {
  FUSELINE_RETURN_IF_ERROR(CheckDType(args.operands[0].dtype, DTypeSet::kAll));
  FUSELINE_RETURN_IF_ERROR(CheckNotEmpty(args));
  FUSELINE_ASSIGN_OR_RETURN(const Shape shape, ReducedShape(args));
  return std::vector<TensorType>{TensorType::Make(DType::kI64, shape)};
}

Types VarMeanRule(const InferArgs& args) {
  FUSELINE_RETURN_IF_ERROR(CheckDType(args.operands[0].dtype, DTypeSet::kFloats));
  FUSELINE_ASSIGN_OR_RETURN(const Shape shape, ReducedShape(args));
  const TensorType type = TensorType::Make(args.operands[0].dtype, shape);
  return std::vector<TensorType>{type, type};
}

void AddRow(std::vector<OpDef>& rows, const char* name, ReductionKind kind, TypeRule infer,
            std::vector<AttrSpec> attrs) {
  OpDef row;
  row.name = name;
  row.kind = OpKind::kReduction;
  row.min_operands = row.max_operands = 1;
  row.results = kind == ReductionKind::kVarMean ? 2 : 1;
  row.infer = infer;
  row.reduction = kind;
  row.attrs = std::move(attrs);
  rows.push_back(std::move(row));
}

}  // namespace

void AddReductionRows(std::vector<OpDef>& rows) {
  const AttrSpec dims = {"dims", AttrType::kIntList};
  const AttrSpec dim = {"dim", AttrType::kInt};
  const AttrSpec keepdim = {"keepdim", AttrType::kBool, false, AttrValue(false)};
  const AttrSpec dtype = {"dtype", AttrType::kDType};
  const AttrSpec correction = {"correction", AttrType::kInt, false, AttrValue(int64_t{1})};
  AddRow(rows, "sum", ReductionKind::kSum, SumRule, {dims, keepdim, dtype});
  AddRow(rows, "prod", ReductionKind::kProd, SumRule, {dims, keepdim, dtype});
  AddRow(rows, "amax", ReductionKind::kAmax, ExtremumRule, {dims, keepdim});
  AddRow(rows, "amin", ReductionKind::kAmin, ExtremumRule, {dims, keepdim});
  AddRow(rows, "any", ReductionKind::kAny, TruthRule, {dims, keepdim});
  AddRow(rows, "all", ReductionKind::kAll, TruthRule, {dims, keepdim});
  AddRow(rows, "argmax", ReductionKind::kArgmax, ArgExtremumRule, {dim, keepdim});
  AddRow(rows, "argmin", ReductionKind::kArgmin, ArgExtremumRule, {dim, keepdim});
  AddRow(rows, "var_mean", ReductionKind::kVarMean, VarMeanRule, {dims, keepdim, correction});  // var, then mean
}

}  // namespace fuseline::ops
