// Ops at positions that another operand gives, scans and sorting.
#include <algorithm>
#include <cmath>
#include <string_view>

#include "common/case_file/random_values.h"
#include "common/status/error.h"
#include "common/status/status_macros.h"
#include "common/status/str_cat.h"
#include "tests/testing/graph_sampler.h"

namespace fuseline::testing {
namespace {

double Magnitude(const Interval& interval) { return std::max(std::fabs(interval.low), std::fabs(interval.high)); }

Interval Joined(const Interval& a, const Interval& b) { return {std::min(a.low, b.low), std::max(a.high, b.high)}; }

}  // namespace

GraphSampler::Id GraphSampler::Indices(const Shape& shape, const std::vector<int64_t>& extents) {
  const bool small = std::all_of(extents.begin(), extents.end(), [](int64_t n) { return n <= 127; });
  const DType dtype = small ? random_.Pick({DType::kI64, DType::kI64, DType::kI32, DType::kI16, DType::kI8})
                            : random_.Pick({DType::kI64, DType::kI64, DType::kI32});
  FUSELINE_ASSIGN_OR_RETURN(
      const ValueId id, builder_.AddInput(StrCat("x", inputs_.size()), RandomLayout(TensorType::Make(dtype, shape))));
  Tensor tensor = Tensor::Allocate(dtype, shape);
  const uint64_t seed = random_.Next();
  const bool may_be_negative = random_.Chance(60);
  for (int64_t i = 0; i < tensor.element_count(); ++i) {
    const int64_t extent = extents[static_cast<size_t>(i) % extents.size()];
    const int64_t range = may_be_negative ? 2 * extent : extent;
    const auto position =
        static_cast<int64_t>(RandomWord(seed, static_cast<uint64_t>(i)) % static_cast<uint64_t>(range));
    tensor.SetInt(i, position - (may_be_negative ? extent : 0));
  }
  inputs_.push_back(std::move(tensor));
  intervals_.resize(builder_.graph().values.size());
  interval(id) = WholeRange(dtype);
  // Positions that a kernel computes on the way.
  if (extents.size() == 1 && random_.Chance(30) && extents[0] < 100)
    return Emit("remainder", {V(id), GraphBuilder::Integer(extents[0])}, {}, WholeRange(dtype));
  return id;
}

// A value with elements and at least `rank` dims; of numbers alone where asked for.
GraphSampler::Id GraphSampler::ValueOfRank(int64_t rank, bool exact, bool numbers) {
  const ValueId found = FindValue([&](ValueId id) {
    const TensorType& t = type(id);
    if (numbers && (IsBool(t.dtype) || IsF8(t.dtype))) return false;
    return t.element_count() > 0 && t.element_count() <= 20'000 && (exact ? t.rank() == rank : t.rank() >= rank);
  });
  if (found != kNoValue && random_.Chance(85)) return found;
  static const std::vector<Shape> kShapes = {{}, {13}, {7, 5}, {3, 4, 6}, {2, 3, 4, 5}, {2, 2, 3, 3, 2}};
  return NewInput(random_.Pick({DType::kF32, DType::kF32, DType::kBF16, DType::kI32}),
                  kShapes[static_cast<size_t>(rank)]);
}

absl::Status GraphSampler::AddIndexing(const OpDef& def) {
  const std::string_view name = def.name;
  const bool is_scatter = def.min_operands == 3;
  AttrMap attrs;
  const std::string reduction = name == "scatter_add" || name == "index_add" ? "add"
                                : is_scatter ? random_.Pick({"none", "none", "add", "mul", "max", "min"})
                                             : "none";
  if (is_scatter && name != "scatter_add" && name != "index_add" && reduction != "none") attrs["reduction"] = reduction;
  FUSELINE_ASSIGN_OR_RETURN(ValueId x,
                            ValueOfRank(name == "embedding" ? 2 : 1, name == "embedding", reduction != "none"));
  if (IsFloat(type(x).dtype) && reduction != "none") {
    const double limit = reduction == "mul" ? 1 : 16;
    FUSELINE_ASSIGN_OR_RETURN(x, MostlyInto(x, {-limit, limit}));
  }
  const Shape shape = type(x).shape();
  const auto rank = static_cast<int64_t>(shape.size());
  const DType dtype = type(x).dtype;
  const int64_t dim = random_.Below(rank);
  const int64_t extent = shape[static_cast<size_t>(dim)];
  const auto set_dim = [&] { attrs["dim"] = random_.Chance(25) ? dim - rank : dim; };
  const int64_t count = random_.Between(1, std::min<int64_t>(2 * extent + 1, 24));
  Shape index_shape, source_shape;
  std::vector<int64_t> extents = {extent};

  if (name == "gather" || name == "scatter" || name == "scatter_add" || name == "take_along_dim") {
    set_dim();
    index_shape = shape;
    index_shape[static_cast<size_t>(dim)] = count;
    for (int64_t d = 0; d < rank; ++d) {
      int64_t& size = index_shape[static_cast<size_t>(d)];
      if (d == dim || !random_.Chance(25)) continue;
      size = name == "take_along_dim" ? 1 : random_.Between(1, size);
    }
    source_shape = index_shape;
    for (int64_t& size : source_shape) size += random_.Chance(15) ? random_.Below(3) : 0;
  } else if (name == "index_select" || name == "index_add") {
    set_dim();
    index_shape = {count};
    source_shape = shape;
    source_shape[static_cast<size_t>(dim)] = count;
  } else if (name == "embedding") {
    extents = {shape[0]};
    index_shape = random_.Pick(std::vector<Shape>{{}, {5}, {2, 3}, {1, 4, 2}});
  } else if (name == "gather_nd" || name == "scatter_nd") {
    int64_t batch = 0;
    if (name == "gather_nd" && rank > 1 && random_.Chance(30)) attrs["batch_dims"] = batch = 1;
    const int64_t tuple = random_.Between(1, rank - batch);
    if (batch == 1) index_shape.push_back(shape[0]);
    if (batch == 0 || random_.Chance(60)) index_shape.push_back(random_.Between(1, 9));
    extents.assign(shape.begin() + batch, shape.begin() + batch + tuple);
    source_shape = index_shape;
    source_shape.insert(source_shape.end(), shape.begin() + tuple, shape.end());
    index_shape.push_back(tuple);
  } else {
    return Internal(StrCat("random graph: no rule for the indexing op '", name, "'"));
  }
  FUSELINE_ASSIGN_OR_RETURN(const ValueId index, Indices(index_shape, extents));
  std::vector<Operand> operands = {V(x), V(index)};
  Interval result = interval(x);
  if (is_scatter) {
    if (random_.Chance(10)) source_shape = {};
    FUSELINE_ASSIGN_OR_RETURN(ValueId source, ValueOfShape(dtype, source_shape));
    if (IsFloat(dtype) && reduction != "none") {
      const double limit = reduction == "mul" ? 1 : 16;
      FUSELINE_ASSIGN_OR_RETURN(source, MostlyInto(source, {-limit, limit}));
    }
    operands.push_back(V(source));
    const double n = reduction == "add" ? static_cast<double>(ElementCount(index_shape)) : 1;
    result = Joined(result, interval(source));
    const double most = Magnitude(interval(x)) + n * Magnitude(interval(source));
    if (reduction == "add" || reduction == "mul") result = {-most, most};
  }
  return EmitAll(name, operands, attrs, result).status();
}

absl::Status GraphSampler::AddOrdered(const OpDef& def) {
  const std::string_view name = def.name;
  const bool is_scan = name == "cumsum" || name == "cumprod";
  FUSELINE_ASSIGN_OR_RETURN(ValueId x, ValueOfRank(1, false, true));
  const Shape shape = type(x).shape();
  const auto rank = static_cast<int64_t>(shape.size());
  const int64_t dim = random_.Chance(60) ? rank - 1 : random_.Below(rank);
  const double n = static_cast<double>(shape[static_cast<size_t>(dim)]);
  AttrMap attrs = {{"dim", random_.Chance(25) ? dim - rank : dim}};
  if (IsFloat(type(x).dtype) && is_scan) {
    const double limit = name == "cumprod" ? 1 : std::min(64.0, 4e3 / n);
    FUSELINE_ASSIGN_OR_RETURN(x, MostlyInto(x, {-limit, limit}));
  }
  Interval result = interval(x);
  if (is_scan) {
    if (random_.Chance(25)) attrs["reverse"] = true;
    if (random_.Chance(25)) attrs["exclusive"] = true;
    if (!IsFloat(type(x).dtype) && random_.Chance(25))
      attrs["dtype"] = random_.Pick({DType::kI32, DType::kI64, DType::kI8});
    const double most = Magnitude(interval(x)) * (name == "cumsum" ? n : 1) + 1;
    result = {-most, most};
  } else if (name == "topk") {
    attrs["k"] = random_.Between(0, static_cast<int64_t>(n));
    if (random_.Chance(40)) attrs["largest"] = false;
  } else if (name == "sort") {
    if (random_.Chance(40)) attrs["descending"] = true;
  } else if (name != "cummax") {
    return Internal(StrCat("random graph: no rule for the ordered op '", name, "'"));
  }
  return EmitAll(name, {V(x)}, attrs, result).status();
}

}  // namespace fuseline::testing
