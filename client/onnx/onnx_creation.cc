// Ops that make values: constants, ranges, what a shape says.
#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "client/onnx/constant_folding.h"
#include "client/onnx/importers.h"
#include "client/onnx/model_reader.h"

namespace fuseline::onnx_import {
namespace {

Tensor ListOf(const Ints& values) {
  Tensor tensor = Tensor::Allocate(DType::kI64, {static_cast<int64_t>(values.size())});
  for (size_t i = 0; i < values.size(); ++i) tensor.SetInt(static_cast<int64_t>(i), values[i]);
  return tensor;
}

Tensor ListOf(const std::vector<double>& values) {
  Tensor tensor = Tensor::Allocate(DType::kF32, {static_cast<int64_t>(values.size())});
  for (size_t i = 0; i < values.size(); ++i) tensor.SetDouble(static_cast<int64_t>(i), values[i]);
  return tensor;
}

void ImportConstant(OpCall& c) {
  if (c.HasAttr("value")) {
    if (const Tensor* value = c.TensorAttr("value")) c.OutKnown(0, *value);
  } else if (c.HasAttr("value_int")) {
    Tensor one = Tensor::Allocate(DType::kI64, {});
    one.SetInt(0, c.Int("value_int", 0));
    c.OutKnown(0, one);
  } else if (c.HasAttr("value_ints")) {
    c.OutKnown(0, ListOf(c.IntList("value_ints", {})));
  } else if (c.HasAttr("value_float")) {
    Tensor one = Tensor::Allocate(DType::kF32, {});
    one.SetDouble(0, c.Float("value_float", 0));
    c.OutKnown(0, one);
  } else if (c.HasAttr("value_floats")) {
    c.OutKnown(0, ListOf(c.FloatList("value_floats", {})));
  } else {
    c.Refuse("it has no value that can be imported (strings and sparse tensors can't)");
  }
}

void ImportShape(OpCall& c) {
  const Shape shape = c.InShape(0);
  const auto rank = static_cast<int64_t>(shape.size());
  const auto place = [&](int64_t v) { return std::clamp(v < 0 ? v + rank : v, int64_t{0}, rank); };
  const int64_t start = place(c.Int("start", 0)), end = place(c.Int("end", rank));
  c.OutKnown(0, ListOf(start < end ? Ints(shape.begin() + start, shape.begin() + end) : Ints()));
}

void ImportSize(OpCall& c) {
  Tensor one = Tensor::Allocate(DType::kI64, {});
  one.SetInt(0, ElementCount(c.InShape(0)));
  c.OutKnown(0, one);
}

void ImportConstantOfShape(OpCall& c) {
  const Shape shape = c.KnownInts(0, "input");
  const Tensor* value = c.TensorAttr("value");
  if (!c.ok()) return;
  if (value != nullptr && value->element_count() != 1) return c.Fail("attribute 'value' is not one number");
  Tensor one = value != nullptr ? *value : Tensor::Allocate(DType::kF32, {1});
  if (value == nullptr) one.SetDouble(0, 0);
  int64_t count = 1;
  for (const int64_t size : shape) {
    if (size < 0) return c.Fail("a size is negative");
    count = size == 0 ? 0 : count > kMaxFoldedElements / size ? kMaxFoldedElements + 1 : count * size;
    if (count == 0) break;
  }
  if (count > kMaxFoldedElements || shape.size() > static_cast<size_t>(GraphLimits().max_rank)) {
    const Val scalar = c.e.Reshape(c.e.Constant(one), {});
    return c.Out(0, c.e.BroadcastTo(scalar, shape));
  }
  Tensor out = Tensor::Allocate(one.dtype(), shape);
  for (int64_t i = 0; i < count; ++i) {
    if (IsFloat(one.dtype())) {
      out.SetDouble(i, one.GetDouble(0));
    } else {
      out.SetInt(i, one.GetInt(0));
    }
  }
  c.OutKnown(0, out);
}

void ImportRange(OpCall& c) {
  const double start = c.KnownNumber(0, "start"), limit = c.KnownNumber(1, "limit"), delta = c.KnownNumber(2, "delta");
  if (!c.ok()) return;
  const double steps = delta == 0 ? -1 : std::ceil((limit - start) / delta);
  if (!(std::abs(steps) < 1e12) || delta == 0) return c.Fail("the range is endless or too long");
  const auto count = static_cast<int64_t>(std::max(0.0, steps));
  const DType dtype = c.InType(0);
  if (count > kMaxFoldedElements) {
    const DType wide = IsFloat(dtype) ? dtype : DType::kI64;
    return c.Out(0, c.e.Cast(c.e.Iota(wide, {count}, 0) * delta + start, dtype));
  }
  Tensor out = Tensor::Allocate(dtype, {count});
  for (int64_t i = 0; i < count; ++i) {
    const double v = start + static_cast<double>(i) * delta;
    if (IsFloat(dtype)) {
      out.SetDouble(i, v);
    } else {
      out.SetInt(i, static_cast<int64_t>(v));
    }
  }
  c.OutKnown(0, out);
}

void ImportEyeLike(OpCall& c) {
  const Shape shape = c.InShape(0);
  if (shape.size() != 2) return c.Fail("the operand is not a matrix");
  DType dtype = c.InType(0);
  if (c.HasAttr("dtype")) dtype = DTypeOfOnnx(c.Int("dtype", 0));
  if (dtype == DType::kInvalid) return c.Refuse("attribute 'dtype': the element type is not supported");
  const int64_t k = c.Int("k", 0);
  if (std::abs(k) > (int64_t{1} << 40)) return c.Fail("attribute 'k' is out of range");
  const Val row = c.e.Iota(DType::kI64, shape, 0), column = c.e.Iota(DType::kI64, shape, 1);
  const Val on = Apply("eq", row + static_cast<double>(k), column);
  c.Out(0, c.e.Cast(on, dtype));
}

// Inference: the operand itself, and a mask of ones.
void ImportDropout(OpCall& c) {
  c.Ignore("seed");
  c.Ignore("ratio");
  c.Ignore("is_test");
  c.Ignore("consumed_inputs");
  const Val x = c.In(0);
  if (c.Has(2) && c.KnownNumber(2, "training_mode") != 0 && c.ok()) {
    const double ratio = c.Has(1) ? c.KnownNumber(1, "ratio") : 0.5;
    if (c.ok() && ratio != 0) return c.Refuse("dropout in training mode is random");
  }
  c.Out(0, x);
  if (c.WantsOut(1)) c.Out(1, c.e.Full(DType::kBool, x.shape(), 1));
}

}  // namespace

void AddCreationImporters(ImporterTable& table) {
  table["Constant"] = ImportConstant;
  table["Shape"] = ImportShape;
  table["Size"] = ImportSize;
  table["ConstantOfShape"] = ImportConstantOfShape;
  table["Range"] = ImportRange;
  table["EyeLike"] = ImportEyeLike;
  table["Dropout"] = ImportDropout;
}

}  // namespace fuseline::onnx_import
