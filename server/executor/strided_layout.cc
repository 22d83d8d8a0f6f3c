#include "server/executor/strided_layout.h"

#include <string.h>

#include <algorithm>

#include "common/status/error.h"
#include "common/status/status_macros.h"
#include "common/status/str_cat.h"

namespace fuseline::executor {
namespace {

// `count` elements of one row, `stride` elements apart in `to`.
template <typename T>
void ScatterRow(const char* from, char* to, int64_t count, int64_t stride) {
  for (int64_t i = 0; i < count; ++i)
    memcpy(to + i * stride * static_cast<int64_t>(sizeof(T)), from + i * static_cast<int64_t>(sizeof(T)), sizeof(T));
}

void ScatterRow(const char* from, char* to, int64_t count, int64_t stride, int64_t element_bytes) {
  if (stride == 1) {
    memcpy(to, from, static_cast<size_t>(count * element_bytes));
    return;
  }
  switch (element_bytes) {
    case 1:
      return ScatterRow<uint8_t>(from, to, count, stride);
    case 2:
      return ScatterRow<uint16_t>(from, to, count, stride);
    case 4:
      return ScatterRow<uint32_t>(from, to, count, stride);
    default:
      return ScatterRow<uint64_t>(from, to, count, stride);
  }
}

}  // namespace

bool IsDense(const Shape& shape, const std::vector<int64_t>& strides) {
  if (strides.empty()) return true;
  if (strides.size() != shape.size()) return false;
  int64_t wanted = 1;
  for (size_t d = shape.size(); d-- > 0;) {
    if (shape[d] == 0) return true;
    if (shape[d] != 1 && strides[d] != wanted) return false;
    wanted *= shape[d];
  }
  return true;
}

absl::StatusOr<int64_t> LaidOutBytes(const PlanTensor& tensor) {
  const auto bad = [&](const char* what) { return Internal(StrCat("input '", tensor.name, "': ", what)); };
  const bool dense = tensor.strides.empty();
  if (!dense && tensor.strides.size() != tensor.shape.size()) return bad("strides and shape differ in rank");
  int64_t last = 0;  // offset of the last element
  int64_t count = 1;
  bool empty = false;
  for (size_t d = 0; d < tensor.shape.size(); ++d) {
    const int64_t size = tensor.shape[d];
    if (size < 0 || (!dense && tensor.strides[d] < 0)) return bad("a size or stride is negative");
    if (size == 0) empty = true;
    if (empty) continue;
    int64_t reach = 0;
    if (__builtin_mul_overflow(count, size, &count)) return bad("too many elements");
    if (!dense &&
        (__builtin_mul_overflow(size - 1, tensor.strides[d], &reach) || __builtin_add_overflow(last, reach, &last))) {
      return bad("strides reach too far");
    }
  }
  if (empty) return 0;
  int64_t extent = dense ? count : 0;
  int64_t bytes = 0;
  if (!dense && __builtin_add_overflow(last, 1, &extent)) return bad("strides reach too far");
  if (__builtin_mul_overflow(extent, DTypeSizeBytes(tensor.dtype), &bytes)) return bad("too many bytes");
  return bytes;
}

absl::Status LayOut(const PlanTensor& tensor, const void* dense, void* to) {
  FUSELINE_ASSIGN_OR_RETURN(const int64_t size_bytes, LaidOutBytes(tensor));
  if (size_bytes == 0) return absl::OkStatus();
  const int64_t element_bytes = DTypeSizeBytes(tensor.dtype);
  if (IsDense(tensor.shape, tensor.strides)) {
    memcpy(to, dense, static_cast<size_t>(size_bytes));
    return absl::OkStatus();
  }
  const int64_t elements = ElementCount(tensor.shape);
  if (elements * element_bytes != size_bytes) memset(to, 0, static_cast<size_t>(size_bytes));
  const size_t rank = tensor.shape.size();  // at least 1: a 0-d tensor is dense
  const int64_t row = tensor.shape[rank - 1];
  std::vector<int64_t> index(rank, 0);
  int64_t offset = 0;  // of the row's first element in `to`
  const char* from = static_cast<const char*>(dense);
  for (int64_t done = 0; done < elements; done += row) {
    ScatterRow(from, static_cast<char*>(to) + offset * element_bytes, row, tensor.strides[rank - 1], element_bytes);
    from += row * element_bytes;
    for (size_t d = rank - 1; d-- > 0;) {
      offset += tensor.strides[d];
      if (++index[d] < tensor.shape[d]) break;
      offset -= tensor.strides[d] * tensor.shape[d];
      index[d] = 0;
    }
  }
  return absl::OkStatus();
}

}  // namespace fuseline::executor
