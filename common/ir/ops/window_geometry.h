// How a window slides over the spatial dims of a tensor: what convolutions and pooling share.
// Pipeline: attributes {kernel, strides, padding, dilation, …} and sizes -> WindowDim for each spatial dim -> type
// rules, lowering. Units: elements. Errors: INVALID_ARGUMENT without the node's name. Thread-safety: pure functions.
// Source of the sizes: output = floor((low + input + high - dilation (kernel - 1) - 1) / stride) + 1.
// Tested by tests/unit/common/contraction_rules_test.cc
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/ir/graph.h"

namespace fuseline::ops {

// Larger strides, dilations, padding and pooling windows are errors, so that sums and products of them fit.
inline constexpr int64_t kMaxWindowNumber = int64_t{1} << 20;

// One spatial dim. Output o takes the input elements o * stride - low + k * dilation for k in [0, kernel), those that
// there are; for a transposed window, input i gives to the output elements i * stride - low + k * dilation.
struct WindowDim {
  int64_t input = 0;
  int64_t kernel = 1;
  int64_t stride = 1;
  int64_t dilation = 1;
  int64_t low = 0;   // padding before the first element
  int64_t high = 0;  // and after the last
  int64_t output = 0;
};

// The list attribute `name` for `count` dims: absent gives `absent`, one number stands for all. Each number must lie in
// [least, kMaxWindowNumber].
absl::StatusOr<std::vector<int64_t>> WindowList(const AttrMap& attrs, const char* name, size_t count, int64_t least,
                                                const std::vector<int64_t>& absent);

// From "strides" (absent: `strides`), "padding" (one number, one a dim, or all lows and then all highs), "dilation"
// and, where there is one, "ceil_mode". An error where a kernel is empty or larger than the padded input.
absl::StatusOr<std::vector<WindowDim>> SlidingWindow(const AttrMap& attrs, const Shape& spatial, const Shape& kernel,
                                                     const std::vector<int64_t>& strides);
// conv_transpose: the same with "output_padding", and sizes the other way round.
absl::StatusOr<std::vector<WindowDim>> TransposedWindow(const AttrMap& attrs, const Shape& spatial,
                                                        const Shape& kernel);

}  // namespace fuseline::ops
