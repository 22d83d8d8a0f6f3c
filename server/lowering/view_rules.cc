#include "server/lowering/view_rules.h"

#include <algorithm>
#include <string>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "common/ir/op_table.h"
#include "common/status/error.h"

namespace fuseline::lowering {
namespace {

const std::vector<int64_t>& Ints(const Node& node, const char* name) {
  return std::get<std::vector<int64_t>>(node.attrs.find(name)->second);
}
int64_t Int(const Node& node, const char* name) { return std::get<int64_t>(node.attrs.find(name)->second); }
int64_t Wrap(int64_t dim, int64_t rank) { return dim < 0 ? dim + rank : dim; }

std::vector<IndexExpr> Permuted(const std::vector<int64_t>& dims, const Shape& result) {
  // result dim i is operand dim dims[i].
  const std::vector<IndexExpr> id = IdentityIndex(result);
  std::vector<IndexExpr> out(dims.size());
  for (size_t i = 0; i < dims.size(); ++i) {
    out[static_cast<size_t>(Wrap(dims[i], static_cast<int64_t>(dims.size())))] = id[i];
  }
  return out;
}

std::vector<IndexExpr> Broadcast(const Shape& operand, const Shape& result) {
  const std::vector<IndexExpr> id = IdentityIndex(result);
  std::vector<IndexExpr> out(operand.size());
  const size_t shift = result.size() - operand.size();
  for (size_t i = 0; i < operand.size(); ++i) {
    if (operand[i] != 1) out[i] = id[i + shift];
  }
  return out;
}

// Python's slice with a step: the first position that is taken.
int64_t SliceStart(int64_t start, int64_t step, int64_t size) {
  if (start < 0) start += size;
  return step > 0 ? std::clamp<int64_t>(start, 0, size) : std::clamp<int64_t>(start, -1, size - 1);
}

std::vector<IndexExpr> Slice(const Node& node, const Shape& operand, const Shape& result) {
  std::vector<IndexExpr> out = IdentityIndex(result);
  const std::vector<int64_t>& starts = Ints(node, "starts");
  const auto dims_it = node.attrs.find("dims");
  const auto steps_it = node.attrs.find("steps");
  const int64_t rank = static_cast<int64_t>(operand.size());
  for (size_t k = 0; k < starts.size(); ++k) {
    const int64_t dim = dims_it == node.attrs.end() ? static_cast<int64_t>(k)
                                                    : Wrap(std::get<std::vector<int64_t>>(dims_it->second)[k], rank);
    const int64_t step = steps_it == node.attrs.end() ? 1 : std::get<std::vector<int64_t>>(steps_it->second)[k];
    const size_t d = static_cast<size_t>(dim);
    out[d] = out[d] * step + IndexExpr::Const(result[d] == 0 ? 0 : SliceStart(starts[k], step, operand[d]));
  }
  return out;
}

std::vector<IndexExpr> Flip(const Node& node, const Shape& result) {
  std::vector<IndexExpr> out = IdentityIndex(result);
  std::vector<int64_t> dims;
  if (const auto it = node.attrs.find("dims"); it != node.attrs.end()) {
    dims = std::get<std::vector<int64_t>>(it->second);
  } else {
    for (size_t i = 0; i < result.size(); ++i) dims.push_back(static_cast<int64_t>(i));
  }
  for (int64_t dim : dims) {
    const size_t d = static_cast<size_t>(Wrap(dim, static_cast<int64_t>(result.size())));
    out[d] = out[d] * -1 + IndexExpr::Const(std::max<int64_t>(result[d], 1) - 1);
  }
  return out;
}

std::vector<IndexExpr> Tile(const Shape& operand, const Shape& result) {
  const std::vector<IndexExpr> id = IdentityIndex(result);
  std::vector<IndexExpr> out(operand.size());
  const size_t shift = result.size() - operand.size();
  for (size_t d = 0; d < operand.size(); ++d) {
    if (operand[d] > 1) out[d] = Mod(id[d + shift], operand[d], result);
  }
  return out;
}

std::vector<IndexExpr> RepeatInterleave(const Node& node, const Shape& operand, const Shape& result) {
  std::vector<IndexExpr> out = IdentityIndex(result);
  const size_t d = static_cast<size_t>(Wrap(Int(node, "dim"), static_cast<int64_t>(operand.size())));
  out[d] = FloorDiv(out[d], std::max<int64_t>(Int(node, "repeats"), 1), result);
  return out;
}

// Position i of `size`, which the roll has filled from position i - shift.
IndexExpr Rolled(const IndexExpr& i, int64_t shift, int64_t size, const Shape& extents) {
  if (size <= 1) return i;
  const int64_t forward = (shift % size + size) % size;
  return Mod(i + IndexExpr::Const(size - forward), size, extents);
}

std::vector<IndexExpr> Roll(const Node& node, const Shape& shape) {
  const std::vector<int64_t>& shifts = Ints(node, "shifts");
  std::vector<IndexExpr> out = IdentityIndex(shape);
  const auto dims = node.attrs.find("dims");
  if (dims == node.attrs.end()) {
    return Unflatten(Rolled(Flatten(out, shape), shifts[0], ElementCount(shape), shape), shape, shape);
  }
  const std::vector<int64_t>& named = std::get<std::vector<int64_t>>(dims->second);
  for (size_t k = 0; k < named.size(); ++k) {
    const size_t d = static_cast<size_t>(Wrap(named[k], static_cast<int64_t>(shape.size())));
    out[d] = Rolled(out[d], shifts[k], shape[d], shape);
  }
  return out;
}

std::vector<IndexExpr> Diagonal(const Node& node, const Shape& operand, const Shape& result) {
  const std::vector<IndexExpr> id = IdentityIndex(result);
  const int64_t rank = static_cast<int64_t>(operand.size());
  const size_t a = static_cast<size_t>(Wrap(Int(node, "dim0"), rank));
  const size_t b = static_cast<size_t>(Wrap(Int(node, "dim1"), rank));
  const int64_t offset = result.back() == 0 ? 0 : Int(node, "offset");
  std::vector<IndexExpr> out;
  size_t next = 0;
  for (size_t d = 0; d < operand.size(); ++d) {
    if (d == a) {
      out.push_back(id.back() + IndexExpr::Const(std::max<int64_t>(-offset, 0)));
    } else if (d == b) {
      out.push_back(id.back() + IndexExpr::Const(std::max<int64_t>(offset, 0)));
    } else {
      out.push_back(id[next++]);
    }
  }
  return out;
}

}  // namespace

absl::StatusOr<std::vector<IndexExpr>> ViewIndexMap(const Node& node, const Shape& operand, const Shape& result) {
  const std::string_view op = node.op;
  if (op == "reshape" || op == "squeeze" || op == "unsqueeze") {
    return Unflatten(Flatten(IdentityIndex(result), result), operand, result);
  }
  if (op == "permute") return Permuted(Ints(node, "dims"), result);
  if (op == "transpose") {
    std::vector<int64_t> dims(operand.size());
    for (size_t i = 0; i < dims.size(); ++i) dims[i] = static_cast<int64_t>(i);
    if (!dims.empty()) {
      std::swap(dims[static_cast<size_t>(Wrap(Int(node, "dim0"), static_cast<int64_t>(dims.size())))],
                dims[static_cast<size_t>(Wrap(Int(node, "dim1"), static_cast<int64_t>(dims.size())))]);
    }
    return Permuted(dims, result);
  }
  if (op == "broadcast_to") return Broadcast(operand, result);
  if (op == "slice") return Slice(node, operand, result);
  if (op == "flip") return Flip(node, result);
  if (op == "tile") return Tile(operand, result);
  if (op == "repeat_interleave") return RepeatInterleave(node, operand, result);
  if (op == "roll") return Roll(node, result);
  if (op == "diagonal") return Diagonal(node, operand, result);
  return Unimplemented(node.op, absl::StrCat("view op '", node.op, "' has no index map"));
}

}  // namespace fuseline::lowering
