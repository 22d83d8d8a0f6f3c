// Where the windows of a convolution or pooling lie: strides, dilations and padding of each spatial dim, with
// `auto_pad` resolved. Pipeline: attributes -> ReadWindow -> WindowGeometry. Units: elements. Thread-safety: pure
// functions. Tested by tests/unit/client/onnx/import_model_test.cc
#pragma once

#include "client/onnx/op_call.h"

namespace fuseline::onnx_import {

struct WindowGeometry {
  Ints kernel, strides, dilations;
  Ints low, high;  // padding; `high` with what `ceil_mode` adds
  Ints extra;      // of `high`, what `ceil_mode` added
  Ints out;        // sizes of the result
  size_t dims() const { return kernel.size(); }
  // Elements from a window's first to its last.
  int64_t span(size_t d) const { return dilations[d] * (kernel[d] - 1) + 1; }
  int64_t kernel_count() const;
  // As our IR has it: all lows, then all highs.
  Ints padding() const;
};

// Of a window of `kernel` over the spatial dims (from dim 2 on) of `shape`. Errors are the call's.
WindowGeometry ReadWindow(OpCall& c, const Shape& shape, const Ints& kernel);

// The padding of all dims: none for the first two.
Ints WithLeadingZeros(const Ints& spatial);

}  // namespace fuseline::onnx_import
