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
