// Views: ops whose result's elements are the operand's elsewhere. Every dtype is allowed.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/ir/ops/op_rows.h"
#include "common/ir/ops/type_rules.h"
#include "common/status/error.h"
#include "common/status/status_macros.h"

namespace fuseline::ops {
namespace {

using Types = absl::StatusOr<std::vector<TensorType>>;

Types ResultLike(const InferArgs& args, const Shape& shape) {
  FUSELINE_RETURN_IF_ERROR(CheckShape(shape, args.limits));
  return std::vector<TensorType>{TensorType::Make(args.operands[0].dtype, shape)};
}

std::string ShapeText(const Shape& shape) { return absl::StrCat("[", absl::StrJoin(shape, ", "), "]"); }

Types ReshapeRule(const InferArgs& args) {
  Shape shape = args.Ints("shape");
  const Shape from = args.operands[0].shape();
  int64_t free_dim = -1;
  for (size_t d = 0; d < shape.size(); ++d) {
    if (shape[d] != -1) continue;
    if (free_dim >= 0) return TypeError(absl::StrCat("shape ", ShapeText(shape), " has more than one -1"));
    free_dim = static_cast<int64_t>(d);
  }
  const int64_t count = ElementCount(from);
  if (free_dim >= 0) {
    Shape known = shape;
    known[static_cast<size_t>(free_dim)] = 1;
    FUSELINE_RETURN_IF_ERROR(CheckShape(known, args.limits));
    const int64_t rest = ElementCount(known);
    if (rest == 0)
      return TypeError(absl::StrCat("shape ", ShapeText(shape), ": the -1 could be any size, since another size is 0"));
    if (count % rest != 0)
      return TypeError(absl::StrCat("shape ", ShapeText(from), " does not reshape to ", ShapeText(shape)));
    shape[static_cast<size_t>(free_dim)] = count / rest;
  }
  FUSELINE_RETURN_IF_ERROR(CheckShape(shape, args.limits));
  if (ElementCount(shape) != count) {
    return TypeError(absl::StrCat("shape ", ShapeText(from), " does not reshape to ", ShapeText(shape)));
  }
  return ResultLike(args, shape);
}

Types PermuteRule(const InferArgs& args) {
  const Shape from = args.operands[0].shape();
  const std::vector<int64_t>& dims = args.Ints("dims");
  if (dims.size() != from.size()) {
    return TypeError(absl::StrCat("dims ", ShapeText(dims), " do not name each of the ", from.size(), " dims"));
  }
  Shape shape;
  std::vector<bool> seen(from.size(), false);
  for (int64_t dim : dims) {
    FUSELINE_ASSIGN_OR_RETURN(const int64_t d, NormalizeDim(dim, args.operands[0].rank()));
    if (seen[static_cast<size_t>(d)]) return TypeError(absl::StrCat("dims ", ShapeText(dims), " name a dim twice"));
    seen[static_cast<size_t>(d)] = true;
    shape.push_back(from[static_cast<size_t>(d)]);
  }
  return ResultLike(args, shape);
}

Types TransposeRule(const InferArgs& args) {
  Shape shape = args.operands[0].shape();
  FUSELINE_ASSIGN_OR_RETURN(const int64_t a, NormalizeDim(args.Int("dim0"), args.operands[0].rank()));
  FUSELINE_ASSIGN_OR_RETURN(const int64_t b, NormalizeDim(args.Int("dim1"), args.operands[0].rank()));
  std::swap(shape[static_cast<size_t>(a)], shape[static_cast<size_t>(b)]);
  return ResultLike(args, shape);
}

Types BroadcastToRule(const InferArgs& args) {
  const Shape from = args.operands[0].shape();
  const Shape& shape = args.Ints("shape");
  FUSELINE_RETURN_IF_ERROR(CheckShape(shape, args.limits));
  bool fits = from.size() <= shape.size();
  for (size_t d = 0; fits && d < from.size(); ++d) {
    const int64_t to = shape[shape.size() - from.size() + d];
    fits = from[d] == to || from[d] == 1;
  }
  if (!fits) return TypeError(absl::StrCat("shape ", ShapeText(from), " does not broadcast to ", ShapeText(shape)));
  return ResultLike(args, shape);
}

Types SqueezeRule(const InferArgs& args) {
  const Shape from = args.operands[0].shape();
  FUSELINE_ASSIGN_OR_RETURN(const std::vector<int64_t> dims,
                            NormalizeDims(&args.Ints("dims"), args.operands[0].rank()));
  Shape shape;
  for (int64_t d = 0; d < static_cast<int64_t>(from.size()); ++d) {
    const int64_t size = from[static_cast<size_t>(d)];
    if (!std::binary_search(dims.begin(), dims.end(), d)) {
      shape.push_back(size);
    } else if (size != 1) {
      return TypeError(absl::StrCat("dim ", d, " of shape ", ShapeText(from), " is not 1"));
    }
  }
  return ResultLike(args, shape);
}

Types UnsqueezeRule(const InferArgs& args) {
  Shape shape = args.operands[0].shape();
  FUSELINE_ASSIGN_OR_RETURN(const int64_t dim, NormalizeDim(args.Int("dim"), args.operands[0].rank() + 1));
  shape.insert(shape.begin() + dim, 1);
  return ResultLike(args, shape);
}

Types SliceRule(const InferArgs& args) {
  Shape shape = args.operands[0].shape();
  const std::vector<int64_t>& starts = args.Ints("starts");
  const std::vector<int64_t>& ends = args.Ints("ends");
  const size_t n = starts.size();
  const auto fits = [&](const char* name) { return !args.HasAttr(name) || args.Ints(name).size() == n; };
  if (ends.size() != n || !fits("steps") || !fits("dims")) {
    return TypeError("attributes 'starts', 'ends', 'steps' and 'dims' must have the same length");
  }
  std::vector<bool> seen(shape.size(), false);
  for (size_t k = 0; k < n; ++k) {
    const int64_t named = args.HasAttr("dims") ? args.Ints("dims")[k] : static_cast<int64_t>(k);
    FUSELINE_ASSIGN_OR_RETURN(const int64_t dim, NormalizeDim(named, args.operands[0].rank()));
    const size_t d = static_cast<size_t>(dim);
    if (seen[d]) return TypeError(absl::StrCat("dim ", dim, " is named twice"));
    seen[d] = true;
    const int64_t step = args.HasAttr("steps") ? args.Ints("steps")[k] : 1;
    if (step == 0) return TypeError("a step is 0");
    shape[d] = ClampSlice(starts[k], ends[k], step, shape[d]).count;
  }
  return ResultLike(args, shape);
}

Types FlipRule(const InferArgs& args) {
  const std::vector<int64_t>* dims = args.HasAttr("dims") ? &args.Ints("dims") : nullptr;
  FUSELINE_RETURN_IF_ERROR(NormalizeDims(dims, args.operands[0].rank()).status());
  return ResultLike(args, args.operands[0].shape());
}

// a times b, or an error above the limit on elements; neither is negative.
absl::StatusOr<int64_t> MultiplySize(int64_t a, int64_t b, const GraphLimits& limits) {
  if (b > 0 && a > limits.max_elements / b) {
    return InvalidArgument(ErrorReason::kLimitExceeded, "",
                           absl::StrCat("a dim of ", a, " times ", b, " is above the limit of elements"));
  }
  return a * b;
}

// As NumPy: the shorter one of shape and repeats gets ones in front.
Types TileRule(const InferArgs& args) {
  const std::vector<int64_t>& repeats = args.Ints("repeats");
  Shape shape = args.operands[0].shape();
  for (int64_t r : repeats) {
    if (r < 0) return TypeError(absl::StrCat("repeats ", ShapeText(repeats), " are negative"));
  }
  if (static_cast<int64_t>(repeats.size()) > args.limits.max_rank) {
    return InvalidArgument(ErrorReason::kLimitExceeded, "",
                           absl::StrCat("rank ", repeats.size(), " is above the limit ", args.limits.max_rank));
  }
  if (shape.size() < repeats.size()) shape.insert(shape.begin(), repeats.size() - shape.size(), 1);
  for (size_t k = 0; k < repeats.size(); ++k) {
    int64_t& size = shape[shape.size() - repeats.size() + k];
    FUSELINE_ASSIGN_OR_RETURN(size, MultiplySize(size, repeats[k], args.limits));
  }
  return ResultLike(args, shape);
}

Types RepeatInterleaveRule(const InferArgs& args) {
  Shape shape = args.operands[0].shape();
  const int64_t repeats = args.Int("repeats");
  if (repeats < 0) return TypeError(absl::StrCat("repeats ", repeats, " is negative"));
  FUSELINE_ASSIGN_OR_RETURN(const int64_t dim, NormalizeDim(args.Int("dim"), args.operands[0].rank()));
  int64_t& size = shape[static_cast<size_t>(dim)];
  FUSELINE_ASSIGN_OR_RETURN(size, MultiplySize(size, repeats, args.limits));
  return ResultLike(args, shape);
}

Types RollRule(const InferArgs& args) {
  const size_t shifts = args.Ints("shifts").size();
  if (args.HasAttr("dims")) {
    const std::vector<int64_t>& dims = args.Ints("dims");
    if (dims.size() != shifts) return TypeError("attributes 'shifts' and 'dims' must have the same length");
    FUSELINE_RETURN_IF_ERROR(NormalizeDims(&dims, args.operands[0].rank()).status());
  } else if (shifts != 1) {
    return TypeError("without 'dims', attribute 'shifts' must have one element");
  }
  return ResultLike(args, args.operands[0].shape());
}

// The other dims, then the diagonal.
Types DiagonalRule(const InferArgs& args) {
  const Shape from = args.operands[0].shape();
  FUSELINE_ASSIGN_OR_RETURN(const int64_t a, NormalizeDim(args.Int("dim0"), args.operands[0].rank()));
  FUSELINE_ASSIGN_OR_RETURN(const int64_t b, NormalizeDim(args.Int("dim1"), args.operands[0].rank()));
  if (a == b) return TypeError("attributes 'dim0' and 'dim1' name one dim");
  Shape shape;
  for (int64_t d = 0; d < static_cast<int64_t>(from.size()); ++d) {
    if (d != a && d != b) shape.push_back(from[static_cast<size_t>(d)]);
  }
  shape.push_back(DiagonalLength(from[static_cast<size_t>(a)], from[static_cast<size_t>(b)], args.Int("offset")));
  return ResultLike(args, shape);
}

void AddRow(std::vector<OpDef>& rows, const char* name, TypeRule infer, std::vector<AttrSpec> attrs) {
  OpDef row;
  row.name = name;
  row.kind = OpKind::kView;
  row.min_operands = row.max_operands = 1;
  row.infer = infer;
  row.attrs = std::move(attrs);
  rows.push_back(std::move(row));
}

}  // namespace

void AddViewRows(std::vector<OpDef>& rows) {
  AddRow(rows, "reshape", ReshapeRule, {{"shape", AttrType::kIntList, true}});
  AddRow(rows, "permute", PermuteRule, {{"dims", AttrType::kIntList, true}});
  AddRow(rows, "transpose", TransposeRule, {{"dim0", AttrType::kInt, true}, {"dim1", AttrType::kInt, true}});
  AddRow(rows, "broadcast_to", BroadcastToRule, {{"shape", AttrType::kIntList, true}});
  AddRow(rows, "squeeze", SqueezeRule, {{"dims", AttrType::kIntList, true}});
  AddRow(rows, "unsqueeze", UnsqueezeRule, {{"dim", AttrType::kInt, true}});
  // Without steps every step is 1; without dims the first ones are meant.
  AddRow(rows, "slice", SliceRule,
         {{"starts", AttrType::kIntList, true},
          {"ends", AttrType::kIntList, true},
          {"steps", AttrType::kIntList},
          {"dims", AttrType::kIntList}});
  AddRow(rows, "flip", FlipRule, {{"dims", AttrType::kIntList}});
  AddRow(rows, "tile", TileRule, {{"repeats", AttrType::kIntList, true}});
  AddRow(rows, "repeat_interleave", RepeatInterleaveRule,
         {{"repeats", AttrType::kInt, true}, {"dim", AttrType::kInt, true}});
  AddRow(rows, "roll", RollRule, {{"shifts", AttrType::kIntList, true}, {"dims", AttrType::kIntList}});
  AddRow(rows, "diagonal", DiagonalRule,
         {{"offset", AttrType::kInt, false, AttrValue(int64_t{0})},
          {"dim0", AttrType::kInt, false, AttrValue(int64_t{0})},
          {"dim1", AttrType::kInt, false, AttrValue(int64_t{1})}});
}

}  // namespace fuseline::ops
