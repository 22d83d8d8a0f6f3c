// Reductions, and ArgMax and ArgMin.
#include <algorithm>
#include <limits>

#include "client/onnx/importers.h"

namespace fuseline::onnx_import {
namespace {

struct Reduced {
  Ints dims;
  bool keep = true;
  bool nothing = false;  // the operand is returned as it is
};

Reduced ReadDims(OpCall& c, int64_t rank) {
  Reduced r;
  r.keep = c.Int("keepdims", 1) != 0;
  const bool noop = c.Int("noop_with_empty_axes", 0) != 0;
  const std::optional<Ints> axes = c.IntsFrom(1, "axes");
  if (axes.has_value() && !axes->empty()) {
    for (const int64_t axis : *axes) r.dims.push_back(c.Axis(axis, rank));
  } else if (noop) {
    r.nothing = true;
  } else {
    for (int64_t d = 0; d < rank; ++d) r.dims.push_back(d);
  }
  return r;
}

Val Reduce(OpCall& c, const char* op, Val x, const Reduced& r) {
  AttrMap attrs = {{"dims", r.dims}, {"keepdim", r.keep}};
  const std::string name = op;
  if ((name == "sum" || name == "prod") && IsInteger(x.dtype())) attrs["dtype"] = x.dtype();
  return c.e.Emit(op, {x}, std::move(attrs));
}

Shape ReducedShape(Val x, const Reduced& r) {
  Shape shape;
  for (int64_t d = 0; d < x.rank(); ++d) {
    const bool reduced = std::find(r.dims.begin(), r.dims.end(), d) != r.dims.end();
    if (!reduced || r.keep) shape.push_back(reduced ? 1 : x.dim(d));
  }
  return shape;
}

void ImportReduce(OpCall& c) {
  const Val x = c.In(0);
  const Reduced r = ReadDims(c, x.rank());
  if (!c.ok()) return;
  const std::string& op = c.op();
  // What is done to each element happens even where nothing is reduced.
  const auto sum = [&](Val v) { return r.nothing ? v : Reduce(c, "sum", v, r); };
  if (op == "ReduceSum") return c.Out(0, sum(x));
  if (op == "ReduceSumSquare") return c.Out(0, sum(x * x));
  if (op == "ReduceL1") return c.Out(0, sum(Apply("abs", x)));
  if (op == "ReduceL2") return c.Out(0, Apply("sqrt", sum(x * x)));
  if (op == "ReduceLogSum") return c.Out(0, Apply("log", sum(x)));
  if (r.nothing) return c.Out(0, x);
  if (op == "ReduceLogSumExp") return c.Out(0, Reduce(c, "logsumexp", x, r));
  if (op == "ReduceProd") return c.Out(0, Reduce(c, "prod", x, r));
  if (op == "ReduceMean") {
    if (IsFloat(x.dtype())) return c.Out(0, Reduce(c, "mean", x, r));
    return c.Out(0, c.e.Cast(Reduce(c, "mean", c.e.Cast(x, DType::kF64), r), x.dtype()));
  }
  const bool max = op == "ReduceMax";
  if (IsBool(x.dtype())) return c.Out(0, Reduce(c, max ? "any" : "all", x, r));
  // Of nothing: what every other number would win against.
  const Shape shape = ReducedShape(x, r);
  if (IsFloat(x.dtype()) && x.count() == 0 && ElementCount(shape) > 0) {
    const double infinity = std::numeric_limits<double>::infinity();
    return c.Out(0, c.e.Full(x.dtype(), shape, max ? -infinity : infinity));
  }
  c.Out(0, Reduce(c, max ? "amax" : "amin", x, r));
}

void ImportArgExtremum(OpCall& c) {
  Val x = c.In(0);
  const int64_t axis = c.Axis(c.Int("axis", 0), x.rank());
  const bool last = c.Int("select_last_index", 0) != 0;
  if (last) x = c.e.Flip(x, axis);
  Val index =
      c.e.Emit(c.op() == "ArgMax" ? "argmax" : "argmin", {x}, {{"dim", axis}, {"keepdim", c.Int("keepdims", 1) != 0}});
  if (last) index = -index + static_cast<double>(x.dim(axis) - 1);
  c.Out(0, index);
}

}  // namespace

void AddReductionImporters(ImporterTable& table) {
  for (const char* op : {"ReduceSum", "ReduceSumSquare", "ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp",
                         "ReduceProd", "ReduceMean", "ReduceMax", "ReduceMin"}) {
    table[op] = ImportReduce;
  }
  table["ArgMax"] = ImportArgExtremum;
  table["ArgMin"] = ImportArgExtremum;
}

}  // namespace fuseline::onnx_import
