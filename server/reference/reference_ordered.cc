// Scans and ordering. Tested by tests/unit/reference/reference_indexing_test.cc
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/status/error.h"
#include "server/reference/reference_ops.h"

namespace fuseline::reference {
namespace {

size_t DimOf(const OpContext& context, const Array& x) {
  const int64_t dim = context.Int("dim");
  return static_cast<size_t>(dim < 0 ? dim + static_cast<int64_t>(x.shape.size()) : dim);
}

// Calls body(offset of the first element, stride) for each line of a dense array along `dim`, whose size may differ
// from `shape`'s.
template <typename Body>
void ForEachLine(const Shape& shape, size_t dim, int64_t size, const Body& body) {
  int64_t outer = 1, inner = 1;
  for (size_t d = 0; d < shape.size(); ++d) {
    if (d < dim) outer *= shape[d];
    if (d > dim) inner *= shape[d];
  }
  for (int64_t o = 0; o < outer; ++o) {
    for (int64_t i = 0; i < inner; ++i) body(o * size * inner + i, inner);
  }
}

Array Cumulate(const OpContext& context, const Array& x, bool product) {
  const DType to = context.result_types[0].dtype;
  Array result = Array::Make(to, x.shape);
  const size_t dim = DimOf(context, x);
  const int64_t size = x.shape[dim];
  const bool exclusive = context.Bool("exclusive"), reverse = context.Bool("reverse");
  ForEachLine(x.shape, dim, size, [&](int64_t base, int64_t stride) {
    long double total = product ? 1 : 0;
    uint64_t wrapped = product ? 1 : 0;
    for (int64_t step = 0; step < size; ++step) {
      const size_t at = static_cast<size_t>(base + (reverse ? size - 1 - step : step) * stride);
      const auto put = [&] {
        if (result.is_float()) {
          (*result.f)[at] = context.Round(static_cast<double>(total));
        } else {
          (*result.i)[at] = WrapInteger(to, static_cast<int64_t>(wrapped));
        }
      };
      if (exclusive) put();
      if (result.is_float()) {
        const double element =
            RoundToDType(ComputeDType(to), x.is_float() ? (*x.f)[at] : static_cast<double>((*x.i)[at]));
        total = product ? total * element : total + element;
      } else {
        const uint64_t element = static_cast<uint64_t>(WrapInteger(to, (*x.i)[at]));
        wrapped = product ? wrapped * element : wrapped + element;
      }
      if (!exclusive) put();
    }
  });
  return result;
}

void CopyElement(const Array& from, size_t at, Array& to, size_t place) {
  if (from.is_float()) {
    (*to.f)[place] = (*from.f)[at];
  } else {
    (*to.i)[place] = (*from.i)[at];
  }
}

// Whether element a is less than b, where NaN is the greatest and zeros are equal.
bool Less(const Array& x, size_t a, size_t b) {
  if (!x.is_float()) return (*x.i)[a] < (*x.i)[b];
  const double left = (*x.f)[a], right = (*x.f)[b];
  if (std::isnan(left)) return false;
  return std::isnan(right) || left < right;
}

std::vector<Array> Results(const Array& x, const Shape& shape) {
  return {Array::Make(x.dtype, shape), Array::Make(DType::kI64, shape)};
}

std::vector<Array> Cummax(const OpContext& context, const Array& x) {
  std::vector<Array> results = Results(x, x.shape);
  const size_t dim = DimOf(context, x);
  const int64_t size = x.shape[dim];
  ForEachLine(x.shape, dim, size, [&](int64_t base, int64_t stride) {
    int64_t best = 0;
    for (int64_t k = 0; k < size; ++k) {
      const size_t at = static_cast<size_t>(base + k * stride);
      if (Less(x, static_cast<size_t>(base + best * stride), at)) best = k;
      CopyElement(x, static_cast<size_t>(base + best * stride), results[0], at);
      (*results[1].i)[at] = best;
    }
  });
  return results;
}

// The first `count` of each line, in order; equal elements in the order of their positions.
std::vector<Array> Ordered(const OpContext& context, const Array& x, bool descending, int64_t count) {
  const size_t dim = DimOf(context, x);
  const int64_t size = x.shape[dim];
  Shape shape = x.shape;
  shape[dim] = count;
  std::vector<Array> results = Results(x, shape);
  std::vector<int64_t> bases;
  ForEachLine(shape, dim, count, [&](int64_t base, int64_t) { bases.push_back(base); });
  size_t line = 0;
  std::vector<int64_t> order(static_cast<size_t>(size));
  ForEachLine(x.shape, dim, size, [&](int64_t base, int64_t stride) {
    const auto place = [&](int64_t k) { return static_cast<size_t>(base + k * stride); };
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
      return descending ? Less(x, place(b), place(a)) : Less(x, place(a), place(b));
    });
    for (int64_t k = 0; k < count; ++k) {
      const size_t to = static_cast<size_t>(bases[line] + k * stride);
      CopyElement(x, place(order[static_cast<size_t>(k)]), results[0], to);
      (*results[1].i)[to] = order[static_cast<size_t>(k)];
    }
    ++line;
  });
  return results;
}

}  // namespace

absl::StatusOr<std::vector<Array>> EvaluateOrdered(const OpContext& context, const std::vector<Array>& operands) {
  const Array x = Dense(operands[0]);
  const std::string& op = context.node.op;
  if (op == "cumsum" || op == "cumprod") return std::vector<Array>{Cumulate(context, x, op == "cumprod")};
  if (op == "cummax") return Cummax(context, x);
  if (op == "sort") return Ordered(context, x, context.Bool("descending"), x.shape[DimOf(context, x)]);
  if (op == "topk") return Ordered(context, x, context.Bool("largest"), context.Int("k"));
  return Unimplemented("", absl::StrCat("op '", op, "' has no reference"));
}

}  // namespace fuseline::reference
