// softmax(scale q k^T + mask) v by rows. The division by the softmax's sum comes after the product with v, where there
// is less to divide; a row that is masked everywhere has the sum 0 and gives 0.
#include "common/ir/ops/attention.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/ir/ops/decomposition_emitter.h"
#include "common/ir/ops/type_rules.h"
#include "common/status/error.h"
#include "common/status/status_macros.h"

namespace fuseline::ops {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
// Grouped heads take a dim more than the operands have.
constexpr size_t kHeadsFromEnd = 3;

using Types = absl::StatusOr<std::vector<TensorType>>;
using Values = absl::StatusOr<std::vector<ValueId>>;

Shape BatchOf(const Shape& shape) { return Shape(shape.begin(), shape.end() - 2); }

// Query heads for each head of k and v, where there are several; 1 where the batch dims broadcast as they are.
int64_t HeadGroup(const Shape& q, const Shape& k) {
  if (q.size() < kHeadsFromEnd || k.size() < kHeadsFromEnd) return 1;
  const int64_t query_heads = q[q.size() - kHeadsFromEnd];
  const int64_t heads = k[k.size() - kHeadsFromEnd];
  return heads > 1 && query_heads > heads && query_heads % heads == 0 ? query_heads / heads : 1;
}

// The heads of k or v repeated for each query head of their group, as far as shapes are concerned.
Shape RepeatedHeads(Shape shape, int64_t group) {
  if (group > 1) shape[shape.size() - kHeadsFromEnd] *= group;
  return shape;
}

absl::StatusOr<Shape> ScoresShape(const InferArgs& args, int64_t group) {
  const Shape q = args.operands[0].shape();
  const Shape k = RepeatedHeads(args.operands[1].shape(), group);
  const Shape v = RepeatedHeads(args.operands[2].shape(), group);
  FUSELINE_ASSIGN_OR_RETURN(Shape scores, BroadcastShapes({BatchOf(q), BatchOf(k), BatchOf(v)}));
  scores.push_back(q[q.size() - 2]);
  scores.push_back(k[k.size() - 2]);
  return scores;
}

Types AttentionRule(const InferArgs& args) {
  const DType dtype = args.operands[0].dtype;
  FUSELINE_RETURN_IF_ERROR(CheckDType(dtype, DTypeSet::kFloats));
  FUSELINE_RETURN_IF_ERROR(CheckEqualDTypes(std::vector<TensorType>(args.operands.begin(), args.operands.begin() + 3)));
  const Shape q = args.operands[0].shape();
  const Shape k = args.operands[1].shape();
  const Shape v = args.operands[2].shape();
  const auto types = [&] {
    return absl::StrCat(args.operands[0].ToString(), ", ", args.operands[1].ToString(), " and ",
                        args.operands[2].ToString());
  };
  if (q.size() < 2 || k.size() < 2 || v.size() < 2 || q.back() != k.back() || k[k.size() - 2] != v[v.size() - 2]) {
    return TypeError(absl::StrCat("operands are ", types(), ", not […, l, d], […, s, d] and […, s, e]"));
  }
  const int64_t group = HeadGroup(q, k);
  if (group > 1 && (v.size() < kHeadsFromEnd || v[v.size() - kHeadsFromEnd] != k[k.size() - kHeadsFromEnd])) {
    return TypeError(absl::StrCat("operands are ", types(), ": k and v have other numbers of heads"));
  }
  // Decomposing adds a dim for the group.
  if (group > 1 && static_cast<int64_t>(std::max({q.size(), k.size(), v.size()})) >= args.limits.max_rank) {
    return InvalidArgument(ErrorReason::kLimitExceeded, "", "grouped heads need a rank below the limit");
  }
  FUSELINE_ASSIGN_OR_RETURN(const Shape scores, ScoresShape(args, group));
  FUSELINE_RETURN_IF_ERROR(Wrap(CheckShape(scores, args.limits), "scores"));
  if (args.operands.size() > 3) {
    const TensorType& mask = args.operands[3];
    if (!IsBool(mask.dtype) && mask.dtype != dtype) {
      return TypeError(absl::StrCat("the mask is ", mask.ToString(), ", not bool or ", NameOf(dtype)));
    }
    FUSELINE_ASSIGN_OR_RETURN(const Shape masked, BroadcastShapes({scores, mask.shape()}));
    if (masked != scores) {
      return TypeError(absl::StrCat("the mask ", mask.ToString(), " does not broadcast to the scores [",
                                    absl::StrJoin(scores, ", "), "]"));
    }
  }
  FUSELINE_RETURN_IF_ERROR(CheckAttrHolds(args, "scale", ComputeDType(dtype)));
  Shape result = scores;
  result.back() = v.back();
  FUSELINE_RETURN_IF_ERROR(CheckShape(result, args.limits));
  // Each of the two products sums over the other's last dim.
  for (int64_t size : {q.back(), v.back()}) {
    const int64_t count = std::max<int64_t>(ElementCount(scores), 1);
    if (size > 1 && count > (int64_t{1} << 60) / size) {
      return InvalidArgument(ErrorReason::kLimitExceeded, "", "the number of products is above the limit 2^60");
    }
  }
  return std::vector<TensorType>{TensorType::Make(dtype, result)};
}

// […, heads, a, b] as […, heads / group, group, a, b]; one head as one group of one.
Shape Grouped(const Shape& shape, int64_t group) {
  Shape out = shape;
  const size_t heads = shape.size() - kHeadsFromEnd;
  const bool whole = shape[heads] != 1;
  out[heads] = whole ? shape[heads] / group : 1;
  out.insert(out.begin() + static_cast<int64_t>(heads) + 1, whole ? group : 1);
  return out;
}

Values DecomposeAttention(GraphBuilder& builder, const Node& node, absl::Span<const ValueId> operands) {
  Emitter s(builder, node);
  const auto v_ = Emitter::V;
  ValueId q = operands[0], k = operands[1], v = operands[2];
  const DType dtype = s.dtype(q);
  const DType compute = ComputeDType(dtype);
  const Shape plain_q = s.shape(q), plain_k = s.shape(k), plain_v = s.shape(v);
  const int64_t depth = plain_q.back();
  const int64_t group = HeadGroup(plain_q, plain_k);
  const AttrMap in_compute = {{"dtype", compute}};
  if (group > 1) {
    q = s.Reshape(q, Grouped(plain_q, group));
    Shape shared = plain_k;
    shared.insert(shared.end() - 2, 1);
    k = s.Reshape(k, shared);
    shared = plain_v;
    shared.insert(shared.end() - 2, 1);
    v = s.Reshape(v, shared);
  }
  const ValueId keys = s.Op("transpose", {v_(k)}, {{"dim0", int64_t{-1}}, {"dim1", int64_t{-2}}});
  ValueId scores = s.Op("matmul", {v_(q), v_(keys)}, in_compute);
  const auto given = node.attrs.find("scale");
  double scale = 1.0 / std::sqrt(static_cast<double>(std::max<int64_t>(depth, 1)));
  if (given != node.attrs.end()) {
    const auto* number = std::get_if<double>(&given->second);
    scale = number != nullptr ? *number : static_cast<double>(std::get<int64_t>(given->second));
  }
  scores = s.Op("mul", {v_(scores), Emitter::N(scale)});
  if (!s.ok()) return s.status();
  const Shape sizes = s.shape(scores);
  const int64_t rows = sizes[sizes.size() - 2], columns = sizes.back();
  if (operands.size() > 3) {
    ValueId mask = operands[3];
    const Shape plain = s.shape(mask);
    if (group > 1 && plain.size() >= kHeadsFromEnd) mask = s.Reshape(mask, Grouped(plain, group));
    if (!s.ok()) return s.status();
    if (IsBool(s.dtype(mask))) {
      scores = s.Op("where", {v_(mask), v_(scores), Emitter::N(-kInf)});
    } else {
      scores = s.Add(scores, s.Widen(mask));
    }
  }
  const auto causal = node.attrs.find("causal");
  if (causal != node.attrs.end() && std::get<bool>(causal->second)) {
    const auto position = [&](int64_t dim) {
      return s.Op("iota", {}, {{"shape", Shape{rows, columns}}, {"dim", dim}, {"dtype", DType::kI64}});
    };
    const ValueId seen = s.Op("ge", {v_(position(0)), v_(position(1))});
    scores = s.Op("where", {v_(seen), v_(scores), Emitter::N(-kInf)});
  }
  ValueId out = kNoValue;
  if (columns == 0) {
    // amax of nothing is an error; a sum over nothing is 0.
    out = s.Op("matmul", {v_(scores), v_(v)}, in_compute);
  } else {
    const ValueId max = s.Reduce("amax", scores, {-1}, true);
    // A row of -inf alone is not shifted: -inf - -inf would be NaN.
    const ValueId nothing = s.Op("eq", {v_(max), Emitter::N(-kInf)});
    const ValueId shift = s.Op("where", {v_(nothing), Emitter::N(0.0), v_(max)});
    const ValueId weights = s.Unary("exp", s.Sub(scores, shift));
    const ValueId sum = s.Reduce("sum", weights, {-1}, true);
    const ValueId divisor = s.Op("where", {v_(nothing), Emitter::N(1.0), v_(sum)});
    // As a product's operand it is rounded, which a cast does.
    if (IsHalf(dtype)) v = s.Op("cast", {v_(v)}, in_compute);
    out = s.Mul(s.Op("matmul", {v_(weights), v_(v)}), s.Unary("reciprocal", divisor));
  }
  if (group > 1 && s.ok()) {
    Shape joined = s.shape(out);
    const size_t heads = joined.size() - kHeadsFromEnd - 1;
    joined[heads] *= joined[heads + 1];
    joined.erase(joined.begin() + static_cast<int64_t>(heads) + 1);
    out = s.Reshape(out, joined);
  }
  return s.Done({s.Narrow(out, dtype)});
}

}  // namespace

void AddAttentionRow(std::vector<OpDef>& rows) {
  OpDef row;
  row.name = "attention";
  row.kind = OpKind::kComposite;
  row.min_operands = 3;
  row.max_operands = 4;
  row.infer = AttentionRule;
  row.decompose = DecomposeAttention;
  row.attrs = {{"scale", AttrType::kFloat}, {"causal", AttrType::kBool, false, AttrValue(false)}};
  rows.push_back(std::move(row));
}

}  // namespace fuseline::ops
