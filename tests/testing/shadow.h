// A value of the running error analysis (error_bounds.h): its elements in f64 (floats) or in their own dtype (integers,
// bool), and for each a bound of the difference that a correct implementation may show.
// Ownership: Of copies its tensors; copies of a Shadow share them, writes included. Thread-safety: thread-compatible.
#pragma once

#include "common/tensor/tensor.h"

namespace fuseline::testing {

// The distance from |v| to the next larger number of the dtype; never below its smallest subnormal. Infinite or NaN: 0.
double Ulp(DType dtype, double v);

// Floats as f64, exactly; others as they are.
Tensor Widened(const Tensor& tensor);

class Shadow {
 public:
  Shadow() = default;
  // `values`: widened. Bounds of 0 where none are given.
  static Shadow Of(DType dtype, const Tensor& values);
  static Shadow Of(DType dtype, const Tensor& values, const Tensor& bounds);

  DType dtype() const { return dtype_; }
  bool is_float() const { return IsFloat(dtype_); }
  const Shape& shape() const { return values_.shape(); }
  int64_t size() const { return values_.element_count(); }
  const Tensor& values() const { return values_; }
  const Tensor& bounds() const { return bounds_; }

  double f(int64_t i) const {
    return is_float() ? static_cast<const double*>(values_.data())[i] : static_cast<double>(values_.GetInt(i));
  }
  double bound(int64_t i) const { return static_cast<const double*>(bounds_.data())[i]; }
  void set_bound(int64_t i, double bound) { static_cast<double*>(bounds_.data())[i] = bound; }
  void set(int64_t i, double value, double bound) {  // floats
    static_cast<double*>(values_.data())[i] = value;
    set_bound(i, bound);
  }

  // The values in their storage dtype, rounded.
  Tensor AsStored() const;
  // Each element at the lower (-1) or upper (+1) end of its range, which `ulps` of `computed` widen; a bool in doubt is
  // the other one. Side 0: NaN where the range is infinite. `moved`: whether any element moves at all.
  Tensor Moved(int side, double ulps, DType computed, bool as_stored, bool* moved) const;
  Tensor WithZerosNegated(bool as_stored, bool* moved) const;

  // Adds to each element's bound the distance to `end`, an evaluation with one operand at an end of its range.
  void Widen(const Tensor& end);

 private:
  DType dtype_ = DType::kInvalid;
  Tensor values_;
  Tensor bounds_;
};

}  // namespace fuseline::testing
