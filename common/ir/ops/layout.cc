// Layout: ops whose result takes its elements from several operands, or from none. Every dtype is allowed.
#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/ir/ops/op_rows.h"
#include "common/ir/ops/type_rules.h"
#include "common/status/error.h"
#include "common/status/status_macros.h"

namespace fuseline::ops {
namespace {

using Types = absl::StatusOr<std::vector<TensorType>>;

Types ResultOf(const InferArgs& args, const Shape& shape) {
  FUSELINE_RETURN_IF_ERROR(CheckShape(shape, args.limits));
  return std::vector<TensorType>{TensorType::Make(args.operands[0].dtype, shape)};
}

// How much padding a dim of `size` takes under a mode that repeats its elements.
absl::Status CheckMode(const std::string& mode, int64_t dim, int64_t size, int64_t low, int64_t high) {
  if (mode == "constant" || (low <= 0 && high <= 0)) return absl::OkStatus();
  const int64_t most = mode == "reflect" ? size - 1 : size;
  const int64_t wanted = std::max(low, high);
  const bool fits = mode == "edge" ? size > 0 && size + std::min(low, high) > 0 : wanted <= most;
  if (fits) return absl::OkStatus();
  return TypeError(absl::StrCat("dim ", dim, " of size ", size, " takes no padding of ", low, " and ", high,
                                " with mode \"", mode, "\""));
}

Types PadRule(const InferArgs& args) {
  Shape shape = args.operands[0].shape();
  const std::vector<int64_t>& low = args.Ints("low");
  const std::vector<int64_t>& high = args.Ints("high");
  if (low.size() != shape.size() || high.size() != shape.size()) {
    return TypeError(
        absl::StrCat("attributes 'low' and 'high' must have one element for each of the ", shape.size(), " dims"));
  }
  const std::string mode = StringAttr(args.attrs, "mode");
  if (mode != "constant" && mode != "reflect" && mode != "edge" && mode != "wrap") {
    return TypeError(
        absl::StrCat("attribute 'mode' must be \"constant\", \"reflect\", \"edge\" or \"wrap\", not \"", mode, "\""));
  }
  if (mode != "constant" && args.HasAttr("value")) {
    return TypeError("attribute 'value' goes with mode \"constant\" only");
  }
  FUSELINE_RETURN_IF_ERROR(CheckAttrHolds(args, "value", args.operands[0].dtype));
  const int64_t most = args.limits.max_elements;
  for (size_t d = 0; d < shape.size(); ++d) {
    if (low[d] > most || high[d] > most || low[d] < -most || high[d] < -most) {
      return InvalidArgument(ErrorReason::kLimitExceeded, "",
                             absl::StrCat("padding of dim ", d, " is above the limit of elements"));
    }
    FUSELINE_RETURN_IF_ERROR(CheckMode(mode, static_cast<int64_t>(d), shape[d], low[d], high[d]));
    const int64_t padded = shape[d] + low[d] + high[d];
    if (padded < 0) {
      return TypeError(
          absl::StrCat("padding of ", low[d], " and ", high[d], " makes dim ", d, " of size ", shape[d], " negative"));
    }
    shape[d] = padded;
  }
  return ResultOf(args, shape);
}

Types ConcatRule(const InferArgs& args) {
  FUSELINE_RETURN_IF_ERROR(CheckEqualDTypes(args.operands));
  Shape shape = args.operands[0].shape();
  FUSELINE_ASSIGN_OR_RETURN(const int64_t dim, NormalizeDim(args.Int("dim"), args.operands[0].rank()));
  const size_t along = static_cast<size_t>(dim);
  for (size_t k = 1; k < args.operands.size(); ++k) {
    Shape next = args.operands[k].shape();
    if (next.size() != shape.size()) {
      return TypeError(absl::StrCat("operand ", k, " has rank ", next.size(), ", operand 0 has ", shape.size()));
    }
    const int64_t size = next[along];
    next[along] = shape[along];
    if (next != shape) {
      return TypeError(absl::StrCat("operands 0 and ", k, " differ in a dim other than ", dim, ": ",
                                    args.operands[0].ToString(), " and ", args.operands[k].ToString()));
    }
    if (size > args.limits.max_elements - shape[along]) {
      return InvalidArgument(ErrorReason::kLimitExceeded, "",
                             absl::StrCat("dim ", dim, " is above the limit of elements"));
    }
    shape[along] += size;
  }
  return ResultOf(args, shape);
}

Types StackRule(const InferArgs& args) {
  FUSELINE_RETURN_IF_ERROR(CheckEqualDTypes(args.operands));
  Shape shape = args.operands[0].shape();
  for (size_t k = 1; k < args.operands.size(); ++k) {
    if (args.operands[k].shape() != shape) {
      return TypeError(absl::StrCat("operands 0 and ", k, " differ in shape: ", args.operands[0].ToString(), " and ",
                                    args.operands[k].ToString()));
    }
  }
  FUSELINE_ASSIGN_OR_RETURN(const int64_t dim, NormalizeDim(args.Int("dim"), args.operands[0].rank() + 1));
  shape.insert(shape.begin() + dim, static_cast<int64_t>(args.operands.size()));
  return ResultOf(args, shape);
}

Types TriangleRule(const InferArgs& args) {
  if (args.operands[0].rank() < 2) {
    return TypeError(absl::StrCat("operand 0 is ", args.operands[0].ToString(), ", which has less than 2 dims"));
  }
  return ResultOf(args, args.operands[0].shape());
}

Types OneHotRule(const InferArgs& args) {
  FUSELINE_RETURN_IF_ERROR(CheckDType(args.operands[0].dtype, DTypeSet::kIntegers));
  const int64_t classes = args.Int("classes");
  if (classes < 1) return TypeError(absl::StrCat("attribute 'classes' must be at least 1, not ", classes));
  Shape shape = args.operands[0].shape();
  shape.push_back(classes);
  FUSELINE_RETURN_IF_ERROR(CheckShape(shape, args.limits));
  return std::vector<TensorType>{TensorType::Make(args.Type("dtype"), shape)};
}

// A maximum of -1: any number of operands.
void AddRow(std::vector<OpDef>& rows, const char* name, int max_operands, TypeRule infer, std::vector<AttrSpec> attrs) {
  OpDef row;
  row.name = name;
  row.kind = OpKind::kLayout;
  row.min_operands = 1;
  row.max_operands = max_operands;
  row.infer = infer;
  row.attrs = std::move(attrs);
  rows.push_back(std::move(row));
}

}  // namespace

void AddLayoutRows(std::vector<OpDef>& rows) {
  const AttrSpec diagonal = {"diagonal", AttrType::kInt, false, AttrValue(int64_t{0})};
  AddRow(rows, "pad", 1, PadRule,
         {{"low", AttrType::kIntList, true},
          {"high", AttrType::kIntList, true},
          {"value", AttrType::kScalar},
          {"mode", AttrType::kString, false, AttrValue(std::string("constant"))}});
  AddRow(rows, "concat", -1, ConcatRule, {{"dim", AttrType::kInt, true}});
  AddRow(rows, "stack", -1, StackRule, {{"dim", AttrType::kInt, true}});
  AddRow(rows, "tril", 1, TriangleRule, {diagonal});
  AddRow(rows, "triu", 1, TriangleRule, {diagonal});
  AddRow(rows, "one_hot", 1, OneHotRule,
         {{"classes", AttrType::kInt, true}, {"dtype", AttrType::kDType, false, AttrValue(DType::kI64)}});
}

}  // namespace fuseline::ops
