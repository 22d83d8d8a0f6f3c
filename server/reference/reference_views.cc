// Views and creation. A view shares the operand's elements. Tested by
// tests/unit/reference/reference_interpreter_test.cc
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/ir/ops/type_rules.h"
#include "common/status/error.h"
#include "server/reference/reference_ops.h"

namespace fuseline::reference {
namespace {

int64_t Normal(int64_t dim, size_t rank) { return dim < 0 ? dim + static_cast<int64_t>(rank) : dim; }

// A dense array of `shape` whose element at each position is the operand's where source(position) points to.
template <typename Source>
Array Picked(const Array& operand, const Shape& shape, const Source& source) {
  Array result = Array::Make(operand.dtype, shape);
  const int64_t count = result.size();
  std::vector<int64_t> position(shape.size(), 0);
  for (int64_t k = 0; k < count; ++k) {
    const std::vector<int64_t> at = source(position);
    int64_t offset = operand.offset;
    for (size_t d = 0; d < at.size(); ++d) offset += at[d] * operand.strides[d];
    if (operand.is_float()) {
      (*result.f)[static_cast<size_t>(k)] = (*operand.f)[static_cast<size_t>(offset)];
    } else {
      (*result.i)[static_cast<size_t>(k)] = (*operand.i)[static_cast<size_t>(offset)];
    }
    for (size_t d = shape.size(); d-- > 0;) {
      if (++position[d] < shape[d]) break;
      position[d] = 0;
    }
  }
  return result;
}

Array Tiled(const Array& operand, const Shape& shape) {
  const size_t added = shape.size() - operand.shape.size();
  return Picked(operand, shape, [&](const std::vector<int64_t>& position) {
    std::vector<int64_t> at(position.begin() + static_cast<int64_t>(added), position.end());
    for (size_t d = 0; d < at.size(); ++d) at[d] %= operand.shape[d];
    return at;
  });
}

// Each element moves by `shift` places along a dim, and round from its end to its start.
Array RolledAlong(const Array& operand, size_t dim, int64_t shift) {
  const int64_t size = operand.shape[dim];
  return Picked(operand, operand.shape, [&](std::vector<int64_t> at) {
    at[dim] = (at[dim] - shift % size + size) % size;
    return at;
  });
}

Array Rolled(const OpContext& context, const Array& operand) {
  if (operand.size() == 0) return operand;
  const auto& shifts = context.Ints("shifts");
  if (!context.Has("dims")) {
    Array flat = Dense(operand);
    flat.shape = {operand.size()};
    flat.strides = {1};
    Array result = RolledAlong(flat, 0, shifts[0]);
    result.shape = operand.shape;
    result.strides = DenseStrides(operand.shape);
    return result;
  }
  Array result = operand;
  const auto& dims = context.Ints("dims");
  for (size_t k = 0; k < dims.size(); ++k) {
    result = RolledAlong(result, static_cast<size_t>(Normal(dims[k], operand.shape.size())), shifts[k]);
  }
  return result;
}

// Moves along both dims at once.
Array DiagonalOf(const OpContext& context, const Array& operand) {
  const size_t rank = operand.shape.size();
  const size_t rows = static_cast<size_t>(Normal(context.Int("dim0"), rank));
  const size_t columns = static_cast<size_t>(Normal(context.Int("dim1"), rank));
  Array view = operand;
  view.shape = context.result_types[0].shape();
  view.strides.clear();
  for (size_t d = 0; d < rank; ++d) {
    if (d != rows && d != columns) view.strides.push_back(operand.strides[d]);
  }
  view.strides.push_back(operand.strides[rows] + operand.strides[columns]);
  if (view.shape.back() == 0) return view;
  const int64_t offset = context.Int("offset");
  view.offset += offset >= 0 ? offset * operand.strides[columns] : -offset * operand.strides[rows];
  return view;
}

}  // namespace

absl::StatusOr<Array> EvaluateView(const OpContext& context, const Array& operand) {
  const std::string& op = context.node.op;
  const Shape& from = operand.shape;
  const size_t rank = from.size();
  Array view = operand;
  view.shape = context.result_types[0].shape();
  if (op == "reshape" || op == "squeeze" || op == "unsqueeze") {  // the same elements in the same order
    const Shape shape = view.shape;
    view = Dense(operand);
    view.shape = shape;
    view.strides = DenseStrides(shape);
  } else if (op == "permute") {
    const auto& dims = context.Ints("dims");
    for (size_t d = 0; d < rank; ++d) view.strides[d] = operand.strides[static_cast<size_t>(Normal(dims[d], rank))];
  } else if (op == "transpose") {
    std::swap(view.strides[static_cast<size_t>(Normal(context.Int("dim0"), rank))],
              view.strides[static_cast<size_t>(Normal(context.Int("dim1"), rank))]);
  } else if (op == "broadcast_to") {
    const size_t added = view.shape.size() - rank;
    view.strides.assign(view.shape.size(), 0);
    for (size_t d = 0; d < rank; ++d) {
      if (from[d] != 1) view.strides[added + d] = operand.strides[d];
    }
  } else if (op == "slice") {
    const auto& starts = context.Ints("starts");
    for (size_t k = 0; k < starts.size(); ++k) {
      const size_t d = context.Has("dims") ? static_cast<size_t>(Normal(context.Ints("dims")[k], rank)) : k;
      const int64_t step = context.Has("steps") ? context.Ints("steps")[k] : 1;
      const ops::SliceRange range = ops::ClampSlice(starts[k], context.Ints("ends")[k], step, from[d]);
      if (range.count > 0) view.offset += range.start * operand.strides[d];
      view.strides[d] = range.step * operand.strides[d];
    }
  } else if (op == "flip") {
    std::vector<bool> flipped(rank, !context.Has("dims"));
    for (int64_t dim : context.Ints("dims")) flipped[static_cast<size_t>(Normal(dim, rank))] = true;
    for (size_t d = 0; d < rank; ++d) {
      if (!flipped[d] || from[d] == 0) continue;
      view.offset += (from[d] - 1) * operand.strides[d];
      view.strides[d] = -operand.strides[d];
    }
  } else if (op == "tile") {
    view = Tiled(operand, view.shape);
  } else if (op == "repeat_interleave") {
    const size_t d = static_cast<size_t>(Normal(context.Int("dim"), rank));
    const int64_t repeats = context.Int("repeats");
    view = Picked(operand, view.shape, [&](std::vector<int64_t> at) {
      at[d] /= repeats;
      return at;
    });
  } else if (op == "roll") {
    view = Rolled(context, operand);
  } else if (op == "diagonal") {
    view = DiagonalOf(context, operand);
  } else {
    return Unimplemented("", absl::StrCat("op '", op, "' has no reference"));
  }
  return view;
}

absl::StatusOr<Array> EvaluateCreation(const OpContext& context) {
  const Node& node = context.node;
  const DType dtype = context.result_types[0].dtype;
  const Shape shape = context.result_types[0].shape();
  if (node.op == "constant") {
    auto tensor =
        Tensor::FromBytes(dtype, shape, node.constant_bytes != nullptr ? *node.constant_bytes : std::string());
    if (!tensor.ok()) return tensor.status();
    return FromTensor(*tensor);
  }
  Array result = Array::Make(dtype, shape);
  if (node.op == "full") {
    const AttrValue& value = node.attrs.find("value")->second;
    Literal literal;
    if (const double* number = std::get_if<double>(&value)) {
      literal.kind = Literal::Kind::kFloat;
      literal.f = *number;
    } else if (const bool* truth = std::get_if<bool>(&value)) {
      literal.kind = Literal::Kind::kBool;
      literal.i = *truth ? 1 : 0;
    } else {
      literal.i = std::get<int64_t>(value);
    }
    const Array element = LiteralArray(literal, dtype);
    if (result.is_float()) {
      std::fill(result.f->begin(), result.f->end(), (*element.f)[0]);
    } else {
      std::fill(result.i->begin(), result.i->end(), (*element.i)[0]);
    }
    return result;
  }
  if (node.op != "iota") return Unimplemented("", absl::StrCat("op '", node.op, "' has no reference"));
  const size_t dim = static_cast<size_t>(Normal(context.Int("dim"), shape.size()));
  const int64_t stride = DenseStrides(shape)[dim];
  for (int64_t k = 0; k < result.size(); ++k) {
    const int64_t position = k / stride % shape[dim];
    if (result.is_float()) {
      (*result.f)[static_cast<size_t>(k)] = context.Round(static_cast<double>(position));
    } else {
      (*result.i)[static_cast<size_t>(k)] = WrapInteger(dtype, position);
    }
  }
  return result;
}

}  // namespace fuseline::reference
