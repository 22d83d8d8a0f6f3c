// Ops that move, make or reduce elements, and composites.
#include <algorithm>
#include <cmath>
#include <limits>
#include <set>
#include <string_view>
#include <utility>

#include "common/status/error.h"
#include "common/status/status_macros.h"
#include "common/status/str_cat.h"
#include "tests/testing/graph_sampler.h"

namespace fuseline::testing {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

// Whether `def` has the attribute.
bool HasAttr(const OpDef& def, std::string_view name) {
  return std::any_of(def.attrs.begin(), def.attrs.end(), [&](const AttrSpec& spec) { return name == spec.name; });
}

Interval Scaled(const Interval& interval, double factor) {
  const auto times = [&](double x) { return x == 0 ? 0 : x * factor; };
  return {std::min(0.0, times(interval.low)), std::max(0.0, times(interval.high))};
}

double Magnitude(const Interval& interval) { return std::max(std::fabs(interval.low), std::fabs(interval.high)); }

}  // namespace

// A random subset, in random order; may be empty.
std::vector<int64_t> GraphSampler::RandomDims(int rank, bool may_be_negative) {
  std::vector<int64_t> dims;
  for (int d = 0; d < rank; ++d) {
    if (random_.Chance(50)) dims.push_back(may_be_negative && random_.Chance(25) ? d - rank : d);
  }
  for (size_t d = dims.size(); d > 1; --d) std::swap(dims[d - 1], dims[static_cast<size_t>(random_.Below(d))]);
  return dims;
}

Shape GraphSampler::RandomReshape(const Shape& shape) {
  const int64_t count = ElementCount(shape);
  Shape to;
  if (random_.Chance(15)) return random_.Chance(50) && count > 0 ? Shape{-1} : Shape{count};
  // Dims are merged with the one before, split, or kept; ones come and go.
  for (const int64_t size : shape) {
    const int64_t choice = random_.Below(100);
    if (choice < 30 && !to.empty()) {
      to.back() *= size;
    } else if (choice < 60 && size > 3) {
      std::vector<int64_t> divisors;
      for (int64_t k = 2; k < size && k < 300; ++k) {
        if (size % k == 0) divisors.push_back(k);
      }
      const int64_t divisor = divisors.empty() ? 1 : random_.Pick(divisors);
      to.push_back(size / divisor);
      if (divisor > 1) to.push_back(divisor);
    } else if (!(size == 1 && random_.Chance(30))) {
      to.push_back(size);
    }
    if (random_.Chance(8)) to.push_back(1);
  }
  while (to.size() > 6) {
    to[to.size() - 2] *= to.back();
    to.pop_back();
  }
  if (count > 0 && !to.empty() && random_.Chance(20)) random_.Pick({0, 1}) == 0 ? to.front() = -1 : to.back() = -1;
  return to;
}

absl::Status GraphSampler::AddCreation(const OpDef& def) {
  const std::string_view name = def.name;
  const Shape shape = RelatedShape();
  DType dtype = RandomDType();
  if (name == "full") {
    Interval range;
    const Operand literal = RandomLiteral(dtype, {-4, 4}, &range);
    AttrMap attrs = {{"shape", shape}, {"value", literal.literal.i}, {"dtype", dtype}};
    if (literal.literal.kind == Literal::Kind::kFloat) attrs["value"] = literal.literal.f;
    if (literal.literal.kind == Literal::Kind::kBool) attrs["value"] = literal.literal.i != 0;
    return Emit(name, {}, std::move(attrs), range).status();
  }
  if (name == "iota") {
    if (IsBool(dtype)) dtype = DType::kI32;
    const Shape sizes = shape.empty() ? Shape{7} : shape;
    const int64_t dim = random_.Below(sizes.size());
    const double last = static_cast<double>(sizes[static_cast<size_t>(dim)]);
    return Emit(name, {},
                {{"shape", sizes},
                 {"dim", dim - (random_.Chance(30) ? static_cast<int64_t>(sizes.size()) : 0)},
                 {"dtype", dtype}},
                {0, last})
        .status();
  }
  if (name == "constant") {
    const Shape small = ElementCount(shape) <= 64 ? shape : RandomShape(64);
    Interval range;
    const Tensor tensor = RandomTensor(dtype, small, &range);
    FUSELINE_ASSIGN_OR_RETURN(const ValueId id,
                              builder_.AddConstant(TensorType::Make(dtype, small), std::string(tensor.bytes())));
    intervals_.resize(builder_.graph().values.size());
    interval(id) = range;
    return absl::OkStatus();
  }
  return Internal(StrCat("random graph: no rule for the creation op '", name, "'"));
}

