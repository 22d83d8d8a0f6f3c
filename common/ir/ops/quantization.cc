// Linear quantisation, for a tensor as a whole or for each index of one dim: composites, so that they fuse with what
// makes the value and with what reads it.
//   quantize(x)   = saturate(round_half_even(x / scale) + zero_point), NaN gives 0; f8: the cast of x / scale
//   dequantize(q) = (q - zero_point) * scale
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/ir/graph_builder.h"
#include "common/ir/ops/op_rows.h"
#include "common/ir/ops/type_rules.h"
#include "common/ir/type_limits.h"
#include "common/status/status_macros.h"

namespace fuseline::ops {
namespace {

using Types = absl::StatusOr<std::vector<TensorType>>;
using Values = absl::StatusOr<std::vector<ValueId>>;

Operand V(ValueId id) { return GraphBuilder::Value(id); }

absl::Status CheckStored(DType dtype, const std::string& what) {
  if (IsF8(dtype) || dtype == DType::kI8 || dtype == DType::kU8 || dtype == DType::kI16 || dtype == DType::kI32)
    return absl::OkStatus();
  return TypeError(absl::StrCat(what, " must be i8, u8, i16, i32, f8e4m3 or f8e5m2, not ", NameOf(dtype)));
}

// Scale and zero point: 0-d, or 1-d with the size of the dim `axis`.
absl::Status CheckParameters(const InferArgs& args, DType stored) {
  const TensorType& x = args.operands[0];
  const TensorType& scale = args.operands[1];
  FUSELINE_RETURN_IF_ERROR(CheckDType(scale.dtype, DTypeSet::kFloats));
  if (args.HasAttr("axis")) FUSELINE_RETURN_IF_ERROR(NormalizeDim(args.Int("axis"), x.rank()).status());
  Shape wanted;
  if (scale.rank() != 0) {
    if (!args.HasAttr("axis")) {
      return TypeError(absl::StrCat("the scale is ", scale.ToString(), ": attribute 'axis' must name its dim"));
    }
    FUSELINE_ASSIGN_OR_RETURN(const int64_t axis, NormalizeDim(args.Int("axis"), x.rank()));
    wanted = {x.shape()[static_cast<size_t>(axis)]};
  }
  for (size_t i = 1; i < args.operands.size(); ++i) {
    if (args.operands[i].shape() == wanted) continue;
    return TypeError(absl::StrCat("operand ", i, " is ", args.operands[i].ToString(), ", not of shape ",
                                  TensorType::Make(args.operands[i].dtype, wanted).ToString()));
  }
  if (args.operands.size() < 3) return absl::OkStatus();
  if (IsF8(stored)) return TypeError(absl::StrCat(NameOf(stored), " takes no zero point"));
  if (args.operands[2].dtype != stored) {
    return TypeError(absl::StrCat("the zero point is ", NameOf(args.operands[2].dtype), ", not ", NameOf(stored)));
  }
  return absl::OkStatus();
}

Types QuantizeRule(const InferArgs& args) {
  const TensorType& x = args.operands[0];
  FUSELINE_RETURN_IF_ERROR(CheckDType(x.dtype, DTypeSet::kFloats));
  if (args.operands[1].dtype != x.dtype) {
    return TypeError(absl::StrCat("the scale is ", NameOf(args.operands[1].dtype), ", the operand ", NameOf(x.dtype)));
  }
  FUSELINE_RETURN_IF_ERROR(CheckStored(args.Type("dtype"), "attribute 'dtype'"));
  FUSELINE_RETURN_IF_ERROR(CheckParameters(args, args.Type("dtype")));
  return std::vector<TensorType>{TensorType::Make(args.Type("dtype"), x.shape())};
}

Types DequantizeRule(const InferArgs& args) {
  const TensorType& q = args.operands[0];
  FUSELINE_RETURN_IF_ERROR(CheckStored(q.dtype, "operand 0"));
  FUSELINE_RETURN_IF_ERROR(CheckParameters(args, q.dtype));
  DType dtype = args.operands[1].dtype;
  if (args.HasAttr("dtype")) dtype = args.Type("dtype");
  FUSELINE_RETURN_IF_ERROR(CheckDType(dtype, DTypeSet::kFloats));
  return std::vector<TensorType>{TensorType::Make(dtype, q.shape())};
}

// f16 and bf16 as f32, with no rounding.
absl::StatusOr<ValueId> Widen(GraphBuilder& b, ValueId x) {
  return IsHalf(b.type(x).dtype) ? b.Add("widen", {V(x)}) : x;
}

absl::StatusOr<ValueId> Cast(GraphBuilder& b, ValueId x, DType dtype) {
  return b.type(x).dtype == dtype ? x : b.Add("cast", {V(x)}, {{"dtype", dtype}});
}

// A 1-d parameter as something that broadcasts along the node's `axis` of `x`.
absl::StatusOr<ValueId> Spread(GraphBuilder& b, const Node& node, ValueId parameter, ValueId x) {
  if (b.type(parameter).rank() == 0) return parameter;
  FUSELINE_ASSIGN_OR_RETURN(const int64_t axis,
                            NormalizeDim(std::get<int64_t>(node.attrs.find("axis")->second), b.type(x).rank()));
  Shape shape(static_cast<size_t>(b.type(x).rank()), 1);
  shape[static_cast<size_t>(axis)] = b.type(x).shape()[static_cast<size_t>(axis)];
  return b.Add("reshape", {V(parameter)}, {{"shape", shape}});
}

Values DecomposeQuantize(GraphBuilder& b, const Node& node, absl::Span<const ValueId> operands) {
  const DType stored = std::get<DType>(node.attrs.find("dtype")->second);
  FUSELINE_ASSIGN_OR_RETURN(const ValueId x, Widen(b, operands[0]));
  FUSELINE_ASSIGN_OR_RETURN(ValueId scale, Widen(b, operands[1]));
  FUSELINE_ASSIGN_OR_RETURN(scale, Spread(b, node, scale, x));
  FUSELINE_ASSIGN_OR_RETURN(ValueId y, b.Add("div", {V(x), V(scale)}));
  if (!IsF8(stored)) {
    FUSELINE_ASSIGN_OR_RETURN(y, b.Add("round", {V(y)}));
    if (operands.size() > 2) {
      // f32 holds every sum that does not saturate for 16 bits, f64 for 32.
      if (stored == DType::kI32) {
        FUSELINE_ASSIGN_OR_RETURN(y, Cast(b, y, DType::kF64));
      }
      FUSELINE_ASSIGN_OR_RETURN(ValueId zero_point, Cast(b, operands[2], b.type(y).dtype));
      FUSELINE_ASSIGN_OR_RETURN(zero_point, Spread(b, node, zero_point, x));
      FUSELINE_ASSIGN_OR_RETURN(y, b.Add("add", {V(y), V(zero_point)}));
    }
  }
  FUSELINE_ASSIGN_OR_RETURN(y, Cast(b, y, stored));  // saturates
  return std::vector<ValueId>{y};
}

Values DecomposeDequantize(GraphBuilder& b, const Node& node, absl::Span<const ValueId> operands) {
  FUSELINE_ASSIGN_OR_RETURN(ValueId scale, Widen(b, operands[1]));
  FUSELINE_ASSIGN_OR_RETURN(scale, Spread(b, node, scale, operands[0]));
  ValueId y = operands[0];
  const DType compute = b.type(scale).dtype;
  if (operands.size() > 2) {
    // The difference is exact: in i64 for i32, in f32 for what is narrower.
    const DType difference = b.type(y).dtype == DType::kI32 ? DType::kI64 : compute;
    FUSELINE_ASSIGN_OR_RETURN(y, Cast(b, y, difference));
    FUSELINE_ASSIGN_OR_RETURN(ValueId zero_point, Cast(b, operands[2], difference));
    FUSELINE_ASSIGN_OR_RETURN(zero_point, Spread(b, node, zero_point, y));
    FUSELINE_ASSIGN_OR_RETURN(y, b.Add("sub", {V(y), V(zero_point)}));
  }
  FUSELINE_ASSIGN_OR_RETURN(y, Cast(b, y, compute));
  FUSELINE_ASSIGN_OR_RETURN(y, b.Add("mul", {V(y), V(scale)}));
  const auto given = node.attrs.find("dtype");
  const DType dtype = given == node.attrs.end() ? b.type(operands[1]).dtype : std::get<DType>(given->second);
  if (IsHalf(dtype) && compute == DType::kF32) {
    FUSELINE_ASSIGN_OR_RETURN(y, b.Add("narrow", {V(y)}, {{"dtype", dtype}}));
  } else {
    FUSELINE_ASSIGN_OR_RETURN(y, Cast(b, y, dtype));
  }
  return std::vector<ValueId>{y};
}

OpDef Row(const char* name, TypeRule infer, Decomposition decompose, bool dtype_required) {
  OpDef row;
  row.name = name;
  row.kind = OpKind::kComposite;
  row.min_operands = 2;
  row.max_operands = 3;
  row.infer = infer;
  row.decompose = decompose;
  row.attrs = {{"dtype", AttrType::kDType, dtype_required}, {"axis", AttrType::kInt}};
  return row;
}

}  // namespace

void AddQuantizationRows(std::vector<OpDef>& rows) {
  rows.push_back(Row("quantize", QuantizeRule, DecomposeQuantize, true));
  rows.push_back(Row("dequantize", DequantizeRule, DecomposeDequantize, false));
}

}  // namespace fuseline::ops
