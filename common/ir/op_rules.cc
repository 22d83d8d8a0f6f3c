// The shared pieces of type rules: broadcasting, dims, literals and the attribute accessors of InferArgs.
// Tested by tests/unit/common/op_rules_test.cc
#include <algorithm>
#include <cmath>
#include <limits>

#include "absl/strings/str_join.h"
#include "common/ir/number_text.h"
#include "common/ir/op_table.h"
#include "common/status/error.h"
#include "common/status/status_macros.h"
#include "common/status/str_cat.h"

namespace fuseline {
namespace {

template <typename T>
const T* FindAttr(const AttrMap& attrs, const char* name) {
  const auto it = attrs.find(std::string_view(name));
  return it == attrs.end() ? nullptr : std::get_if<T>(&it->second);
}

std::string ShapeText(const Shape& shape) { return StrCat("[", absl::StrJoin(shape, ", "), "]"); }

absl::Status DoesNotFit(const Literal& literal, DType dtype) {
  return InvalidArgument(ErrorReason::kGraphTypeMismatch, "",
                         StrCat("literal ", LiteralText(literal), " does not fit ", std::string(DTypeName(dtype))));
}

// The least and the largest value of an integer dtype.
std::pair<int64_t, int64_t> IntegerRange(DType dtype) {
  switch (dtype) {
    case DType::kU8:
      return {0, 255};
    case DType::kI8:
      return {-128, 127};
    case DType::kI16:
      return {-32768, 32767};
    case DType::kI32:
      return {std::numeric_limits<int32_t>::min(), std::numeric_limits<int32_t>::max()};
    default:
      return {std::numeric_limits<int64_t>::min(), std::numeric_limits<int64_t>::max()};
  }
}

}  // namespace

bool InferArgs::HasAttr(const char* name) const { return attrs.find(std::string_view(name)) != attrs.end(); }

int64_t InferArgs::Int(const char* name) const {
  const int64_t* value = FindAttr<int64_t>(attrs, name);
  return value == nullptr ? 0 : *value;
}

double InferArgs::Number(const char* name) const {
  if (const double* value = FindAttr<double>(attrs, name)) return *value;
  if (const int64_t* value = FindAttr<int64_t>(attrs, name)) return static_cast<double>(*value);
  if (const bool* value = FindAttr<bool>(attrs, name)) return *value ? 1.0 : 0.0;
  return 0.0;
}

bool InferArgs::Bool(const char* name) const {
  const bool* value = FindAttr<bool>(attrs, name);
  return value != nullptr && *value;
}

DType InferArgs::Type(const char* name) const {
  const DType* value = FindAttr<DType>(attrs, name);
  return value == nullptr ? DType::kInvalid : *value;
}

const std::vector<int64_t>& InferArgs::Ints(const char* name) const {
  static const std::vector<int64_t>& kEmpty = *new std::vector<int64_t>();
  const auto* value = FindAttr<std::vector<int64_t>>(attrs, name);
  return value == nullptr ? kEmpty : *value;
}

absl::StatusOr<Shape> BroadcastShapes(absl::Span<const Shape> shapes) {
  size_t rank = 0;
  for (const Shape& shape : shapes) rank = std::max(rank, shape.size());
  Shape result(rank, 1);
  for (const Shape& shape : shapes) {
    const size_t offset = rank - shape.size();
    for (size_t i = 0; i < shape.size(); ++i) {
      int64_t& size = result[offset + i];
      if (shape[i] == size || shape[i] == 1) continue;
      if (size == 1) {
        size = shape[i];
        continue;
      }
      // The message names the first pair that clashes, not the shape accumulated so far.
      const Shape* other = &result;
      for (const Shape& earlier : shapes) {
        if (&earlier == &shape) break;
        const size_t back = rank - (offset + i);  // position from the end, from 1
        if (earlier.size() >= back && earlier[earlier.size() - back] == size) {
          other = &earlier;
          break;
        }
      }
      return InvalidArgument(ErrorReason::kGraphTypeMismatch, "",
                             StrCat("shapes ", ShapeText(*other), " and ", ShapeText(shape), " do not broadcast"));
    }
  }
  return result;
}

absl::StatusOr<int64_t> NormalizeDim(int64_t dim, int rank) {
  if (dim < -static_cast<int64_t>(rank) || dim >= rank) {
    return InvalidArgument(ErrorReason::kGraphTypeMismatch, "",
                           StrCat("dim ", dim, " is out of range for rank ", rank));
  }
  return dim < 0 ? dim + rank : dim;
}

absl::StatusOr<std::vector<int64_t>> NormalizeDims(const std::vector<int64_t>* dims, int rank) {
  std::vector<int64_t> result;
  if (dims == nullptr) {
    for (int i = 0; i < rank; ++i) result.push_back(i);
    return result;
  }
  result.reserve(dims->size());
  for (int64_t dim : *dims) {
    FUSELINE_ASSIGN_OR_RETURN(const int64_t normal, NormalizeDim(dim, rank));
    result.push_back(normal);
  }
  std::sort(result.begin(), result.end());
  const auto repeated = std::adjacent_find(result.begin(), result.end());
  if (repeated != result.end()) {
    return InvalidArgument(ErrorReason::kGraphTypeMismatch, "", StrCat("dim ", *repeated, " is repeated"));
  }
  return result;
}

namespace {

// The least magnitude that rounds to infinity: the largest finite value and half of its unit in the last place.
double OverflowOf(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return 0x1.ffffffp127;
    case DType::kF16:
      return 65520.0;
    case DType::kBF16:
      return 0x1.ffp127;
    default:
      return std::numeric_limits<double>::infinity();
  }
}

}  // namespace

absl::Status CheckLiteral(const Literal& literal, DType dtype) {
  const bool is_bool = literal.kind == Literal::Kind::kBool;
  switch (GetDTypeKind(dtype)) {
    case DTypeKind::kFloat: {
      // A finite number that rounds to infinity is not held; one that loses digits is rounded. f8 saturates.
      const bool overflows =
          !IsF8(dtype) && std::isfinite(literal.AsDouble()) && std::abs(literal.AsDouble()) >= OverflowOf(dtype);
      return is_bool || overflows ? DoesNotFit(literal, dtype) : absl::OkStatus();
    }
    case DTypeKind::kBool:
      return is_bool ? absl::OkStatus() : DoesNotFit(literal, dtype);
    case DTypeKind::kInteger: {
      if (is_bool) return DoesNotFit(literal, dtype);
      const auto [low, high] = IntegerRange(dtype);
      if (literal.kind == Literal::Kind::kInt) {
        return literal.i >= low && literal.i <= high ? absl::OkStatus() : DoesNotFit(literal, dtype);
      }
      // A whole number written as a float is held exactly; 2^63 is the first double above every i64. -0.0 is not an
      // integer.
      const double f = literal.f;
      const bool whole = std::isfinite(f) && std::trunc(f) == f && !(f == 0.0 && std::signbit(f));
      if (!whole || f >= 9223372036854775808.0 || f < -9223372036854775808.0) return DoesNotFit(literal, dtype);
      const auto i = static_cast<int64_t>(f);
      return i >= low && i <= high ? absl::OkStatus() : DoesNotFit(literal, dtype);
    }
    case DTypeKind::kInvalid:
      break;
  }
  return DoesNotFit(literal, dtype);
}

}  // namespace fuseline
