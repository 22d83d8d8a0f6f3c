#include "client/onnx/window_geometry.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace fuseline::onnx_import {
namespace {

constexpr int64_t kMaxSize = int64_t{1} << 30;

bool InRange(const Ints& values, int64_t low) {
  return std::all_of(values.begin(), values.end(), [&](int64_t v) { return v >= low && v <= kMaxSize; });
}

int64_t CeilDivide(int64_t a, int64_t b) { return (a + b - 1) / b; }

}  // namespace

int64_t WindowGeometry::kernel_count() const {
  int64_t count = 1;
  for (const int64_t k : kernel) count *= k;
  return count;
}

Ints WindowGeometry::padding() const {
  Ints all = low;
  all.insert(all.end(), high.begin(), high.end());
  return all;
}

Ints WithLeadingZeros(const Ints& spatial) {
  Ints all = {0, 0};
  all.insert(all.end(), spatial.begin(), spatial.end());
  return all;
}

WindowGeometry ReadWindow(OpCall& c, const Shape& shape, const Ints& kernel) {
  WindowGeometry g;
  const size_t n = kernel.size();
  g.kernel = kernel;
  g.strides = c.IntList("strides", Ints(n, 1));
  g.dilations = c.IntList("dilations", Ints(n, 1));
  const Ints pads = c.IntList("pads", Ints(2 * n, 0));
  const std::string auto_pad = c.String("auto_pad", "NOTSET");
  const bool ceil = c.Int("ceil_mode", 0) != 0;
  g.low = g.high = g.extra = g.out = Ints(n, 0);
  if (!c.ok()) return g;
  if (shape.size() != n + 2) {
    c.Fail(absl::StrCat("a kernel of ", n, " dims does not fit an operand of ", shape.size()));
    return g;
  }
  if (g.strides.size() != n || g.dilations.size() != n || pads.size() != 2 * n) {
    c.Fail("'strides', 'dilations' or 'pads' has another length than the kernel");
    return g;
  }
  if (!InRange(g.kernel, 1) || !InRange(g.strides, 1) || !InRange(g.dilations, 1) || !InRange(pads, 0)) {
    c.Fail("kernel, strides, dilations or pads are out of range");
    return g;
  }
  if (g.kernel_count() > kMaxSize) c.Fail("the kernel is too large");
  for (size_t d = 0; d < n; ++d) {
    const int64_t size = shape[d + 2], span = g.span(d), stride = g.strides[d];
    if (span > kMaxSize) c.Fail("the kernel is too large");
    if (auto_pad == "SAME_UPPER" || auto_pad == "SAME_LOWER") {
      const int64_t total = std::max<int64_t>(0, (CeilDivide(size, stride) - 1) * stride + span - size);
      g.low[d] = auto_pad == "SAME_UPPER" ? total / 2 : total - total / 2;
      g.high[d] = total - g.low[d];
    } else if (auto_pad == "NOTSET" || auto_pad.empty()) {
      g.low[d] = pads[d];
      g.high[d] = pads[d + n];
    } else if (auto_pad != "VALID") {
      c.Fail(absl::StrCat("attribute 'auto_pad' = '", auto_pad, "' is not known"));
      return g;
    }
    const int64_t room = size + g.low[d] + g.high[d] - span;
    if (room < 0) {
      c.Fail(absl::StrCat("the kernel is larger than dim ", d + 2));
      return g;
    }
    g.out[d] = (ceil ? CeilDivide(room, stride) : room / stride) + 1;
    // A window that would start beyond the elements and the padding before them is left out.
    if (ceil && (g.out[d] - 1) * stride >= size + g.low[d]) --g.out[d];
    g.extra[d] = std::max<int64_t>(0, (g.out[d] - 1) * stride - room);
    g.high[d] += g.extra[d];
  }
  return g;
}

}  // namespace fuseline::onnx_import
