// Composites: ops that are decomposed into primitive ones, so that they fuse like anything else.
// A decomposition computes 16-bit floats in f32: it widens its operands at the start and narrows its results at the end
// (`widen` and `narrow` do not round), so that under numerics = eager only the client's own results are rounded.
#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/ir/graph_builder.h"
#include "common/ir/ops/decomposition_emitter.h"
#include "common/ir/ops/op_rows.h"
#include "common/ir/ops/type_rules.h"
#include "common/status/error.h"
#include "common/status/status_macros.h"

namespace fuseline::ops {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

using Types = absl::StatusOr<std::vector<TensorType>>;
using Values = absl::StatusOr<std::vector<ValueId>>;

// --- Reductions. ---

Types FloatReductionRule(const InferArgs& args) {
  FUSELINE_RETURN_IF_ERROR(CheckDType(args.operands[0].dtype, DTypeSet::kFloats));
  FUSELINE_ASSIGN_OR_RETURN(const Shape shape, ReducedShape(args));
  return std::vector<TensorType>{TensorType::Make(args.operands[0].dtype, shape)};
}

// The root of p is a power of 1 / p, which must be a number of the dtype too.
Types NormRule(const InferArgs& args) {
  FUSELINE_ASSIGN_OR_RETURN(std::vector<TensorType> types, FloatReductionRule(args));
  const auto it = args.attrs.find(std::string_view("p"));
  const double* p = it == args.attrs.end() ? nullptr : std::get_if<double>(&it->second);
  Literal inverse;
  inverse.kind = Literal::Kind::kFloat;
  inverse.f = p == nullptr || *p == 0 ? 0 : 1.0 / *p;
  if (std::isinf(inverse.f) || !CheckLiteral(inverse, ComputeDType(args.operands[0].dtype)).ok()) {
    return InvalidArgument(ErrorReason::kGraphTypeMismatch, "",
                           absl::StrCat("attribute 'p': 1 / ", *p, " does not fit ",
                                        std::string(DTypeName(ComputeDType(args.operands[0].dtype)))));
  }
  return types;
}

Values DecomposeMean(GraphBuilder& builder, const Node& node, absl::Span<const ValueId> operands) {
  Emitter e(builder, node);
  const DType dtype = e.dtype(operands[0]);
  const ValueId x = e.Widen(operands[0]);
  return e.Done({e.Narrow(e.ok() ? e.Mean(x, e.Dims(x), e.Keepdim()) : kNoValue, dtype)});
}

ValueId Variance(Emitter& e, ValueId x) {
  if (!e.ok()) return kNoValue;
  const auto results = e.Results("var_mean", {Emitter::V(x)},
                                 {{"dims", e.Dims(x)}, {"keepdim", e.Keepdim()}, {"correction", e.Int("correction")}});
  return results.empty() ? kNoValue : results[0];
}

Values DecomposeVar(GraphBuilder& builder, const Node& node, absl::Span<const ValueId> operands) {
  Emitter e(builder, node);
  return e.Done({e.Narrow(Variance(e, e.Widen(operands[0])), e.dtype(operands[0]))});
}

Values DecomposeStd(GraphBuilder& builder, const Node& node, absl::Span<const ValueId> operands) {
  Emitter e(builder, node);
  const ValueId var = Variance(e, e.Widen(operands[0]));
  return e.Done({e.Narrow(e.Unary("sqrt", var), e.dtype(operands[0]))});
}

Values DecomposeLogsumexp(GraphBuilder& builder, const Node& node, absl::Span<const ValueId> operands) {
  Emitter e(builder, node);
  const DType dtype = e.dtype(operands[0]);
  const ValueId x = e.Widen(operands[0]);
  if (!e.ok()) return e.status();
  const std::vector<int64_t> dims = e.Dims(x);
  if (e.ReducedCount(x, dims) == 0) return e.Done({e.Full(e.ShapeAfter(x, dims, e.Keepdim()), -kInf, dtype)});
  const ValueId max = e.Reduce("amax", x, dims, true);
  // An infinite or NaN maximum is not subtracted: inf - inf would be NaN.
  const ValueId shift = e.Op("where", {Emitter::V(e.Unary("isfinite", max)), Emitter::V(max), Emitter::N(0.0)});
  const ValueId sum = e.Reduce("sum", e.Unary("exp", e.Sub(x, shift)), dims, true);
  return e.Done({e.Narrow(e.Kept(e.Add(e.Unary("log", sum), shift), x, dims), dtype)});
}

Values DecomposeNorm(GraphBuilder& builder, const Node& node, absl::Span<const ValueId> operands) {
  Emitter e(builder, node);
  const DType dtype = e.dtype(operands[0]);
  const ValueId x = e.Widen(operands[0]);
  if (!e.ok()) return e.status();
  const std::vector<int64_t> dims = e.Dims(x);
  const double p = e.Number("p");
  if (e.ReducedCount(x, dims) == 0) return e.Done({e.Full(e.ShapeAfter(x, dims, e.Keepdim()), 0.0, dtype)});
  const ValueId abs = e.Unary("abs", x);
  if (std::isinf(p)) return e.Done({e.Narrow(e.Reduce(p > 0 ? "amax" : "amin", abs, dims, e.Keepdim()), dtype)});
  if (p == 1) return e.Done({e.Narrow(e.Reduce("sum", abs, dims, e.Keepdim()), dtype)});
  if (p == 0) {
    // Counts what is not zero; a NaN stays one.
    const ValueId counted =
        e.Op("where", {Emitter::V(e.Unary("isnan", x)), Emitter::V(x),
                       Emitter::V(e.Op("cast", {Emitter::V(e.Op("ne", {Emitter::V(x), Emitter::N(0.0)}))},
                                       {{"dtype", e.dtype(x)}}))});
    return e.Done({e.Narrow(e.Reduce("sum", counted, dims, e.Keepdim()), dtype)});
  }
  const Operand one_over_p = Emitter::N(1.0 / p);
  if (p < 0) {
    const ValueId sum = e.Reduce("sum", e.Op("pow", {Emitter::V(abs), Emitter::N(p)}), dims, e.Keepdim());
    return e.Done({e.Narrow(e.Op("pow", {Emitter::V(sum), one_over_p}), dtype)});
  }
  // Scaled by the largest magnitude, so that no power overflows or vanishes. Where that is 0, inf or NaN the plain sum
  // is right.
  const ValueId max = e.Reduce("amax", abs, dims, true);
  const ValueId usable = e.Op("logical_and", {Emitter::V(e.Unary("isfinite", max)),
                                              Emitter::V(e.Op("gt", {Emitter::V(max), Emitter::N(0.0)}))});
  const ValueId scale = e.Op("where", {Emitter::V(usable), Emitter::V(max), Emitter::N(1.0)});
  const ValueId ratio = e.Div(abs, scale);
  const ValueId powers = p == 2 ? e.Unary("square", ratio) : e.Op("pow", {Emitter::V(ratio), Emitter::N(p)});
  const ValueId sum = e.Reduce("sum", powers, dims, true);
  const ValueId root = p == 2 ? e.Unary("sqrt", sum) : e.Op("pow", {Emitter::V(sum), one_over_p});
  return e.Done({e.Narrow(e.Kept(e.Mul(root, scale), x, dims), dtype)});
}

// --- Softmax. ---

Types SoftmaxRule(const InferArgs& args) {
  FUSELINE_RETURN_IF_ERROR(CheckDType(args.operands[0].dtype, DTypeSet::kFloats));
  FUSELINE_RETURN_IF_ERROR(NormalizeDim(args.Int("dim"), args.operands[0].rank()).status());
  return std::vector<TensorType>{TensorType::Make(args.operands[0].dtype, args.operands[0].shape())};
}

template <bool kLog>
Values DecomposeSoftmax(GraphBuilder& builder, const Node& node, absl::Span<const ValueId> operands) {
  Emitter e(builder, node);
  const DType dtype = e.dtype(operands[0]);
  const ValueId x = e.Widen(operands[0]);
  if (!e.ok()) return e.status();
  const std::vector<int64_t> dims = e.Dims(x);
  // amax of nothing is an error, and the result has no element.
  if (e.ReducedCount(x, dims) == 0) return e.Done({e.Full(e.shape(x), 0.0, dtype)});
  const ValueId shifted = e.Sub(x, e.Reduce("amax", x, dims, true));
  const ValueId exps = e.Unary("exp", shifted);
  const ValueId sum = e.Reduce("sum", exps, dims, true);
  // One division a row, then a product an element.
  const ValueId y = kLog ? e.Sub(shifted, e.Unary("log", sum)) : e.Mul(exps, e.Unary("reciprocal", sum));
  return e.Done({e.Narrow(y, dtype)});
}

// --- Normalisations. ---

absl::Status CheckParameters(const InferArgs& args, size_t first, const Shape& shape) {
  for (size_t i = first; i < args.operands.size(); ++i) {
    if (args.operands[i].shape() != shape) {
      return TypeError(absl::StrCat("operand ", i, " is ", args.operands[i].ToString(), ", not of shape ",
                                    TensorType::Make(args.operands[i].dtype, shape).ToString()));
    }
  }
  return absl::OkStatus();
}

Types LayerNormRule(const InferArgs& args) {
  const TensorType& x = args.operands[0];
  FUSELINE_RETURN_IF_ERROR(CheckDType(x.dtype, DTypeSet::kFloats));
  FUSELINE_RETURN_IF_ERROR(CheckEqualDTypes(args.operands));
  FUSELINE_ASSIGN_OR_RETURN(const std::vector<int64_t> dims, ReducedDims(args));
  const Shape sizes = x.shape();
  Shape normalized;
  for (int64_t d : dims) normalized.push_back(sizes[static_cast<size_t>(d)]);
  FUSELINE_RETURN_IF_ERROR(CheckParameters(args, 1, normalized));
  return std::vector<TensorType>{TensorType::Make(x.dtype, sizes)};
}

Values DecomposeLayerNorm(GraphBuilder& builder, const Node& node, absl::Span<const ValueId> operands) {
  Emitter e(builder, node);
  const ValueId x = e.Widen(operands[0]);
  if (!e.ok()) return e.status();
  const std::vector<int64_t> dims = e.Dims(x);
  const auto stats =
      e.Results("var_mean", {Emitter::V(x)}, {{"dims", dims}, {"keepdim", true}, {"correction", int64_t{0}}});
  if (!e.ok()) return e.status();
  const ValueId y = e.Affine(e.Normalize(x, stats[1], stats[0]), operands.subspan(1), dims);
  return e.Done({e.Narrow(y, e.dtype(operands[0]))});
}

Values DecomposeRmsNorm(GraphBuilder& builder, const Node& node, absl::Span<const ValueId> operands) {
  Emitter e(builder, node);
  const ValueId x = e.Widen(operands[0]);
  if (!e.ok()) return e.status();
  const std::vector<int64_t> dims = e.Dims(x);
  const ValueId mean = e.Mean(e.Unary("square", x), dims, true);
  const ValueId scaled = e.Mul(x, e.Unary("rsqrt", e.Op("add", {Emitter::V(mean), Emitter::N(e.Number("eps"))})));
  return e.Done({e.Narrow(e.Affine(scaled, operands.subspan(1), dims), e.dtype(operands[0]))});
}

absl::StatusOr<int64_t> ChannelCount(const TensorType& x) {
  if (x.rank() < 2) return TypeError(absl::StrCat("operand 0 is ", x.ToString(), ": dim 1 must be the channels"));
  return x.shape()[1];
}

Types GroupNormRule(const InferArgs& args) {
  const TensorType& x = args.operands[0];
  FUSELINE_RETURN_IF_ERROR(CheckDType(x.dtype, DTypeSet::kFloats));
  FUSELINE_RETURN_IF_ERROR(CheckEqualDTypes(args.operands));
  FUSELINE_ASSIGN_OR_RETURN(const int64_t channels, ChannelCount(x));
  const int64_t groups = args.Int("groups");
  if (groups < 1 || channels % groups != 0) {
    return TypeError(absl::StrCat(channels, " channels do not split into ", groups, " groups"));
  }
  FUSELINE_RETURN_IF_ERROR(CheckParameters(args, 1, {channels}));
  return std::vector<TensorType>{TensorType::Make(x.dtype, x.shape())};
}

Values DecomposeGroupNorm(GraphBuilder& builder, const Node& node, absl::Span<const ValueId> operands) {
  Emitter e(builder, node);
  const ValueId x = e.Widen(operands[0]);
  if (!e.ok()) return e.status();
  const Shape sizes = e.shape(x);
  const int64_t groups = e.Int("groups");
  Shape split = {sizes[0], groups, sizes[1] / groups};
  split.insert(split.end(), sizes.begin() + 2, sizes.end());
  std::vector<int64_t> dims;
  for (int64_t d = 2; d < static_cast<int64_t>(split.size()); ++d) dims.push_back(d);
  const ValueId grouped = e.Reshape(x, split);
  const auto stats =
      e.Results("var_mean", {Emitter::V(grouped)}, {{"dims", dims}, {"keepdim", true}, {"correction", int64_t{0}}});
  if (!e.ok()) return e.status();
  const ValueId y = e.Reshape(e.Normalize(grouped, stats[1], stats[0]), sizes);
  return e.Done({e.Narrow(e.Affine(y, operands.subspan(1), {1}), e.dtype(operands[0]))});
}

// A group for each channel.
Types InstanceNormRule(const InferArgs& args) {
  const TensorType& x = args.operands[0];
  FUSELINE_RETURN_IF_ERROR(CheckDType(x.dtype, DTypeSet::kFloats));
  FUSELINE_RETURN_IF_ERROR(CheckEqualDTypes(args.operands));
  FUSELINE_ASSIGN_OR_RETURN(const int64_t channels, ChannelCount(x));
  FUSELINE_RETURN_IF_ERROR(CheckParameters(args, 1, {channels}));
  return std::vector<TensorType>{TensorType::Make(x.dtype, x.shape())};
}

Values DecomposeInstanceNorm(GraphBuilder& builder, const Node& node, absl::Span<const ValueId> operands) {
  Emitter e(builder, node);
  const ValueId x = e.Widen(operands[0]);
  if (!e.ok()) return e.status();
  std::vector<int64_t> dims;
  for (int64_t d = 2; d < static_cast<int64_t>(e.shape(x).size()); ++d) dims.push_back(d);
  const auto stats =
      e.Results("var_mean", {Emitter::V(x)}, {{"dims", dims}, {"keepdim", true}, {"correction", int64_t{0}}});
  if (!e.ok()) return e.status();
  const ValueId y = e.Affine(e.Normalize(x, stats[1], stats[0]), operands.subspan(1), {1});
  return e.Done({e.Narrow(y, e.dtype(operands[0]))});
}

absl::StatusOr<int64_t> CheckBatchNorm(const InferArgs& args) {
  const TensorType& x = args.operands[0];
  FUSELINE_RETURN_IF_ERROR(CheckDType(x.dtype, DTypeSet::kFloats));
  FUSELINE_RETURN_IF_ERROR(CheckEqualDTypes(args.operands));
  FUSELINE_ASSIGN_OR_RETURN(const int64_t channels, ChannelCount(x));
  FUSELINE_RETURN_IF_ERROR(CheckParameters(args, 1, {channels}));
  return channels;
}

Types BatchNormRule(const InferArgs& args) {
  FUSELINE_RETURN_IF_ERROR(CheckBatchNorm(args).status());
  return std::vector<TensorType>{TensorType::Make(args.operands[0].dtype, args.operands[0].shape())};
}

// y, mean, var. The variance is the one that y is divided by: without correction.
Types BatchNormTrainRule(const InferArgs& args) {
  FUSELINE_ASSIGN_OR_RETURN(const int64_t channels, CheckBatchNorm(args));
  const DType dtype = args.operands[0].dtype;
  const TensorType channel_type = TensorType::Make(dtype, {channels});
  return std::vector<TensorType>{TensorType::Make(dtype, args.operands[0].shape()), channel_type, channel_type};
}

Values DecomposeBatchNorm(GraphBuilder& builder, const Node& node, absl::Span<const ValueId> operands) {
  Emitter e(builder, node);
  const ValueId x = e.Widen(operands[0]);
  const ValueId mean = e.Spread(e.Widen(operands[1]), x, {1});
  const ValueId var = e.Spread(e.Widen(operands[2]), x, {1});
  const ValueId y = e.Affine(e.Normalize(x, mean, var), operands.subspan(3), {1});
  return e.Done({e.Narrow(y, e.dtype(operands[0]))});
}

Values DecomposeBatchNormTrain(GraphBuilder& builder, const Node& node, absl::Span<const ValueId> operands) {
  Emitter e(builder, node);
  const DType dtype = e.dtype(operands[0]);
  const ValueId x = e.Widen(operands[0]);
  if (!e.ok()) return e.status();
  const Shape sizes = e.shape(x);
  std::vector<int64_t> dims;
  for (int64_t d = 0; d < static_cast<int64_t>(sizes.size()); ++d) {
    if (d != 1) dims.push_back(d);
  }
  const auto stats =
      e.Results("var_mean", {Emitter::V(x)}, {{"dims", dims}, {"keepdim", true}, {"correction", int64_t{0}}});
  if (!e.ok()) return e.status();
  const ValueId y = e.Affine(e.Normalize(x, stats[1], stats[0]), operands.subspan(1), {1});
  return e.Done({e.Narrow(y, dtype), e.Narrow(e.Reshape(stats[1], {sizes[1]}), dtype),
                 e.Narrow(e.Reshape(stats[0], {sizes[1]}), dtype)});
}

// --- Gated units. ---

Types GluRule(const InferArgs& args) {
  FUSELINE_RETURN_IF_ERROR(CheckDType(args.operands[0].dtype, DTypeSet::kFloats));
  FUSELINE_ASSIGN_OR_RETURN(const int64_t dim, NormalizeDim(args.Int("dim"), args.operands[0].rank()));
  Shape shape = args.operands[0].shape();
  int64_t& size = shape[static_cast<size_t>(dim)];
  if (size % 2 != 0) return TypeError(absl::StrCat("dim ", dim, " of size ", size, " does not split in two"));
  size /= 2;
  return std::vector<TensorType>{TensorType::Make(args.operands[0].dtype, shape)};
}

// The first half times the sigmoid of the second.
Values DecomposeGlu(GraphBuilder& builder, const Node& node, absl::Span<const ValueId> operands) {
  Emitter e(builder, node);
  const ValueId x = e.Widen(operands[0]);
  if (!e.ok()) return e.status();
  const int64_t dim = e.Dims(x)[0];
  const int64_t size = e.shape(x)[static_cast<size_t>(dim)];
  const auto part = [&](int64_t start, int64_t end) {
    return e.Op("slice", {Emitter::V(x)},
                {{"starts", std::vector<int64_t>{start}},
                 {"ends", std::vector<int64_t>{end}},
                 {"dims", std::vector<int64_t>{dim}}});
  };
  const ValueId value = part(0, size / 2);
  return e.Done({e.Narrow(e.Mul(value, e.Unary("sigmoid", part(size / 2, size))), e.dtype(operands[0]))});
}

// --- Losses. ---

Types MseLossRule(const InferArgs& args) {
  const std::string reduction = StringAttr(args.attrs, "reduction");
  if (reduction != "mean" && reduction != "sum" && reduction != "none") {
    return TypeError(
        absl::StrCat("attribute 'reduction' must be \"mean\", \"sum\" or \"none\", not \"", reduction, "\""));
  }
  FUSELINE_ASSIGN_OR_RETURN(std::vector<TensorType> types, SameTypeRule(args, DTypeSet::kFloats));
  if (reduction != "none") types[0] = TensorType::Make(types[0].dtype, {});
  return types;
}

Values DecomposeMseLoss(GraphBuilder& builder, const Node& node, absl::Span<const ValueId> operands) {
  Emitter e(builder, node);
  const DType dtype = e.dtype(operands[0]);
  const std::string reduction = StringAttr(node.attrs, "reduction");
  ValueId loss = e.Unary("square", e.Sub(e.Widen(operands[0]), e.Widen(operands[1])));
  if (!e.ok()) return e.status();
  if (reduction != "none") {
    std::vector<int64_t> dims;
    for (int64_t d = 0; d < static_cast<int64_t>(e.shape(loss).size()); ++d) dims.push_back(d);
    loss = reduction == "mean" ? e.Mean(loss, dims, false) : e.Reduce("sum", loss, dims, false);
  }
  return e.Done({e.Narrow(loss, dtype)});
}

void AddRow(std::vector<OpDef>& rows, const char* name, int min_operands, int max_operands, TypeRule infer,
            Decomposition decompose, std::vector<AttrSpec> attrs, int results = 1) {
  OpDef row;
  row.name = name;
  row.kind = OpKind::kComposite;
  row.min_operands = min_operands;
  row.max_operands = max_operands;
  row.results = results;
  row.infer = infer;
  row.decompose = decompose;
  row.attrs = std::move(attrs);
  rows.push_back(std::move(row));
}

}  // namespace

