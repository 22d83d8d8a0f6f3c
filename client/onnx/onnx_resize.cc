// Resize and Upsample, GridSample, RoiAlign: samples between elements.
//
// Resize is separable: dim by dim, a weighted sum of elements at positions that are known at import. Where a wide
// filter makes many of them (antialias), it is a product with a matrix of the weights.
#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/onnx/importers.h"

namespace fuseline::onnx_import {
namespace {

constexpr int64_t kMaxResized = 1 << 20;  // of a dim: positions and weights are written out
constexpr int64_t kMaxWeights = 1 << 22;  // of a dim, for all elements of its result
constexpr size_t kMaxTaps = 16;           // more of them are a matrix

struct ResizeRule {
  std::string transform, mode, nearest;
  double cubic = -0.75;
  double extrapolation = 0;
  bool exclude_outside = false;
  bool antialias = false;
  std::string aspect = "stretch";
};

// Where the centre of element i of a result of `elements` lies among `from` elements. Where scales are given, the
// result is `to` = scale * from long before it is rounded down, and ONNX goes by that.
double SourcePosition(const ResizeRule& rule, double i, double from, double to, double elements, double scale,
                      double roi_start, double roi_end) {
  if (rule.transform == "asymmetric") return i / scale;
  if (rule.transform == "align_corners") return to == 1 ? 0 : i * (from - 1) / (to - 1);
  if (rule.transform == "pytorch_half_pixel") return to == 1 ? 0 : (i + 0.5) / scale - 0.5;
  if (rule.transform == "tf_half_pixel_for_nn") return (i + 0.5) / scale;
  if (rule.transform == "tf_crop_and_resize") {
    return to == 1 ? 0.5 * (roi_start + roi_end) * (from - 1)
                   : roi_start * (from - 1) + i * (roi_end - roi_start) * (from - 1) / (to - 1);
  }
  if (rule.transform == "half_pixel_symmetric") {
    const double adjustment = elements / (scale * from);
    return from / 2 * (1 - adjustment) + (i + 0.5) / scale - 0.5;
  }
  return (i + 0.5) / scale - 0.5;  // half_pixel
}

double RoundNearest(const ResizeRule& rule, double x) {
  if (rule.nearest == "floor") return std::floor(x);
  if (rule.nearest == "ceil") return std::ceil(x);
  if (rule.nearest == "round_prefer_ceil") return std::floor(x + 0.5);
  return std::ceil(x - 0.5);  // round_prefer_floor
}

// Keys' cubic: the weights of the four elements around a position with fraction t.
std::array<double, 4> CubicWeights(double t, double a) {
  const auto near = [&](double d) { return ((a + 2) * d - (a + 3)) * d * d + 1; };
  const auto far = [&](double d) { return ((a * d - 5 * a) * d + 8 * a) * d - 4 * a; };
  return {far(1 + t), near(t), near(1 - t), far(2 - t)};
}

// The same filters as functions of the distance from the centre.
double FilterWeight(const ResizeRule& rule, double distance) {
  const double d = std::abs(distance);
  if (rule.mode == "linear") return std::max(0.0, 1 - d);
  if (d >= 2) return 0;
  return d <= 1 ? CubicWeights(d, rule.cubic)[1] : CubicWeights(d - 1, rule.cubic)[0];
}

// The elements and weights that make each element of the result; `outside`: where the extrapolation value stands.
struct Taps {
  std::vector<Ints> positions;               // by tap, then element
  std::vector<std::vector<double>> weights;  // the same
  std::vector<bool> outside;
};

// How many elements on each side of a position a filter takes. Antialiasing stretches it where the result is smaller.
int64_t Reach(const ResizeRule& rule, double scale) {
  const int64_t reach = rule.mode == "cubic" ? 2 : 1;
  if (!rule.antialias || scale >= 1 || rule.mode == "nearest") return reach;
  return static_cast<int64_t>(std::min(std::ceil(static_cast<double>(reach) / scale), 1e9)) + 1;
}

Taps MakeTaps(const ResizeRule& rule, int64_t from, int64_t to, double exact_to, double scale, double roi_start,
              double roi_end) {
  Taps taps;
  const int64_t reach = Reach(rule, scale);
  const int64_t count = rule.mode == "nearest" ? 1 : 2 * reach;
  const bool stretched = rule.antialias && scale < 1 && count > 1;
  const bool normalize = rule.exclude_outside || stretched;
  taps.positions.resize(static_cast<size_t>(count));
  taps.weights.resize(static_cast<size_t>(count));
  for (int64_t i = 0; i < to; ++i) {
    const double x = SourcePosition(rule, static_cast<double>(i), static_cast<double>(from), exact_to,
                                    static_cast<double>(to), scale, roi_start, roi_end);
    taps.outside.push_back(rule.transform == "tf_crop_and_resize" && (x < 0 || x > static_cast<double>(from - 1)));
    const double base = rule.mode == "nearest" ? RoundNearest(rule, x) : std::floor(x);
    const double t = x - base;
    std::vector<double> weights(static_cast<size_t>(count), 1);
    if (stretched) {
      for (int64_t k = 0; k < count; ++k) {
        weights[static_cast<size_t>(k)] = FilterWeight(rule, (static_cast<double>(k - reach + 1) - t) * scale);
      }
    } else if (rule.mode == "linear") {
      weights = {1 - t, t};
    } else if (rule.mode == "cubic") {
      const std::array<double, 4> cubic = CubicWeights(t, rule.cubic);
      weights.assign(cubic.begin(), cubic.end());
    }
    double sum = 0;
    for (int64_t k = 0; k < count; ++k) {
      const double p = base + static_cast<double>(count == 1 ? 0 : k - reach + 1);
      double& w = weights[static_cast<size_t>(k)];
      if (rule.exclude_outside && (p < 0 || p >= static_cast<double>(from))) w = 0;
      sum += w;
      taps.positions[static_cast<size_t>(k)].push_back(
          static_cast<int64_t>(std::clamp(p, 0.0, static_cast<double>(from - 1))));
    }
    for (int64_t k = 0; k < count; ++k) {
      const double w = weights[static_cast<size_t>(k)];
      taps.weights[static_cast<size_t>(k)].push_back(normalize && sum != 0 ? w / sum : w);
    }
  }
  return taps;
}

// The sums as a product with the weights, [to, from], along dim d.
Val MatrixAlong(OpCall& c, Val x, int64_t d, const Taps& taps) {
  const int64_t from = x.dim(d), to = static_cast<int64_t>(taps.outside.size());
  std::vector<double> matrix(static_cast<size_t>(from * to), 0);
  for (size_t k = 0; k < taps.positions.size(); ++k) {
    for (int64_t i = 0; i < to; ++i) {
      matrix[static_cast<size_t>(i * from + taps.positions[k][static_cast<size_t>(i)])] +=
          taps.weights[k][static_cast<size_t>(i)];
    }
  }
  Ints order;
  for (int64_t k = 0; k < x.rank(); ++k) order.push_back(k);
  std::swap(order[static_cast<size_t>(d)], order.back());  // its own inverse
  const Val weights = c.e.FloatConstant(matrix, {to, from}, x.dtype());
  return c.e.Permute(c.e.Emit("linear", {c.e.Permute(x, order), weights}), order);
}

Val ResizeDim(OpCall& c, Val x, int64_t d, const Taps& taps, double extrapolation) {
  const auto to = static_cast<int64_t>(taps.outside.size());
  Shape along(static_cast<size_t>(x.rank()), 1);
  along[static_cast<size_t>(d)] = to;
  Val y;
  if (taps.positions.size() == 1) {
    y = c.e.Select(x, taps.positions[0], d);
  } else if (taps.positions.size() > kMaxTaps) {
    y = MatrixAlong(c, x, d, taps);
  } else {
    for (size_t k = 0; k < taps.positions.size(); ++k) {
      const Val part = c.e.Select(x, taps.positions[k], d) * c.e.FloatConstant(taps.weights[k], along, x.dtype());
      y = k == 0 ? part : y + part;
    }
  }
  if (std::find(taps.outside.begin(), taps.outside.end(), true) == taps.outside.end()) return y;
  Tensor outside = Tensor::Allocate(DType::kBool, along);
  for (int64_t i = 0; i < to; ++i) outside.SetInt(i, taps.outside[static_cast<size_t>(i)]);
  return c.e.Where(c.e.Constant(outside), extrapolation, y);
}

std::vector<double> KnownFloats(OpCall& c, size_t i, const char* what) {
  std::vector<double> values;
  const Tensor& tensor = c.MustKnow(i, what);
  for (int64_t k = 0; k < tensor.element_count() && k < 64; ++k) values.push_back(tensor.GetDouble(k));
  return values;
}

void Resize(OpCall& c, const ResizeRule& rule, const std::vector<double>& scales, const Ints& sizes, const Ints& axes,
            const std::vector<double>& roi) {
  Val x = c.In(0);
  if (!c.ok()) return;
  const DType dtype = x.dtype();
  const size_t n = axes.size();
  if ((scales.size() != n && sizes.size() != n) || n > static_cast<size_t>(x.rank())) {
    return c.Fail("'scales' or 'sizes' has not one number for each axis");
  }
  if (rule.transform == "tf_crop_and_resize" && roi.size() != 2 * n)
    return c.Fail("'roi' has not two numbers for each axis");
  const bool averages = rule.mode != "nearest";
  if (averages && !IsFloat(dtype)) x = c.e.Cast(x, DType::kF32);
  double common_scale = 0;  // of all axes, where their aspect is kept
  if (rule.aspect != "stretch" && sizes.size() == n) {
    for (size_t k = 0; k < n; ++k) {
      const int64_t d = c.Axis(axes[k], x.rank());
      if (!c.ok()) return;
      if (sizes[k] < 1 || x.dim(d) < 1) return c.Fail("a size is out of range");
      const double scale = static_cast<double>(sizes[k]) / static_cast<double>(x.dim(d));
      const bool better = rule.aspect == "not_larger" ? scale < common_scale : scale > common_scale;
      if (k == 0 || better) common_scale = scale;
    }
  }
  for (size_t k = 0; k < n; ++k) {
    const int64_t d = c.Axis(axes[k], x.rank());
    if (!c.ok()) return;
    const int64_t from = x.dim(d);
    double scale = 1, exact = 0;
    int64_t to = 0;
    if (common_scale > 0) {
      scale = common_scale;
      exact = scale * static_cast<double>(from);
      const double size = std::floor(exact + 0.5);
      if (!(size <= static_cast<double>(kMaxResized))) return c.Fail("a size is out of range");
      to = static_cast<int64_t>(size);
    } else if (sizes.size() == n) {
      to = sizes[k];
      exact = static_cast<double>(to);
      scale = static_cast<double>(to) / static_cast<double>(std::max<int64_t>(from, 1));
    } else {
      scale = scales[k];
      const double crop = rule.transform == "tf_crop_and_resize" ? roi[k + n] - roi[k] : 1;
      const double size = std::floor(static_cast<double>(from) * crop * scale + 1e-9);
      if (!(size >= 0 && size <= static_cast<double>(kMaxResized))) return c.Fail("a scale is out of range");
      to = static_cast<int64_t>(size);
      exact = static_cast<double>(from) * crop * scale;
    }
    if (to < 0 || to > kMaxResized || (from == 0 && to != 0) || !(scale > 0)) return c.Fail("a size is out of range");
    const double start = roi.size() == 2 * n ? roi[k] : 0, end = roi.size() == 2 * n ? roi[k + n] : 1;
    if (2 * Reach(rule, scale) * to > kMaxWeights ||
        (2 * Reach(rule, scale) > static_cast<int64_t>(kMaxTaps) && from * to > kMaxWeights)) {
      return c.Refuse("a filter this wide is not supported");
    }
    if (to == from && scale == 1 && rule.transform != "tf_crop_and_resize") continue;
    x = ResizeDim(c, x, d, MakeTaps(rule, from, to, exact, scale, start, end), rule.extrapolation);
  }
  c.Out(0, dtype == x.dtype() ? x : c.e.Cast(Apply("round", x), dtype));
}

void ImportResize(OpCall& c) {
  ResizeRule rule;
  const bool first_form = c.opset < 11;  // operands: X, scales
  rule.mode = c.String("mode", "nearest");
  rule.transform = c.String("coordinate_transformation_mode", first_form ? "asymmetric" : "half_pixel");
  rule.nearest = c.String("nearest_mode", first_form ? "floor" : "round_prefer_floor");
  rule.cubic = c.Float("cubic_coeff_a", -0.75);
  rule.extrapolation = c.Float("extrapolation_value", 0);
  rule.exclude_outside = c.Int("exclude_outside", 0) != 0;
  rule.antialias = c.Int("antialias", 0) != 0;
  rule.aspect = c.String("keep_aspect_ratio_policy", "stretch");
  if (rule.aspect != "stretch" && rule.aspect != "not_larger" && rule.aspect != "not_smaller") {
    return c.Fail(absl::StrCat("attribute 'keep_aspect_ratio_policy' = '", rule.aspect, "' is not known"));
  }
  if (rule.mode != "nearest" && rule.mode != "linear" && rule.mode != "cubic") {
    return c.Fail(absl::StrCat("attribute 'mode' = '", rule.mode, "' is not known"));
  }
  Ints axes;
  for (size_t d = 0; d < c.InShape(0).size(); ++d) axes.push_back(static_cast<int64_t>(d));
  axes = c.IntList("axes", axes);
  const size_t scales_at = first_form ? 1 : 2;
  std::vector<double> scales, roi;
  Ints sizes;
  if (c.Has(scales_at)) scales = KnownFloats(c, scales_at, "scales");
  if (!first_form && c.Has(3)) sizes = c.KnownInts(3, "sizes");
  if (rule.transform == "tf_crop_and_resize") roi = KnownFloats(c, 1, "roi");
  if (c.ok()) Resize(c, rule, scales, sizes, axes, roi);
}

void ImportUpsample(OpCall& c) {
  ResizeRule rule;
  rule.mode = c.String("mode", "nearest");
  if (rule.mode == "bilinear") rule.mode = "linear";
  rule.transform = "asymmetric";
  rule.nearest = "floor";
  Ints axes;
  for (size_t d = 0; d < c.InShape(0).size(); ++d) axes.push_back(static_cast<int64_t>(d));
  const std::vector<double> scales = c.Has(1) ? KnownFloats(c, 1, "scales") : c.FloatList("scales", {});
  if (c.ok()) Resize(c, rule, scales, {}, axes, {});
}

// A value of f32 limited to [0, size - 1] as an index.
Val AsIndex(OpCall& c, Val x, int64_t size) {
  return c.e.Cast(c.e.Clamp(x, 0, static_cast<double>(size - 1)), DType::kI64);
}

// Sampling images [N, C, dims…] at positions, for each dim [N, P].
class ImageSampler {
 public:
  ImageSampler(OpCall& c, Val images, std::string padding, bool align_corners)
      : c_(c), images_(images), padding_(std::move(padding)), align_corners_(align_corners) {
    int64_t elements = 1;
    for (int64_t d = 2; d < images.rank(); ++d) elements *= images.dim(d);
    flat_ = c.e.Reshape(images, {images.dim(0), images.dim(1), elements});
  }