absl::Status GraphSampler::AddView(const OpDef& def) {
  const std::string_view name = def.name;
  ValueId x = AnyValue();
  AttrMap attrs;
  const auto rank_of = [&] { return static_cast<int64_t>(type(x).rank()); };
  const auto maybe_negative = [&](int64_t dim, int64_t rank) { return random_.Chance(25) ? dim - rank : dim; };
  // Most views want a rank.
  const int64_t least_rank = name == "transpose" || name == "diagonal"                          ? 2
                             : name == "squeeze" || name == "broadcast_to" || name == "reshape" ? 0
                                                                                                : 1;
  if (rank_of() < least_rank) {
    const ValueId higher = FindValue([&](ValueId id) { return type(id).rank() >= least_rank; });
    if (higher != kNoValue) {
      x = higher;
    } else {
      FUSELINE_ASSIGN_OR_RETURN(x, NewInput(DType::kF32, {3, 5}));
    }
  }
  const Shape shape = type(x).shape();
  const int64_t rank = rank_of();
  if (name == "reshape") {
    attrs["shape"] = RandomReshape(shape);
  } else if (name == "permute") {
    std::vector<int64_t> dims;
    for (int64_t d = 0; d < rank; ++d) dims.push_back(d);
    for (int64_t d = rank; d > 1; --d)
      std::swap(dims[static_cast<size_t>(d - 1)], dims[static_cast<size_t>(random_.Below(d))]);
    for (int64_t& d : dims) d = maybe_negative(d, rank);
    attrs["dims"] = dims;
  } else if (name == "transpose") {
    attrs["dim0"] = maybe_negative(random_.Below(rank), rank);
    attrs["dim1"] = maybe_negative(random_.Below(rank), rank);
  } else if (name == "broadcast_to") {
    Shape to = shape;
    for (int64_t& size : to) {
      if (size == 1 && random_.Chance(60)) size = random_.Pick({2, 3, 7, 16, 33});
      if (!Fits(to)) size = 1;
    }
    if (to.size() < 5 && random_.Chance(60)) to.insert(to.begin(), random_.Pick({1, 2, 3, 5, 17}));
    if (!Fits(to)) to = shape;
    attrs["shape"] = to;
  } else if (name == "squeeze") {
    std::vector<int64_t> dims;
    for (int64_t d = 0; d < rank; ++d) {
      if (shape[static_cast<size_t>(d)] == 1 && random_.Chance(70)) dims.push_back(maybe_negative(d, rank));
    }
    attrs["dims"] = dims;
  } else if (name == "unsqueeze") {
    attrs["dim"] = maybe_negative(random_.Below(rank + 1), rank + 1);
  } else if (name == "slice") {
    std::vector<int64_t> starts, ends, steps, dims;
    for (int64_t d = 0; d < rank; ++d) {
      if (!random_.Chance(60)) continue;
      const int64_t size = shape[static_cast<size_t>(d)];
      const int64_t step = random_.Pick({1, 1, 1, 2, 3, -1, -2});
      const int64_t near = random_.Chance(60) ? 0 : random_.Below(size / 2 + 1);
      const int64_t far = random_.Chance(60) ? size : size - random_.Below(size / 2 + 1);
      int64_t start = step > 0 ? near : far - 1, end = step > 0 ? far : near - 1;
      if (step < 0 && end < 0) end = -size - 1;  // a plain -1 would mean the last one
      if (step > 0 && start > 0 && random_.Chance(25)) start -= size;
      if (step > 0 && random_.Chance(15)) end = size + 5;
      starts.push_back(start);
      ends.push_back(end);
      steps.push_back(step);
      dims.push_back(maybe_negative(d, rank));
    }
    attrs = {{"starts", starts}, {"ends", ends}, {"steps", steps}, {"dims", dims}};
    if (std::all_of(steps.begin(), steps.end(), [](int64_t s) { return s == 1; }) && random_.Chance(50))
      attrs.erase("steps");
  } else if (name == "tile") {
    std::vector<int64_t> repeats;
    for (int64_t d = 0; d < rank; ++d) repeats.push_back(random_.Pick({1, 1, 2, 3}));
    if (rank > 1 && random_.Chance(25)) repeats.erase(repeats.begin());
    Shape tiled = shape;
    for (size_t d = 0; d < repeats.size(); ++d) tiled[tiled.size() - repeats.size() + d] *= repeats[d];
    if (!Fits(tiled)) std::fill(repeats.begin(), repeats.end(), 1);
    attrs["repeats"] = repeats;
  } else if (name == "repeat_interleave") {
    const int64_t dim = random_.Below(rank);
    Shape repeated = shape;
    const int64_t repeats = random_.Between(1, 3);
    repeated[static_cast<size_t>(dim)] *= repeats;
    attrs = {{"dim", maybe_negative(dim, rank)}, {"repeats", Fits(repeated) ? repeats : int64_t{1}}};
  } else if (name == "roll") {
    const std::vector<int64_t> dims = RandomDims(static_cast<int>(rank), true);
    std::vector<int64_t> shifts;
    for (size_t k = 0; k < dims.size(); ++k) shifts.push_back(random_.Between(-5, 9));
    attrs = {{"shifts", shifts}, {"dims", dims}};
    if (random_.Chance(25)) attrs = {{"shifts", std::vector<int64_t>{random_.Between(-20, 20)}}};
  } else if (name == "diagonal") {
    const int64_t a = random_.Below(rank), b = (a + 1 + random_.Below(rank - 1)) % rank;
    attrs = {{"dim0", maybe_negative(a, rank)}, {"dim1", maybe_negative(b, rank)}, {"offset", random_.Between(-2, 2)}};
  } else if (name == "flip") {
    if (random_.Chance(75)) attrs["dims"] = RandomDims(static_cast<int>(rank), true);
  } else {
    return Internal(StrCat("random graph: no rule for the view '", name, "'"));
  }
  return Emit(name, {V(x)}, attrs, interval(x)).status();
}

