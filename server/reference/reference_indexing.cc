// Reads and writes at positions given by an operand. Tested by tests/unit/reference/reference_indexing_test.cc
#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/status/error.h"
#include "common/status/status_macros.h"
#include "server/reference/reference_ops.h"

namespace fuseline::reference {
namespace {

// Position `flat` of a row-major `shape`, dim by dim.
Shape PositionOf(int64_t flat, const Shape& shape) {
  Shape position(shape.size());
  for (size_t d = shape.size(); d-- > 0;) {
    position[d] = flat % shape[d];
    flat /= shape[d];
  }
  return position;
}
int64_t FlatOf(const Shape& position, const Shape& shape) {
  int64_t flat = 0;
  for (size_t d = 0; d < shape.size(); ++d) flat = flat * shape[d] + position[d];
  return flat;
}

absl::StatusOr<int64_t> Resolve(int64_t index, int64_t size) {
  if (index < -size || index >= size) {
    return InvalidArgument(ErrorReason::kIndexOutOfRange, "",
                           absl::StrCat("index ", index, " is out of range for size ", size));
  }
  return index < 0 ? index + size : index;
}

size_t DimOf(const OpContext& context, const Array& x) {
  const int64_t dim = context.Int("dim");
  return static_cast<size_t>(dim < 0 ? dim + static_cast<int64_t>(x.shape.size()) : dim);
}

void CopyElement(const Array& from, int64_t at, Array& to, int64_t place) {
  if (from.is_float()) {
    (*to.f)[static_cast<size_t>(place)] = (*from.f)[static_cast<size_t>(at)];
  } else {
    (*to.i)[static_cast<size_t>(place)] = (*from.i)[static_cast<size_t>(at)];
  }
}

// Element `position` of the result of a gathering op: which elements of the index say where in x it is.
// `locate(position, at)` fills in x's position, using `read(flat position in the index, dim of x)`.
template <typename Locate>
absl::StatusOr<Array> GatherWith(const OpContext& context, const Array& x, const Array& index, const Locate& locate) {
  Array result = Array::Make(x.dtype, context.result_types[0].shape());
  const int64_t count = result.size();
  absl::Status status;
  const auto read = [&](const Shape& where, size_t dim) -> int64_t {
    const auto at = Resolve((*index.i)[static_cast<size_t>(FlatOf(where, index.shape))], x.shape[dim]);
    if (!at.ok()) {
      if (status.ok()) status = at.status();
      return 0;
    }
    return *at;
  };
  for (int64_t k = 0; k < count; ++k) {
    const Shape from = locate(PositionOf(k, result.shape), read);
    FUSELINE_RETURN_IF_ERROR(status);
    CopyElement(x, FlatOf(from, x.shape), result, k);
  }
  return result;
}

absl::StatusOr<Array> GatherAlongDim(const OpContext& context, const Array& x, const Array& index) {
  const size_t dim = DimOf(context, x);
  return GatherWith(context, x, index, [&](Shape position, const auto& read) {
    Shape where = position;
    for (size_t d = 0; d < where.size(); ++d) {
      if (index.shape[d] == 1) where[d] = 0;
    }
    position[dim] = read(where, dim);
    for (size_t d = 0; d < position.size(); ++d) {
      if (d != dim && x.shape[d] == 1) position[d] = 0;
    }
    return position;
  });
}

absl::StatusOr<Array> IndexSelect(const OpContext& context, const Array& x, const Array& index) {
  const size_t dim = DimOf(context, x);
  return GatherWith(context, x, index, [&](Shape position, const auto& read) {
    position[dim] = read(Shape{position[dim]}, dim);
    return position;
  });
}

absl::StatusOr<Array> Embedding(const OpContext& context, const Array& table, const Array& index) {
  return GatherWith(context, table, index, [&](const Shape& position, const auto& read) {
    return Shape{read(Shape(position.begin(), position.end() - 1), 0), position.back()};
  });
}

absl::StatusOr<Array> GatherNd(const OpContext& context, const Array& x, const Array& index) {
  const size_t batch = static_cast<size_t>(context.Int("batch_dims"));
  const size_t leading = index.shape.size() - 1;
  return GatherWith(context, x, index, [&](const Shape& position, const auto& read) {
    Shape where(position.begin(), position.begin() + static_cast<int64_t>(leading));
    where.push_back(0);
    Shape at(position.begin(), position.begin() + static_cast<int64_t>(batch));
    for (int64_t k = 0; k < index.shape.back(); ++k) {
      where.back() = k;
      at.push_back(read(where, batch + static_cast<size_t>(k)));
    }
    at.insert(at.end(), position.begin() + static_cast<int64_t>(leading), position.end());
    return at;
  });
}

double MaximumOf(double a, double b) {
  if (std::isnan(a) || std::isnan(b)) return std::nan("");
  if (a == b) return std::signbit(a) ? b : a;
  return a > b ? a : b;
}
double MinimumOf(double a, double b) {
  if (std::isnan(a) || std::isnan(b)) return std::nan("");
  if (a == b) return std::signbit(a) ? a : b;
  return a < b ? a : b;
}

// What a scatter keeps while it runs: sums and products of 16-bit floats in f32.
double CombineFloat(const std::string& how, DType dtype, double old, double value) {
  if (how == "add") return RoundToDType(ComputeDType(dtype), old + value);
  if (how == "mul") return RoundToDType(ComputeDType(dtype), old * value);
  if (how == "max") return MaximumOf(old, value);
  if (how == "min") return MinimumOf(old, value);
  return value;
}
int64_t CombineInt(const std::string& how, DType dtype, int64_t old, int64_t value) {
  const uint64_t a = static_cast<uint64_t>(old), b = static_cast<uint64_t>(value);
  if (how == "add") return WrapInteger(dtype, static_cast<int64_t>(a + b));
  if (how == "mul") return WrapInteger(dtype, static_cast<int64_t>(a * b));
  if (how == "max") return std::max(old, value);
  if (how == "min") return std::min(old, value);
  return value;
}

// Visits the positions of `domain` in row-major order; `locate(position, to, from)` fills in where in the result and in
// the source.
template <typename Locate>
absl::StatusOr<Array> ScatterWith(const OpContext& context, const std::string& how, const Array& x, const Array& source,
                                  const Shape& domain, const Locate& locate) {
  Array result = Array::Make(x.dtype, x.shape);
  if (x.is_float()) {
    *result.f = *x.f;
  } else {
    *result.i = *x.i;
  }
  const int64_t count = ElementCount(domain);
  for (int64_t k = 0; k < count; ++k) {
    Shape to, from;
    FUSELINE_RETURN_IF_ERROR(locate(PositionOf(k, domain), to, from));
    const size_t at = static_cast<size_t>(FlatOf(to, x.shape));
    const size_t value = source.shape.empty() ? 0 : static_cast<size_t>(FlatOf(from, source.shape));
    if (x.is_float()) {
      (*result.f)[at] = CombineFloat(how, x.dtype, (*result.f)[at], (*source.f)[value]);
    } else {
      (*result.i)[at] = CombineInt(how, x.dtype, (*result.i)[at], (*source.i)[value]);
    }
  }
  if (x.is_float()) {
    for (double& element : *result.f) element = context.Round(element);
  }
  return result;
}

absl::StatusOr<Array> Scatter(const OpContext& context, const std::string& how, const std::vector<Array>& operands) {
  const Array& x = operands[0];
  const Array& index = operands[1];
  const size_t dim = DimOf(context, x);
  return ScatterWith(
      context, how, x, operands[2], index.shape, [&](const Shape& position, Shape& to, Shape& from) -> absl::Status {
        to = from = position;
        FUSELINE_ASSIGN_OR_RETURN(
            to[dim], Resolve((*index.i)[static_cast<size_t>(FlatOf(position, index.shape))], x.shape[dim]));
        return absl::OkStatus();
      });
}

absl::StatusOr<Array> IndexAdd(const OpContext& context, const std::vector<Array>& operands) {
  const Array& x = operands[0];
  const size_t dim = DimOf(context, x);
  Shape domain = x.shape;
  domain[dim] = operands[1].size();
  return ScatterWith(
      context, "add", x, operands[2], domain, [&](const Shape& position, Shape& to, Shape& from) -> absl::Status {
        to = from = position;
        FUSELINE_ASSIGN_OR_RETURN(to[dim], Resolve((*operands[1].i)[static_cast<size_t>(position[dim])], x.shape[dim]));
        return absl::OkStatus();
      });
}

absl::StatusOr<Array> ScatterNd(const OpContext& context, const std::vector<Array>& operands) {
  const Array& x = operands[0];
  const Array& index = operands[1];
  const size_t leading = index.shape.size() - 1;
  const int64_t tuple = index.shape.back();
  Shape domain(index.shape.begin(), index.shape.end() - 1);
  domain.insert(domain.end(), x.shape.begin() + tuple, x.shape.end());
  return ScatterWith(context, context.String("reduction"), x, operands[2], domain,
                     [&](const Shape& position, Shape& to, Shape& from) -> absl::Status {
                       from = position;
                       Shape where(position.begin(), position.begin() + static_cast<int64_t>(leading));
                       where.push_back(0);
                       for (int64_t k = 0; k < tuple; ++k) {
                         where.back() = k;
                         FUSELINE_ASSIGN_OR_RETURN(const int64_t at,
                                                   Resolve((*index.i)[static_cast<size_t>(FlatOf(where, index.shape))],
                                                           x.shape[static_cast<size_t>(k)]));
                         to.push_back(at);
                       }
                       to.insert(to.end(), position.begin() + static_cast<int64_t>(leading), position.end());
                       return absl::OkStatus();
                     });
}

}  // namespace

absl::StatusOr<Array> EvaluateIndexing(const OpContext& context, const std::vector<Array>& given) {
  std::vector<Array> operands;
  for (const Array& operand : given) operands.push_back(Dense(operand));
  const std::string& op = context.node.op;
  if (op == "gather" || op == "take_along_dim") return GatherAlongDim(context, operands[0], operands[1]);
  if (op == "index_select") return IndexSelect(context, operands[0], operands[1]);
  if (op == "embedding") return Embedding(context, operands[0], operands[1]);
  if (op == "gather_nd") return GatherNd(context, operands[0], operands[1]);
  if (op == "scatter") return Scatter(context, context.String("reduction"), operands);
  if (op == "scatter_add") return Scatter(context, "add", operands);
  if (op == "index_add") return IndexAdd(context, operands);
  if (op == "scatter_nd") return ScatterNd(context, operands);
  return Unimplemented("", absl::StrCat("op '", op, "' has no reference"));
}

}  // namespace fuseline::reference
