// Pooling by its definitions. Tested by tests/unit/reference/reference_contractions_test.cc
#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/status/error.h"
#include "server/reference/reference_ops.h"

namespace fuseline::reference {
namespace {

std::vector<int64_t> PerDim(const OpContext& context, const char* name, const std::vector<int64_t>& absent) {
  std::vector<int64_t> list = context.Ints(name);
  if (list.empty()) return absent;
  if (list.size() < absent.size()) list.resize(absent.size(), list[0]);
  return list;
}

// The taps of one window along one dim, as positions in the input; `padded` counts those that padding gives.
struct Taps {
  std::vector<int64_t> inside;
  int64_t padded = 0;
};

// For each spatial dim and each position of the result along it.
using WindowTaps = std::vector<std::vector<Taps>>;

WindowTaps SlidingTaps(const OpContext& context, const Shape& spatial, const Shape& out) {
  const std::vector<int64_t>& kernel = context.Ints("kernel");
  const std::vector<int64_t> strides = PerDim(context, "strides", kernel);
  const std::vector<int64_t> dilation = PerDim(context, "dilation", std::vector<int64_t>(kernel.size(), 1));
  const std::vector<int64_t> padding = PerDim(context, "padding", std::vector<int64_t>(kernel.size(), 0));
  WindowTaps taps(kernel.size());
  for (size_t d = 0; d < kernel.size(); ++d) {
    const int64_t high = padding.size() == 2 * kernel.size() ? padding[kernel.size() + d] : padding[d];
    for (int64_t o = 0; o < out[d]; ++o) {
      Taps window;
      for (int64_t k = 0; k < kernel[d]; ++k) {
        const int64_t at = o * strides[d] - padding[d] + k * dilation[d];
        if (at >= 0 && at < spatial[d]) {
          window.inside.push_back(at);
        } else if (at < spatial[d] + high) {
          ++window.padded;
        }
      }
      taps[d].push_back(std::move(window));
    }
  }
  return taps;
}

WindowTaps AdaptiveTaps(const Shape& spatial, const Shape& out) {
  WindowTaps taps(out.size());
  for (size_t d = 0; d < out.size(); ++d) {
    for (int64_t o = 0; o < out[d]; ++o) {
      Taps window;
      for (int64_t at = o * spatial[d] / out[d]; at * out[d] < (o + 1) * spatial[d]; ++at) window.inside.push_back(at);
      taps[d].push_back(std::move(window));
    }
  }
  return taps;
}

bool Exceeds(double a, double best) {
  if (std::isnan(best)) return false;
  return std::isnan(a) || a > best || (a == best && std::signbit(best) && !std::signbit(a));
}

// What one result element is made of.
struct Window {
  std::vector<int64_t> offsets;  // of the input's elements
  int64_t padded = 0;
};

double PoolFloats(const OpContext& context, const Array& x, const Window& window) {
  const std::string& op = context.node.op;
  if (op == "max_pool") {
    double best = -std::numeric_limits<double>::infinity();
    for (int64_t at : window.offsets) {
      const double element = (*x.f)[static_cast<size_t>(at)];
      if (Exceeds(element, best)) best = element;
    }
    return best;
  }
  long double sum = 0;
  const long double p = op == "lp_pool" ? context.Number("p") : 1;
  for (int64_t at : window.offsets) {
    const long double element = (*x.f)[static_cast<size_t>(at)];
    sum += op == "lp_pool" ? std::pow(std::fabs(element), p) : element;
  }
  if (op == "lp_pool") return static_cast<double>(std::pow(sum, 1 / p));
  const bool with_padding = op == "avg_pool" && context.Bool("count_include_pad");
  const int64_t count = static_cast<int64_t>(window.offsets.size()) + (with_padding ? window.padded : 0);
  return static_cast<double>(sum / static_cast<long double>(count));
}

int64_t MaxOfIntegers(const Array& x, const Window& window) {
  int64_t best = CastToInteger(x.dtype, -std::numeric_limits<double>::infinity());
  for (int64_t at : window.offsets) best = std::max(best, (*x.i)[static_cast<size_t>(at)]);
  return best;
}

// All combinations of the taps of each dim.
Window WindowAt(const WindowTaps& taps, const Shape& position, size_t first, const Shape& strides, int64_t base) {
  Window window;
  window.offsets = {base};
  int64_t whole = 1;
  for (size_t d = 0; d < taps.size(); ++d) {
    const Taps& along = taps[d][static_cast<size_t>(position[first + d])];
    std::vector<int64_t> next;
    for (int64_t offset : window.offsets) {
      for (int64_t at : along.inside) next.push_back(offset + at * strides[first + d]);
    }
    window.offsets = std::move(next);
    whole *= static_cast<int64_t>(along.inside.size()) + along.padded;
  }
  window.padded = whole - static_cast<int64_t>(window.offsets.size());
  return window;
}

}  // namespace

absl::StatusOr<std::vector<Array>> EvaluateWindow(const OpContext& context, const std::vector<Array>& operands) {
  const Array x = Dense(operands[0]);
  Array result = Array::Make(context.result_types[0].dtype, context.result_types[0].shape());
  const bool adaptive = context.node.op == "adaptive_avg_pool";
  const size_t dims = context.Ints(adaptive ? "output_size" : "kernel").size();
  const size_t first = x.shape.size() - dims;
  const Shape spatial(x.shape.begin() + static_cast<int64_t>(first), x.shape.end());
  const Shape out(result.shape.begin() + static_cast<int64_t>(first), result.shape.end());
  const WindowTaps taps = adaptive ? AdaptiveTaps(spatial, out) : SlidingTaps(context, spatial, out);
  const Shape strides = DenseStrides(x.shape);
  Shape position(result.shape.size(), 0);
  for (int64_t to = 0, count = result.size(); to < count; ++to) {
    int64_t base = 0;
    for (size_t d = 0; d < first; ++d) base += position[d] * strides[d];
    const Window window = WindowAt(taps, position, first, strides, base);
    if (result.is_float()) {
      (*result.f)[static_cast<size_t>(to)] = context.Round(PoolFloats(context, x, window));
    } else {
      (*result.i)[static_cast<size_t>(to)] = MaxOfIntegers(x, window);
    }
    for (size_t d = position.size(); d-- > 0;) {
      if (++position[d] < result.shape[d]) break;
      position[d] = 0;
    }
  }
  return std::vector<Array>{std::move(result)};
}

}  // namespace fuseline::reference
