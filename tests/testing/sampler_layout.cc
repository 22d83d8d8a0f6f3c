// Ops that put elements elsewhere, and random numbers.
#include <algorithm>
#include <cmath>
#include <string_view>

#include "common/status/error.h"
#include "common/status/status_macros.h"
#include "common/status/str_cat.h"
#include "tests/testing/graph_sampler.h"

namespace fuseline::testing {
namespace {

Interval WithZero(const Interval& interval) { return {std::min(0.0, interval.low), std::max(0.0, interval.high)}; }

}  // namespace

absl::Status GraphSampler::AddPad(ValueId x) {
  const Shape shape = type(x).shape();
  const std::string mode = random_.Pick({"constant", "constant", "constant", "reflect", "edge", "wrap"});
  std::vector<int64_t> low, high;
  for (const int64_t size : shape) {
    const int64_t most = mode == "reflect" ? size - 1 : mode == "wrap" ? size : 4;
    const auto draw = [&] {
      return random_.Chance(50) || size == 0 ? 0 : random_.Below(std::min<int64_t>(most, 3) + 1);
    };
    low.push_back(draw());
    high.push_back(draw());
    if (mode == "constant" && size > 2 && random_.Chance(15)) low.back() = -1;
    if (mode == "constant" && size > 2 && random_.Chance(15)) high.back() = -1;
  }
  AttrMap attrs = {{"low", low}, {"high", high}};
  Interval result = WithZero(interval(x));
  if (mode != "constant") {
    attrs["mode"] = mode;
  } else if (random_.Chance(40) && !IsF8(type(x).dtype)) {
    attrs["value"] = IsBool(type(x).dtype) ? AttrValue(true) : AttrValue(int64_t{3});
    result = {std::min(3.0, result.low), std::max(3.0, result.high)};
  }
  return EmitAll("pad", {V(x)}, attrs, result).status();
}

absl::Status GraphSampler::AddLayout(const OpDef& def) {
  const std::string_view name = def.name;
  if (name == "one_hot") {
    const int64_t classes = random_.Between(1, 9);
    FUSELINE_ASSIGN_OR_RETURN(const ValueId index, Indices(RandomShape(40), {classes}));
    AttrMap attrs = {{"classes", classes}};
    if (random_.Chance(60)) attrs["dtype"] = random_.Pick({DType::kF32, DType::kBool, DType::kBF16, DType::kI32});
    return EmitAll(name, {V(index)}, attrs, {0, 1}).status();
  }
  const int64_t least_rank = name == "tril" || name == "triu" ? 2 : 1;
  FUSELINE_ASSIGN_OR_RETURN(ValueId x, ValueOfRank(least_rank, false, false));
  const Shape shape = type(x).shape();
  const auto rank = static_cast<int64_t>(shape.size());
  const int64_t dim = random_.Below(rank);
  if (name == "pad") return AddPad(x);
  if (name == "tril" || name == "triu") {
    AttrMap attrs;
    if (random_.Chance(50)) attrs["diagonal"] = random_.Between(-3, 3);
    return EmitAll(name, {V(x)}, attrs, WithZero(interval(x))).status();
  }
  if (name == "concat" || name == "stack") {
    std::vector<Operand> operands;
    Interval result = interval(x);
    for (int64_t k = random_.Between(1, 4); k > 0; --k) {
      Shape other = shape;
      if (name == "concat")
        other[static_cast<size_t>(dim)] = random_.Pick({shape[static_cast<size_t>(dim)], int64_t{1}, int64_t{3}});
      FUSELINE_ASSIGN_OR_RETURN(const ValueId id, operands.empty() ? Id(x) : ValueOfShape(type(x).dtype, other));
      operands.push_back(V(id));
      result = {std::min(result.low, interval(id).low), std::max(result.high, interval(id).high)};
    }
    return EmitAll(name, operands, {{"dim", random_.Chance(25) ? dim - rank - (name == "stack" ? 1 : 0) : dim}}, result)
        .status();
  }
  if (name == "resize") {
    const bool nearest = !IsFloat(type(x).dtype) || IsF8(type(x).dtype) || random_.Chance(40);
    Shape sizes = shape;
    for (size_t d = sizes.size(), resized = 0; d-- > 0 && resized < 2; ++resized) sizes[d] = random_.Between(1, 12);
    if (!Fits(sizes)) sizes = shape;
    AttrMap attrs = {{"sizes", sizes}};
    if (!nearest) attrs["mode"] = std::string(random_.Pick({"linear", "linear", "cubic"}));
    attrs["coordinate_transformation_mode"] = std::string(random_.Pick({"half_pixel", "asymmetric", "align_corners"}));
    if (!nearest) {
      FUSELINE_ASSIGN_OR_RETURN(x, MostlyInto(x, {-64, 64}));
    }
    Interval result = interval(x);
    if (!nearest) result = {4 * std::min(0.0, result.low) - 64, 4 * std::max(0.0, result.high) + 64};
    return EmitAll("resize", {V(x)}, attrs, result).status();
  }
  return Internal(StrCat("random graph: no rule for the layout op '", name, "'"));
}

absl::Status GraphSampler::AddRandomNumbers(const OpDef& def) {
  const std::string_view name = def.name;
  FUSELINE_ASSIGN_OR_RETURN(const ValueId seed, NewInput(DType::kI64, {2}));
  if (name == "dropout") {
    FUSELINE_ASSIGN_OR_RETURN(const ValueId x, FloatValue());
    const double p = random_.Pick({0.0, 0.25, 0.5, 1.0});
    const Interval given = WithZero(interval(x));
    return EmitAll(name, {V(x), V(seed)}, {{"p", p}}, {2 * given.low, 2 * given.high}).status();
  }
  const AttrMap attrs = {{"shape", RelatedShape()},
                         {"dtype", random_.Pick({DType::kF32, DType::kF64, DType::kF16, DType::kBF16})}};
  return EmitAll(name, {V(seed)}, attrs, name == "rand" ? Interval{0, 1} : Interval{-10, 10}).status();
}

}  // namespace fuseline::testing
