// Values: shapes, inputs, their contents, and the choice among those that there are. The ops are in
// sampler_pointwise.cc and sampler_structure.cc.
#include "tests/testing/graph_sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "common/status/error.h"
#include "common/status/status_macros.h"
#include "common/status/str_cat.h"

namespace fuseline::testing {
namespace {

constexpr size_t kMaxInputs = 10;
constexpr double kInf = std::numeric_limits<double>::infinity();

// What generators of vectorised, tiled and split loops get wrong: neighbours of powers of two, primes, 1.
const std::vector<int64_t> kSizes = {1,   2,   3,   4,   5,   7,   8,    9,    11,   13,  15,  16,
                                     17,  31,  32,  33,  63,  64,  65,   67,   96,   97,  100, 127,
                                     128, 129, 255, 256, 257, 511, 1000, 1024, 1025, 4099};

// Whether shape b may stand beside shape a, and the joint shape.
bool Broadcast(const Shape& a, const Shape& b, Shape* joint) {
  absl::StatusOr<Shape> shape = BroadcastShapes({a, b});
  if (!shape.ok()) return false;
  *joint = *std::move(shape);
  return true;
}

}  // namespace

Interval WholeRange(DType dtype) {
  switch (dtype) {
    case DType::kBool:
      return {0, 1};
    case DType::kU8:
      return {0, 255};
    case DType::kI8:
      return {-128, 127};
    case DType::kI16:
      return {-32768, 32767};
    case DType::kI32:
      return {-2147483648.0, 2147483647.0};
    case DType::kI64:
      return {-9223372036854775808.0, 9223372036854775808.0};
    default:
      return {-kInf, kInf};
  }
}

GraphSampler::GraphSampler(uint64_t seed, int64_t max_elements, std::string_view choices)
    : random_(seed, choices), builder_(StrCat("random_", seed)), max_elements_(max_elements) {
  const int64_t size_class = random_.Below(100);
  const int64_t elements = size_class < 25 ? 64 : size_class < 70 ? 2'000 : size_class < 92 ? 20'000 : max_elements;
  base_shape_ = RandomShape(std::min(elements, max_elements));
  if (random_.Chance(4) && !base_shape_.empty())
    base_shape_[static_cast<size_t>(random_.Below(base_shape_.size()))] = 0;
  has_special_values_ = random_.Chance(15);
}

Shape GraphSampler::RandomShape(int64_t max_elements) {
  const int64_t rank = random_.Pick({0, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 4, 4, 5});
  Shape shape;
  int64_t left = std::max<int64_t>(max_elements, 1);
  for (int64_t d = 0; d < rank; ++d) {
    int64_t size = random_.Pick(kSizes);
    for (int tries = 0; size > left && tries < 8; ++tries) size = random_.Pick(kSizes);
    if (size > left) size = 1;
    shape.push_back(size);
    left /= size;
  }
  return shape;
}

Shape GraphSampler::RelatedShape() {
  const int64_t choice = random_.Below(100);
  if (choice < 45) return base_shape_;
  if (choice < 52) return {};
  if (choice < 60) return RandomShape(std::min<int64_t>(max_elements_, 2'000));
  Shape shape = base_shape_;
  for (int64_t& size : shape) {
    if (random_.Chance(30)) size = 1;
  }
  if (random_.Chance(40) && !shape.empty()) shape.erase(shape.begin(), shape.begin() + random_.Below(shape.size()));
  return shape;
}

DType GraphSampler::RandomDType() {
  return random_.Pick({DType::kF32, DType::kF32, DType::kF32, DType::kF32, DType::kF32, DType::kF32, DType::kF64,
                       DType::kF64, DType::kF16, DType::kBF16, DType::kI64, DType::kI32, DType::kI32, DType::kI16,
                       DType::kI8, DType::kU8, DType::kBool});
}

double GraphSampler::MagnitudeLimit(DType dtype) { return dtype == DType::kF16 ? 64 : 1024; }

Tensor GraphSampler::RandomTensor(DType dtype, const Shape& shape, Interval* interval) {
  Tensor tensor = Tensor::Allocate(dtype, shape);
  const uint64_t seed = random_.Next();
  *interval = WholeRange(dtype);
  if (IsBool(dtype)) {
    FillRandomInt(tensor, seed, 0, 2);
    return tensor;
  }
  if (IsInteger(dtype)) {
    const bool small = random_.Chance(60) || dtype == DType::kI64;
    if (small) *interval = {dtype == DType::kU8 ? 0.0 : -12.0, 12.0};
    FillRandomInt(tensor, seed, static_cast<int64_t>(interval->low), static_cast<int64_t>(interval->high) + 1);
    if (dtype == DType::kI64 && random_.Chance(30)) {
      for (int64_t i = 0; i < tensor.element_count(); ++i) tensor.SetInt(i, static_cast<int64_t>(RandomWord(seed, i)));
      *interval = WholeRange(dtype);
    }
    return tensor;
  }
  switch (random_.Below(3)) {
    case 0:
      FillNormal(tensor, seed);
      *interval = {-6, 6};
      break;
    case 1: {  // small multiples of 0.25, exact in every format
      FillRandomInt(tensor, seed, -32, 33);
      for (int64_t i = 0; i < tensor.element_count(); ++i) tensor.SetDouble(i, tensor.GetDouble(i) * 0.25);
      *interval = {-8, 8};
      break;
    }
    default: {
      const double high = random_.Pick({1.0, 4.0, 32.0});
      const double low = random_.Chance(40) ? 0.25 : -high;
      FillUniform(tensor, seed, low, high);
      *interval = {low, high};
    }
  }
  if (has_special_values_ && random_.Chance(70)) {
    const bool with_nan = random_.Chance(70), with_inf = random_.Chance(60);
    for (int64_t i = 0; i < tensor.element_count(); ++i) {
      const uint64_t word = RandomWord(seed + 1, static_cast<uint64_t>(i));
      if (word % 16 != 0) continue;
      switch ((word >> 8) % 6) {
        case 0:
          if (with_nan) tensor.SetDouble(i, std::numeric_limits<double>::quiet_NaN());
          break;
        case 1:
          if (with_inf) tensor.SetDouble(i, kInf);
          break;
        case 2:
          if (with_inf) tensor.SetDouble(i, -kInf);
          break;
        case 3:
          tensor.SetDouble(i, -0.0);
          break;
        case 4:
          tensor.SetDouble(i, 0.0);
          break;
        default:  // a subnormal of f16 and of f32
          tensor.SetDouble(i, dtype == DType::kF16 ? std::ldexp(3.0, -24) : std::ldexp(-5.0, -140));
      }
    }
    interval->low = std::min(interval->low, with_inf ? -kInf : 0.0);
    interval->high = std::max(interval->high, with_inf ? kInf : 0.0);
  }
  return tensor;
}

// Now and then an input that is transposed, or a part of a larger buffer.
TensorType GraphSampler::RandomLayout(const TensorType& dense) {
  if (dense.rank() == 0 || !random_.Chance(15)) return dense;
  TensorType laid_out = dense;
  const Shape shape = dense.shape();
  std::vector<size_t> order(shape.size());
  for (size_t d = 0; d < order.size(); ++d) order[d] = order.size() - 1 - d;  // innermost first
  if (random_.Chance(70)) {
    for (size_t d = order.size(); d > 1; --d) std::swap(order[d - 1], order[static_cast<size_t>(random_.Below(d))]);
  }
  std::vector<int64_t> strides(shape.size());
  int64_t stride = random_.Chance(20) ? 2 : 1;
  for (const size_t d : order) {
    strides[d] = stride;
    stride *= std::max<int64_t>(shape[d], 1);
    if (random_.Chance(20)) stride += random_.Between(1, 3);
  }
  laid_out.strides = strides;
  return laid_out;
}

absl::StatusOr<ValueId> GraphSampler::NewInput(DType dtype, const Shape& shape) {
  FUSELINE_ASSIGN_OR_RETURN(
      const ValueId id, builder_.AddInput(StrCat("x", inputs_.size()), RandomLayout(TensorType::Make(dtype, shape))));
  intervals_.resize(builder_.graph().values.size());
  inputs_.push_back(RandomTensor(dtype, shape, &interval(id)));
  return id;
}

ValueId GraphSampler::AnyValue() {
  return FindValue([](ValueId) { return true; });
}

GraphSampler::Id GraphSampler::ValueOf(DType dtype) {
  if (const ValueId found = FindValue([&](ValueId id) { return type(id).dtype == dtype; }); found != kNoValue)
    return found;
  if (inputs_.size() < kMaxInputs && random_.Chance(50)) return NewInput(dtype, RelatedShape());
  const ValueId from = AnyValue();
  if (from == kNoValue) return NewInput(dtype, RelatedShape());
  if (IsBool(dtype) && !IsF8(type(from).dtype) && random_.Chance(50)) {
    return Emit(random_.Pick({"logical_not", "ne", "le"}), {V(from), V(from)}, {}, {0, 1});
  }
  return Emit("cast", {V(from)}, {{"dtype", dtype}}, interval(from));
}

GraphSampler::Id GraphSampler::FloatValue() {
  const auto is_float = [&](ValueId id) { return IsFloat(type(id).dtype) && !IsF8(type(id).dtype); };
  if (const ValueId found = FindValue(is_float); found != kNoValue) return found;
  return ValueOf(DType::kF32);
}

GraphSampler::Id GraphSampler::ValueOfShape(DType dtype, const Shape& shape) {
  const auto equal = [&](ValueId id) { return type(id).dtype == dtype && type(id).shape() == shape; };
  if (const ValueId found = FindValue(equal); found != kNoValue && random_.Chance(80)) return found;
  const auto same_count = [&](ValueId id) {
    return type(id).dtype == dtype && type(id).element_count() == ElementCount(shape);
  };
  if (const ValueId found = FindValue(same_count); found != kNoValue && random_.Chance(70)) {
    return Emit("reshape", {V(found)}, {{"shape", shape}}, interval(found));
  }
  if (inputs_.size() < kMaxInputs) return NewInput(dtype, shape);
  const AttrValue two = IsBool(dtype) ? AttrValue(true) : AttrValue(int64_t{2});
  FUSELINE_ASSIGN_OR_RETURN(const ValueId scalar,
                            Emit("full", {}, {{"shape", Shape{}}, {"value", two}, {"dtype", dtype}}, {2, 2}));
  return Emit("broadcast_to", {V(scalar)}, {{"shape", shape}}, {2, 2});
}

ValueId GraphSampler::Partner(DType dtype, const Shape& shape) {
  Shape joint;
  return FindValue(
      [&](ValueId id) { return type(id).dtype == dtype && Broadcast(shape, type(id).shape(), &joint) && Fits(joint); });
}

GraphSampler::Ids GraphSampler::EmitAll(std::string_view op, std::vector<Operand> operands, AttrMap attrs,
                                        Interval interval) {
  const OpDef* def = FindOp(op);
  if (def != nullptr && def->max_operands >= 0 && static_cast<int>(operands.size()) > def->max_operands)
    operands.resize(static_cast<size_t>(def->max_operands));
  absl::StatusOr<std::vector<ValueId>> results = builder_.AddNode(op, operands, std::move(attrs));
  if (!results.ok()) {
    return Internal(StrCat("random graph: op '", op, "': ", std::string(results.status().message())));
  }
  intervals_.resize(builder_.graph().values.size());
  for (const ValueId id : *results) {
    // An integer wraps: the bounds of the mathematical result say nothing.
    this->interval(id) = IsFloat(type(id).dtype) ? interval : WholeRange(type(id).dtype);
  }
  return results;
}

GraphSampler::Id GraphSampler::Emit(std::string_view op, std::vector<Operand> operands, AttrMap attrs,
                                    Interval interval) {
  FUSELINE_ASSIGN_OR_RETURN(const std::vector<ValueId> results,
                            EmitAll(op, std::move(operands), std::move(attrs), interval));
  return results[0];
}

GraphSampler::Id GraphSampler::Into(ValueId value, Interval domain) {
  const Interval now = interval(value);
  if (!IsFloat(type(value).dtype) || now.Within(domain)) return value;
  const AttrMap bounds = {{"min", domain.low}, {"max", domain.high}};
  if (domain.low > 0) {
    if (random_.Chance(30)) return Emit("clamp", {V(value)}, bounds, domain);
    const double magnitude = std::max(std::fabs(now.low), std::fabs(now.high));
    FUSELINE_ASSIGN_OR_RETURN(const ValueId positive, Emit("abs", {V(value)}, {}, {0, magnitude}));
    if (magnitude + domain.low > domain.high) return Emit("clamp", {V(positive)}, bounds, domain);
    return Emit("add", {V(positive), GraphBuilder::Number(domain.low)}, {}, {domain.low, magnitude + domain.low});
  }
  const double magnitude = std::max(std::fabs(now.low), std::fabs(now.high));
  const double room = std::min(-domain.low, domain.high);
  if (room >= 1 && random_.Chance(25))
    return Emit(random_.Pick({"tanh", "sin", "erf", "softsign"}), {V(value)}, {}, {-1, 1});
  if (room > 0 && magnitude < 1e6 && random_.Chance(40)) {
    double scale = 1;
    while (magnitude * scale > room) scale *= 0.5;
    return Emit("mul", {V(value), GraphBuilder::Number(scale)}, {}, {now.low * scale, now.high * scale});
  }
  return Emit("clamp", {V(value)}, bounds, domain);
}

GraphSampler::Id GraphSampler::MostlyInto(ValueId value, Interval domain) {
  return random_.Chance(has_special_values_ ? 30 : 2) ? Id(value) : Into(value, domain);
}

absl::Status GraphSampler::AddOp(const OpDef& def) {
  // Something to work on, and now and then something new.
  if (builder_.graph().inputs.empty() || (inputs_.size() < 6 && random_.Chance(12))) {
    FUSELINE_RETURN_IF_ERROR(
        NewInput(builder_.graph().inputs.empty() ? DType::kF32 : RandomDType(), RelatedShape()).status());
  }
  switch (def.kind) {
    case OpKind::kPointwise:
      return AddPointwise(def);
    case OpKind::kCreation:
      return AddCreation(def);
    case OpKind::kView:
      return AddView(def);
    case OpKind::kReduction:
      return AddReduction(def);
    case OpKind::kComposite:
      return AddComposite(def);
    case OpKind::kIndexing:
      return AddIndexing(def);
    case OpKind::kOrdered:
      return AddOrdered(def);
    case OpKind::kContraction:
      return AddContraction(def);
    case OpKind::kWindow:
      return AddWindow(def);
    case OpKind::kLayout:
      return AddLayout(def);
  }
  return Internal(StrCat("random graph: op '", def.name, "' can't be compiled"));
}

absl::StatusOr<Graph> GraphSampler::Finish() {
  const Graph& graph = builder_.graph();
  std::vector<bool> is_read(graph.values.size(), false);
  for (const Node& node : graph.nodes) {
    for (const Operand& operand : node.operands) {
      if (!operand.is_literal()) is_read[static_cast<size_t>(operand.value)] = true;
    }
  }
  std::vector<ValueId> outputs;  // what nobody reads; where that is too much, the last ones and others by chance
  for (const Node& node : graph.nodes) {
    for (const ValueId id : node.results) {
      if (!is_read[static_cast<size_t>(id)]) outputs.push_back(id);
    }
  }
  while (outputs.size() > 7) outputs.erase(outputs.begin() + random_.Below(static_cast<int64_t>(outputs.size()) - 3));
  for (int64_t extra = random_.Below(3); extra > 0; --extra)
    outputs.push_back(random_.Pick(random_.Pick(graph.nodes).results));
  if (random_.Chance(8)) outputs.push_back(random_.Pick(graph.inputs));
  if (random_.Chance(8)) outputs.push_back(random_.Pick(outputs));
  for (size_t i = 0; i < outputs.size(); ++i) {
    FUSELINE_RETURN_IF_ERROR(builder_.AddOutput(StrCat("y", i), outputs[i]));
  }
  return builder_.Build();
}

}  // namespace fuseline::testing
