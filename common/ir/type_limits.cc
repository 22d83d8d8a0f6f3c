#include "common/ir/type_limits.h"

#include <algorithm>
#include <limits>

#include "common/ir/value_names.h"
#include "common/status/error.h"
#include "common/status/str_cat.h"

namespace fuseline {
namespace {

absl::Status OverLimit(std::string_view message) { return InvalidArgument(ErrorReason::kLimitExceeded, "", message); }
absl::Status BadType(std::string_view message) { return InvalidArgument(ErrorReason::kGraphTypeMismatch, "", message); }

}  // namespace

absl::Status CheckTensorType(const TensorType& type, const GraphLimits& limits) {
  if (GetDTypeKind(type.dtype) == DTypeKind::kInvalid) return BadType("the type has no valid dtype");
  if (static_cast<int64_t>(type.dims.size()) > limits.max_rank) {
    return OverLimit(StrCat("rank ", type.dims.size(), " is over the limit of ", limits.max_rank));
  }
  // A byte count must fit, whatever the limit says.
  const int64_t max_elements = std::min(limits.max_elements, std::numeric_limits<int64_t>::max() / 8);
  int64_t count = 1;
  for (const Dim& dim : type.dims) {
    if (dim.is_symbolic()) {
      if (!IsValidName(dim.symbol) || IsLiteralWord(dim.symbol)) {
        return InvalidArgument(ErrorReason::kGraphStructure, "", StrCat("symbol '", dim.symbol, "' is not a name"));
      }
      continue;
    }
    if (dim.size < 0) return BadType(StrCat("size ", dim.size, " is negative"));
    // Zero counts as one: dense strides multiply the other sizes even where a dim is empty.
    if (__builtin_mul_overflow(count, std::max<int64_t>(dim.size, 1), &count) || count > max_elements) {
      return OverLimit(StrCat(type.ToString(), " has more than ", max_elements, " elements"));
    }
  }
  if (!type.strides.has_value()) return absl::OkStatus();
  if (type.strides->size() != type.dims.size()) {
    return BadType(StrCat(type.strides->size(), " strides for rank ", type.dims.size()));
  }
  int64_t span = 1;
  for (size_t i = 0; i < type.dims.size(); ++i) {
    const int64_t stride = (*type.strides)[i];
    if (stride < 0) return BadType(StrCat("stride ", stride, " is negative"));
    const int64_t steps = type.dims[i].is_symbolic() ? 0 : std::max<int64_t>(type.dims[i].size - 1, 0);
    int64_t reach = 0;
    if (stride > max_elements || __builtin_mul_overflow(steps, stride, &reach) ||
        __builtin_add_overflow(span, reach, &span) || span > max_elements) {
      return OverLimit(StrCat("the strides of ", type.ToString(), " span more than ", max_elements, " elements"));
    }
  }
  return absl::OkStatus();
}

void DropDenseStrides(TensorType& type) {
  if (!type.strides.has_value() || type.strides->size() != type.dims.size()) return;
  int64_t dense = 1;
  for (size_t i = type.dims.size(); i-- > 0;) {
    if ((*type.strides)[i] != dense) return;
    // The stride of the outermost dim is the last that matters.
    if (i > 0 && (type.dims[i].is_symbolic() || __builtin_mul_overflow(dense, type.dims[i].size, &dense))) return;
  }
  type.strides.reset();
}

}  // namespace fuseline
