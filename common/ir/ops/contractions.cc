// Contractions: sums of products.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/ir/ops/attention.h"
#include "common/ir/ops/einsum_equation.h"
#include "common/ir/ops/op_rows.h"
#include "common/ir/ops/type_rules.h"
#include "common/ir/ops/window_geometry.h"
#include "common/status/error.h"
#include "common/status/status_macros.h"

namespace fuseline::ops {
namespace {

using Types = absl::StatusOr<std::vector<TensorType>>;

// Products that one op may take; more than 2^60 would overflow the loops' counters.
constexpr int64_t kMaxProducts = int64_t{1} << 60;
constexpr int kMaxEinsumOperands = 16;

// The dtype of the result: the operands', or attribute dtype.
absl::StatusOr<DType> ProductDType(const InferArgs& args, size_t factors) {
  const DType from = args.operands[0].dtype;
  if (!IsFloat(from) && !IsInteger(from)) {
    return TypeError(absl::StrCat("takes floats and integers, not ", NameOf(from)));
  }
  FUSELINE_RETURN_IF_ERROR(
      CheckEqualDTypes(std::vector<TensorType>(args.operands.begin(), args.operands.begin() + factors)));
  if (!args.HasAttr("dtype")) {
    if (IsF8(from)) {
      return TypeError(absl::StrCat("operands are ", NameOf(from), ": attribute 'dtype' must name the result's dtype"));
    }
    return from;
  }
  const DType to = args.Type("dtype");
  FUSELINE_RETURN_IF_ERROR(Wrap(CheckDType(to, DTypeSet::kNumbers), "attribute 'dtype'"));
  if (IsFloat(from) != IsFloat(to)) {
    return TypeError(absl::StrCat("attribute 'dtype': products of ", NameOf(from), " are not summed in ", NameOf(to),
                                  ": cast first"));
  }
  return to;
}

absl::Status CheckProducts(const Shape& kept, const Shape& reduced, const GraphLimits& limits) {
  FUSELINE_RETURN_IF_ERROR(CheckShape(kept, limits));
  int64_t count = 1;
  for (const Shape* shape : {&kept, &reduced}) {
    for (int64_t size : *shape) {
      if (size <= 1) continue;
      if (count > kMaxProducts / size) {
        return InvalidArgument(ErrorReason::kLimitExceeded, "", "the number of products is above the limit 2^60");
      }
      count *= size;
    }
  }
  return absl::OkStatus();
}

absl::Status CheckBias(const InferArgs& args, DType to, int64_t channels) {
  if (args.operands.size() < 3) return absl::OkStatus();
  const TensorType want = TensorType::Make(to, {channels});
  if (args.operands[2].dtype != to || args.operands[2].shape() != Shape{channels}) {
    return TypeError(absl::StrCat("the bias is ", args.operands[2].ToString(), ", not ", want.ToString()));
  }
  return absl::OkStatus();
}

Types MatmulRule(const InferArgs& args) {
  FUSELINE_ASSIGN_OR_RETURN(const DType to, ProductDType(args, 2));
  const Shape a = args.operands[0].shape();
  const Shape b = args.operands[1].shape();
  if (a.empty() || b.empty()) return TypeError("operands must have a dim at least");
  const int64_t k = a.back();
  const int64_t k_of_b = b.size() == 1 ? b[0] : b[b.size() - 2];
  if (k != k_of_b) {
    return TypeError(absl::StrCat("shapes [", absl::StrJoin(a, ", "), "] and [", absl::StrJoin(b, ", "),
                                  "] do not multiply: ", k, " columns and ", k_of_b, " rows"));
  }
  const auto batch = [](const Shape& s) { return s.size() < 2 ? Shape{} : Shape(s.begin(), s.end() - 2); };
  FUSELINE_ASSIGN_OR_RETURN(Shape shape, BroadcastShapes({batch(a), batch(b)}));
  if (a.size() > 1) shape.push_back(a[a.size() - 2]);
  if (b.size() > 1) shape.push_back(b.back());
  FUSELINE_RETURN_IF_ERROR(CheckProducts(shape, {k}, args.limits));
  return std::vector<TensorType>{TensorType::Make(to, shape)};
}

Types LinearRule(const InferArgs& args) {
  FUSELINE_ASSIGN_OR_RETURN(const DType to, ProductDType(args, 2));
  Shape shape = args.operands[0].shape();
  const Shape weight = args.operands[1].shape();
  if (shape.empty() || weight.size() != 2 || shape.back() != weight[1]) {
    return TypeError(absl::StrCat("the weight is ", args.operands[1].ToString(), ", not [out, in] for an operand ",
                                  args.operands[0].ToString()));
  }
  FUSELINE_RETURN_IF_ERROR(CheckBias(args, to, weight[0]));
  shape.back() = weight[0];
  FUSELINE_RETURN_IF_ERROR(CheckProducts(shape, {weight[1]}, args.limits));
  return std::vector<TensorType>{TensorType::Make(to, shape)};
}

Types EinsumRule(const InferArgs& args) {
  FUSELINE_ASSIGN_OR_RETURN(const DType to, ProductDType(args, args.operands.size()));
  std::vector<Shape> shapes;
  for (const TensorType& type : args.operands) shapes.push_back(type.shape());
  FUSELINE_ASSIGN_OR_RETURN(const EinsumPlan plan, ParseEinsum(StringAttr(args.attrs, "equation"), shapes));
  Shape shape;
  for (int32_t label : plan.result) shape.push_back(plan.sizes[static_cast<size_t>(label)]);
  FUSELINE_RETURN_IF_ERROR(CheckShape(shape, args.limits));
  // Every partial product runs over some of the labels.
  FUSELINE_RETURN_IF_ERROR(CheckProducts({}, plan.sizes, args.limits));
  for (size_t k = 1; k + 1 < plan.operands.size(); ++k) {
    Shape partial;
    for (int32_t label : PartialLabels(plan, k)) partial.push_back(plan.sizes[static_cast<size_t>(label)]);
    GraphLimits limits = args.limits;
    limits.max_rank = static_cast<int64_t>(plan.sizes.size());
    FUSELINE_RETURN_IF_ERROR(Wrap(CheckShape(partial, limits), absl::StrCat("the product of operands 0 to ", k)));
  }
  return std::vector<TensorType>{TensorType::Make(to, shape)};
}

absl::StatusOr<int64_t> CheckChannels(const InferArgs& args, const char* name, size_t input_dim) {
  const Shape x = args.operands[0].shape();
  const Shape w = args.operands[1].shape();
  if (x.size() < 3 || x.size() > 5 || w.size() != x.size()) {
    return TypeError(absl::StrCat("operands are ", args.operands[0].ToString(), " and ", args.operands[1].ToString(),
                                  ", not [batch, channels, …] and ", name, " with 1 to 3 spatial dims"));
  }
  const int64_t groups = args.Int("groups");
  if (groups < 1) return TypeError(absl::StrCat("attribute 'groups': ", groups, " is not positive"));
  const bool transposed = input_dim == 0;
  const int64_t channels = x[1];
  const bool fits = transposed ? w[0] == channels && channels % groups == 0
                               : channels % groups == 0 && w[1] == channels / groups && w[0] % groups == 0;
  if (!fits) {
    return TypeError(absl::StrCat("a weight ", args.operands[1].ToString(), " does not fit ", channels, " channels in ",
                                  groups, " groups"));
  }
  return groups;
}

Shape SpatialOf(const Shape& shape) { return Shape(shape.begin() + 2, shape.end()); }

Types ConvRule(const InferArgs& args) {
  FUSELINE_ASSIGN_OR_RETURN(const DType to, ProductDType(args, 2));
  FUSELINE_RETURN_IF_ERROR(CheckChannels(args, "[out, channels / groups, …]", 1).status());
  const Shape x = args.operands[0].shape();
  const Shape w = args.operands[1].shape();
  FUSELINE_RETURN_IF_ERROR(CheckBias(args, to, w[0]));
  FUSELINE_ASSIGN_OR_RETURN(const std::vector<WindowDim> window, SlidingWindow(args.attrs, SpatialOf(x), SpatialOf(w),
                                                                               std::vector<int64_t>(x.size() - 2, 1)));
  Shape shape = {x[0], w[0]};
  for (const WindowDim& d : window) shape.push_back(d.output);
  FUSELINE_RETURN_IF_ERROR(CheckProducts(shape, Shape(w.begin() + 1, w.end()), args.limits));
  return std::vector<TensorType>{TensorType::Make(to, shape)};
}

Types ConvTransposeRule(const InferArgs& args) {
  FUSELINE_ASSIGN_OR_RETURN(const DType to, ProductDType(args, 2));
  FUSELINE_ASSIGN_OR_RETURN(const int64_t groups, CheckChannels(args, "[channels, out / groups, …]", 0));
  const Shape x = args.operands[0].shape();
  const Shape w = args.operands[1].shape();
  if (w[1] > 0 && groups > args.limits.max_elements / w[1]) {
    return InvalidArgument(ErrorReason::kLimitExceeded, "", "the result has too many channels");
  }
  const int64_t channels = w[1] * groups;
  FUSELINE_RETURN_IF_ERROR(CheckBias(args, to, channels));
  FUSELINE_ASSIGN_OR_RETURN(const std::vector<WindowDim> window,
                            TransposedWindow(args.attrs, SpatialOf(x), SpatialOf(w)));
  Shape shape = {x[0], channels};
  for (const WindowDim& d : window) shape.push_back(d.output);
  Shape reduced = SpatialOf(w);
  reduced.push_back(w[0] / groups);
  FUSELINE_RETURN_IF_ERROR(CheckProducts(shape, reduced, args.limits));
  return std::vector<TensorType>{TensorType::Make(to, shape)};
}

void AddRow(std::vector<OpDef>& rows, const char* name, int min_operands, int max_operands, TypeRule infer,
            std::vector<AttrSpec> attrs) {
  OpDef row;
  row.name = name;
  row.kind = OpKind::kContraction;
  row.min_operands = min_operands;
  row.max_operands = max_operands;
  row.infer = infer;
  row.attrs = std::move(attrs);
  row.attrs.push_back({"dtype", AttrType::kDType});
  rows.push_back(std::move(row));
}

}  // namespace

void AddContractionRows(std::vector<OpDef>& rows) {
  const AttrSpec strides = {"strides", AttrType::kIntList};
  const AttrSpec padding = {"padding", AttrType::kIntList};
  const AttrSpec dilation = {"dilation", AttrType::kIntList};
  const AttrSpec groups = {"groups", AttrType::kInt, false, AttrValue(int64_t{1})};
  AddRow(rows, "matmul", 2, 2, MatmulRule, {});
  AddRow(rows, "linear", 2, 3, LinearRule, {});
  AddRow(rows, "einsum", 1, kMaxEinsumOperands, EinsumRule, {{"equation", AttrType::kString, true}});
  AddRow(rows, "conv", 2, 3, ConvRule, {strides, padding, dilation, groups});
  AddRow(rows, "conv_transpose", 2, 3, ConvTransposeRule,
         {strides, padding, {"output_padding", AttrType::kIntList}, dilation, groups});
  AddAttentionRow(rows);
}

}  // namespace fuseline::ops
