// Quantized arithmetic: written out in 32-bit integers and f32.
#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/onnx/importers.h"
#include "client/onnx/model_reader.h"
#include "client/onnx/window_geometry.h"

namespace fuseline::onnx_import {
namespace {

struct Range {
  double low, high;
};

Range RangeOf(DType dtype) {
  if (dtype == DType::kU8) return {0, 255};
  const double half = std::ldexp(1.0, 8 * DTypeSizeBytes(dtype) - 1);
  return {-half, half - 1};
}

// A scale or zero point of one value an index of `axis`, beside a tensor of `rank` dims.
Val AlongAxis(OpCall& c, Val v, int64_t axis, int64_t rank) {
  if (v.count() == 1) return c.e.Reshape(v, {});
  if (v.rank() != 1 || axis >= rank) return v;
  Shape shape(static_cast<size_t>(rank), 1);
  shape[static_cast<size_t>(axis)] = v.dim(0);
  return c.e.Reshape(v, shape);
}

// round(x / scale) + zero, within `to`'s range. `zero` may be nothing.
Val Quantize(OpCall& c, Val x, Val scale, Val zero, DType to) {
  Val y = Apply("round", x / scale);
  if (zero.ok()) y = y + c.e.Cast(zero, y.dtype());
  const Range range = RangeOf(to);
  return c.e.Cast(c.e.Clamp(y, range.low, range.high), to);
}

void ImportQuantizeLinear(OpCall& c) {
  Val x = c.In(0);
  DType to = c.Has(2) ? c.InType(2) : DType::kU8;
  if (c.HasAttr("output_dtype") && c.Int("output_dtype", 0) != 0) to = DTypeOfOnnx(c.Int("output_dtype", 0));
  if (c.Int("block_size", 0) != 0) return c.Refuse("attribute 'block_size' is not supported");
  c.Ignore("saturate");
  c.Ignore("precision");
  int64_t axis = c.Int("axis", 1);
  Val scale = c.In(1), zero = c.Has(2) ? c.In(2) : Val();
  if (!c.ok()) return;
  if (scale.count() != 1) axis = c.Axis(axis, x.rank());
  if (!c.ok()) return;
  if (IsInteger(x.dtype())) x = c.e.Cast(x, scale.dtype());
  scale = AlongAxis(c, c.e.Cast(scale, x.dtype()), axis, x.rank());
  if (zero.ok()) zero = AlongAxis(c, zero, axis, x.rank());
  if (IsF8(to)) return c.Out(0, c.e.Cast(x / scale, to));
  if (!IsInteger(to)) return c.Refuse("the element type of the result is not supported");
  c.Out(0, Quantize(c, x, scale, zero, to));
}

void ImportDequantizeLinear(OpCall& c) {
  const Val x = c.In(0);
  Val scale = c.In(1);
  if (c.Int("block_size", 0) != 0) return c.Refuse("attribute 'block_size' is not supported");
  int64_t axis = c.Int("axis", 1);
  if (!c.ok()) return;
  if (scale.count() != 1) axis = c.Axis(axis, x.rank());
  if (!c.ok()) return;
  const DType to = scale.dtype();
  scale = AlongAxis(c, scale, axis, x.rank());
  Val y = IsF8(x.dtype()) ? c.e.Cast(x, to) : c.e.Cast(x, DType::kI32);
  if (c.Has(2) && !IsF8(x.dtype())) y = y - AlongAxis(c, c.e.Cast(c.In(2), DType::kI32), axis, x.rank());
  c.Out(0, c.e.Cast(y, to) * scale);
}

void ImportDynamicQuantizeLinear(OpCall& c) {
  const Val x = c.In(0);
  // The range always holds 0.
  const Val low = Apply("minimum", c.e.Emit("amin", {x}), 0.0), high = Apply("maximum", c.e.Emit("amax", {x}), 0.0);
  const Val scale = (high - low) / 255.0;
  const Val zero = c.e.Cast(Apply("round", c.e.Clamp(-low / scale, 0, 255)), DType::kU8);
  c.Out(0, Quantize(c, x, scale, zero, DType::kU8));
  c.Out(1, scale);
  c.Out(2, zero);
}

// The operand as i32 with its zero point subtracted. A zero point with several values is of rows (`rows`) or columns.
Val Centered(OpCall& c, size_t i, size_t zero_at, bool rows) {
  const Val x = c.e.Cast(c.In(i), DType::kI32);
  if (!c.Has(zero_at)) return x;
  Val zero = c.e.Cast(c.In(zero_at), DType::kI32);
  if (zero.count() == 1) {
    zero = c.e.Reshape(zero, {});
  } else if (rows && zero.rank() == 1) {
    zero = c.e.Unsqueeze(zero, 1);
  }
  return x - zero;
}

void ImportMatMulInteger(OpCall& c) {
  c.Out(0, c.e.Emit("matmul", {Centered(c, 0, 2, true), Centered(c, 1, 3, false)}));
}

void ImportQLinearMatMul(OpCall& c) {
  // a, a_scale, a_zero_point, b, b_scale, b_zero_point, y_scale, y_zero_point
  const Val sum = c.e.Emit("matmul", {Centered(c, 0, 2, true), Centered(c, 3, 5, false)});
  const auto scale_of = [&](size_t i, bool rows) {
    const Val scale = c.e.Cast(c.In(i), DType::kF32);
    if (scale.count() == 1) return c.e.Reshape(scale, {});
    return rows && scale.rank() == 1 ? c.e.Unsqueeze(scale, 1) : scale;
  };
  const Val y = c.e.Cast(sum, DType::kF32) * (scale_of(1, true) * scale_of(4, false));
  Val zero = c.In(7);
  if (zero.count() == 1) zero = c.e.Reshape(zero, {});
  if (!c.ok()) return;
  c.Out(0, Quantize(c, y, scale_of(6, true), zero, c.InType(7)));
}

// A convolution of i32 operands. Padding is zeros, since the zero point is subtracted already.
Val ConvolveIntegers(OpCall& c, Val x, Val w) {
  if (!c.ok()) return {};
  const Shape w_shape = w.shape();
  if (w_shape.size() < 3) {
    c.Fail("the weight has fewer than three dims");
    return {};
  }
  const Ints kernel(w_shape.begin() + 2, w_shape.end());
  if (c.IntList("kernel_shape", kernel) != kernel) c.Fail("attribute 'kernel_shape' is not the weight's");
  const WindowGeometry g = ReadWindow(c, x.shape(), kernel);
  return c.e.Emit(
      "conv", {x, w},
      {{"strides", g.strides}, {"padding", g.padding()}, {"dilation", g.dilations}, {"groups", c.Int("group", 1)}});
}

// The weight as i32 with its zero point, of one value or one an output channel, subtracted.
Val CenteredWeight(OpCall& c, size_t i, size_t zero_at) {
  const Val w = c.e.Cast(c.In(i), DType::kI32);
  if (!c.Has(zero_at)) return w;
  return w - AlongAxis(c, c.e.Cast(c.In(zero_at), DType::kI32), 0, w.rank());
}

void ImportConvInteger(OpCall& c) { c.Out(0, ConvolveIntegers(c, Centered(c, 0, 2, false), CenteredWeight(c, 1, 3))); }

void ImportQLinearConv(OpCall& c) {
  // x, x_scale, x_zero_point, w, w_scale, w_zero_point, y_scale, y_zero_point, bias
  Val sum = ConvolveIntegers(c, Centered(c, 0, 2, false), CenteredWeight(c, 3, 5));
  const int64_t rank = sum.rank();
  if (c.Has(8)) sum = sum + AlongAxis(c, c.In(8), 1, rank);
  const Val scale = c.e.Reshape(c.In(1), {}) * AlongAxis(c, c.In(4), 1, rank);
  const Val y = c.e.Cast(sum, DType::kF32) * scale;
  if (!c.ok()) return;
  c.Out(0, Quantize(c, y, c.e.Reshape(c.In(6), {}), c.e.Reshape(c.In(7), {}), c.InType(7)));
}

}  // namespace

void AddQuantizationImporters(ImporterTable& table) {
  table["QuantizeLinear"] = ImportQuantizeLinear;
  table["DequantizeLinear"] = ImportDequantizeLinear;
  table["DynamicQuantizeLinear"] = ImportDynamicQuantizeLinear;
  table["MatMulInteger"] = ImportMatMulInteger;
  table["QLinearMatMul"] = ImportQLinearMatMul;
  table["ConvInteger"] = ImportConvInteger;
  table["QLinearConv"] = ImportQLinearConv;
}

}  // namespace fuseline::onnx_import