  int64_t dims() const { return images_.rank() - 2; }
  int64_t size(int64_t d) const { return images_.dim(d + 2); }

  // From [-1, 1] to positions of elements.
  Val Unnormalized(Val v, int64_t d) const {
    const auto n = static_cast<double>(size(d));
    return align_corners_ ? (v + 1.0) * ((n - 1) / 2) : ((v + 1.0) * n - 1.0) * 0.5;
  }

  Val InBorders(Val v, int64_t d) const {
    const auto last = static_cast<double>(size(d) - 1);
    if (padding_ == "border") return c_.e.Clamp(v, 0, last);
    if (padding_ == "reflection") return c_.e.Clamp(Reflected(v, size(d)), 0, last);
    return v;
  }

  // The elements at whole positions: [N, C, P]; 0 outside where the padding is zeros.
  Val At(const std::vector<Val>& positions) const {
    Val index, inside;
    for (int64_t d = 0; d < dims(); ++d) {
      const auto k = static_cast<size_t>(d);
      const Val v = padding_ == "zeros" ? positions[k] : InBorders(positions[k], d);
      const Val along = AsIndex(c_, v, size(d));
      index = d == 0 ? along : index * static_cast<double>(size(d)) + along;
      const Val within = Apply("logical_and", Apply("ge", v, 0.0), Apply("le", v, static_cast<double>(size(d) - 1)));
      inside = d == 0 ? within : Apply("logical_and", inside, within);
    }
    const int64_t n = images_.dim(0), channels = images_.dim(1), points = positions[0].dim(1);
    const Val wide = c_.e.BroadcastTo(c_.e.Unsqueeze(index, 1), {n, channels, points});
    const Val taken = c_.e.Emit("gather", {flat_, wide}, {{"dim", 2}});
    return padding_ == "zeros" ? c_.e.Where(c_.e.Unsqueeze(inside, 1), taken, 0.0) : taken;
  }

