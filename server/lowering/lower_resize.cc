// resize as one loop nest: the positions along each dim are computed in the body, in f64, and each element reads its 1,
// 2 or 4 neighbours along every resized dim. Where whole numbers say the same, nearest positions are index maps, and a
// resize of nothing else is a view. Tested by tests/unit/lowering/lower_resize_test.cc
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/ir/ops/resize.h"
#include "server/lowering/lower_op_kinds.h"

namespace fuseline::lowering {
namespace {

const std::string& StringOf(const Node& node, const char* name) {
  return std::get<std::string>(node.attrs.find(name)->second);
}

// The neighbours along one dim.
struct Taps {
  std::vector<IndexExpr> positions;
  std::vector<Scalar> weights;  // as many; none: the one neighbour as it is
};

class Resizing {
 public:
  Resizing(LoweringContext& context, NodeId id)
      : context_(context),
        node_(context.node(id)),
        id_(id),
        from_(context.shape(node_.operands[0].value)),
        n_(context.StartNode(id, context.shape(node_.results[0]))),
        mode_(StringOf(node_, "mode")),
        coordinates_(StringOf(node_, "coordinate_transformation_mode")),
        rounding_(StringOf(node_, "nearest_mode")),
        compute_(ComputeDType(context.dtype(node_.results[0]))) {}

  void Run() {
    const bool empty = ElementCount(n_.domain) == 0;
    const std::vector<IndexExpr> own = IdentityIndex(n_.domain);
    std::vector<Taps> taps(own.size());
    for (size_t d = 0; d < own.size(); ++d) {
      const ops::ResizedDim dim = ops::ResizedDimOf(from_, node_.attrs, d);
      if (!dim.is_resized() || empty) {
        taps[d].positions = {empty ? IndexExpr() : own[d]};
      } else if (mode_ == "nearest") {
        taps[d].positions = {Nearest(dim, own[d])};
      } else {
        taps[d] = mode_ == "linear" ? Linear(dim, own[d]) : Cubic(dim, own[d]);
      }
    }
    const ValueId result = node_.results[0];
    if (mode_ == "nearest" && n_.values.empty()) return FinishAsView(taps);
    const Scalar out = Combine(taps);
    n_.body = builder_.instrs();
    n_.result = out.id;
    context_.SetResult(result, context_.AddComputed(std::move(n_), context_.dtype(result), context_.shape(result),
                                                    context_.graph().value(result).name));
  }

 private:
  void FinishAsView(const std::vector<Taps>& taps) {
    const ValueId from = node_.operands[0].value;
    const ValueId result = node_.results[0];
    std::vector<IndexExpr> map;
    for (const Taps& t : taps) map.push_back(t.positions[0]);
    ValueView v;
    v.tensor = context_.view(from).tensor;
    v.index = SubstituteAll(context_.view(from).index, map, n_.domain);
    if (NodeCount(v.index) > kMaxIndexNodes) v = context_.Materialise(id_, result, std::move(v));
    context_.view(result) = std::move(v);
  }

  Scalar F64(double value) { return builder_.Const(value, DType::kF64); }

  // Where position `own` of the result lies in the operand.
  Scalar Coordinate(const ops::ResizedDim& dim, const IndexExpr& own) {
    const double from = static_cast<double>(dim.from);
    const double to = static_cast<double>(dim.to);
    if (dim.to == 1 && (coordinates_ == "align_corners" || coordinates_ == "pytorch_half_pixel")) return F64(0);
    const Scalar index = builder_.Input(static_cast<int>(n_.inputs.size()), DType::kI64);
    LoopInput in;
    in.value = own;
    n_.inputs.push_back(std::move(in));
    const Scalar o = CastTo(index, DType::kF64);
    if (coordinates_ == "align_corners") return o * (from - 1) / (to - 1);
    const auto scaled = [&](Scalar x) { return dim.scale == 0 ? x * from / to : x / dim.scale; };
    if (coordinates_ == "asymmetric") return scaled(o);
    const Scalar half = scaled(o + 0.5) - 0.5;
    if (coordinates_ != "half_pixel_symmetric" || dim.scale == 0) return half;
    return half + from / 2 * (1 - to / (dim.scale * from));
  }

  // The position, which may lie outside the dim, as a position in it.
  IndexExpr Position(const ops::ResizedDim& dim, Scalar at) {
    const Scalar last = builder_.ConstInt(dim.from - 1, DType::kI64);
    const Scalar zero = builder_.ConstInt(0, DType::kI64);
    n_.values.push_back(Binary(ScalarOp::kMinimum, Binary(ScalarOp::kMaximum, at, zero), last).id);
    return IndexExpr::Value(static_cast<int32_t>(n_.values.size() - 1), dim.from);
  }

  // The position as a quotient of whole numbers, for the modes in which it never leaves the dim.
  std::optional<IndexExpr> Quotient(const ops::ResizedDim& dim, const IndexExpr& own) const {
    if (dim.scale != 0) return std::nullopt;
    if (coordinates_ == "asymmetric" && rounding_ == "floor") return FloorDiv(own * dim.from, dim.to, n_.domain);
    if (coordinates_ == "align_corners" || coordinates_ == "asymmetric") return std::nullopt;
    if (dim.to == 1 && coordinates_ == "pytorch_half_pixel") return IndexExpr();
    if (rounding_ == "round_prefer_ceil") {
      return FloorDiv(own * (2 * dim.from) + IndexExpr::Const(dim.from), 2 * dim.to, n_.domain);
    }
    if (rounding_ == "round_prefer_floor") {
      return FloorDiv(own * (2 * dim.from) + IndexExpr::Const(dim.from - 1), 2 * dim.to, n_.domain);
    }
    return std::nullopt;
  }

