// Pooling.
#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "client/onnx/importers.h"
#include "client/onnx/window_geometry.h"

namespace fuseline::onnx_import {
namespace {

constexpr int64_t kMaxWindow = 1024;  // elements of a window whose positions are written out

double LowestOf(DType dtype) {
  if (IsFloat(dtype)) return -std::numeric_limits<double>::infinity();
  return dtype == DType::kU8 || IsBool(dtype) ? 0 : -std::ldexp(1.0, 8 * DTypeSizeBytes(dtype) - 1);
}

Ints KernelOf(OpCall& c) {
  if (!c.HasAttr("kernel_shape")) c.Fail("attribute 'kernel_shape' is missing");
  return c.IntList("kernel_shape", {});
}

// Pools with `op`, a pooling of our IR.
Val Pool(OpCall& c, const char* op, Val x, const WindowGeometry& g, AttrMap attrs = {}) {
  attrs.insert({{"kernel", g.kernel}, {"strides", g.strides}, {"padding", g.padding()}, {"dilation", g.dilations}});
  return c.e.Emit(op, {x}, std::move(attrs));
}

// The element at `offset` of each window.
Val WindowElement(OpCall& c, Val padded, const WindowGeometry& g, const Ints& offset) {
  Val y = padded;
  for (size_t d = 0; d < g.dims(); ++d) {
    const int64_t start = offset[d] * g.dilations[d];
    y = c.e.Slice(y, static_cast<int64_t>(d) + 2, start, start + (g.out[d] - 1) * g.strides[d] + 1, g.strides[d]);
  }
  return y;
}

// The flat position of each element of x; with `column_major`, of each image's elements in the other order.
Val FlatPositions(OpCall& c, Val x, bool column_major) {
  const Shape shape = x.shape();
  if (!column_major) return c.e.Reshape(c.e.Iota(DType::kI64, {x.count()}, 0), shape);
  Shape reversed = shape;
  Ints order = {0, 1};
  std::reverse(reversed.begin() + 2, reversed.end());
  for (auto d = static_cast<int64_t>(shape.size()) - 1; d >= 2; --d) order.push_back(d);
  return c.e.Permute(c.e.Reshape(c.e.Iota(DType::kI64, {x.count()}, 0), reversed), order);
}

// Maxima and where they are: window element by window element.
void MaxPoolWithPositions(OpCall& c, Val x, const WindowGeometry& g, bool column_major) {
  if (g.kernel_count() > kMaxWindow) return c.Refuse("positions of maxima of windows this large are not supported");
  const Ints low = WithLeadingZeros(g.low), high = WithLeadingZeros(g.high);
  const Val padded = c.e.Pad(x, low, high, LowestOf(x.dtype()));
  const Val positions = c.e.Pad(FlatPositions(c, x, column_major), low, high, 0);
  Val best, at;
  Ints offset(g.dims(), 0);
  for (int64_t k = 0; k < g.kernel_count(); ++k) {
    const Val value = WindowElement(c, padded, g, offset), position = WindowElement(c, positions, g, offset);
    if (k == 0) {
      best = value;
      at = position;
    } else {
      const Val better = Apply("gt", value, best);
      best = c.e.Where(better, value, best);
      at = c.e.Where(better, position, at);
    }
    for (size_t d = g.dims(); d-- > 0;) {
      if (++offset[d] < g.kernel[d]) break;
      offset[d] = 0;
    }
  }
  c.Out(0, best);
  c.Out(1, at);
}

void ImportMaxPool(OpCall& c) {
  const Val x = c.In(0);
  const WindowGeometry g = ReadWindow(c, x.shape(), KernelOf(c));
  const bool column_major = c.Int("storage_order", 0) != 0;
  if (!c.ok()) return;
  if (c.WantsOut(1)) return MaxPoolWithPositions(c, x, g, column_major);
  c.Out(0, Pool(c, "max_pool", x, g));
}

void ImportAveragePool(OpCall& c) {
  const Val x = c.In(0);
  WindowGeometry g = ReadWindow(c, x.shape(), KernelOf(c));
  const bool include = c.Int("count_include_pad", 0) != 0;
  if (!c.ok()) return;
  AttrMap attrs = {{"count_include_pad", include}};
  const bool grows = std::any_of(g.extra.begin(), g.extra.end(), [](int64_t n) { return n != 0; });
  if (include && grows) {
    // What `ceil_mode` adds is not counted, unlike the padding.
    for (size_t d = 0; d < g.dims(); ++d) g.high[d] -= g.extra[d];
    attrs["ceil_mode"] = true;
  }
  c.Out(0, Pool(c, "avg_pool", x, g, std::move(attrs)));
}

void ImportLpPool(OpCall& c) {
  const Val x = c.In(0);
  const WindowGeometry g = ReadWindow(c, x.shape(), KernelOf(c));
  const auto p = static_cast<double>(c.Int("p", 2));
  if (c.ok()) c.Out(0, Pool(c, "lp_pool", x, g, {{"p", p}}));
}

void ImportGlobalPool(OpCall& c) {
  const Val x = c.In(0);
  Ints dims;
  for (int64_t d = 2; d < x.rank(); ++d) dims.push_back(d);
  const AttrMap attrs = {{"dims", dims}, {"keepdim", true}};
  if (c.op() == "GlobalMaxPool") return c.Out(0, c.e.Emit("amax", {x}, attrs));
  if (c.op() == "GlobalAveragePool") return c.Out(0, c.e.Emit("mean", {x}, attrs));
  const int64_t p = c.Int("p", 2);
  if (p < 1) return c.Fail("attribute 'p' is not positive");
  const Val sum = c.e.Emit("sum", {Apply("pow", Apply("abs", x), static_cast<double>(p))}, attrs);
  c.Out(0, Apply("pow", sum, 1.0 / static_cast<double>(p)));
}

// Puts each value where its maximum was; positions are those of the shape that the attributes lead back to.
void ImportMaxUnpool(OpCall& c) {
  const Val x = c.In(0), positions = c.In(1);
  const Ints kernel = KernelOf(c);
  const size_t n = kernel.size();
  const Ints strides = c.IntList("strides", Ints(n, 1)), pads = c.IntList("pads", Ints(2 * n, 0));
  if (!c.ok()) return;
  if (strides.size() != n || pads.size() != 2 * n || x.rank() != static_cast<int64_t>(n) + 2) {
    return c.Fail("'strides' or 'pads' has the wrong length");
  }
  Shape shape = x.shape();
  constexpr int64_t kMaxSize = 1 << 24;
  for (size_t d = 0; d < n; ++d) {
    for (const int64_t v : {kernel[d], strides[d], pads[d], pads[d + n]}) {
      if (v < 0 || v > kMaxSize) return c.Fail("kernel, strides or pads are out of range");
    }
    shape[d + 2] = (shape[d + 2] - 1) * strides[d] + kernel[d] - pads[d] - pads[d + n];
    if (shape[d + 2] < 0) return c.Fail("the pads are larger than the result");
  }
  const Val zeros = c.e.Full(x.dtype(), shape, 0);
  const int64_t count = zeros.count();
  const Val flat = c.e.Emit(
      "scatter", {c.e.Reshape(zeros, {count}), c.e.Reshape(positions, {x.count()}), c.e.Reshape(x, {x.count()})},
      {{"dim", 0}});
  Val y = c.e.Reshape(flat, shape);
  if (c.Has(2)) {
    const Ints wanted = c.KnownInts(2, "output_shape");
    if (!c.ok()) return;
    if (wanted.size() != shape.size()) return c.Fail("'output_shape' has another rank");
    Ints low(shape.size(), 0), high(shape.size(), 0);
    for (size_t d = 0; d < shape.size(); ++d) high[d] = wanted[d] - shape[d];
    y = c.e.Pad(y, low, high, 0);
  }
  c.Out(0, y);
}

}  // namespace

void AddWindowImporters(ImporterTable& table) {
  table["MaxPool"] = ImportMaxPool;
  table["AveragePool"] = ImportAveragePool;
  table["LpPool"] = ImportLpPool;
  table["MaxUnpool"] = ImportMaxUnpool;
  for (const char* op : {"GlobalMaxPool", "GlobalAveragePool", "GlobalLpPool"}) table[op] = ImportGlobalPool;
}

}  // namespace fuseline::onnx_import
