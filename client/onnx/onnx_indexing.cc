// Ops that read or write at positions which an operand gives.
#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/onnx/importers.h"

namespace fuseline::onnx_import {
namespace {

Val Index64(OpCall& c, Val index) { return c.e.Cast(index, DType::kI64); }

Val SelectAt(OpCall& c, Val x, Val index, int64_t dim) { return c.e.Emit("index_select", {x, index}, {{"dim", dim}}); }

// x at positions of any rank along an axis.
void ImportGather(OpCall& c) {
  const Val x = c.In(0);
  const Val index = Index64(c, c.In(1));
  const int64_t axis = c.Axis(c.Int("axis", 0), x.rank());
  const Val taken = SelectAt(c, x, c.e.Reshape(index, {index.count()}), axis);
  if (!c.ok()) return;
  const Shape from = x.shape(), positions = index.shape();
  Shape shape(from.begin(), from.begin() + axis);
  shape.insert(shape.end(), positions.begin(), positions.end());
  shape.insert(shape.end(), from.begin() + axis + 1, from.end());
  c.Out(0, c.e.Reshape(taken, shape));
}

void ImportGatherElements(OpCall& c) {
  const Val x = c.In(0);
  c.Out(0, c.e.Emit("gather", {x, Index64(c, c.In(1))}, {{"dim", c.Axis(c.Int("axis", 0), x.rank())}}));
}

void ImportGatherNd(OpCall& c) {
  c.Out(0, c.e.Emit("gather_nd", {c.In(0), Index64(c, c.In(1))}, {{"batch_dims", c.Int("batch_dims", 0)}}));
}

void ImportScatterElements(OpCall& c) {
  const Val x = c.In(0);
  const int64_t axis = c.Axis(c.Int("axis", 0), x.rank());
  c.Out(0, c.e.Emit("scatter", {x, Index64(c, c.In(1)), c.In(2)},
                    {{"dim", axis}, {"reduction", c.String("reduction", "none")}}));
}

void ImportScatterNd(OpCall& c) {
  c.Out(0, c.e.Emit("scatter_nd", {c.In(0), Index64(c, c.In(1)), c.In(2)},
                    {{"reduction", c.String("reduction", "none")}}));
}

// 'on' where the position is the index, written as a comparison, so that it fuses.
void ImportOneHot(OpCall& c) {
  Val index = c.In(0);
  const double depth = c.KnownNumber(1, "depth");
  const Val values = c.In(2);
  if (!c.ok()) return;
  const auto classes = static_cast<int64_t>(depth);
  if (depth < 0 || depth > 1e12 || values.count() != 2) return c.Fail("'depth' or 'values' is out of range");
  index = Index64(c, index);
  index = c.e.Where(Apply("lt", index, 0.0), index + static_cast<double>(classes), index);
  const int64_t axis = c.Axis(c.Int("axis", -1), index.rank() + 1);
  const Val wide = c.e.Unsqueeze(index, axis);
  Shape along(static_cast<size_t>(index.rank()) + 1, 1);
  along[static_cast<size_t>(axis)] = classes;
  const Val hit = Apply("eq", wide, c.e.Reshape(c.e.Iota(DType::kI64, {classes}, 0), along));
  const Val pair = c.e.Reshape(values, {2});
  const Val off = c.e.Reshape(c.e.Slice(pair, 0, 0, 1), {}), on = c.e.Reshape(c.e.Slice(pair, 0, 1, 2), {});
  c.Out(0, c.e.Where(hit, on, off));
}

void ImportTopK(OpCall& c) {
  const Val x = c.In(0);
  const int64_t axis = c.Axis(c.Int("axis", -1), x.rank());
  const bool largest = c.Int("largest", 1) != 0;
  c.Ignore("sorted");  // they come sorted
  int64_t k = 0;
  if (c.Has(1)) {
    k = static_cast<int64_t>(c.KnownNumber(1, "K"));
  } else {
    k = c.Int("k", 0);
  }
  const std::vector<Val> r = c.e.EmitMany("topk", {x}, {{"k", k}, {"dim", axis}, {"largest", largest}}, 2);
  c.Out(0, r[0]);
  c.Out(1, r[1]);
}

// CumSum and CumProd.
void ImportCumulative(OpCall& c) {
  const Val x = c.In(0);
  const double axis_number = c.KnownNumber(1, "axis");
  const bool exclusive = c.Int("exclusive", 0) != 0, reverse = c.Int("reverse", 0) != 0;
  if (!c.ok()) return;
  const int64_t axis = c.Axis(static_cast<int64_t>(axis_number), x.rank());
  if (!c.ok()) return;
  AttrMap attrs = {{"dim", axis}, {"exclusive", exclusive}, {"reverse", reverse}};
  if (IsInteger(x.dtype())) attrs["dtype"] = x.dtype();
  c.Out(0, c.e.Emit(c.op() == "CumSum" ? "cumsum" : "cumprod", {x}, std::move(attrs)));
}

}  // namespace

void AddIndexingImporters(ImporterTable& table) {
  table["Gather"] = ImportGather;
  table["GatherElements"] = ImportGatherElements;
  table["GatherND"] = ImportGatherNd;
  table["ScatterElements"] = ImportScatterElements;
  table["Scatter"] = ImportScatterElements;
  table["ScatterND"] = ImportScatterNd;
  table["OneHot"] = ImportOneHot;
  table["TopK"] = ImportTopK;
  table["CumSum"] = ImportCumulative;
  table["CumProd"] = ImportCumulative;
}

}  // namespace fuseline::onnx_import
