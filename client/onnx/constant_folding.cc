#include "client/onnx/constant_folding.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <map>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/onnx/model_reader.h"
#include "common/ir/op_table.h"

namespace fuseline::onnx_import {
namespace {

using Fold = bool (*)(OpCall& call);

// Wrapping, as everywhere in the IR.
int64_t Wrap(uint64_t v) { return static_cast<int64_t>(v); }
uint64_t Bits(int64_t v) { return static_cast<uint64_t>(v); }

// Copies one element.
void CopyElement(const Tensor& from, int64_t i, Tensor& to, int64_t k) {
  if (IsFloat(from.dtype())) {
    to.SetDouble(k, from.GetDouble(i));
  } else {
    to.SetInt(k, from.GetInt(i));
  }
}

bool SmallEnough(const Shape& shape) {
  int64_t count = 1;
  for (const int64_t size : shape) {
    if (size < 0) return false;
    if (size > 0 && count > kMaxFoldedElements / size) return false;
    count *= size;
  }
  return true;
}

// For each element of `to`, in order, the element of a tensor of shape `from` that is broadcast to it.
std::vector<int64_t> BroadcastPositions(const Shape& from, const Shape& to) {
  const size_t lead = to.size() - from.size();
  const Shape strides = DenseStrides(from);
  std::vector<int64_t> positions;
  Shape at(to.size(), 0);
  const int64_t count = ElementCount(to);
  for (int64_t i = 0; i < count; ++i) {
    int64_t p = 0;
    for (size_t d = 0; d < from.size(); ++d) p += from[d] == 1 ? 0 : at[d + lead] * strides[d];
    positions.push_back(p);
    for (size_t d = to.size(); d-- > 0;) {
      if (++at[d] < to[d]) break;
      at[d] = 0;
    }
  }
  return positions;
}

struct Pair {
  const Tensor* a;
  const Tensor* b;
  Shape shape;
  std::vector<int64_t> at_a, at_b;
};

bool MakePair(OpCall& call, Pair& pair) {
  pair.a = call.Known(0);
  pair.b = call.Known(1);
  if (pair.a == nullptr || pair.b == nullptr || pair.a->dtype() != pair.b->dtype()) return false;
  absl::StatusOr<Shape> shape = BroadcastShapes({pair.a->shape(), pair.b->shape()});
  if (!shape.ok() || !SmallEnough(*shape)) return false;
  pair.shape = *std::move(shape);
  pair.at_a = BroadcastPositions(pair.a->shape(), pair.shape);
  pair.at_b = BroadcastPositions(pair.b->shape(), pair.shape);
  return true;
}

template <typename IntOp, typename FloatOp>
bool FoldPair(OpCall& call, DType result, IntOp int_op, FloatOp float_op) {
  Pair pair;
  if (call.input_count() != 2 || !MakePair(call, pair)) return false;
  Tensor out = Tensor::Allocate(result == DType::kInvalid ? pair.a->dtype() : result, pair.shape);
  for (size_t i = 0; i < pair.at_a.size(); ++i) {
    const auto k = static_cast<int64_t>(i);
    if (IsFloat(pair.a->dtype())) {
      const auto v = float_op(pair.a->GetDouble(pair.at_a[i]), pair.b->GetDouble(pair.at_b[i]));
      if constexpr (std::is_same_v<decltype(v), const bool>) {
        out.SetInt(k, v);
      } else {
        out.SetDouble(k, v);
      }
    } else {
      out.SetInt(k, static_cast<int64_t>(int_op(pair.a->GetInt(pair.at_a[i]), pair.b->GetInt(pair.at_b[i]))));
    }
  }
  call.OutKnown(0, std::move(out));
  return true;
}

int64_t DivideInts(int64_t a, int64_t b) {
  if (b == 0) return 0;
  if (b == -1) return Wrap(0 - Bits(a));
  return a / b;
}

bool FoldAdd(OpCall& call) {
  return FoldPair(
      call, DType::kInvalid, [](int64_t a, int64_t b) { return Wrap(Bits(a) + Bits(b)); },
      [](double a, double b) { return a + b; });
}
bool FoldSub(OpCall& call) {
  return FoldPair(
      call, DType::kInvalid, [](int64_t a, int64_t b) { return Wrap(Bits(a) - Bits(b)); },
      [](double a, double b) { return a - b; });
}
bool FoldMul(OpCall& call) {
  return FoldPair(
      call, DType::kInvalid, [](int64_t a, int64_t b) { return Wrap(Bits(a) * Bits(b)); },
      [](double a, double b) { return a * b; });
}
bool FoldDiv(OpCall& call) {
  return FoldPair(call, DType::kInvalid, DivideInts, [](double a, double b) { return a / b; });
}
bool FoldMod(OpCall& call) {
  if (call.Int("fmod", 0) != 0 || IsFloat(call.InType(0))) return false;
  return FoldPair(
      call, DType::kInvalid,
      [](int64_t a, int64_t b) -> int64_t {
        if (b == 0 || b == -1) return 0;
        const int64_t r = a % b;
        return r != 0 && ((r < 0) != (b < 0)) ? r + b : r;
      },
      [](double a, double b) { return std::fmod(a, b); });
}
bool FoldEqual(OpCall& call) {
  return FoldPair(
      call, DType::kBool, [](int64_t a, int64_t b) { return a == b; }, [](double a, double b) { return a == b; });
}
bool FoldLess(OpCall& call) {
  return FoldPair(
      call, DType::kBool, [](int64_t a, int64_t b) { return a < b; }, [](double a, double b) { return a < b; });
}
bool FoldGreater(OpCall& call) {
  return FoldPair(
      call, DType::kBool, [](int64_t a, int64_t b) { return a > b; }, [](double a, double b) { return a > b; });
}
bool FoldAnd(OpCall& call) {
  return FoldPair(
      call, DType::kBool, [](int64_t a, int64_t b) { return a != 0 && b != 0; }, [](double, double) { return false; });
}
bool FoldOr(OpCall& call) {
  return FoldPair(
      call, DType::kBool, [](int64_t a, int64_t b) { return a != 0 || b != 0; }, [](double, double) { return false; });
}
bool FoldMax(OpCall& call) {
  if (IsFloat(call.InType(0))) return false;
  return FoldPair(
      call, DType::kInvalid, [](int64_t a, int64_t b) { return std::max(a, b); },
      [](double a, double b) { return std::max(a, b); });
}
bool FoldMin(OpCall& call) {
  if (IsFloat(call.InType(0))) return false;
  return FoldPair(
      call, DType::kInvalid, [](int64_t a, int64_t b) { return std::min(a, b); },
      [](double a, double b) { return std::min(a, b); });
}

template <typename IntOp, typename FloatOp>
bool FoldOne(OpCall& call, DType result, IntOp int_op, FloatOp float_op) {
  const Tensor& x = *call.Known(0);
  if (!SmallEnough(x.shape())) return false;
  Tensor out = Tensor::Allocate(result == DType::kInvalid ? x.dtype() : result, x.shape());
  for (int64_t i = 0; i < x.element_count(); ++i) {
    if (IsFloat(x.dtype())) {
      out.SetDouble(i, float_op(x.GetDouble(i)));
    } else {
      out.SetInt(i, int_op(x.GetInt(i)));
    }
  }
  call.OutKnown(0, std::move(out));
  return true;
}

bool FoldNeg(OpCall& call) {
  return FoldOne(
      call, DType::kInvalid, [](int64_t a) { return Wrap(0 - Bits(a)); }, [](double a) { return -a; });
}
bool FoldAbs(OpCall& call) {
  return FoldOne(
      call, DType::kInvalid, [](int64_t a) { return a < 0 ? Wrap(0 - Bits(a)) : a; },
      [](double a) { return std::abs(a); });
}
bool FoldFloor(OpCall& call) {
  return FoldOne(
      call, DType::kInvalid, [](int64_t a) { return a; }, [](double a) { return std::floor(a); });
}
bool FoldCeil(OpCall& call) {
  return FoldOne(
      call, DType::kInvalid, [](int64_t a) { return a; }, [](double a) { return std::ceil(a); });
}
bool FoldSqrt(OpCall& call) {
  if (!IsFloat(call.InType(0))) return false;
  return FoldOne(
      call, DType::kInvalid, [](int64_t a) { return a; }, [](double a) { return std::sqrt(a); });
}
bool FoldNot(OpCall& call) {
  if (!IsBool(call.InType(0))) return false;
  return FoldOne(
      call, DType::kInvalid, [](int64_t a) { return static_cast<int64_t>(a == 0); }, [](double a) { return a; });
}

bool FoldIdentity(OpCall& call) {
  call.OutKnown(0, *call.Known(0));
  return true;
}

bool FoldCastTo(OpCall& call, DType to) {
  const Tensor& x = *call.Known(0);
  if (to == DType::kInvalid || IsF8(to) || IsF8(x.dtype()) || !SmallEnough(x.shape())) return false;
  Tensor out = Tensor::Allocate(to, x.shape());
  for (int64_t i = 0; i < x.element_count(); ++i) {
    if (IsBool(to)) {
      out.SetInt(i, IsFloat(x.dtype()) ? x.GetDouble(i) != 0 : x.GetInt(i) != 0);
    } else {
      CopyElement(x, i, out, i);
    }
  }
  call.OutKnown(0, std::move(out));
  return true;
}
bool FoldCast(OpCall& call) {
  call.Ignore("saturate");
  call.Ignore("round_mode");
  return FoldCastTo(call, DTypeOfOnnx(call.Int("to", 0)));
}
// Of the second operand only the type matters.
bool FoldCastLike(OpCall& call) {
  call.Ignore("saturate");
  call.Ignore("round_mode");
  return call.Has(1) && FoldCastTo(call, call.InType(1));
}

bool FoldWhere(OpCall& call) {
  if (call.input_count() != 3 || call.InType(1) != call.InType(2) || !IsBool(call.InType(0))) return false;
  const Tensor &c = *call.Known(0), &a = *call.Known(1), &b = *call.Known(2);
  absl::StatusOr<Shape> shape = BroadcastShapes({c.shape(), a.shape(), b.shape()});
  if (!shape.ok() || !SmallEnough(*shape)) return false;
  const auto at_c = BroadcastPositions(c.shape(), *shape);
  const auto at_a = BroadcastPositions(a.shape(), *shape);
  const auto at_b = BroadcastPositions(b.shape(), *shape);
  Tensor out = Tensor::Allocate(a.dtype(), *shape);
  for (size_t i = 0; i < at_c.size(); ++i) {
    const bool first = c.GetInt(at_c[i]) != 0;
    CopyElement(first ? a : b, first ? at_a[i] : at_b[i], out, static_cast<int64_t>(i));
  }
  call.OutKnown(0, std::move(out));
  return true;
}

// out[i] = x[positions[i]]
bool TakeElements(OpCall& call, size_t result, const Tensor& x, const Shape& shape,
                  const std::vector<int64_t>& positions) {
  Tensor out = Tensor::Allocate(x.dtype(), shape);
  for (size_t i = 0; i < positions.size(); ++i) CopyElement(x, positions[i], out, static_cast<int64_t>(i));
  call.OutKnown(result, std::move(out));
  return true;
}

bool FoldGather(OpCall& call) {
  const Tensor &x = *call.Known(0), &index = *call.Known(1);
  const auto rank = static_cast<int64_t>(x.shape().size());
  if (rank == 0 || IsFloat(index.dtype())) return false;
  const auto axis = static_cast<size_t>(call.Axis(call.Int("axis", 0), rank));
  if (!call.ok()) return true;
  Shape shape(x.shape().begin(), x.shape().begin() + static_cast<int64_t>(axis));
  shape.insert(shape.end(), index.shape().begin(), index.shape().end());
  shape.insert(shape.end(), x.shape().begin() + static_cast<int64_t>(axis) + 1, x.shape().end());
  if (!SmallEnough(shape)) return false;
  int64_t outer = 1, inner = 1;
  for (size_t d = 0; d < x.shape().size(); ++d) (d < axis ? outer : inner) *= d == axis ? 1 : x.shape()[d];
  const int64_t size = x.shape()[axis];
  std::vector<int64_t> positions;
  for (int64_t o = 0; o < outer; ++o) {
    for (int64_t k = 0; k < index.element_count(); ++k) {
      int64_t i = index.GetInt(k);
      if (i < 0) i += size;
      if (i < 0 || i >= size) {
        call.Fail(absl::StrCat("index ", index.GetInt(k), " is out of range for a dim of ", size));
        return true;
      }
      for (int64_t n = 0; n < inner; ++n) positions.push_back((o * size + i) * inner + n);
    }
  }
  return TakeElements(call, 0, x, shape, positions);
}

bool FoldConcat(OpCall& call) {
  if (!call.HasAttr("axis")) return false;
  const auto rank = static_cast<int64_t>(call.Known(0)->shape().size());
  if (rank != 1) return false;  // shapes are 1-d
  call.Axis(call.Int("axis", 0), rank);
  int64_t count = 0;
  for (size_t i = 0; i < call.input_count(); ++i) {
    const Tensor& x = *call.Known(i);
    if (x.shape().size() != 1 || x.dtype() != call.InType(0) || !SmallEnough(x.shape())) return false;
    count += x.element_count();
  }
  if (count > kMaxFoldedElements) return false;
  Tensor out = Tensor::Allocate(call.InType(0), {count});
  int64_t at = 0;
  for (size_t i = 0; i < call.input_count(); ++i) {
    const Tensor& x = *call.Known(i);
    for (int64_t k = 0; k < x.element_count(); ++k) CopyElement(x, k, out, at++);
  }
  call.OutKnown(0, std::move(out));
  return true;
}

// A 1-d slice.
bool FoldSlice(OpCall& call) {
  const Tensor& x = *call.Known(0);
  if (x.shape().size() != 1 || !SmallEnough(x.shape()) || call.HasAttr("axes")) return false;
  const Ints starts = call.IntsFrom(1, "starts").value_or(Ints());
  const Ints ends = call.IntsFrom(2, "ends").value_or(Ints());
  const Ints steps = call.Has(4) ? call.KnownInts(4, "steps") : Ints{1};
  if (call.Has(3)) {
    for (const int64_t axis : call.KnownInts(3, "axes")) call.Axis(axis, 1);
  }
  if (!call.ok()) return true;
  if (starts.size() != 1 || ends.size() != 1 || steps.size() != 1 || steps[0] == 0) return false;
  const int64_t size = x.element_count(), step = steps[0];
  const auto place = [&](int64_t v, int64_t low, int64_t high) {
    if (v < 0) v = v < -size ? low : v + size;
    return std::clamp(v, low, high);
  };
  const int64_t low = step > 0 ? 0 : -1, high = step > 0 ? size : size - 1;
  const int64_t start = place(starts[0], low, high), end = place(ends[0], low, high);
  std::vector<int64_t> positions;
  // A step beyond the size can't be added up: it is taken once.
  const int64_t bounded = std::clamp(step, -(size + 1), size + 1);
  for (int64_t i = start; step > 0 ? i < end : i > end; i += bounded) positions.push_back(i);
  return TakeElements(call, 0, x, {static_cast<int64_t>(positions.size())}, positions);
}

bool SameElements(OpCall& call, Shape shape) {
  const Tensor& x = *call.Known(0);
  std::vector<int64_t> positions;
  for (int64_t i = 0; i < x.element_count(); ++i) positions.push_back(i);
  return TakeElements(call, 0, x, shape, positions);
}

bool FoldSqueeze(OpCall& call) {
  const Tensor& x = *call.Known(0);
  if (!SmallEnough(x.shape())) return false;
  const std::optional<Ints> axes = call.IntsFrom(1, "axes");
  const auto rank = static_cast<int64_t>(x.shape().size());
  std::vector<bool> drop(x.shape().size(), false);
  for (size_t d = 0; d < drop.size(); ++d) drop[d] = !axes.has_value() && x.shape()[d] == 1;
  for (const int64_t axis : axes.value_or(Ints())) {
    const auto d = static_cast<size_t>(call.Axis(axis, rank));
    if (!call.ok()) return true;
    if (x.shape()[d] != 1) return false;
    drop[d] = true;
  }
  Shape shape;
  for (size_t d = 0; d < drop.size(); ++d) {
    if (!drop[d]) shape.push_back(x.shape()[d]);
  }
  return SameElements(call, shape);
}

bool FoldUnsqueeze(OpCall& call) {
  const Tensor& x = *call.Known(0);
  if (!SmallEnough(x.shape())) return false;
  const Ints axes = call.IntsFrom(1, "axes").value_or(Ints());
  const auto rank = static_cast<int64_t>(x.shape().size() + axes.size());
  if (rank > GraphLimits().max_rank) return false;
  std::vector<bool> added(static_cast<size_t>(rank), false);
  for (const int64_t axis : axes) {
    const auto d = static_cast<size_t>(call.Axis(axis, rank));
    if (!call.ok()) return true;
    if (added[d]) return false;
    added[d] = true;
  }
  Shape shape;
  size_t next = 0;
  for (size_t d = 0; d < added.size(); ++d) shape.push_back(added[d] ? 1 : x.shape()[next++]);
  return SameElements(call, shape);
}

bool FoldReshape(OpCall& call) {
  const Tensor& x = *call.Known(0);
  if (!SmallEnough(x.shape()) || !call.Has(1) || call.Int("allowzero", 0) != 0) return false;
  Shape shape = call.KnownInts(1, "shape");
  int64_t rest = 1;
  size_t open = shape.size();
  for (size_t d = 0; d < shape.size(); ++d) {
    if (shape[d] == 0 && d < x.shape().size()) shape[d] = x.shape()[d];
    if (shape[d] == -1 && open == shape.size()) {
      open = d;
    } else if (shape[d] <= 0 || shape[d] > kMaxFoldedElements) {
      return false;
    } else {
      rest *= shape[d];
      if (rest > kMaxFoldedElements) return false;
    }
  }
  if (open < shape.size()) shape[open] = x.element_count() / rest;
  if (shape.size() > 12 || !SmallEnough(shape) || ElementCount(shape) != x.element_count()) return false;
  return SameElements(call, shape);
}

bool FoldExpand(OpCall& call) {
  const Tensor& x = *call.Known(0);
  const Shape wanted = call.KnownInts(1, "shape");
  if (!SmallEnough(wanted)) return false;
  absl::StatusOr<Shape> shape = BroadcastShapes({x.shape(), wanted});
  if (!shape.ok() || !SmallEnough(*shape)) return false;
  return TakeElements(call, 0, x, *shape, BroadcastPositions(x.shape(), *shape));
}

bool FoldTranspose(OpCall& call) {
  const Tensor& x = *call.Known(0);
  if (x.shape().size() > 1) return false;
  call.Ignore("perm");
  call.OutKnown(0, x);
  return true;
}

// Reductions of a 1-d tensor of integers.
template <typename Op>
bool FoldReduce(OpCall& call, int64_t start, Op op) {
  const Tensor& x = *call.Known(0);
  if (x.shape().size() != 1 || !IsInteger(x.dtype()) || !SmallEnough(x.shape())) return false;
  if (call.Int("noop_with_empty_axes", 0) != 0) return false;
  for (const int64_t axis : call.IntsFrom(1, "axes").value_or(Ints())) call.Axis(axis, 1);
  int64_t v = start;
  for (int64_t i = 0; i < x.element_count(); ++i) v = op(v, x.GetInt(i));
  Tensor out = Tensor::Allocate(x.dtype(), call.Int("keepdims", 1) != 0 ? Shape{1} : Shape{});
  out.SetInt(0, v);
  call.OutKnown(0, std::move(out));
  return true;
}

bool FoldReduceSum(OpCall& call) {
  return FoldReduce(call, 0, [](int64_t a, int64_t b) { return Wrap(Bits(a) + Bits(b)); });
}
bool FoldReduceProd(OpCall& call) {
  return FoldReduce(call, 1, [](int64_t a, int64_t b) { return Wrap(Bits(a) * Bits(b)); });
}
bool FoldReduceMax(OpCall& call) {
  if (call.Known(0)->element_count() == 0) return false;
  return FoldReduce(call, std::numeric_limits<int64_t>::min(), [](int64_t a, int64_t b) { return std::max(a, b); });
}
bool FoldReduceMin(OpCall& call) {
  if (call.Known(0)->element_count() == 0) return false;
  return FoldReduce(call, std::numeric_limits<int64_t>::max(), [](int64_t a, int64_t b) { return std::min(a, b); });
}

// The positions that are not zero, as columns.
bool FoldNonZero(OpCall& call) {
  const Tensor& x = *call.Known(0);
  if (!SmallEnough(x.shape())) return false;
  std::vector<int64_t> found;
  for (int64_t i = 0; i < x.element_count(); ++i) {
    if (IsFloat(x.dtype()) ? x.GetDouble(i) != 0 : x.GetInt(i) != 0) found.push_back(i);
  }
  const auto rank = static_cast<int64_t>(x.shape().size()), count = static_cast<int64_t>(found.size());
  const Shape strides = DenseStrides(x.shape());
  Tensor out = Tensor::Allocate(DType::kI64, {rank, count});
  for (int64_t d = 0; d < rank; ++d) {
    const auto k = static_cast<size_t>(d);
    for (int64_t i = 0; i < count; ++i) {
      out.SetInt(d * count + i, found[static_cast<size_t>(i)] / strides[k] % x.shape()[k]);
    }
  }
  call.OutKnown(0, std::move(out));
  return true;
}

const std::map<std::string, Fold, std::less<>>& Folds() {
  static const auto* const folds = new std::map<std::string, Fold, std::less<>>{
      {"Add", FoldAdd},
      {"Sub", FoldSub},
      {"Mul", FoldMul},
      {"Div", FoldDiv},
      {"Mod", FoldMod},
      {"Equal", FoldEqual},
      {"Less", FoldLess},
      {"Greater", FoldGreater},
      {"And", FoldAnd},
      {"Or", FoldOr},
      {"Max", FoldMax},
      {"Min", FoldMin},
      {"Neg", FoldNeg},
      {"Abs", FoldAbs},
      {"Floor", FoldFloor},
      {"Ceil", FoldCeil},
      {"Sqrt", FoldSqrt},
      {"Not", FoldNot},
      {"Identity", FoldIdentity},
      {"Cast", FoldCast},
      {"CastLike", FoldCastLike},
      {"Where", FoldWhere},
      {"Gather", FoldGather},
      {"Concat", FoldConcat},
      {"Slice", FoldSlice},
      {"Squeeze", FoldSqueeze},
      {"Unsqueeze", FoldUnsqueeze},
      {"Reshape", FoldReshape},
      {"Expand", FoldExpand},
      {"Transpose", FoldTranspose},
      {"ReduceSum", FoldReduceSum},
      {"ReduceProd", FoldReduceProd},
      {"ReduceMax", FoldReduceMax},
      {"ReduceMin", FoldReduceMin},
      {"NonZero", FoldNonZero},
  };
  return *folds;
}

}  // namespace

bool FoldKnown(OpCall& call) {
  const auto fold = Folds().find(call.op());
  if (fold == Folds().end() || call.input_count() == 0) return false;
  const bool first_alone = fold->second == FoldCastLike;
  for (size_t i = 0; i < call.input_count(); ++i) {
    if (call.Has(i) && call.Known(i) == nullptr && !(first_alone && i > 0)) return false;
  }
  if (!call.Has(0)) return false;
  return fold->second(call);
}

}  // namespace fuseline::onnx_import