  IndexExpr Nearest(const ops::ResizedDim& dim, const IndexExpr& own) {
    if (const std::optional<IndexExpr> quotient = Quotient(dim, own)) return *quotient;
    const Scalar x = Coordinate(dim, own);
    Scalar rounded;
    if (rounding_ == "round_prefer_floor") {
      rounded = Unary(ScalarOp::kCeil, x - 0.5);
    } else if (rounding_ == "round_prefer_ceil") {
      rounded = Unary(ScalarOp::kFloor, x + 0.5);
    } else {
      rounded = Unary(rounding_ == "floor" ? ScalarOp::kFloor : ScalarOp::kCeil, x);
    }
    return Position(dim, CastTo(rounded, DType::kI64));
  }

  Taps Linear(const ops::ResizedDim& dim, const IndexExpr& own) {
    const Scalar x = Coordinate(dim, own);
    const Scalar floor = Unary(ScalarOp::kFloor, x);
    const Scalar base = CastTo(floor, DType::kI64);
    const Scalar r = CastTo(x - floor, compute_);
    return {{Position(dim, base), Position(dim, base + 1)}, {1.0 - r, r}};
  }

  // R. Keys, "Cubic convolution interpolation for digital image processing" (1981), with a free coefficient a.
  Taps Cubic(const ops::ResizedDim& dim, const IndexExpr& own) {
    const double a = std::get<double>(node_.attrs.find("cubic_coeff_a")->second);
    const Scalar x = Coordinate(dim, own);
    const Scalar floor = Unary(ScalarOp::kFloor, x);
    const Scalar base = CastTo(floor, DType::kI64);
    const Scalar r = CastTo(x - floor, compute_);
    const auto near = [&](Scalar t) { return (t * (a + 2) - (a + 3)) * t * t + 1.0; };
    const auto far = [&](Scalar t) { return ((t * a - 5 * a) * t + 8 * a) * t - 4 * a; };
    Taps taps;
    taps.weights = {far(r + 1.0), near(r), near(1.0 - r), far(2.0 - r)};
    const bool exclude = std::get<bool>(node_.attrs.find("exclude_outside")->second);
    for (int k = 0; k < 4; ++k) {
      const Scalar at = base + (k - 1);
      taps.positions.push_back(Position(dim, at));
      if (!exclude) continue;
      const Scalar inside = builder_.Emit(ScalarOp::kLogicalAnd, DType::kBool, Compare(ScalarOp::kGe, at, 0),
                                          Compare(ScalarOp::kLt, at, static_cast<double>(dim.from)));
      taps.weights[static_cast<size_t>(k)] = Select(inside, taps.weights[static_cast<size_t>(k)], 0.0);
    }
    if (exclude) {
      const Scalar sum = taps.weights[0] + taps.weights[1] + taps.weights[2] + taps.weights[3];
      const Scalar divisor = Select(Compare(ScalarOp::kEq, sum, 0.0), 1.0, sum);
      for (Scalar& w : taps.weights) w = w / divisor;
    }
    return taps;
  }

  // All neighbours, the last dim's side by side, then summed up from the last dim to the first.
  Scalar Combine(const std::vector<Taps>& taps) {
    std::vector<std::vector<IndexExpr>> at = {{}};
    for (const Taps& t : taps) {
      std::vector<std::vector<IndexExpr>> longer;
      for (const std::vector<IndexExpr>& prefix : at) {
        for (const IndexExpr& p : t.positions) {
          longer.push_back(prefix);
          longer.back().push_back(p);
        }
      }
      at = std::move(longer);
    }
    std::vector<Scalar> values;
    for (const std::vector<IndexExpr>& index : at) values.push_back(context_.ReadOperand(n_, builder_, id_, 0, index));
    for (size_t d = taps.size(); d-- > 0;) {
      const std::vector<Scalar>& weights = taps[d].weights;
      if (weights.empty()) continue;
      std::vector<Scalar> sums;
      for (size_t first = 0; first < values.size(); first += weights.size()) {
        Scalar sum = values[first] * weights[0];
        for (size_t k = 1; k < weights.size(); ++k) sum = sum + values[first + k] * weights[k];
        sums.push_back(sum);
      }
      values = std::move(sums);
    }
    const DType dtype = context_.dtype(node_.results[0]);
    const bool rounds = mode_ != "nearest" && context_.options().numerics == Numerics::kEager && IsHalf(dtype);
    return rounds ? LoweringContext::Round(builder_, values[0], dtype) : values[0];
  }

  LoweringContext& context_;
  const Node& node_;
  NodeId id_;
  Shape from_;
  LoopNode n_;
  ScalarBuilder builder_;
  const std::string& mode_;
  const std::string& coordinates_;
  const std::string& rounding_;
  DType compute_;
};

}  // namespace

absl::Status LowerResize(LoweringContext& context, NodeId id) {
  Resizing(context, id).Run();
  return absl::OkStatus();
}

}  // namespace fuseline::lowering
