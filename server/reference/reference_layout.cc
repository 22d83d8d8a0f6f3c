// Layout ops, element by element. Tested by tests/unit/reference/reference_interpreter_test.cc
#include <algorithm>
#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "common/status/error.h"
#include "server/reference/reference_ops.h"

namespace fuseline::reference {
namespace {

using Position = std::vector<int64_t>;

int64_t Normal(int64_t dim, size_t rank) { return dim < 0 ? dim + static_cast<int64_t>(rank) : dim; }

void Copy(const Array& from, const Position& at, Array& to, int64_t k) {
  int64_t offset = from.offset;
  for (size_t d = 0; d < at.size(); ++d) offset += at[d] * from.strides[d];
  if (to.is_float()) {
    (*to.f)[static_cast<size_t>(k)] = (*from.f)[static_cast<size_t>(offset)];
  } else {
    (*to.i)[static_cast<size_t>(k)] = (*from.i)[static_cast<size_t>(offset)];
  }
}

// Calls body(element, position) for every element in row-major order.
template <typename Body>
void ForEachElement(const Shape& shape, const Body& body) {
  const int64_t count = ElementCount(shape);
  Position position(shape.size(), 0);
  for (int64_t k = 0; k < count; ++k) {
    body(k, position);
    for (size_t d = shape.size(); d-- > 0;) {
      if (++position[d] < shape[d]) break;
      position[d] = 0;
    }
  }
}

// Where the padding before 0 and from `size` on takes its elements from; -1: nowhere.
int64_t PaddedFrom(const std::string& mode, int64_t i, int64_t size) {
  if (i >= 0 && i < size) return i;
  if (mode == "edge") return i < 0 ? 0 : size - 1;
  if (mode == "wrap") return i < 0 ? i + size : i - size;
  if (mode == "reflect") return i < 0 ? -i : 2 * (size - 1) - i;
  return -1;
}

Array Filled(DType dtype, const Shape& shape, const AttrMap& attrs, const char* attr) {
  Array result = Array::Make(dtype, shape);
  const auto it = attrs.find(attr);
  if (it == attrs.end()) return result;
  Literal literal;
  if (const double* number = std::get_if<double>(&it->second)) {
    literal.kind = Literal::Kind::kFloat;
    literal.f = *number;
  } else if (const bool* truth = std::get_if<bool>(&it->second)) {
    literal.kind = Literal::Kind::kBool;
    literal.i = *truth ? 1 : 0;
  } else {
    literal.i = std::get<int64_t>(it->second);
  }
  const Array element = LiteralArray(literal, dtype);
  if (result.is_float()) {
    std::fill(result.f->begin(), result.f->end(), (*element.f)[0]);
  } else {
    std::fill(result.i->begin(), result.i->end(), (*element.i)[0]);
  }
  return result;
}

Array Pad(const OpContext& context, const Array& x) {
  const std::string mode = context.String("mode");
  const auto& low = context.Ints("low");
  Array result = Filled(x.dtype, context.result_types[0].shape(), context.node.attrs, "value");
  ForEachElement(result.shape, [&](int64_t k, Position at) {
    for (size_t d = 0; d < at.size(); ++d) {
      at[d] = PaddedFrom(mode, at[d] - low[d], x.shape[d]);
      if (at[d] < 0) return;
    }
    Copy(x, at, result, k);
  });
  return result;
}

// Operand after operand; `stacked`: each is one position of a dim of its own.
Array Join(const OpContext& context, const std::vector<Array>& operands, bool stacked) {
  const Shape shape = context.result_types[0].shape();
  Array result = Array::Make(operands[0].dtype, shape);
  const size_t dim = static_cast<size_t>(Normal(context.Int("dim"), shape.size()));
  const Shape strides = DenseStrides(shape);
  int64_t start = 0;
  for (const Array& operand : operands) {
    Array part = operand;
    if (stacked) {
      part.shape.insert(part.shape.begin() + static_cast<int64_t>(dim), 1);
      part.strides.insert(part.strides.begin() + static_cast<int64_t>(dim), 0);
    }
    ForEachElement(part.shape, [&](int64_t, const Position& at) {
      int64_t k = start * strides[dim];
      for (size_t d = 0; d < at.size(); ++d) k += at[d] * strides[d];
      Copy(part, at, result, k);
    });
    start += part.shape[dim];
  }
  return result;
}

Array Triangle(const OpContext& context, const Array& x, bool lower) {
  Array result = Array::Make(x.dtype, x.shape);
  const int64_t diagonal = context.Int("diagonal");
  ForEachElement(x.shape, [&](int64_t k, const Position& at) {
    const int64_t above = at[at.size() - 1] - at[at.size() - 2];
    if (lower ? above <= diagonal : above >= diagonal) Copy(x, at, result, k);
  });
  return result;
}

absl::StatusOr<Array> OneHot(const OpContext& context, const Array& given) {
  const Array x = Dense(given);
  Array result = Array::Make(context.result_types[0].dtype, context.result_types[0].shape());
  const int64_t classes = context.Int("classes");
  for (int64_t k = 0; k < x.size(); ++k) {
    const int64_t index = (*x.i)[static_cast<size_t>(k)];
    if (index < -classes || index >= classes) {
      return InvalidArgument(ErrorReason::kIndexOutOfRange, "",
                             absl::StrCat("index ", index, " is outside [-", classes, ", ", classes, ")"));
    }
    const size_t at = static_cast<size_t>(k * classes + (index < 0 ? index + classes : index));
    if (result.is_float()) {
      (*result.f)[at] = 1;
    } else {
      (*result.i)[at] = 1;
    }
  }
  return result;
}

}  // namespace

absl::StatusOr<Array> EvaluateLayout(const OpContext& context, const std::vector<Array>& operands) {
  const std::string& op = context.node.op;
  if (op == "pad") return Pad(context, operands[0]);
  if (op == "concat" || op == "stack") return Join(context, operands, op == "stack");
  if (op == "tril" || op == "triu") return Triangle(context, operands[0], op == "tril");
  if (op == "resize") return EvaluateResize(context, operands[0]);
  if (op == "one_hot") return OneHot(context, operands[0]);
  return Unimplemented("", absl::StrCat("op '", op, "' has no reference"));
}

}  // namespace fuseline::reference