AttrMap GraphSampler::RandomReductionAttrs(const OpDef& def, const Shape& shape, int64_t* reduced_count) {
  const int64_t rank = static_cast<int64_t>(shape.size());
  AttrMap attrs;
  *reduced_count = ElementCount(shape);
  if (HasAttr(def, "keepdim") && random_.Chance(40)) attrs["keepdim"] = true;
  if (HasAttr(def, "dim")) {
    const bool required = std::string_view(def.name) == "softmax" || std::string_view(def.name) == "log_softmax";
    if (rank > 0 && (required || random_.Chance(75))) {
      const int64_t dim = random_.Below(rank);
      attrs["dim"] = random_.Chance(25) ? dim - rank : dim;
      *reduced_count = shape[static_cast<size_t>(dim)];
    }
  } else if (random_.Chance(80)) {
    std::vector<int64_t> dims = RandomDims(static_cast<int>(rank), true);
    // A single dim, the last one above all, is what most graphs reduce.
    if (rank > 0 && (dims.empty() ? random_.Chance(90) : random_.Chance(40)))
      dims = {random_.Pick({rank - 1, int64_t{-1}, random_.Below(rank)})};
    *reduced_count = 1;
    for (const int64_t d : dims) *reduced_count *= shape[static_cast<size_t>(d < 0 ? d + rank : d)];
    attrs["dims"] = dims;
  }
  return attrs;
}

