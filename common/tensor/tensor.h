// A dense, row-major tensor in host memory.
// Units: bytes where named so. Ownership: copies share the storage, which is 64-byte aligned.
// Thread-safety: thread-compatible; sharing copies for reading is safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/ir/types.h"

namespace fuseline {

class Tensor {
 public:
  Tensor() = default;
  // Uninitialised storage of the right size. Shapes come from verified graphs: sizes do not overflow.
  static Tensor Allocate(DType dtype, Shape shape);
  // Takes a copy of `bytes`. Errors: INVALID_ARGUMENT unless the size fits.
  static absl::StatusOr<Tensor> FromBytes(DType dtype, Shape shape, std::string_view bytes);
  // Storage owned by someone else, kept alive by `owner`.
  static Tensor Borrow(DType dtype, Shape shape, void* data, std::shared_ptr<void> owner);

  DType dtype() const { return dtype_; }
  const Shape& shape() const { return shape_; }
  int64_t element_count() const { return ElementCount(shape_); }
  int64_t size_bytes() const { return element_count() * DTypeSizeBytes(dtype_); }
  void* data() { return data_.get(); }
  const void* data() const { return data_.get(); }
  std::string_view bytes() const { return {static_cast<const char*>(data_.get()), static_cast<size_t>(size_bytes())}; }

  // One element, converted. Exact for floats as double and for integers and bool as int64. Slow: for tests and
  // printing.
  double GetDouble(int64_t i) const;
  int64_t GetInt(int64_t i) const;
  // Stores one element with the cast rules of docs/ir.md (round to nearest even, saturate to integer, wrap between
  // integers).
  void SetDouble(int64_t i, double v);
  void SetInt(int64_t i, int64_t v);

 private:
  DType dtype_ = DType::kInvalid;
  Shape shape_;
  std::shared_ptr<void> data_;
};

// Conversions between storage dtypes and doubles; NaN stays NaN; f8 saturates to the largest finite value.
double LoadElement(DType dtype, const void* data, int64_t i);     // floats, integers, bool
void StoreElement(DType dtype, void* data, int64_t i, double v);  // floats: one rounding, to nearest even
// Rounds to a float dtype and back.
double RoundToDType(DType dtype, double v);

}  // namespace fuseline
