// Ops whose result's element depends on one element of each operand: arithmetic, activations, comparisons, casts.
#include <algorithm>
#include <cmath>
#include <limits>

#include "absl/strings/str_cat.h"
#include "client/onnx/importers.h"
#include "client/onnx/model_reader.h"

namespace fuseline::onnx_import {
namespace {

// The IR's name of an ONNX op that is the same op.
struct SameOp {
  const char* onnx;
  const char* ours;
};
constexpr SameOp kUnary[] = {{"Abs", "abs"},
                             {"Neg", "neg"},
                             {"Ceil", "ceil"},
                             {"Floor", "floor"},
                             {"Round", "round"},
                             {"Sqrt", "sqrt"},
                             {"Exp", "exp"},
                             {"Log", "log"},
                             {"Sin", "sin"},
                             {"Cos", "cos"},
                             {"Tan", "tan"},
                             {"Asin", "asin"},
                             {"Acos", "acos"},
                             {"Atan", "atan"},
                             {"Sinh", "sinh"},
                             {"Cosh", "cosh"},
                             {"Tanh", "tanh"},
                             {"Asinh", "asinh"},
                             {"Acosh", "acosh"},
                             {"Atanh", "atanh"},
                             {"Erf", "erf"},
                             {"Sigmoid", "sigmoid"},
                             {"Relu", "relu"},
                             {"Softsign", "softsign"},
                             {"IsNaN", "isnan"},
                             {"Not", "logical_not"},
                             {"Mish", "mish"},
                             {"Reciprocal", "reciprocal"},
                             {"Sign", "sign"},
                             {"HardSwish", "hardswish"},
                             {"BitwiseNot", "bitwise_not"}};
constexpr SameOp kBinary[] = {{"Equal", "eq"},
                              {"Less", "lt"},
                              {"LessOrEqual", "le"},
                              {"Greater", "gt"},
                              {"GreaterOrEqual", "ge"},
                              {"And", "logical_and"},
                              {"Or", "logical_or"},
                              {"Xor", "logical_xor"},
                              {"BitwiseAnd", "bitwise_and"},
                              {"BitwiseOr", "bitwise_or"},
                              {"BitwiseXor", "bitwise_xor"}};

const char* Ours(const SameOp* begin, const SameOp* end, const std::string& op) {
  const SameOp* row = std::find_if(begin, end, [&](const SameOp& r) { return op == r.onnx; });
  return row == end ? "" : row->ours;
}

void ImportUnary(OpCall& c) {
  c.Ignore("consumed_inputs");
  const Val x = c.In(0);
  if (c.op() == "Not") return c.Out(0, Apply("logical_not", x));
  c.Out(0, Apply(Ours(std::begin(kUnary), std::end(kUnary), c.op()), x));
}

// Before opset 7 the second operand was aligned with `axis` of the first, and only where `broadcast` said so.
Val AlignedOperand(OpCall& c, Val a, Val b) {
  if (c.opset >= 7) return b;
  c.Ignore("consumed_inputs");
  const bool broadcast = c.Int("broadcast", 0) != 0;
  if (!broadcast || !c.HasAttr("axis")) return b;
  const int64_t axis = c.Axis(c.Int("axis", 0), a.rank());
  Shape shape = b.shape();
  if (axis + static_cast<int64_t>(shape.size()) > a.rank()) {
    c.Fail("attribute 'axis': the second operand reaches beyond the first's dims");
    return b;
  }
  shape.resize(static_cast<size_t>(a.rank() - axis), 1);
  return c.e.Reshape(b, shape);
}

void ImportBinary(OpCall& c) {
  const Val a = c.In(0);
  const Val b = AlignedOperand(c, a, c.In(1));
  c.Out(0, Apply(Ours(std::begin(kBinary), std::end(kBinary), c.op()), a, b));
}

void ImportArithmetic(OpCall& c) {
  const Val a = c.In(0);
  const Val b = AlignedOperand(c, a, c.In(1));
  if (c.op() == "Add") return c.Out(0, a + b);
  if (c.op() == "Sub") return c.Out(0, a - b);
  if (c.op() == "Mul") return c.Out(0, a * b);
  c.Out(0, a / b);
}

void ImportPow(OpCall& c) {
  const Val a = c.In(0);
  Val b = AlignedOperand(c, a, c.In(1));
  // The result has the base's dtype; a fractional exponent of an integer needs floats.
  if (a.dtype() == b.dtype()) return c.Out(0, Apply("pow", a, b));
  if (IsInteger(a.dtype()) && IsInteger(b.dtype())) {
    // In the wider of the two, so that the exponent keeps its value.
    const Val wide = c.e.Cast(a, DType::kI64);
    return c.Out(0, c.e.Cast(Apply("pow", wide, c.e.Cast(b, DType::kI64)), a.dtype()));
  }
  if (IsInteger(a.dtype())) {
    const Val base = c.e.Cast(a, DType::kF64);
    return c.Out(0, c.e.Cast(Apply("pow", base, c.e.Cast(b, DType::kF64)), a.dtype()));
  }
  c.Out(0, Apply("pow", a, c.e.Cast(b, a.dtype())));
}

void ImportMod(OpCall& c) {
  const bool fmod = c.Int("fmod", 0) != 0;
  const Val a = c.In(0), b = c.In(1);
  if (!fmod && IsFloat(a.dtype()) && c.opset < 28) return c.Fail("attribute 'fmod' must be 1 for floats");
  c.Out(0, Apply(fmod ? "fmod" : "remainder", a, b));
}

void ImportBitShift(OpCall& c) {
  const std::string direction = c.String("direction", "");
  if (direction != "LEFT" && direction != "RIGHT") return c.Fail("attribute 'direction' is neither LEFT nor RIGHT");
  c.Out(0, Apply(direction == "LEFT" ? "shift_left" : "shift_right", c.In(0), c.In(1)));
}

// Max, Min, Sum and Mean of any number of operands.
void ImportVariadic(OpCall& c) {
  c.Ignore("consumed_inputs");
  const std::vector<Val> values = c.AllIn();
  if (values.empty()) return c.Fail("no operands");
  const char* op = c.op() == "Max" ? "maximum" : c.op() == "Min" ? "minimum" : "add";
  Val result = values[0];
  for (size_t i = 1; i < values.size(); ++i) result = Apply(op, result, values[i]);
  if (c.op() == "Mean") result = result / static_cast<double>(values.size());
  c.Out(0, result);
}

void ImportWhere(OpCall& c) { c.Out(0, c.e.Where(c.In(0), c.In(1), c.In(2))); }

DType TargetType(OpCall& c, const char* attribute) {
  const int64_t number = c.Int(attribute, 0);
  const DType dtype = DTypeOfOnnx(number);
  if (dtype == DType::kInvalid) {
    c.Refuse(absl::StrCat("attribute '", attribute, "': element type ", OnnxTypeName(number), " is not supported"));
  }
  return dtype;
}

// The cast to f8e4m3, with NaN in place of the largest for numbers beyond it.
Val CastUnsaturated(OpCall& c, Val x) {
  if (!IsFloat(x.dtype())) x = c.e.Cast(x, DType::kF32);
  // Halfway between the largest number and what would come after it, which goes to the even one.
  const Val over = Apply("gt", Apply("abs", x), 464.0);
  return c.e.Cast(c.e.Where(over, std::numeric_limits<double>::quiet_NaN(), x), DType::kF8E4M3);
}

void CastTo(OpCall& c, DType to) {
  const bool saturate = c.Int("saturate", 1) != 0;
  c.Ignore("round_mode");  // of types that the IR lacks
  const Val x = c.In(0);
  if (!c.ok()) return;
  if (saturate || !IsF8(to) || x.dtype() == to) return c.Out(0, c.e.Cast(x, to));
  // Its infinities can't be stored.
  if (to == DType::kF8E5M2) return c.Refuse("attribute 'saturate' = 0 is not supported for f8e5m2");
  c.Out(0, CastUnsaturated(c, x));
}

void ImportCast(OpCall& c) {
  const DType to = TargetType(c, "to");
  if (c.ok()) CastTo(c, to);
}

void ImportBitCast(OpCall& c) {
  const DType to = TargetType(c, "to");
  if (!c.ok()) return;
  const Val x = c.In(0);
  // A bool is 0 or 1 in ONNX too.
  c.Out(0, IsBool(x.dtype()) ? c.e.Cast(x, to) : c.e.Emit("bitcast", {x}, {{"dtype", to}}));
}

void ImportCastLike(OpCall& c) { CastTo(c, c.InType(1)); }

void ImportElu(OpCall& c) {
  c.Ignore("consumed_inputs");
  c.Out(0, c.e.Emit("elu", {c.In(0)}, {{"alpha", c.Float("alpha", 1.0)}}));
}
void ImportCelu(OpCall& c) { c.Out(0, c.e.Emit("celu", {c.In(0)}, {{"alpha", c.Float("alpha", 1.0)}})); }
void ImportSelu(OpCall& c) {
  c.Ignore("consumed_inputs");
  const double alpha = c.Float("alpha", c.opset >= 6 ? 1.67326319217681884765625 : 1.6732);
  const double gamma = c.Float("gamma", c.opset >= 6 ? 1.05070102214813232421875 : 1.0507);
  c.Out(0, c.e.Emit("elu", {c.In(0)}, {{"alpha", alpha}}) * gamma);
}
void ImportLeakyRelu(OpCall& c) {
  c.Ignore("consumed_inputs");
  c.Out(0, c.e.Emit("leaky_relu", {c.In(0)}, {{"slope", c.Float("alpha", 0.01)}}));
}
void ImportHardSigmoid(OpCall& c) {
  c.Ignore("consumed_inputs");
  c.Out(0, c.e.Emit("hardsigmoid", {c.In(0)}, {{"alpha", c.Float("alpha", 0.2)}, {"beta", c.Float("beta", 0.5)}}));
}
void ImportThresholdedRelu(OpCall& c) {
  c.Out(0, c.e.Emit("threshold", {c.In(0)}, {{"threshold", c.Float("alpha", 1.0)}, {"value", 0.0}}));
}
void ImportSoftplus(OpCall& c) { c.Out(0, c.e.Emit("softplus", {c.In(0)})); }
void ImportGelu(OpCall& c) {
  c.Out(0, c.e.Emit("gelu", {c.In(0)}, {{"approximate", c.String("approximate", "none")}}));
}

// Swish, and SwiGLU, which has a second operand.
void ImportSwish(OpCall& c) {
  const Val x = c.In(0);
  const double alpha = c.Float("alpha", 1.0);
  const Val y = alpha == 1 ? Apply("silu", x) : x * Apply("sigmoid", x * alpha);
  c.Out(0, c.op() == "SwiGLU" ? y * c.In(1) : y);
}

void ImportPRelu(OpCall& c) {
  c.Ignore("consumed_inputs");
  const Val x = c.In(0);
  Val slope = c.In(1);
  // Before opset 7 a slope of one value a channel was aligned with dim 1.
  if (c.opset < 7 && slope.rank() == 1 && x.rank() > 2 && slope.dim(0) == x.dim(1)) {
    Shape shape(static_cast<size_t>(x.rank() - 1), 1);
    shape[0] = slope.dim(0);
    slope = c.e.Reshape(slope, shape);
  }
  c.Out(0, c.e.Where(Apply("lt", x, 0.0), x * slope, x));
}

void ImportShrink(OpCall& c) {
  const double lambda = c.Float("lambd", 0.5), bias = c.Float("bias", 0.0);
  const Val x = c.In(0);
  const Val zero = c.e.Full(x.dtype(), {}, 0);
  const Val inner = c.e.Where(Apply("gt", x, lambda), x - bias, zero);
  c.Out(0, c.e.Where(Apply("lt", x, -lambda), x + bias, inner));
}

void ImportIsInf(OpCall& c) {
  const bool negative = c.Int("detect_negative", 1) != 0, positive = c.Int("detect_positive", 1) != 0;
  const Val x = c.In(0);
  const Val infinite = Apply("isinf", x);
  if (negative && positive) return c.Out(0, infinite);
  if (!negative && !positive) return c.Out(0, c.e.Full(DType::kBool, x.shape(), 0));
  c.Out(0, Apply("logical_and", infinite, Apply(negative ? "lt" : "gt", x, 0.0)));
}

void ImportClip(OpCall& c) {
  Val x = c.In(0);
  const auto bound = [&](size_t i, const char* attribute, const char* op) {
    if (c.HasAttr(attribute)) {
      x = Apply(op, x, c.Float(attribute, 0));
    } else if (c.Has(i)) {
      x = Apply(op, x, c.In(i));
    }
  };
  c.Ignore("consumed_inputs");
  bound(1, "min", "maximum");
  bound(2, "max", "minimum");
  c.Out(0, x);
}

void ImportIdentity(OpCall& c) { c.Out(0, c.In(0)); }

}  // namespace

void AddElementwiseImporters(ImporterTable& table) {
  for (const SameOp& row : kUnary) table[row.onnx] = ImportUnary;
  for (const SameOp& row : kBinary) table[row.onnx] = ImportBinary;
  for (const char* op : {"Add", "Sub", "Mul", "Div"}) table[op] = ImportArithmetic;
  for (const char* op : {"Max", "Min", "Sum", "Mean"}) table[op] = ImportVariadic;
  table["Pow"] = ImportPow;
  table["Mod"] = ImportMod;
  table["BitShift"] = ImportBitShift;
  table["Where"] = ImportWhere;
  table["Cast"] = ImportCast;
  table["BitCast"] = ImportBitCast;
  table["CastLike"] = ImportCastLike;
  table["Elu"] = ImportElu;
  table["Celu"] = ImportCelu;
  table["Selu"] = ImportSelu;
  table["LeakyRelu"] = ImportLeakyRelu;
  table["HardSigmoid"] = ImportHardSigmoid;
  table["ThresholdedRelu"] = ImportThresholdedRelu;
  table["Softplus"] = ImportSoftplus;
  table["Gelu"] = ImportGelu;
  table["Swish"] = ImportSwish;
  table["SwiGLU"] = ImportSwish;
  table["PRelu"] = ImportPRelu;
  table["Shrink"] = ImportShrink;
  table["IsInf"] = ImportIsInf;
  table["Clip"] = ImportClip;
  table["Identity"] = ImportIdentity;
}

}  // namespace fuseline::onnx_import