 private:
  // Mirrored at the borders until it lies within.
  Val Reflected(Val v, int64_t size) const {
    const double low = align_corners_ ? 0 : -0.5, span = static_cast<double>(size) - (align_corners_ ? 1 : 0);
    if (span <= 0) return v * 0.0;
    const Val from_low = Apply("abs", v - low);
    const Val period = Apply("remainder", from_low, 2 * span);
    const Val mirrored = Apply("minimum", period, -period + 2 * span);
    return mirrored + low;
  }

  OpCall& c_;
  Val images_, flat_;
  std::string padding_;
  bool align_corners_;
};

// The weights of the four elements around, of fractions t.
std::array<Val, 4> CubicWeights(Val t, double a) {
  const auto near = [&](Val d) { return (d * (a + 2) - (a + 3)) * d * d + 1.0; };
  const auto far = [&](Val d) { return ((d * a - 5 * a) * d + 8 * a) * d - 4 * a; };
  return {far(t + 1.0), near(t), near(-t + 1.0), far(-t + 2.0)};
}

void ImportGridSample(OpCall& c) {
  const Val images = c.In(0), grid = c.In(1);
  std::string mode = c.String("mode", "bilinear");
  if (mode == "linear") mode = "bilinear";
  if (mode == "cubic") mode = "bicubic";
  const std::string padding = c.String("padding_mode", "zeros");
  const bool align = c.Int("align_corners", 0) != 0;
  if (!c.ok()) return;
  const int64_t dims = images.rank() - 2;
  if ((dims != 2 && dims != 3) || grid.rank() != images.rank() || grid.dim(-1) != dims)
    return c.Refuse("only images with two or three dims are supported");
  if (mode != "bilinear" && mode != "nearest" && (mode != "bicubic" || dims != 2))
    return c.Fail("attribute 'mode' is not known");
  Shape result = grid.shape();
  result.pop_back();
  result.insert(result.begin() + 1, images.dim(1));
  int64_t points = 1;
  for (int64_t d = 0; d < dims; ++d) {
    if (images.dim(d + 2) == 0) return c.Fail("the images are empty");
    points *= grid.dim(d + 1);
  }
  const ImageSampler sampler(c, images, padding, align);
  std::vector<Val> at;  // the grid names the last dim first
  for (int64_t d = 0; d < dims; ++d) {
    const Val along = c.e.Slice(grid, dims + 1, dims - 1 - d, dims - d);
    at.push_back(sampler.Unnormalized(c.e.Cast(c.e.Reshape(along, {images.dim(0), points}), images.dtype()), d));
    if (mode != "bicubic") at.back() = sampler.InBorders(at.back(), d);
  }
  Val sum;
  if (mode == "nearest") {
    for (Val& v : at) v = Apply("round", v);
    sum = sampler.At(at);
  } else if (mode == "bilinear") {
    for (int corner = 0; corner < 1 << dims; ++corner) {
      std::vector<Val> whole;
      Val weight;
      for (int64_t d = 0; d < dims; ++d) {
        const Val base = Apply("floor", at[static_cast<size_t>(d)]), t = at[static_cast<size_t>(d)] - base;
        const bool after = (corner >> d & 1) != 0;
        whole.push_back(after ? base + 1.0 : base);
        const Val along = after ? t : -t + 1.0;
        weight = d == 0 ? along : weight * along;
      }
      const Val part = sampler.At(whole) * c.e.Unsqueeze(weight, 1);
      sum = corner == 0 ? part : sum + part;
    }
  } else {
    const Val y0 = Apply("floor", at[0]), x0 = Apply("floor", at[1]);
    const auto wy = CubicWeights(at[0] - y0, -0.75), wx = CubicWeights(at[1] - x0, -0.75);
    for (int j = 0; j < 4; ++j) {
      Val row;
      for (int i = 0; i < 4; ++i) {
        const Val value = sampler.At({y0 + (j - 1.0), x0 + (i - 1.0)}) * c.e.Unsqueeze(wx[static_cast<size_t>(i)], 1);
        row = i == 0 ? value : row + value;
      }
      row = row * c.e.Unsqueeze(wy[static_cast<size_t>(j)], 1);
      sum = j == 0 ? row : sum + row;
    }
  }
  c.Out(0, c.e.Reshape(sum, result));
}

// Positions of a regular grid, [-1, 1] in each of 2 or 3 dims, put through a linear map for each sample.
void ImportAffineGrid(OpCall& c) {
  const Val theta = c.In(0);
  const Ints size = c.KnownInts(1, "size");
  const bool align = c.Int("align_corners", 0) != 0;
  if (!c.ok()) return;
  const auto n = static_cast<int64_t>(size.size()) - 2;
  if ((n != 2 && n != 3) || theta.rank() != 3 || theta.dim(0) != size[0] || theta.dim(1) != n || theta.dim(2) != n + 1)
    return c.Fail("the map does not fit 'size'");
  const Shape grid(size.begin() + 2, size.end());
  for (const int64_t s : grid) {
    if (s < 1 || s > kMaxResized) return c.Fail("'size' is out of range");
  }
  // x, the last dim's, comes first.
  std::vector<Val> parts;
  Shape one = grid;
  one.push_back(1);
  for (int64_t d = n; d-- > 0;) {
    const int64_t s = grid[static_cast<size_t>(d)];
    std::vector<double> along;
    for (int64_t i = 0; i < s; ++i) {
      const auto at = static_cast<double>(2 * i), last = static_cast<double>(s - 1);
      along.push_back(align ? (s == 1 ? -1 : at / last - 1) : (at + 1) / static_cast<double>(s) - 1);
    }
    Shape shape(one.size(), 1);
    shape[static_cast<size_t>(d)] = s;
    parts.push_back(c.e.BroadcastTo(c.e.FloatConstant(along, shape, theta.dtype()), one));
  }
  parts.push_back(c.e.Full(theta.dtype(), one, 1));
  const int64_t points = ElementCount(grid);
  const Val positions = c.e.Reshape(c.e.Concat(parts, n), {1, points, n + 1});
  const Val mapped = c.e.Emit("matmul", {positions, c.e.Permute(theta, {0, 2, 1})});
  Shape result = {size[0]};
  result.insert(result.end(), grid.begin(), grid.end());
  result.push_back(n);
  c.Out(0, c.e.Reshape(mapped, result));
}

// Means (or maxima) of samples between elements, over bins of regions of interest.
void ImportRoiAlign(OpCall& c) {
  const Val x = c.In(0), rois = c.In(1);
  const Val batch = c.e.Cast(c.In(2), DType::kI64);
  const bool half_pixel =
      c.String("coordinate_transformation_mode", c.opset < 16 ? "output_half_pixel" : "half_pixel") == "half_pixel";
  const std::string mode = c.String("mode", "avg");
  const int64_t out_h = c.Int("output_height", 1), out_w = c.Int("output_width", 1), ratio = c.Int("sampling_ratio", 0);
  const double scale = c.Float("spatial_scale", 1.0);
  if (!c.ok()) return;
  if (ratio <= 0) return c.Refuse("attribute 'sampling_ratio' = 0 makes the number of samples depend on values");
  if (mode != "avg") return c.Refuse("attribute 'mode' = 'max' is not supported");
  if (x.rank() != 4 || rois.rank() != 2 || rois.dim(1) != 4)
    return c.Fail("the operands have other ranks than 4 and 2");
  if (out_h < 1 || out_w < 1 || out_h > 4096 || out_w > 4096 || ratio > 64)
    return c.Fail("an attribute is out of range");
  const int64_t count = rois.dim(0), h = x.dim(2), w = x.dim(3), channels = x.dim(1);
  if (h == 0 || w == 0) return c.Fail("the images are empty");
  const auto corner = [&](int64_t k) {
    const Val v = c.e.Slice(rois, 1, k, k + 1) * scale;
    return half_pixel ? v - 0.5 : v;
  };
  // Positions along a dim: [count, bins * ratio].
  const auto positions = [&](Val start, Val end, int64_t bins) {
    Val size = end - start;
    if (!half_pixel) size = Apply("maximum", size, 1.0);
    std::vector<double> steps;
    for (int64_t i = 0; i < bins * ratio; ++i) {
      steps.push_back((static_cast<double>(i) + 0.5) / static_cast<double>(bins * ratio));
    }
    return start + size * c.e.FloatConstant(steps, {1, bins * ratio}, x.dtype());
  };
  const Val px = positions(corner(0), corner(2), out_w), py = positions(corner(1), corner(3), out_h);
  // The elements before and after a position, their weights, and 0 where it lies outside.
  struct Axis {
    Val low, high, weight_low, weight_high;
  };
  const auto axis = [&](Val p, int64_t size) {
    const auto last = static_cast<double>(size - 1);
    const Val inside = Apply("logical_and", Apply("ge", p, -1.0), Apply("le", p, static_cast<double>(size)));
    const Val clamped = c.e.Clamp(p, 0, last);
    const Val base = Apply("floor", clamped);
    const Val t = clamped - base;
    const Val mask = c.e.Cast(inside, x.dtype());
    return Axis{AsIndex(c, base, size), AsIndex(c, base + 1.0, size), (-t + 1.0) * mask, t * mask};
  };
  const Axis ax = axis(px, w), ay = axis(py, h);
  const int64_t rows = out_h * ratio, columns = out_w * ratio;
  const Val pixels = c.e.Reshape(c.e.Permute(x, {0, 2, 3, 1}), {x.dim(0) * h * w, channels});
  const Val base = c.e.Reshape(batch, {count, 1, 1}) * static_cast<double>(h * w);
  Val sum;
  for (int k = 0; k < 4; ++k) {
    const Val iy = c.e.Unsqueeze((k & 2) != 0 ? ay.high : ay.low, 2),
              ix = c.e.Unsqueeze((k & 1) != 0 ? ax.high : ax.low, 1);
    const Val wy = c.e.Unsqueeze((k & 2) != 0 ? ay.weight_high : ay.weight_low, 2);
    const Val wx = c.e.Unsqueeze((k & 1) != 0 ? ax.weight_high : ax.weight_low, 1);
    const Val index = base + iy * static_cast<double>(w) + ix;
    const Val taken = c.e.Emit("index_select", {pixels, c.e.Reshape(index, {count * rows * columns})}, {{"dim", 0}});
    const Val part = taken * c.e.Reshape(wy * wx, {count * rows * columns, 1});
    sum = k == 0 ? part : sum + part;
  }
  const Val bins = c.e.Reshape(sum, {count, out_h, ratio, out_w, ratio, channels});
  const Val mean = c.e.Emit("mean", {bins}, {{"dims", Ints{2, 4}}});
  c.Out(0, c.e.Permute(mean, {0, 3, 1, 2}));
}

}  // namespace

void AddResizeImporters(ImporterTable& table) {
  table["Resize"] = ImportResize;
  table["Upsample"] = ImportUpsample;
  table["GridSample"] = ImportGridSample;
  table["AffineGrid"] = ImportAffineGrid;
  table["RoiAlign"] = ImportRoiAlign;
}

}  // namespace fuseline::onnx_import
