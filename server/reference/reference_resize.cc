// resize, dim by dim: what each position of the result takes from a line of the operand.
// Tested by tests/unit/lowering/lower_resize_test.cc
#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "server/reference/reference_ops.h"

namespace fuseline::reference {
namespace {

struct Line {
  std::string mode, transform, rounding;
  double a = -0.75;
  bool exclude_outside = false;
  int64_t in = 0, out = 0;
  double scale = 0;
};

double SourcePosition(const Line& line, int64_t o) {
  const double in = static_cast<double>(line.in), out = static_cast<double>(line.out), at = static_cast<double>(o);
  const bool given = line.scale != 0;
  if (line.transform == "align_corners") return line.out == 1 ? 0 : at * (in - 1) / (out - 1);
  if (line.transform == "asymmetric") return given ? at / line.scale : at * in / out;
  if (line.transform == "pytorch_half_pixel" && line.out == 1) return 0;
  const double half = (given ? (at + 0.5) / line.scale : (at + 0.5) * in / out) - 0.5;
  if (line.transform != "half_pixel_symmetric" || !given) return half;
  return half + in / 2 * (1 - out / (line.scale * in));
}

double RoundPosition(const std::string& rounding, double x) {
  if (rounding == "floor") return std::floor(x);
  if (rounding == "ceil") return std::ceil(x);
  return rounding == "round_prefer_ceil" ? std::floor(x + 0.5) : std::ceil(x - 0.5);
}

// Keys' kernel at distance t.
double CubicWeight(double a, double t) {
  t = std::fabs(t);
  if (t <= 1) return (a + 2) * t * t * t - (a + 3) * t * t + 1;
  return t < 2 ? a * t * t * t - 5 * a * t * t + 8 * a * t - 4 * a : 0;
}

// Positions in the operand and their weights.
std::vector<std::pair<int64_t, double>> Sources(const Line& line, int64_t o) {
  const auto inside = [&](double p) {
    return static_cast<int64_t>(std::clamp(p, 0.0, static_cast<double>(line.in - 1)));
  };
  const double x = SourcePosition(line, o);
  if (line.mode == "nearest") return {{inside(RoundPosition(line.rounding, x)), 1.0}};
  const double floor = std::floor(x);
  if (line.mode == "linear") return {{inside(floor), 1 - (x - floor)}, {inside(floor + 1), x - floor}};
  std::vector<std::pair<int64_t, double>> sources;
  double sum = 0;
  for (double p = floor - 1; p <= floor + 2; ++p) {
    const bool outside = p < 0 || p >= static_cast<double>(line.in);
    const double weight = line.exclude_outside && outside ? 0 : CubicWeight(line.a, x - p);
    sources.emplace_back(inside(p), weight);
    sum += weight;
  }
  if (line.exclude_outside && sum != 0) {
    for (auto& source : sources) source.second /= sum;
  }
  return sources;
}

Array ResizeDim(const Array& x, size_t dim, const Line& line) {
  Shape shape = x.shape;
  shape[dim] = line.out;
  Array result = Array::Make(x.dtype, shape);
  const int64_t inner = DenseStrides(shape)[dim];
  for (int64_t o = 0; o < line.out && result.size() > 0; ++o) {
    const auto sources = Sources(line, o);
    for (int64_t rest = 0; rest < result.size() / line.out; ++rest) {
      const int64_t row = rest / inner, column = rest % inner;
      const size_t to = static_cast<size_t>((row * line.out + o) * inner + column);
      double sum = 0;
      for (const auto& [p, weight] : sources) {
        const size_t from = static_cast<size_t>((row * line.in + p) * inner + column);
        if (line.mode != "nearest") {
          sum += weight * (*x.f)[from];
        } else if (x.is_float()) {
          sum = (*x.f)[from];
        } else {
          (*result.i)[to] = (*x.i)[from];
        }
      }
      if (x.is_float()) (*result.f)[to] = sum;
    }
  }
  return result;
}

}  // namespace

Array EvaluateResize(const OpContext& context, const Array& operand) {
  const auto& sizes = context.Ints("sizes");
  Line line;
  line.mode = context.String("mode");
  line.transform = context.String("coordinate_transformation_mode");
  line.rounding = context.String("nearest_mode");
  line.a = context.Number("cubic_coeff_a");
  line.exclude_outside = context.Bool("exclude_outside");
  Array x = Dense(operand);
  const auto scales = context.node.attrs.find("scales");
  for (size_t d = sizes.size(); d-- > 0;) {
    line.in = operand.shape[d];
    line.out = sizes[d];
    line.scale = scales == context.node.attrs.end() ? 0 : std::get<std::vector<double>>(scales->second)[d];
    if (line.scale * static_cast<double>(line.in) == static_cast<double>(line.out)) line.scale = 0;
    if (line.in != line.out || line.scale != 0) x = ResizeDim(x, d, line);
  }
  if (line.mode == "nearest") return x;
  Array result = Array::Make(x.dtype, x.shape);
  for (size_t k = 0; k < result.f->size(); ++k) (*result.f)[k] = context.Round((*x.f)[k]);
  return result;
}

}  // namespace fuseline::reference
