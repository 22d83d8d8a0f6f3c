// Type rules that several rows of the op table share, and the checks that they are made of.
// Errors: INVALID_ARGUMENT without the node's name (VerifyGraph adds op and node). Thread-safety: pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/ir/graph.h"
#include "common/ir/op_table.h"

namespace fuseline::ops {

// The dtypes that an op computes with. None of them holds the f8 types: those are for storage, casts and views only.
enum class DTypeSet : uint8_t { kFloats, kNumbers, kIntegers, kIntegersAndBool, kAll };

// DTypeName as a string for absl::StrCat, whose string_view may differ from the standard's.
inline std::string NameOf(DType dtype) { return std::string(DTypeName(dtype)); }

absl::Status TypeError(const std::string& message);
absl::Status CheckDType(DType dtype, DTypeSet set);
// The dtype of a sum or product of operand 0: i64 of integers and bool, unless `dtype` says otherwise. `done`: what the
// op does, for the error ("reduced").
absl::StatusOr<DType> SumDType(const InferArgs& args, const char* done);
absl::Status CheckEqualDTypes(const std::vector<TensorType>& operands, size_t first = 0);
// Sizes are non-negative, and rank and element count are within the limits.
absl::Status CheckShape(const Shape& shape, const GraphLimits& limits);
// The attribute is absent, or a number that `dtype` can hold.
absl::Status CheckAttrHolds(const InferArgs& args, const char* name, DType dtype);
absl::StatusOr<Shape> BroadcastOperands(const InferArgs& args);
// A string attribute; empty where it is absent.
std::string StringAttr(const AttrMap& attrs, const char* name);

// Pointwise: operands of one dtype out of `set`, broadcast; the result has that dtype.
absl::StatusOr<std::vector<TensorType>> SameTypeRule(const InferArgs& args, DTypeSet set);
// The same with a bool result.
absl::StatusOr<std::vector<TensorType>> BoolResultRule(const InferArgs& args, DTypeSet set);
template <DTypeSet kSet>
absl::StatusOr<std::vector<TensorType>> Same(const InferArgs& args) {
  return SameTypeRule(args, kSet);
}
template <DTypeSet kSet>
absl::StatusOr<std::vector<TensorType>> ToBoolResult(const InferArgs& args) {
  return BoolResultRule(args, kSet);
}

// The dims of a reduction: from "dims", or from "dim" of argmax and argmin.
absl::StatusOr<std::vector<int64_t>> ReducedDims(const InferArgs& args);
// The shape that is left: dims dropped, or of size 1 with "keepdim".
absl::StatusOr<Shape> ReducedShape(const InferArgs& args);

// Python's slice of one dim: `count` elements from `start` on, `step` apart.
struct SliceRange {
  int64_t start = 0;
  int64_t step = 1;
  int64_t count = 0;
};
// `step` must not be 0.
SliceRange ClampSlice(int64_t start, int64_t end, int64_t step, int64_t size);

// Elements (i, i + offset) of a matrix.
int64_t DiagonalLength(int64_t rows, int64_t columns, int64_t offset);

}  // namespace fuseline::ops
