// Normalizations and softmax.
#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "client/onnx/importers.h"

namespace fuseline::onnx_import {
namespace {

// [C] as [1, C, 1, …], beside a tensor of `rank` dims.
Val AlongChannels(OpCall& c, Val v, int64_t rank) {
  Shape shape(static_cast<size_t>(std::max<int64_t>(rank, 2)), 1);
  shape[1] = v.count();
  return c.e.Reshape(v, shape);
}

Ints DimsFrom(int64_t first, int64_t rank) {
  Ints dims;
  for (int64_t d = first; d < rank; ++d) dims.push_back(d);
  return dims;
}

Val Mean(OpCall& c, Val x, const Ints& dims) { return c.e.Emit("mean", {x}, {{"dims", dims}, {"keepdim", true}}); }

struct Moments {
  Val variance, mean;
};

Moments VarMean(OpCall& c, Val x, const Ints& dims, bool keepdim = true) {
  const std::vector<Val> r =
      c.e.EmitMany("var_mean", {x}, {{"dims", dims}, {"keepdim", keepdim}, {"correction", 0}}, 2);
  return {r[0], r[1]};
}

// f16 and bf16 are normalised in f32, as ONNX's stash_type asks.
Val InF32(OpCall& c, Val x) { return IsHalf(x.dtype()) ? c.e.Cast(x, DType::kF32) : x; }

void ImportSoftmax(OpCall& c) {
  const Val x = c.In(0);
  const bool flat = c.opset < 13;  // then it was of the matrix [dims before axis, dims from axis on]
  const char* op = c.op() == "LogSoftmax" ? "log_softmax" : "softmax";
  int64_t axis = c.Int("axis", flat ? 1 : -1);
  if (flat && axis == x.rank()) return c.Fail("attribute 'axis' is out of range");
  axis = c.Axis(axis, x.rank());
  if (!c.ok()) return;
  const auto apply = [&](Val v, int64_t dim) {
    if (c.op() != "Hardmax") return c.e.Emit(op, {v}, {{"dim", dim}});
    const Val first = c.e.Emit("argmax", {v}, {{"dim", dim}, {"keepdim", true}});
    return c.e.Cast(Apply("eq", c.e.Iota(DType::kI64, v.shape(), dim), first), v.dtype());
  };
  if (!flat || axis == x.rank() - 1) return c.Out(0, apply(x, axis));
  int64_t rows = 1, columns = 1;
  for (int64_t d = 0; d < x.rank(); ++d) (d < axis ? rows : columns) *= x.dim(d);
  c.Out(0, c.e.Reshape(apply(c.e.Reshape(x, {rows, columns}), 1), x.shape()));
}

void ImportBatchNormalization(OpCall& c) {
  c.Ignore("consumed_inputs");
  c.Ignore("is_test");
  const double eps = c.Float("epsilon", 1e-5), momentum = c.Float("momentum", 0.9);
  const bool training = c.Int("training_mode", 0) != 0;
  if (c.Int("spatial", 1) != 1) return c.Refuse("attribute 'spatial' = 0 is not supported");
  const Val x = c.In(0);
  const int64_t rank = x.rank();
  Val scale = c.In(1), bias = c.In(2), mean = c.In(3), variance = c.In(4);
  if (rank < 2 && c.ok()) return c.Fail("the operand has fewer than two dims");
  const auto normalize = [&](Val m, Val v) {
    const Val factor =
        AlongChannels(c, c.e.Cast(scale, x.dtype()), rank) / Apply("sqrt", AlongChannels(c, v, rank) + eps);
    return (x - AlongChannels(c, m, rank)) * factor + AlongChannels(c, c.e.Cast(bias, x.dtype()), rank);
  };
  if (!training) {
    for (size_t i = 1; i < c.output_count(); ++i) {
      if (c.WantsOut(i)) return c.Refuse("results beside the first exist in training mode only");
    }
    return c.Out(0, normalize(c.e.Cast(mean, x.dtype()), c.e.Cast(variance, x.dtype())));
  }
  Ints dims = {0};
  for (int64_t d = 2; d < rank; ++d) dims.push_back(d);
  const Moments now = VarMean(c, x, dims, false);
  c.Out(0, normalize(now.mean, now.variance));
  c.Out(1, mean * momentum + c.e.Cast(now.mean, mean.dtype()) * (1 - momentum));
  c.Out(2, variance * momentum + c.e.Cast(now.variance, variance.dtype()) * (1 - momentum));
}

void ImportInstanceNormalization(OpCall& c) {
  c.Ignore("consumed_inputs");
  const Val x = c.In(0);
  const Moments m = VarMean(c, x, DimsFrom(2, x.rank()));
  const Val normal = (x - m.mean) / Apply("sqrt", m.variance + c.Float("epsilon", 1e-5));
  c.Out(0, normal * AlongChannels(c, c.In(1), x.rank()) + AlongChannels(c, c.In(2), x.rank()));
}

void ImportLayerNormalization(OpCall& c) {
  const Val x = c.In(0);
  const int64_t axis = c.Axis(c.Int("axis", -1), x.rank());
  const double eps = c.Float("epsilon", 1e-5);
  c.Ignore("stash_type");
  const Val wide = InF32(c, x);
  const Moments m = VarMean(c, wide, DimsFrom(axis, x.rank()));
  const Val inverse = Apply("reciprocal", Apply("sqrt", m.variance + eps));
  Val y = c.e.Cast((wide - m.mean) * inverse, x.dtype()) * c.In(1);
  if (c.Has(2)) y = y + c.In(2);
  c.Out(0, y);
  if (c.WantsOut(1)) c.Out(1, m.mean);
  if (c.WantsOut(2)) c.Out(2, inverse);
}

void ImportRmsNormalization(OpCall& c) {
  const Val x = c.In(0);
  const int64_t axis = c.Axis(c.Int("axis", -1), x.rank());
  c.Ignore("stash_type");
  const Val wide = InF32(c, x);
  const Val square = Mean(c, wide * wide, DimsFrom(axis, x.rank()));
  const Val y = wide / Apply("sqrt", square + c.Float("epsilon", 1e-5));
  c.Out(0, c.e.Cast(y, x.dtype()) * c.In(1));
}

void ImportGroupNormalization(OpCall& c) {
  const Val x = c.In(0);
  const int64_t groups = c.Int("num_groups", 0);
  const double eps = c.Float("epsilon", 1e-5);
  c.Ignore("stash_type");
  if (x.rank() < 2 || groups <= 0 || x.dim(1) % groups != 0) return c.Fail("the channels do not divide into groups");
  const int64_t channels = x.dim(1);
  Shape grouped = x.shape();
  grouped[1] = channels / groups;
  grouped.insert(grouped.begin() + 1, groups);
  const Val split = c.e.Reshape(InF32(c, x), grouped);
  const Moments m = VarMean(c, split, DimsFrom(2, split.rank()));
  const Val normal = c.e.Cast((split - m.mean) / Apply("sqrt", m.variance + eps), x.dtype());
  // Up to opset 20 scale and bias are of the groups, later of the channels.
  const auto along = [&](Val v) {
    Shape shape(grouped.size(), 1);
    if (v.count() == channels && (c.opset >= 21 || channels != groups)) {
      shape[1] = groups;
      shape[2] = channels / groups;
    } else {
      shape[1] = groups;
    }
    return c.e.Reshape(v, shape);
  };
  c.Out(0, c.e.Reshape(normal * along(c.In(1)) + along(c.In(2)), x.shape()));
}

// x / (bias + alpha / size * sum of the squares of `size` neighbouring channels) ^ beta
void ImportLrn(OpCall& c) {
  const Val x = c.In(0);
  const int64_t size = c.Int("size", 0);
  const double alpha = c.Float("alpha", 1e-4), beta = c.Float("beta", 0.75), bias = c.Float("bias", 1.0);
  if (size <= 0 || size > 1024 || x.rank() < 2) return c.Fail("attribute 'size' is out of range");
  Ints low(static_cast<size_t>(x.rank()), 0), high = low;
  low[1] = (size - 1) / 2;
  high[1] = size - 1 - low[1];
  const Val padded = c.e.Pad(x * x, low, high, 0);
  Val sum = c.e.Slice(padded, 1, 0, x.dim(1));
  for (int64_t i = 1; i < size; ++i) sum = sum + c.e.Slice(padded, 1, i, i + x.dim(1));
  c.Out(0, x / Apply("pow", sum * (alpha / static_cast<double>(size)) + bias, beta));
}

void ImportMeanVarianceNormalization(OpCall& c) {
  const Val x = c.In(0);
  const Moments m = VarMean(c, x, c.IntList("axes", {0, 2, 3}));
  c.Out(0, (x - m.mean) / (Apply("sqrt", m.variance) + 1e-9));
}

void ImportLpNormalization(OpCall& c) {
  const Val x = c.In(0);
  const int64_t axis = c.Axis(c.Int("axis", -1), x.rank()), p = c.Int("p", 2);
  if (p != 1 && p != 2) return c.Fail("attribute 'p' is neither 1 nor 2");
  const Val size = p == 1 ? c.e.Sum(Apply("abs", x), {axis}, true) : Apply("sqrt", c.e.Sum(x * x, {axis}, true));
  // All zeros stay so since opset 22.
  c.Out(0, c.opset < 22 ? x / size : c.e.Where(Apply("eq", size, 0.0), 0.0, x / size));
}

}  // namespace

void AddNormalizationImporters(ImporterTable& table) {
  for (const char* op : {"Softmax", "LogSoftmax", "Hardmax"}) table[op] = ImportSoftmax;
  table["BatchNormalization"] = ImportBatchNormalization;
  table["InstanceNormalization"] = ImportInstanceNormalization;
  table["LayerNormalization"] = ImportLayerNormalization;
  table["RMSNormalization"] = ImportRmsNormalization;
  table["GroupNormalization"] = ImportGroupNormalization;
  table["LRN"] = ImportLrn;
  table["MeanVarianceNormalization"] = ImportMeanVarianceNormalization;
  table["LpNormalization"] = ImportLpNormalization;
}

}  // namespace fuseline::onnx_import
