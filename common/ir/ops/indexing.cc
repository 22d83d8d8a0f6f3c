// Indexing: ops that read or write at positions which another operand gives. Positions are of any integer dtype; a
// negative one counts from the end. That each is within the range is checked while the kernels run; here, that there is
// a range at all. What the scatters do where one place is written twice: docs/ir.md.
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/ir/ops/op_rows.h"
#include "common/ir/ops/type_rules.h"
#include "common/status/status_macros.h"

namespace fuseline::ops {
namespace {

using Types = absl::StatusOr<std::vector<TensorType>>;

std::string Text(const Shape& shape) { return absl::StrCat("[", absl::StrJoin(shape, ", "), "]"); }

absl::Status CheckIndexDType(const TensorType& index) {
  if (IsInteger(index.dtype)) return absl::OkStatus();
  return TypeError(absl::StrCat("the index must be of an integer dtype, not ", NameOf(index.dtype)));
}

absl::Status CheckSameDType(const TensorType& x, const TensorType& source) {
  if (x.dtype == source.dtype) return absl::OkStatus();
  return TypeError(
      absl::StrCat("operands have dtypes ", NameOf(x.dtype), " and ", NameOf(source.dtype), ": insert a cast"));
}

// A dim of size 0 has no valid index.
absl::Status CheckRange(int64_t extent, const Shape& index) {
  if (extent > 0 || ElementCount(index) == 0) return absl::OkStatus();
  return TypeError(absl::StrCat("an index of shape ", Text(index), " into a dim of size 0"));
}

Types Result(const TensorType& x, Shape shape, const GraphLimits& limits) {
  FUSELINE_RETURN_IF_ERROR(CheckShape(shape, limits));
  return std::vector<TensorType>{TensorType::Make(x.dtype, std::move(shape))};
}

// The index has x's rank and is no larger than x in the dims other than `dim`.
absl::StatusOr<size_t> CheckAlongDim(const InferArgs& args) {
  const Shape x = args.operands[0].shape();
  const Shape index = args.operands[1].shape();
  FUSELINE_ASSIGN_OR_RETURN(const int64_t dim, NormalizeDim(args.Int("dim"), args.operands[0].rank()));
  FUSELINE_RETURN_IF_ERROR(CheckIndexDType(args.operands[1]));
  if (index.size() != x.size()) {
    return TypeError(absl::StrCat("the index has rank ", index.size(), ", the operand rank ", x.size()));
  }
  for (size_t d = 0; d < x.size(); ++d) {
    if (static_cast<int64_t>(d) != dim && index[d] > x[d]) {
      return TypeError(
          absl::StrCat("the index has shape ", Text(index), ", larger than the operand's ", Text(x), " in dim ", d));
    }
  }
  FUSELINE_RETURN_IF_ERROR(CheckRange(x[static_cast<size_t>(dim)], index));
  return static_cast<size_t>(dim);
}

Types GatherRule(const InferArgs& args) {
  FUSELINE_RETURN_IF_ERROR(CheckAlongDim(args).status());
  return Result(args.operands[0], args.operands[1].shape(), args.limits);
}

Types TakeAlongDimRule(const InferArgs& args) {
  const TensorType& x = args.operands[0];
  FUSELINE_ASSIGN_OR_RETURN(const int64_t dim, NormalizeDim(args.Int("dim"), x.rank()));
  FUSELINE_RETURN_IF_ERROR(CheckIndexDType(args.operands[1]));
  if (args.operands[1].rank() != x.rank()) {
    return TypeError(absl::StrCat("the index has rank ", args.operands[1].rank(), ", the operand rank ", x.rank()));
  }
  const size_t d = static_cast<size_t>(dim);
  Shape from = x.shape();
  Shape index = args.operands[1].shape();
  const int64_t extent = std::exchange(from[d], 1);
  const int64_t count = std::exchange(index[d], 1);
  FUSELINE_ASSIGN_OR_RETURN(Shape shape, BroadcastShapes({from, index}));
  shape[d] = count;
  FUSELINE_RETURN_IF_ERROR(CheckRange(extent, shape));
  return Result(x, std::move(shape), args.limits);
}

absl::Status CheckOneDimIndex(const TensorType& index) {
  FUSELINE_RETURN_IF_ERROR(CheckIndexDType(index));
  if (index.rank() == 1) return absl::OkStatus();
  return TypeError(absl::StrCat("the index must have one dim, not ", index.rank()));
}

Types IndexSelectRule(const InferArgs& args) {
  const TensorType& x = args.operands[0];
  FUSELINE_ASSIGN_OR_RETURN(const int64_t dim, NormalizeDim(args.Int("dim"), x.rank()));
  FUSELINE_RETURN_IF_ERROR(CheckOneDimIndex(args.operands[1]));
  Shape shape = x.shape();
  const Shape index = args.operands[1].shape();
  const int64_t extent = std::exchange(shape[static_cast<size_t>(dim)], index[0]);
  FUSELINE_RETURN_IF_ERROR(CheckRange(extent, index));
  return Result(x, std::move(shape), args.limits);
}

Types EmbeddingRule(const InferArgs& args) {
  const TensorType& table = args.operands[0];
  if (table.rank() != 2) return TypeError(absl::StrCat("the table must have two dims, not ", table.rank()));
  FUSELINE_RETURN_IF_ERROR(CheckIndexDType(args.operands[1]));
  Shape shape = args.operands[1].shape();
  FUSELINE_RETURN_IF_ERROR(CheckRange(table.shape()[0], shape));
  shape.push_back(table.shape()[1]);
  return Result(table, std::move(shape), args.limits);
}

// The last dim of the index holds positions in `first`, `first + 1`, … of x; `leading` is the index's shape without it.
struct TupleIndex {
  size_t count = 0;
  Shape leading;
};
absl::StatusOr<TupleIndex> CheckTuples(const TensorType& x, const TensorType& index, size_t first) {
  FUSELINE_RETURN_IF_ERROR(CheckIndexDType(index));
  Shape shape = index.shape();
  if (shape.empty()) return TypeError("the index must have at least one dim");
  const int64_t count = shape.back();
  const int64_t available = static_cast<int64_t>(x.rank()) - static_cast<int64_t>(first);
  if (count < 1 || count > available) {
    return TypeError(absl::StrCat("the index's last dim is ", count, ", and the operand has ", available,
                                  available == 1 ? " dim" : " dims", " to index"));
  }
  shape.pop_back();
  TupleIndex tuples{static_cast<size_t>(count), std::move(shape)};
  for (size_t k = 0; k < tuples.count; ++k) {
    FUSELINE_RETURN_IF_ERROR(CheckRange(x.shape()[first + k], tuples.leading));
  }
  return tuples;
}

Types GatherNdRule(const InferArgs& args) {
  const TensorType& x = args.operands[0];
  const TensorType& index = args.operands[1];
  const int64_t batch = args.Int("batch_dims");
  if (batch < 0 || batch >= std::min(x.rank(), index.rank())) {
    return TypeError(absl::StrCat("attribute 'batch_dims': ", batch, " is out of range for ranks ", x.rank(), " and ",
                                  index.rank()));
  }
  const Shape from = x.shape();
  FUSELINE_ASSIGN_OR_RETURN(TupleIndex tuples, CheckTuples(x, index, static_cast<size_t>(batch)));
  if (!std::equal(from.begin(), from.begin() + batch, tuples.leading.begin())) {
    return TypeError(absl::StrCat("shapes ", Text(from), " and ", Text(index.shape()), " differ in the first ", batch,
                                  batch == 1 ? " dim" : " dims"));
  }
  Shape shape = std::move(tuples.leading);
  shape.insert(shape.end(), from.begin() + batch + static_cast<int64_t>(tuples.count), from.end());
  return Result(x, std::move(shape), args.limits);
}

absl::Status CheckScatterDType(DType dtype, const std::string& reduction) {
  if (reduction == "none") return absl::OkStatus();  // moves only
  if (reduction != "add" && reduction != "mul" && reduction != "max" && reduction != "min") {
    return TypeError(absl::StrCat(
        "attribute 'reduction' must be \"none\", \"add\", \"mul\", \"max\" or \"min\", not \"", reduction, "\""));
  }
  return CheckDType(dtype, DTypeSet::kNumbers);
}

Types ScatterTypes(const InferArgs& args, const std::string& reduction) {
  const TensorType& x = args.operands[0];
  const TensorType& source = args.operands[2];
  FUSELINE_RETURN_IF_ERROR(CheckScatterDType(x.dtype, reduction));
  FUSELINE_RETURN_IF_ERROR(CheckAlongDim(args).status());
  FUSELINE_RETURN_IF_ERROR(CheckSameDType(x, source));
  const Shape index = args.operands[1].shape();
  const Shape from = source.shape();
  bool fits = from.empty() || from.size() == index.size();
  for (size_t d = 0; d < from.size() && fits; ++d) fits = index[d] <= from[d];
  if (!fits) {
    return TypeError(absl::StrCat("the source has shape ", Text(from), ", the index ", Text(index),
                                  ": it must be no smaller in any dim, or a scalar"));
  }
  return Result(x, x.shape(), args.limits);
}

Types ScatterRule(const InferArgs& args) { return ScatterTypes(args, StringAttr(args.attrs, "reduction")); }
Types ScatterAddRule(const InferArgs& args) { return ScatterTypes(args, "add"); }

Types IndexAddRule(const InferArgs& args) {
  const TensorType& x = args.operands[0];
  FUSELINE_RETURN_IF_ERROR(CheckDType(x.dtype, DTypeSet::kNumbers));
  FUSELINE_ASSIGN_OR_RETURN(const int64_t dim, NormalizeDim(args.Int("dim"), x.rank()));
  FUSELINE_RETURN_IF_ERROR(CheckOneDimIndex(args.operands[1]));
  FUSELINE_RETURN_IF_ERROR(CheckSameDType(x, args.operands[2]));
  Shape want = x.shape();
  const Shape index = args.operands[1].shape();
  const int64_t extent = std::exchange(want[static_cast<size_t>(dim)], index[0]);
  FUSELINE_RETURN_IF_ERROR(CheckRange(extent, index));
  FUSELINE_RETURN_IF_ERROR(CheckShape(want, args.limits));  // what the loops run over; the source may be a scalar
  if (args.operands[2].rank() != 0 && args.operands[2].shape() != want) {
    return TypeError(absl::StrCat("the source has shape ", Text(args.operands[2].shape()), ", not ", Text(want)));
  }
  return Result(x, x.shape(), args.limits);
}

Types ScatterNdRule(const InferArgs& args) {
  const TensorType& x = args.operands[0];
  FUSELINE_RETURN_IF_ERROR(CheckScatterDType(x.dtype, StringAttr(args.attrs, "reduction")));
  FUSELINE_ASSIGN_OR_RETURN(TupleIndex tuples, CheckTuples(x, args.operands[1], 0));
  FUSELINE_RETURN_IF_ERROR(CheckSameDType(x, args.operands[2]));
  Shape want = std::move(tuples.leading);
  const Shape shape = x.shape();
  want.insert(want.end(), shape.begin() + static_cast<int64_t>(tuples.count), shape.end());
  FUSELINE_RETURN_IF_ERROR(CheckShape(want, args.limits));  // what the loops run over; the source may be a scalar
  if (args.operands[2].rank() != 0 && args.operands[2].shape() != want) {
    return TypeError(absl::StrCat("the source has shape ", Text(args.operands[2].shape()), ", not ", Text(want)));
  }
  return Result(x, shape, args.limits);
}

void AddRow(std::vector<OpDef>& rows, const char* name, int operands, TypeRule infer, std::vector<AttrSpec> attrs) {
  OpDef row;
  row.name = name;
  row.kind = OpKind::kIndexing;
  row.min_operands = row.max_operands = operands;
  row.infer = infer;
  row.attrs = std::move(attrs);
  rows.push_back(std::move(row));
}

}  // namespace

void AddIndexingRows(std::vector<OpDef>& rows) {
  const AttrSpec dim = {"dim", AttrType::kInt, true};
  const AttrSpec reduction = {"reduction", AttrType::kString, false, AttrValue(std::string("none"))};
  AddRow(rows, "gather", 2, GatherRule, {dim});
  AddRow(rows, "take_along_dim", 2, TakeAlongDimRule, {dim});
  AddRow(rows, "index_select", 2, IndexSelectRule, {dim});
  AddRow(rows, "embedding", 2, EmbeddingRule, {});
  AddRow(rows, "gather_nd", 2, GatherNdRule, {{"batch_dims", AttrType::kInt, false, AttrValue(int64_t{0})}});
  AddRow(rows, "scatter", 3, ScatterRule, {dim, reduction});
  AddRow(rows, "scatter_add", 3, ScatterAddRule, {dim});
  AddRow(rows, "index_add", 3, IndexAddRule, {dim});
  AddRow(rows, "scatter_nd", 3, ScatterNdRule, {reduction});
}

}  // namespace fuseline::ops