absl::Status GraphSampler::AddReduction(const OpDef& def) {
  const ReductionKind kind = def.reduction;
  const bool is_fold = kind == ReductionKind::kSum || kind == ReductionKind::kProd;
  const bool takes_bool = is_fold || kind == ReductionKind::kAny || kind == ReductionKind::kAll ||
                          kind == ReductionKind::kArgmax || kind == ReductionKind::kArgmin;
  const bool floats_only = kind == ReductionKind::kVarMean;
  const bool needs_elements = kind == ReductionKind::kAmax || kind == ReductionKind::kAmin ||
                              kind == ReductionKind::kArgmax || kind == ReductionKind::kArgmin;
  const auto fits = [&](ValueId id) {
    const DType dtype = type(id).dtype;
    if (IsF8(dtype) || (floats_only && !IsFloat(dtype)) || (!takes_bool && IsBool(dtype))) return false;
    return !needs_elements || type(id).element_count() > 0;
  };
  ValueId x = FindValue([&](ValueId id) { return fits(id) && type(id).element_count() > 1; });
  if (x == kNoValue || random_.Chance(5)) {
    FUSELINE_ASSIGN_OR_RETURN(
        x, NewInput(DType::kF32, random_.Pick(std::vector<Shape>{{7}, {3, 129}, {2, 5, 33}, {1, 1000}})));
  }
  int64_t count = 0;
  AttrMap attrs = RandomReductionAttrs(def, type(x).shape(), &count);
  const DType dtype = type(x).dtype;
  if (is_fold && random_.Chance(20)) {
    attrs["dtype"] = IsFloat(dtype)
                         ? random_.Pick({DType::kF32, DType::kF64, dtype})
                         : random_.Pick({DType::kI32, DType::kI64, DType::kF32, DType::kI8, DType::kU8, DType::kF64});
  }
  if (kind == ReductionKind::kVarMean && random_.Chance(50)) attrs["correction"] = random_.Below(3);
  const double n = static_cast<double>(std::max<int64_t>(count, 1));
  Interval result = interval(x);
  if (kind == ReductionKind::kSum && IsFloat(dtype)) {
    const double most = (dtype == DType::kF16 ? 4e3 : 1e6) / n;
    FUSELINE_ASSIGN_OR_RETURN(x, MostlyInto(x, {-most, most}));
    result = Scaled(interval(x), n);
  } else if (kind == ReductionKind::kProd && IsFloat(dtype)) {
    const double most = n <= 4 ? 8 : n <= 32 ? 1.25 : 1;
    FUSELINE_ASSIGN_OR_RETURN(x, MostlyInto(x, {-most, most}));
    const double bound = std::pow(Magnitude(interval(x)), n);
    result = {-bound, bound};
  } else if (kind == ReductionKind::kVarMean) {
    FUSELINE_ASSIGN_OR_RETURN(x, MostlyInto(x, {-128, 128}));
    const double bound = std::max(4 * Magnitude(interval(x)) * Magnitude(interval(x)), Magnitude(interval(x)));
    result = {std::min(0.0, interval(x).low), bound};
  }
  const auto attr_dtype = attrs.find("dtype");
  if (is_fold && attr_dtype != attrs.end() && !IsFloat(dtype) && IsFloat(std::get<DType>(attr_dtype->second)))
    result = {-kInf, kInf};
  return EmitAll(def.name, {V(x)}, attrs, result).status();
}

