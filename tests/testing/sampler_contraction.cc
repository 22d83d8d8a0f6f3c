// Sums of products, pooling, and the composites that are made of them or of lookups.
#include <algorithm>
#include <cmath>
#include <string_view>

#include "common/status/error.h"
#include "common/status/status_macros.h"
#include "common/status/str_cat.h"
#include "tests/testing/graph_sampler.h"

namespace fuseline::testing {
namespace {

double Magnitude(const Interval& interval) { return std::max(std::fabs(interval.low), std::fabs(interval.high)); }

}  // namespace

int64_t GraphSampler::SmallSize() { return random_.Pick({1, 2, 3, 4, 5, 7, 8, 16, 17, 33}); }

GraphSampler::Id GraphSampler::Factor(DType dtype, const Shape& shape) {
  FUSELINE_ASSIGN_OR_RETURN(const ValueId id, ValueOfShape(dtype, shape));
  return MostlyInto(id, {-8, 8});
}

absl::Status GraphSampler::AddContraction(const OpDef& def) {
  const std::string_view name = def.name;
  const DType dtype = random_.Pick({DType::kF32, DType::kF32, DType::kF32, DType::kF64, DType::kF16, DType::kBF16,
                                    DType::kI32, DType::kI8, DType::kU8});
  AttrMap attrs;
  DType to = dtype;
  if ((dtype == DType::kI8 || dtype == DType::kU8) && random_.Chance(70)) attrs["dtype"] = to = DType::kI32;
  if (IsHalf(dtype) && random_.Chance(25)) attrs["dtype"] = to = DType::kF32;
  std::vector<Shape> shapes;
  double terms = 1;  // of one sum
  if (name == "matmul" || name == "linear") {
    const int64_t m = SmallSize(), k = SmallSize(), n = SmallSize();
    terms = static_cast<double>(k);
    Shape a = {m, k}, b = {k, n};
    if (name == "linear") b = {n, k};
    if (random_.Chance(40)) a.insert(a.begin(), random_.Between(1, 4));
    if (name == "matmul") {
      if (random_.Chance(25)) {
        b.insert(b.begin(), a.size() == 3 && random_.Chance(60) ? a[0] : 1);
      } else if (random_.Chance(15)) {
        b = {k};
      }
      if (random_.Chance(15)) a = {k};
    }
    shapes = {a, b};
    if (name == "linear" && random_.Chance(60)) shapes.push_back({n});
  } else if (name == "einsum") {
    struct Equation {
      const char* text;
      std::vector<std::string_view> labels;
    };
    static const std::vector<Equation> kEquations = {{"ij,jk->ik", {"ij", "jk"}},
                                                     {"bij,bjk->bik", {"bij", "bjk"}},
                                                     {"ij->ji", {"ij"}},
                                                     {"ij->i", {"ij"}},
                                                     {"ii->i", {"ii"}},
                                                     {"i,j->ij", {"i", "j"}},
                                                     {"ij,ij->", {"ij", "ij"}},
                                                     {"bhqd,bhkd->bhqk", {"bhqd", "bhkd"}},
                                                     {"ij,jk,kl->il", {"ij", "jk", "kl"}},
                                                     {"ij,kj", {"ij", "kj"}}};
    const Equation& equation = random_.Pick(kEquations);
    attrs["equation"] = std::string(equation.text);
    std::vector<int64_t> sizes(128, 0);
    for (const std::string_view labels : equation.labels) {
      Shape shape;
      for (const char label : labels) {
        int64_t& size = sizes[static_cast<size_t>(label)];
        if (size == 0) size = random_.Between(1, 6);
        shape.push_back(size);
      }
      shapes.push_back(shape);
    }
    terms = 36;
  } else if (name == "conv" || name == "conv_transpose") {
    const int64_t spatial = random_.Between(1, 3);
    const int64_t groups = random_.Pick({1, 1, 1, 2, 3});
    const int64_t in = groups * random_.Between(1, 3), out = groups * random_.Between(1, 3);
    Shape x = {random_.Between(1, 2), in};
    Shape w = name == "conv" ? Shape{out, in / groups} : Shape{in, out / groups};
    std::vector<int64_t> strides, padding, dilation;
    for (int64_t d = 0; d < spatial; ++d) {
      const int64_t kernel = random_.Between(1, 3);
      dilation.push_back(random_.Pick({1, 1, 2}));
      strides.push_back(random_.Between(1, 2));
      padding.push_back(name == "conv" ? random_.Below(3) : random_.Below(kernel));
      w.push_back(kernel);
      x.push_back(random_.Between(dilation.back() * (kernel - 1) + 1, spatial == 3 ? 6 : 9));
      terms *= static_cast<double>(kernel);
    }
    terms *= static_cast<double>(in);
    if (random_.Chance(60)) attrs["strides"] = strides;
    if (random_.Chance(60)) attrs["padding"] = padding;
    attrs["dilation"] = dilation;
    if (groups > 1) attrs["groups"] = groups;
    shapes = {x, w};
    if (random_.Chance(40)) shapes.push_back({out});
  } else {
    return Internal(StrCat("random graph: no rule for the contraction '", name, "'"));
  }
  std::vector<Operand> operands;
  double most = terms;
  for (size_t k = 0; k < shapes.size(); ++k) {
    const bool is_bias = k == 2 && name != "einsum";
    FUSELINE_ASSIGN_OR_RETURN(const ValueId id, Factor(is_bias ? to : dtype, shapes[k]));
    operands.push_back(V(id));
    most = is_bias ? most + Magnitude(interval(id)) : most * Magnitude(interval(id));
  }
  return EmitAll(name, operands, attrs, {-most, most}).status();
}

absl::Status GraphSampler::AddWindow(const OpDef& def) {
  const std::string_view name = def.name;
  FUSELINE_ASSIGN_OR_RETURN(ValueId x, ValueOfRank(1, false, true));
  if (name != "max_pool" && !IsFloat(type(x).dtype)) {
    FUSELINE_ASSIGN_OR_RETURN(x, NewInput(random_.Pick({DType::kF32, DType::kF16}), {2, 9, 8}));
  }
  if (IsFloat(type(x).dtype)) {
    FUSELINE_ASSIGN_OR_RETURN(x, MostlyInto(x, {-64, 64}));
  }
  const Shape shape = type(x).shape();
  const int64_t spatial = random_.Between(1, std::min<int64_t>(3, static_cast<int64_t>(shape.size())));
  std::vector<int64_t> kernel, strides, padding, output;
  for (int64_t d = 0; d < spatial; ++d) {
    const int64_t size = shape[shape.size() - static_cast<size_t>(spatial - d)];
    kernel.push_back(random_.Between(1, std::min<int64_t>(3, size)));
    strides.push_back(random_.Between(1, 3));
    padding.push_back(random_.Below(kernel.back() / 2 + 1));
    output.push_back(random_.Between(1, std::min<int64_t>(size, 5)));
  }
  if (name == "adaptive_avg_pool") return EmitAll(name, {V(x)}, {{"output_size", output}}, interval(x)).status();
  AttrMap attrs = {{"kernel", kernel}};
  if (random_.Chance(60)) attrs["strides"] = strides;
  if (random_.Chance(50)) attrs["padding"] = padding;
  if (random_.Chance(30)) attrs["ceil_mode"] = true;
  Interval result = {std::min(0.0, interval(x).low), std::max(0.0, interval(x).high)};
  if (name == "avg_pool" && random_.Chance(40)) attrs["count_include_pad"] = false;
  if (name == "lp_pool") {
    attrs["p"] = random_.Pick({1.0, 2.0, 3.0});
    result = {0, 27 * Magnitude(interval(x))};
  } else if (name != "max_pool" && name != "avg_pool") {
    return Internal(StrCat("random graph: no rule for the window op '", name, "'"));
  }
  return EmitAll(name, {V(x)}, attrs, result).status();
}

// Composites with operands of other dtypes or related shapes.
absl::Status GraphSampler::AddMixedComposite(const OpDef& def) {
  const std::string_view name = def.name;
  AttrMap attrs;
  if (name == "attention") {
    const DType dtype = random_.Pick({DType::kF32, DType::kBF16, DType::kF16, DType::kF64});
    const int64_t l = random_.Between(1, 6), s = random_.Between(1, 6), d = random_.Between(1, 5),
                  e = random_.Between(1, 5);
    Shape q = {l, d}, k = {s, d}, v = {s, e}, mask = {l, s};
    if (random_.Chance(60)) {
      for (Shape* shape : {&q, &k, &v}) shape->insert(shape->begin(), {2, 3});
    }
    std::vector<Operand> operands;
    for (const Shape& shape : {q, k, v}) {
      FUSELINE_ASSIGN_OR_RETURN(const ValueId id, Factor(dtype, shape));
      operands.push_back(V(id));
    }
    if (random_.Chance(40)) {
      FUSELINE_ASSIGN_OR_RETURN(const ValueId id, ValueOfShape(DType::kBool, mask));
      operands.push_back(V(id));
    }
    if (random_.Chance(40)) attrs["causal"] = true;
    if (random_.Chance(40)) attrs["scale"] = 0.5;
    return EmitAll(name, operands, attrs, {-8, 8}).status();
  }
  if (name == "cross_entropy" || name == "nll_loss") {
    const DType dtype = random_.Pick({DType::kF32, DType::kBF16, DType::kF64});
    const int64_t n = random_.Between(1, 9), classes = random_.Between(1, 7);
    const bool has_batch = random_.Chance(85);
    FUSELINE_ASSIGN_OR_RETURN(const ValueId x, Factor(dtype, has_batch ? Shape{n, classes} : Shape{classes}));
    FUSELINE_ASSIGN_OR_RETURN(const ValueId target, TargetClasses(has_batch ? Shape{n} : Shape{}, classes));
    std::vector<Operand> operands = {V(x), V(target)};
    if (random_.Chance(30)) {
      FUSELINE_ASSIGN_OR_RETURN(ValueId weight, ValueOfShape(dtype, {classes}));
      FUSELINE_ASSIGN_OR_RETURN(weight, Into(weight, {0.25, 8}));
      operands.push_back(V(weight));
    }
    attrs["reduction"] = std::string(random_.Pick({"mean", "sum", "none"}));
    if (name == "cross_entropy" && random_.Chance(30)) attrs["label_smoothing"] = 0.125;
    if (random_.Chance(30)) attrs["ignore_index"] = int64_t{0};
    const double most = 200.0 * static_cast<double>(n);
    return EmitAll(name, operands, attrs, {-most, most}).status();
  }
  if (name == "quantize" || name == "dequantize") {
    const DType stored =
        random_.Pick({DType::kI8, DType::kU8, DType::kI16, DType::kI32, DType::kF8E4M3, DType::kF8E5M2});
    FUSELINE_ASSIGN_OR_RETURN(ValueId x, FloatValue());
    if (name == "dequantize") {
      FUSELINE_ASSIGN_OR_RETURN(x, ValueOf(stored));
    }
    const Shape shape = type(x).shape();
    Shape parameter;
    if (!shape.empty() && random_.Chance(50)) {
      const int64_t axis = random_.Below(shape.size());
      parameter = {shape[static_cast<size_t>(axis)]};
      attrs["axis"] = random_.Chance(25) ? axis - static_cast<int64_t>(shape.size()) : axis;
    }
    const DType scale_dtype =
        name == "quantize" ? type(x).dtype : random_.Pick({DType::kF32, DType::kF16, DType::kF64});
    FUSELINE_ASSIGN_OR_RETURN(ValueId scale, ValueOfShape(scale_dtype, parameter));
    FUSELINE_ASSIGN_OR_RETURN(scale, Into(scale, {0.0625, 4}));
    std::vector<Operand> operands = {V(x), V(scale)};
    if (!IsF8(stored) && random_.Chance(50)) {
      FUSELINE_ASSIGN_OR_RETURN(const ValueId zero_point, ValueOfShape(stored, parameter));
      operands.push_back(V(zero_point));
    }
    Interval result = interval(x);
    if (name == "quantize") attrs["dtype"] = stored;
    if (name == "quantize" && IsF8(stored)) result = {-57344, 57344};
    if (name == "dequantize") result = {-2e10, 2e10};
    if (name == "dequantize" && IsF8(stored)) result = {-3e5, 3e5};
    return EmitAll(name, operands, attrs, result).status();
  }
  if (name == "kl_div" || name == "smooth_l1_loss" || name == "huber_loss") {
    FUSELINE_ASSIGN_OR_RETURN(ValueId x, FloatValue());
    FUSELINE_ASSIGN_OR_RETURN(x, MostlyInto(x, {-8, 8}));
    Shape joint = type(x).shape();
    Interval range;
    const Interval domain = name == "kl_div" ? Interval{0.0625, 1} : Interval{-8, 8};
    FUSELINE_ASSIGN_OR_RETURN(const Operand target, OtherOperand(type(x).dtype, domain, false, &joint, &range));
    attrs["reduction"] = std::string(random_.Pick({"mean", "sum", "none"}));
    if (name == "kl_div" && random_.Chance(30)) attrs["log_target"] = true;
    const double most = 300.0 * static_cast<double>(std::max<int64_t>(ElementCount(joint), 1));
    return EmitAll(name, {V(x), target}, attrs, {-most, most}).status();
  }
  return Internal(StrCat("random graph: no rule for the composite '", name, "'"));
}

GraphSampler::Id GraphSampler::TargetClasses(const Shape& shape, int64_t classes) {
  FUSELINE_ASSIGN_OR_RETURN(const ValueId id, NewInput(DType::kI64, shape));
  Tensor& tensor = inputs_.back();
  for (int64_t i = 0; i < tensor.element_count(); ++i)
    tensor.SetInt(i, (tensor.GetInt(i) % classes + classes) % classes);
  interval(id) = WholeRange(DType::kI64);
  return id;
}

}  // namespace fuseline::testing
