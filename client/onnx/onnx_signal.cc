// Signal processing: Fourier transforms as products with matrices of cosines and sines, windows, mel weights.
#include <algorithm>
#include <cmath>
#include <numbers>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/onnx/importers.h"
#include "client/onnx/model_reader.h"

namespace fuseline::onnx_import {
namespace {

constexpr int64_t kMaxTransform = 2048;  // points; the matrices have its square

// The transform of [rows, points, 1 or 2] (real and imaginary parts): [rows, bins, 2].
Val Transform(OpCall& c, Val x, int64_t points, int64_t bins, bool inverse) {
  std::vector<double> cosines, sines;
  const double sign = inverse ? 1 : -1, scale = inverse ? 1.0 / static_cast<double>(points) : 1.0;
  for (int64_t n = 0; n < points; ++n) {
    for (int64_t k = 0; k < bins; ++k) {
      // The angle's multiple is reduced first, so that it stays exact.
      const double angle = 2 * std::numbers::pi * static_cast<double>(n * k % points) / static_cast<double>(points);
      cosines.push_back(scale * std::cos(angle));
      sines.push_back(scale * sign * std::sin(angle));
    }
  }
  const Val cosine = c.e.FloatConstant(cosines, {points, bins}, x.dtype());
  const Val sine = c.e.FloatConstant(sines, {points, bins}, x.dtype());
  const auto part = [&](int64_t k) { return c.e.Squeeze(c.e.Slice(x, 2, k, k + 1), {2}); };
  const auto times = [&](Val a, Val b) { return c.e.Emit("matmul", {a, b}); };
  Val real = times(part(0), cosine), imaginary = times(part(0), sine);
  if (x.dim(2) == 2) {
    real = real - times(part(1), sine);
    imaginary = imaginary + times(part(1), cosine);
  }
  return c.e.Concat({c.e.Unsqueeze(real, 2), c.e.Unsqueeze(imaginary, 2)}, 2);
}

// Crops or pads a dim at its end.
Val WithSize(OpCall& c, Val x, int64_t dim, int64_t size) {
  if (dim >= x.rank()) {
    c.Fail("an operand has too few dims");
    return x;
  }
  Ints low(static_cast<size_t>(x.rank()), 0), high = low;
  high[static_cast<size_t>(dim)] = size - x.dim(dim);
  return c.e.Pad(x, low, high, 0);
}

void ImportDft(OpCall& c) {
  Val x = c.In(0);
  const bool inverse = c.Int("inverse", 0) != 0, onesided = c.Int("onesided", 0) != 0;
  int64_t axis = c.Int("axis", c.opset >= 20 ? -2 : 1);
  if (c.Has(2)) axis = static_cast<int64_t>(c.KnownNumber(2, "axis"));
  axis = c.Axis(axis, x.rank());
  int64_t points = x.dim(axis);
  if (c.Has(1)) points = static_cast<int64_t>(c.KnownNumber(1, "dft_length"));
  if (!c.ok()) return;
  if (x.rank() < 2 || axis == x.rank() - 1 || x.dim(-1) < 1 || x.dim(-1) > 2)
    return c.Fail("the operand has no complex last dim");
  if (points < 1 || points > kMaxTransform)
    return c.Refuse(absl::StrCat("transforms of ", points, " points are not supported"));
  if (inverse && onesided) {
    // The other half mirrors the given one; the result is real. The length left out is that of an even transform.
    if (!c.Has(1)) points = 2 * (x.dim(axis) - 1);
    if (points < 1 || points > kMaxTransform) return c.Refuse("a transform of this many points is not supported");
    if (x.dim(-1) != 2) return c.Fail("the operand is not complex");
    const int64_t given = points / 2 + 1;
    x = WithSize(c, x, axis, given);
    const Val mirrored = c.e.Flip(c.e.Slice(x, axis, 1, points - given + 1), axis);
    const Val conjugate =
        c.e.Concat({c.e.Slice(mirrored, x.rank() - 1, 0, 1), -c.e.Slice(mirrored, x.rank() - 1, 1, 2)}, x.rank() - 1);
    x = c.e.Concat({x, conjugate}, axis);
    if (!c.ok()) return;
  }
  const int64_t parts = x.dim(-1), bins = onesided && !inverse ? points / 2 + 1 : points;
  x = WithSize(c, x, axis, points);
  Ints order, back(static_cast<size_t>(x.rank()));
  for (int64_t d = 0; d < x.rank(); ++d) {
    if (d != axis && d != x.rank() - 1) order.push_back(d);
  }
  order.push_back(axis);
  order.push_back(x.rank() - 1);
  for (size_t d = 0; d < order.size(); ++d) back[static_cast<size_t>(order[d])] = static_cast<int64_t>(d);
  const Val moved = c.e.Permute(x, order);
  Shape shape = moved.shape();
  if (!c.ok()) return;
  int64_t rows = 1;
  for (size_t d = 0; d + 2 < shape.size(); ++d) rows *= shape[d];
  const Val y = Transform(c, c.e.Reshape(moved, {rows, points, parts}), points, bins, inverse);
  shape[shape.size() - 2] = bins;
  shape[shape.size() - 1] = 2;
  const Val result = c.e.Permute(c.e.Reshape(y, shape), back);
  c.Out(0, inverse && onesided ? c.e.Slice(result, result.rank() - 1, 0, 1) : result);
}

void ImportStft(OpCall& c) {
  const Val signal = c.In(0);
  const double step_number = c.KnownNumber(1, "frame_step");
  const bool onesided = c.Int("onesided", 1) != 0;
  int64_t length = 0;
  if (c.Has(3)) {
    length = static_cast<int64_t>(c.KnownNumber(3, "frame_length"));
  } else if (c.Has(2)) {
    length = c.In(2).dim(0);
  }
  if (!c.ok()) return;
  const auto step = static_cast<int64_t>(step_number);
  if (signal.rank() != 3) return c.Fail("the operand has not three dims");
  const int64_t size = signal.dim(1), parts = signal.dim(2);
  if (step < 1 || length < 1 || length > size || length > kMaxTransform)
    return c.Refuse("frames of this length or step are not supported");
  const int64_t frames = (size - length) / step + 1, bins = onesided ? length / 2 + 1 : length, batch = signal.dim(0);
  if (frames > (int64_t{1} << 22) / length) return c.Refuse("the frames are too many");
  Ints positions;
  for (int64_t f = 0; f < frames; ++f) {
    for (int64_t i = 0; i < length; ++i) positions.push_back(f * step + i);
  }
  Val x = c.e.Reshape(c.e.Select(signal, positions, 1), {batch * frames, length, parts});
  if (c.Has(2)) x = x * c.e.Reshape(WithSize(c, c.In(2), 0, length), {1, length, 1});
  c.Out(0, c.e.Reshape(Transform(c, x, length, bins, false), {batch, frames, bins, 2}));
}

void ImportWindow(OpCall& c) {
  const double size_number = c.KnownNumber(0, "size");
  const DType dtype = DTypeOfOnnx(c.Int("output_datatype", 1));
  const bool periodic = c.Int("periodic", 1) != 0;
  if (!c.ok()) return;
  if (!IsFloat(dtype) || IsF8(dtype)) return c.Refuse("attribute 'output_datatype': the element type is not supported");
  if (!(size_number >= 0 && size_number <= 1e7)) return c.Fail("'size' is out of range");
  const auto size = static_cast<int64_t>(size_number);
  const double period = static_cast<double>(std::max<int64_t>(1, periodic ? size : size - 1));
  double a0 = 0.5, a1 = 0.5, a2 = 0;  // Hann
  if (c.op() == "HammingWindow") {
    a0 = 25.0 / 46;
    a1 = 1 - a0;
  } else if (c.op() == "BlackmanWindow") {
    a0 = 0.42;
    a2 = 0.08;
  }
  Tensor out = Tensor::Allocate(dtype, {size});
  for (int64_t i = 0; i < size; ++i) {
    const double angle = 2 * std::numbers::pi * static_cast<double>(i) / period;
    out.SetDouble(i, a0 - a1 * std::cos(angle) + a2 * std::cos(2 * angle));
  }
  c.OutKnown(0, out);
}

// Triangles that overlap, evenly spaced on the mel scale: [spectrogram bins, mel bins].
void ImportMelWeightMatrix(OpCall& c) {
  const double mel_bins = c.KnownNumber(0, "num_mel_bins"), dft_length = c.KnownNumber(1, "dft_length");
  const double rate = c.KnownNumber(2, "sample_rate"), low = c.KnownNumber(3, "lower_edge_hertz");
  const double high = c.KnownNumber(4, "upper_edge_hertz");
  const DType dtype = DTypeOfOnnx(c.Int("output_datatype", 1));
  if (!c.ok()) return;
  if (!IsFloat(dtype) || IsF8(dtype)) return c.Refuse("attribute 'output_datatype': the element type is not supported");
  if (!(mel_bins >= 1 && mel_bins <= 512 && dft_length >= 1 && dft_length <= 65536 && rate > 0 && low >= 0 &&
        high >= low)) {
    return c.Fail("an operand is out of range");
  }
  const auto columns = static_cast<int64_t>(mel_bins), rows = static_cast<int64_t>(dft_length) / 2 + 1;
  const double low_mel = 2595 * std::log10(1 + low / 700), high_mel = 2595 * std::log10(1 + high / 700);
  const double step = (high_mel - low_mel) / static_cast<double>(columns + 2);
  Ints edges;
  for (int64_t i = 0; i < columns + 2; ++i) {
    const double hertz = 700 * (std::pow(10, (static_cast<double>(i) * step + low_mel) / 2595) - 1);
    edges.push_back(static_cast<int64_t>(std::floor((dft_length + 1) * hertz / rate)));
  }
  Tensor out = Tensor::Allocate(dtype, {rows, columns});
  for (int64_t i = 0; i < rows * columns; ++i) out.SetDouble(i, 0);
  const auto set = [&](int64_t row, int64_t column, double v) {
    if (row >= 0 && row < rows) out.SetDouble(row * columns + column, v);
  };
  for (int64_t i = 0; i < columns; ++i) {
    const auto k = static_cast<size_t>(i);
    const int64_t first = edges[k], centre = edges[k + 1], last = std::min(edges[k + 2], rows);
    if (centre == first) set(centre, i, 1);
    for (int64_t j = std::max<int64_t>(first, 0); centre > first && j <= std::min(centre, rows - 1); ++j) {
      set(j, i, static_cast<double>(j - first) / static_cast<double>(centre - first));
    }
    for (int64_t j = centre; j < last; ++j) {
      set(j, i, static_cast<double>(edges[k + 2] - j) / static_cast<double>(edges[k + 2] - centre));
    }
  }
  c.OutKnown(0, out);
}

}  // namespace

void AddSignalImporters(ImporterTable& table) {
  table["DFT"] = ImportDft;
  table["STFT"] = ImportStft;
  for (const char* op : {"HannWindow", "HammingWindow", "BlackmanWindow"}) table[op] = ImportWindow;
  table["MelWeightMatrix"] = ImportMelWeightMatrix;
}

}  // namespace fuseline::onnx_import