absl::Status GraphSampler::AddComposite(const OpDef& def) {
  const std::string_view name = def.name;
  static constexpr std::string_view kMixed[] = {"attention",  "cross_entropy", "nll_loss",       "quantize",
                                                "dequantize", "kl_div",        "smooth_l1_loss", "huber_loss"};
  if (name == "rand" || name == "randn" || name == "dropout") return AddRandomNumbers(def);
  if (std::find(std::begin(kMixed), std::end(kMixed), name) != std::end(kMixed)) return AddMixedComposite(def);
  FUSELINE_ASSIGN_OR_RETURN(ValueId x, FloatValue());
  const bool has_channels = name == "group_norm" || name == "instance_norm" || name.substr(0, 10) == "batch_norm";
  if ((has_channels && type(x).rank() < 2) || type(x).rank() < 1) {
    const ValueId higher =
        FindValue([&](ValueId id) { return IsFloat(type(id).dtype) && !IsF8(type(id).dtype) && type(id).rank() >= 2; });
    if (higher != kNoValue) {
      x = higher;
    } else {
      FUSELINE_ASSIGN_OR_RETURN(x, NewInput(random_.Pick({DType::kF32, DType::kBF16}), {4, 6, 5}));
    }
  }
  const DType dtype = type(x).dtype;
  const double limit = std::min(128.0, MagnitudeLimit(dtype));
  FUSELINE_ASSIGN_OR_RETURN(x, MostlyInto(x, {-limit, limit}));
  const Shape shape = type(x).shape();
  const double size = Magnitude(interval(x));
  std::vector<Operand> operands = {V(x)};
  AttrMap attrs;
  int64_t count = 0;

  if (HasAttr(def, "keepdim") || name == "softmax" || name == "log_softmax") {
    attrs = RandomReductionAttrs(def, shape, &count);
    if (HasAttr(def, "correction") && random_.Chance(50)) attrs["correction"] = random_.Below(2);
    if (name == "norm") attrs["p"] = random_.Pick({2.0, 1.0, 0.0, 3.0, kInf, -kInf, 2.0, 1.5});
    const double n = static_cast<double>(std::max<int64_t>(count, 1));
    Interval result = interval(x);
    if (name == "softmax") result = {0, 1};
    if (name == "log_softmax") result = {-2 * size - 16, 0};
    if (name == "logsumexp") result = {interval(x).low, interval(x).high + 16};
    if (name == "norm") result = {0, size * n};
    if (name == "var") result = {0, 4 * size * size};
    if (name == "std") result = {0, 2 * size};
    if (name == "logsumexp" && count == 0) result = {-kInf, 0};
    return EmitAll(name, operands, attrs, result).status();
  }
  if (name == "glu") {
    // An even dim: the operand twice.
    const int64_t dim = random_.Below(shape.size());
    FUSELINE_ASSIGN_OR_RETURN(const ValueId both, Emit("concat", {V(x), V(x)}, {{"dim", dim}}, interval(x)));
    return EmitAll(name, {V(both)}, {{"dim", dim}}, {-size, size}).status();
  }
  if (name == "mse_loss") {
    Shape joint = shape;
    Interval range;
    FUSELINE_ASSIGN_OR_RETURN(const Operand target, OtherOperand(dtype, {-limit, limit}, false, &joint, &range));
    attrs["reduction"] = std::string(random_.Pick({"mean", "sum", "none"}));
    const double difference = size + Magnitude(range);
    const double n = static_cast<double>(std::max<int64_t>(ElementCount(joint), 1));
    return EmitAll(name, {V(x), target}, attrs, {0, difference * difference * n}).status();
  }
  // Normalisations: parameters of the sizes of the normalised dims, or of the channels.
  Shape parameter;
  if (name == "layer_norm" || name == "rms_norm") {
    std::vector<int64_t> dims = RandomDims(type(x).rank(), false);
    if (dims.empty() || random_.Chance(60)) dims = {type(x).rank() - 1};
    std::sort(dims.begin(), dims.end());
    for (const int64_t d : dims) parameter.push_back(shape[static_cast<size_t>(d)]);
    if (dims.size() == 1 && random_.Chance(50)) dims[0] -= type(x).rank();
    attrs["dims"] = dims;
  } else if (has_channels) {
    parameter = {shape[1]};
    if (name == "group_norm") {
      std::vector<int64_t> divisors = {1};
      for (int64_t k = 2; k <= shape[1]; ++k) {
        if (shape[1] % k == 0) divisors.push_back(k);
      }
      attrs["groups"] = random_.Pick(divisors);
    }
  } else {
    return Internal(StrCat("random graph: no rule for the composite '", name, "'"));
  }
  if (random_.Chance(30)) attrs["eps"] = random_.Pick({1e-3, 0.125});
  const int64_t given = random_.Between(def.min_operands, def.max_operands);
  double scale = 1, shift = 0;
  for (int64_t k = 1; k < given; ++k) {
    FUSELINE_ASSIGN_OR_RETURN(ValueId p, ValueOfShape(dtype, parameter));
    const bool is_variance = name == "batch_norm" && k == 2;
    FUSELINE_ASSIGN_OR_RETURN(p, is_variance ? Into(p, {0.0625, limit}) : MostlyInto(p, {-32, 32}));
    operands.push_back(V(p));
    const bool is_last = k == given - 1;
    (is_last && k > 1 ? shift : scale) = std::max(1.0, Magnitude(interval(p)));
  }
  const double bound =
      (name == "batch_norm" ? 8 * size + 1024 : std::sqrt(static_cast<double>(ElementCount(shape)) + 1)) * scale +
      shift + 4 * size * size;
  return EmitAll(name, operands, attrs, {-bound, bound}).status();
}

}  // namespace fuseline::testing
