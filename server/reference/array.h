// The interpreter's values: arrays of doubles (floats) or 64-bit integers (integers and bool), and views of them: a
// view of a broadcast may have far more elements than there is memory. Pipeline: Tensor -> Array -> ops -> Array ->
// Tensor. Units: strides and offset in elements. Ownership: copies and views share the elements, which are not changed
// once they are shared. Thread-safety: thread-compatible.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "common/ir/graph.h"
#include "common/ir/types.h"
#include "common/target/compile_options.h"
#include "common/tensor/tensor.h"

namespace fuseline::reference {

// Exactly one of `f` and `i` is set: `f` for floats. A value of a 16-bit dtype may have f32's precision
// (Numerics::kFused).
struct Array {
  DType dtype = DType::kInvalid;
  Shape shape;
  Shape strides;
  int64_t offset = 0;
  std::shared_ptr<std::vector<double>> f;
  std::shared_ptr<std::vector<int64_t>> i;

  // Dense row-major zeros.
  static Array Make(DType dtype, Shape shape);
  bool is_float() const { return f != nullptr; }
  int64_t size() const { return ElementCount(shape); }
  // Whether element k of the row-major order is element k of `f` or `i`.
  bool is_dense() const;
};

// The same values, dense. Shares the elements where they are dense already.
Array Dense(const Array& array);

Array FromTensor(const Tensor& tensor);
// Rounds to the storage dtype.
Tensor ToTensor(const Array& array);
// `array` as it is after it has been stored: the 16-bit dtypes rounded. Shares the elements where nothing changes.
Array Stored(const Array& array);

// A float result of an op, from its exact value: rounded to the compute dtype and, under kEager, to the storage dtype.
double RoundResult(DType dtype, Numerics numerics, double value);
// Integers wrapped to the dtype's width; for bool, != 0.
int64_t WrapInteger(DType dtype, int64_t value);
// Float to integer as a cast does it: truncates, saturates, NaN gives 0; to bool, != 0.
int64_t CastToInteger(DType dtype, double value);
// A written number as an element of `dtype`, 0-d.
Array LiteralArray(const Literal& literal, DType dtype);

}  // namespace fuseline::reference
