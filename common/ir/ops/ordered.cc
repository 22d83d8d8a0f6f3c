// Scans and ordering: what runs along one dim in order.
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/ir/ops/op_rows.h"
#include "common/ir/ops/type_rules.h"
#include "common/status/status_macros.h"

namespace fuseline::ops {
namespace {

using Types = absl::StatusOr<std::vector<TensorType>>;

// Of integers and bool in i64, unless `dtype` says otherwise, as sum and prod.
Types ScanRule(const InferArgs& args) {
  FUSELINE_ASSIGN_OR_RETURN(const DType to, SumDType(args, "summed"));
  FUSELINE_RETURN_IF_ERROR(NormalizeDim(args.Int("dim"), args.operands[0].rank()).status());
  return std::vector<TensorType>{TensorType::Make(to, args.operands[0].shape())};
}

Types ValuesAndIndices(const InferArgs& args, Shape shape) {
  return std::vector<TensorType>{TensorType::Make(args.operands[0].dtype, shape), TensorType::Make(DType::kI64, shape)};
}

Types CummaxRule(const InferArgs& args) {
  FUSELINE_RETURN_IF_ERROR(CheckDType(args.operands[0].dtype, DTypeSet::kNumbers));
  FUSELINE_RETURN_IF_ERROR(NormalizeDim(args.Int("dim"), args.operands[0].rank()).status());
  return ValuesAndIndices(args, args.operands[0].shape());
}

Types SortRule(const InferArgs& args) {
  FUSELINE_RETURN_IF_ERROR(CheckDType(args.operands[0].dtype, DTypeSet::kAll));
  FUSELINE_RETURN_IF_ERROR(NormalizeDim(args.Int("dim"), args.operands[0].rank()).status());
  return ValuesAndIndices(args, args.operands[0].shape());
}

Types TopkRule(const InferArgs& args) {
  FUSELINE_RETURN_IF_ERROR(CheckDType(args.operands[0].dtype, DTypeSet::kAll));
  FUSELINE_ASSIGN_OR_RETURN(const int64_t dim, NormalizeDim(args.Int("dim"), args.operands[0].rank()));
  Shape shape = args.operands[0].shape();
  int64_t& size = shape[static_cast<size_t>(dim)];
  const int64_t k = args.Int("k");
  if (k < 0 || k > size) {
    return TypeError(absl::StrCat("attribute 'k': ", k, " is out of range for a dim of size ", size));
  }
  size = k;
  return ValuesAndIndices(args, std::move(shape));
}

void AddRow(std::vector<OpDef>& rows, const char* name, TypeRule infer, int results, std::vector<AttrSpec> attrs) {
  OpDef row;
  row.name = name;
  row.kind = OpKind::kOrdered;
  row.min_operands = row.max_operands = 1;
  row.results = results;
  row.infer = infer;
  row.attrs = std::move(attrs);
  rows.push_back(std::move(row));
}

}  // namespace

void AddOrderedRows(std::vector<OpDef>& rows) {
  const AttrSpec dim = {"dim", AttrType::kInt, true};
  const AttrSpec last_dim = {"dim", AttrType::kInt, false, AttrValue(int64_t{-1})};
  const AttrSpec dtype = {"dtype", AttrType::kDType};
  const AttrSpec exclusive = {"exclusive", AttrType::kBool, false, AttrValue(false)};
  const AttrSpec reverse = {"reverse", AttrType::kBool, false, AttrValue(false)};
  AddRow(rows, "cumsum", ScanRule, 1, {dim, dtype, exclusive, reverse});
  AddRow(rows, "cumprod", ScanRule, 1, {dim, dtype, exclusive, reverse});
  AddRow(rows, "cummax", CummaxRule, 2, {dim});
  AddRow(rows, "sort", SortRule, 2,
         {last_dim,
          {"descending", AttrType::kBool, false, AttrValue(false)},
          {"stable", AttrType::kBool, false, AttrValue(true)}});
  AddRow(rows, "topk", TopkRule, 2,
         {{"k", AttrType::kInt, true}, last_dim, {"largest", AttrType::kBool, false, AttrValue(true)}});
}

}  // namespace fuseline::ops
