#include "common/ir/ops/type_rules.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/status/error.h"
#include "common/status/status_macros.h"

namespace fuseline::ops {
namespace {

const char* SetName(DTypeSet set) {
  switch (set) {
    case DTypeSet::kFloats:
      return "f64, f32, f16 and bf16";
    case DTypeSet::kNumbers:
      return "f64, f32, f16, bf16 and integers";
    case DTypeSet::kIntegers:
      return "integers";
    case DTypeSet::kIntegersAndBool:
      return "integers and bool";
    case DTypeSet::kAll:
      return "every dtype but the f8 types";
  }
  return "";
}

}  // namespace

absl::Status TypeError(const std::string& message) {
  return InvalidArgument(ErrorReason::kGraphTypeMismatch, "", message);
}

absl::Status CheckDType(DType dtype, DTypeSet set) {
  const bool is_float = IsFloat(dtype) && !IsF8(dtype);
  bool fits = false;
  switch (set) {
    case DTypeSet::kFloats:
      fits = is_float;
      break;
    case DTypeSet::kNumbers:
      fits = is_float || IsInteger(dtype);
      break;
    case DTypeSet::kIntegers:
      fits = IsInteger(dtype);
      break;
    case DTypeSet::kIntegersAndBool:
      fits = IsInteger(dtype) || IsBool(dtype);
      break;
    case DTypeSet::kAll:
      fits = is_float || IsInteger(dtype) || IsBool(dtype);
      break;
  }
  if (fits) return absl::OkStatus();
  return TypeError(absl::StrCat("takes ", SetName(set), ", not ", NameOf(dtype)));
}

absl::StatusOr<DType> SumDType(const InferArgs& args, const char* done) {
  const DType from = args.operands[0].dtype;
  FUSELINE_RETURN_IF_ERROR(CheckDType(from, DTypeSet::kAll));
  if (!args.HasAttr("dtype")) return IsFloat(from) ? from : DType::kI64;
  const DType to = args.Type("dtype");
  FUSELINE_RETURN_IF_ERROR(CheckDType(to, DTypeSet::kNumbers));
  if (IsFloat(from) && !IsFloat(to)) {
    return TypeError(
        absl::StrCat("attribute 'dtype': ", NameOf(from), " is not ", done, " in ", NameOf(to), ": cast first"));
  }
  return to;
}

absl::Status CheckEqualDTypes(const std::vector<TensorType>& operands, size_t first) {
  for (size_t i = first + 1; i < operands.size(); ++i) {
    if (operands[i].dtype != operands[first].dtype) {
      return TypeError(absl::StrCat("operands have dtypes ", NameOf(operands[first].dtype), " and ",
                                    NameOf(operands[i].dtype), ": insert a cast"));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckShape(const Shape& shape, const GraphLimits& limits) {
  if (static_cast<int64_t>(shape.size()) > limits.max_rank) {
    return InvalidArgument(ErrorReason::kLimitExceeded, "",
                           absl::StrCat("rank ", shape.size(), " is above the limit ", limits.max_rank));
  }
  for (int64_t size : shape) {
    if (size < 0) return TypeError(absl::StrCat("shape [", absl::StrJoin(shape, ", "), "] has a negative size"));
  }
  // A dim of size 0 makes the product 0, but the other sizes are bounded too: strides are products of them.
  int64_t count = 1;
  for (int64_t size : shape) {
    if (size > 1 && count > limits.max_elements / size) {
      return InvalidArgument(
          ErrorReason::kLimitExceeded, "",
          absl::StrCat("shape [", absl::StrJoin(shape, ", "), "] has more than ", limits.max_elements, " elements"));
    }
    if (size > 1) count *= size;
  }
  return absl::OkStatus();
}

absl::Status CheckAttrHolds(const InferArgs& args, const char* name, DType dtype) {
  const auto it = args.attrs.find(name);
  if (it == args.attrs.end()) return absl::OkStatus();
  Literal literal;
  if (const auto* i = std::get_if<int64_t>(&it->second)) {
    literal.kind = Literal::Kind::kInt;
    literal.i = *i;
  } else if (const auto* f = std::get_if<double>(&it->second)) {
    literal.kind = Literal::Kind::kFloat;
    literal.f = *f;
  } else if (const auto* b = std::get_if<bool>(&it->second)) {
    literal.kind = Literal::Kind::kBool;
    literal.i = *b ? 1 : 0;
  } else {
    return TypeError(absl::StrCat("attribute '", name, "' must be a number"));
  }
  return Wrap(CheckLiteral(literal, dtype), absl::StrCat("attribute '", name, "'"));
}

absl::StatusOr<Shape> BroadcastOperands(const InferArgs& args) {
  std::vector<Shape> shapes;
  shapes.reserve(args.operands.size());
  for (const TensorType& type : args.operands) shapes.push_back(type.shape());
  FUSELINE_ASSIGN_OR_RETURN(Shape shape, BroadcastShapes(shapes));
  FUSELINE_RETURN_IF_ERROR(CheckShape(shape, args.limits));
  return shape;
}

std::string StringAttr(const AttrMap& attrs, const char* name) {
  const auto it = attrs.find(name);
  if (it == attrs.end()) return "";
  const auto* text = std::get_if<std::string>(&it->second);
  return text != nullptr ? *text : "";
}

absl::StatusOr<std::vector<TensorType>> SameTypeRule(const InferArgs& args, DTypeSet set) {
  FUSELINE_RETURN_IF_ERROR(CheckDType(args.operands[0].dtype, set));
  FUSELINE_RETURN_IF_ERROR(CheckEqualDTypes(args.operands));
  FUSELINE_ASSIGN_OR_RETURN(const Shape shape, BroadcastOperands(args));
  return std::vector<TensorType>{TensorType::Make(args.operands[0].dtype, shape)};
}

absl::StatusOr<std::vector<TensorType>> BoolResultRule(const InferArgs& args, DTypeSet set) {
  FUSELINE_ASSIGN_OR_RETURN(std::vector<TensorType> types, SameTypeRule(args, set));
  types[0].dtype = DType::kBool;
  return types;
}

absl::StatusOr<std::vector<int64_t>> ReducedDims(const InferArgs& args) {
  const int rank = args.operands[0].rank();
  if (args.HasAttr("dim")) {
    FUSELINE_ASSIGN_OR_RETURN(const int64_t dim, NormalizeDim(args.Int("dim"), rank));
    return std::vector<int64_t>{dim};
  }
  return NormalizeDims(args.HasAttr("dims") ? &args.Ints("dims") : nullptr, rank);
}

absl::StatusOr<Shape> ReducedShape(const InferArgs& args) {
  FUSELINE_ASSIGN_OR_RETURN(const std::vector<int64_t> dims, ReducedDims(args));
  const bool keepdim = args.HasAttr("keepdim") && args.Bool("keepdim");
  const Shape shape = args.operands[0].shape();
  Shape result;
  for (int64_t d = 0; d < static_cast<int64_t>(shape.size()); ++d) {
    if (!std::binary_search(dims.begin(), dims.end(), d)) {
      result.push_back(shape[static_cast<size_t>(d)]);
    } else if (keepdim) {
      result.push_back(1);
    }
  }
  return result;
}

SliceRange ClampSlice(int64_t start, int64_t end, int64_t step, int64_t size) {
  const int64_t low = step > 0 ? 0 : -1;
  const int64_t high = step > 0 ? size : size - 1;
  const auto clamp = [&](int64_t position) {
    if (position < 0) position += size;  // cannot overflow: the signs differ
    return std::clamp(position, low, std::max(low, high));
  };
  SliceRange range;
  range.start = clamp(start);
  range.step = step;
  const int64_t stop = clamp(end);
  const uint64_t distance = step > 0 ? (stop > range.start ? static_cast<uint64_t>(stop - range.start) : 0)
                                     : (stop < range.start ? static_cast<uint64_t>(range.start - stop) : 0);
  const uint64_t stride = step > 0 ? static_cast<uint64_t>(step) : uint64_t{0} - static_cast<uint64_t>(step);
  range.count = distance == 0 ? 0 : static_cast<int64_t>((distance - 1) / stride + 1);
  if (range.count <= 1) range.step = 1;  // no matter, and it keeps the index arithmetic small
  return range;
}

int64_t DiagonalLength(int64_t rows, int64_t columns, int64_t offset) {
  if (offset >= columns || offset <= -rows) return 0;
  return offset >= 0 ? std::min(rows, columns - offset) : std::min(rows + offset, columns);
}

}  // namespace fuseline::ops