void AddCompositeRows(std::vector<OpDef>& rows) {
  const AttrSpec dims = {"dims", AttrType::kIntList};
  const AttrSpec dim = {"dim", AttrType::kInt, true};
  const AttrSpec keepdim = {"keepdim", AttrType::kBool, false, AttrValue(false)};
  const AttrSpec correction = {"correction", AttrType::kInt, false, AttrValue(int64_t{1})};
  const AttrSpec eps = {"eps", AttrType::kFloat, false, AttrValue(1e-5)};
  AddRow(rows, "mean", 1, 1, FloatReductionRule, DecomposeMean, {dims, keepdim});
  AddRow(rows, "var", 1, 1, FloatReductionRule, DecomposeVar, {dims, keepdim, correction});
  AddRow(rows, "std", 1, 1, FloatReductionRule, DecomposeStd, {dims, keepdim, correction});
  AddRow(rows, "logsumexp", 1, 1, FloatReductionRule, DecomposeLogsumexp, {dims, keepdim});
  AddRow(rows, "norm", 1, 1, NormRule, DecomposeNorm, {dims, keepdim, {"p", AttrType::kFloat, false, AttrValue(2.0)}});
  AddRow(rows, "softmax", 1, 1, SoftmaxRule, DecomposeSoftmax<false>, {dim});
  AddRow(rows, "log_softmax", 1, 1, SoftmaxRule, DecomposeSoftmax<true>, {dim});
  AddRow(rows, "layer_norm", 1, 3, LayerNormRule, DecomposeLayerNorm, {dims, eps});
  AddRow(rows, "rms_norm", 1, 2, LayerNormRule, DecomposeRmsNorm, {dims, eps});
  AddRow(rows, "group_norm", 1, 3, GroupNormRule, DecomposeGroupNorm, {{"groups", AttrType::kInt, true}, eps});
  AddRow(rows, "instance_norm", 1, 3, InstanceNormRule, DecomposeInstanceNorm, {eps});
  AddRow(rows, "glu", 1, 1, GluRule, DecomposeGlu, {{"dim", AttrType::kInt, false, AttrValue(int64_t{-1})}});
  AddRow(rows, "batch_norm", 3, 5, BatchNormRule, DecomposeBatchNorm, {eps});
  AddRow(rows, "batch_norm_train", 1, 3, BatchNormTrainRule, DecomposeBatchNormTrain, {eps}, 3);
  AddRow(rows, "mse_loss", 2, 2, MseLossRule, DecomposeMseLoss,
         {{"reduction", AttrType::kString, false, AttrValue(std::string("mean"))}});
}

}  // namespace fuseline::ops
