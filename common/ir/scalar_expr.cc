#include "common/ir/scalar_expr.h"

#include <variant>

namespace fuseline {

const char* ScalarOpName(ScalarOp op) {
  switch (op) {
    case ScalarOp::kInput:
      return "input";
    case ScalarOp::kConst:
      return "const";
    case ScalarOp::kAdd:
      return "add";
    case ScalarOp::kSub:
      return "sub";
    case ScalarOp::kMul:
      return "mul";
    case ScalarOp::kNeg:
      return "neg";
    case ScalarOp::kAbs:
      return "abs";
    case ScalarOp::kQuotient:
      return "quotient";
    case ScalarOp::kDiv:
      return "div";
    case ScalarOp::kFloorDiv:
      return "floor_div";
    case ScalarOp::kTruncDiv:
      return "trunc_div";
    case ScalarOp::kRemainder:
      return "remainder";
    case ScalarOp::kFmod:
      return "fmod";
    case ScalarOp::kMaximum:
      return "maximum";
    case ScalarOp::kMinimum:
      return "minimum";
    case ScalarOp::kFmax:
      return "fmax";
    case ScalarOp::kFmin:
      return "fmin";
    case ScalarOp::kPow:
      return "pow";
    case ScalarOp::kSqrt:
      return "sqrt";
    case ScalarOp::kRsqrt:
      return "rsqrt";
    case ScalarOp::kExp:
      return "exp";
    case ScalarOp::kExp2:
      return "exp2";
    case ScalarOp::kExpm1:
      return "expm1";
    case ScalarOp::kLog:
      return "log";
    case ScalarOp::kLog2:
      return "log2";
    case ScalarOp::kLog10:
      return "log10";
    case ScalarOp::kLog1p:
      return "log1p";
    case ScalarOp::kSin:
      return "sin";
    case ScalarOp::kCos:
      return "cos";
    case ScalarOp::kTan:
      return "tan";
    case ScalarOp::kAsin:
      return "asin";
    case ScalarOp::kAcos:
      return "acos";
    case ScalarOp::kAtan:
      return "atan";
    case ScalarOp::kSinh:
      return "sinh";
    case ScalarOp::kCosh:
      return "cosh";
    case ScalarOp::kTanh:
      return "tanh";
    case ScalarOp::kAsinh:
      return "asinh";
    case ScalarOp::kAcosh:
      return "acosh";
    case ScalarOp::kAtanh:
      return "atanh";
    case ScalarOp::kErf:
      return "erf";
    case ScalarOp::kErfc:
      return "erfc";
    case ScalarOp::kLgamma:
      return "lgamma";
    case ScalarOp::kFloor:
      return "floor";
    case ScalarOp::kCeil:
      return "ceil";
    case ScalarOp::kTrunc:
      return "trunc";
    case ScalarOp::kRound:
      return "round";
    case ScalarOp::kAtan2:
      return "atan2";
    case ScalarOp::kHypot:
      return "hypot";
    case ScalarOp::kCopysign:
      return "copysign";
    case ScalarOp::kNextafter:
      return "nextafter";
    case ScalarOp::kIsNan:
      return "isnan";
    case ScalarOp::kIsInf:
      return "isinf";
    case ScalarOp::kIsFinite:
      return "isfinite";
    case ScalarOp::kEq:
      return "eq";
    case ScalarOp::kNe:
      return "ne";
    case ScalarOp::kLt:
      return "lt";
    case ScalarOp::kLe:
      return "le";
    case ScalarOp::kGt:
      return "gt";
    case ScalarOp::kGe:
      return "ge";
    case ScalarOp::kLogicalAnd:
      return "logical_and";
    case ScalarOp::kLogicalOr:
      return "logical_or";
    case ScalarOp::kLogicalXor:
      return "logical_xor";
    case ScalarOp::kLogicalNot:
      return "logical_not";
    case ScalarOp::kBitAnd:
      return "bit_and";
    case ScalarOp::kBitOr:
      return "bit_or";
    case ScalarOp::kBitXor:
      return "bit_xor";
    case ScalarOp::kBitNot:
      return "bit_not";
    case ScalarOp::kShiftLeft:
      return "shift_left";
    case ScalarOp::kShiftRight:
      return "shift_right";
    case ScalarOp::kSelect:
      return "select";
    case ScalarOp::kCast:
      return "cast";
    case ScalarOp::kBitcast:
      return "bitcast";
    case ScalarOp::kCheckIndex:
      return "check_index";
    case ScalarOp::kPhilox:
      return "philox";
    case ScalarOp::kRound16:
      return "round16";
  }
  return "unknown";
}

DType Scalar::type() const { return builder->instrs()[static_cast<size_t>(id)].type; }

Scalar ScalarBuilder::EmitInstr(const ScalarInstr& instr) {
  instrs_.push_back(instr);
  return Scalar{this, static_cast<int32_t>(instrs_.size() - 1)};
}

Scalar ScalarBuilder::Input(int index, DType type) {
  ScalarInstr instr;
  instr.op = ScalarOp::kInput;
  instr.type = type;
  instr.index = index;
  return EmitInstr(instr);
}

Scalar ScalarBuilder::Const(double value, DType type) {
  if (IsBool(type)) return ConstBool(value != 0);
  if (IsInteger(type)) return ConstInt(static_cast<int64_t>(value), type);
  ScalarInstr instr;
  instr.op = ScalarOp::kConst;
  instr.type = type;
  instr.constant.kind = Literal::Kind::kFloat;
  // Rounded here, so that no emitter depends on how its compiler reads a long literal.
  instr.constant.f = type == DType::kF32 ? static_cast<double>(static_cast<float>(value)) : value;
  return EmitInstr(instr);
}

Scalar ScalarBuilder::ConstInt(int64_t value, DType type) {
  if (IsFloat(type)) return Const(static_cast<double>(value), type);
  ScalarInstr instr;
  instr.op = ScalarOp::kConst;
  instr.type = type;
  instr.constant.kind = IsBool(type) ? Literal::Kind::kBool : Literal::Kind::kInt;
  instr.constant.i = IsBool(type) ? (value != 0 ? 1 : 0) : value;
  return EmitInstr(instr);
}

Scalar ScalarBuilder::ConstBool(bool value) { return ConstInt(value ? 1 : 0, DType::kBool); }

Scalar ScalarBuilder::Emit(ScalarOp op, DType type, Scalar a, Scalar b, Scalar c) {
  ScalarInstr instr;
  instr.op = op;
  instr.type = type;
  instr.args[0] = a.id;
  instr.args[1] = b.id;
  instr.args[2] = c.id;
  return EmitInstr(instr);
}

namespace {

double NumberOf(const AttrValue& value) {
  if (const auto* i = std::get_if<int64_t>(&value)) return static_cast<double>(*i);
  if (const auto* f = std::get_if<double>(&value)) return *f;
  if (const auto* b = std::get_if<bool>(&value)) return *b ? 1.0 : 0.0;
  return 0.0;
}

}  // namespace

double ScalarArgs::Number(const char* attr) const {
  const auto it = attrs->find(attr);
  return it == attrs->end() ? 0.0 : NumberOf(it->second);
}

bool ScalarArgs::Has(const char* attr) const { return attrs->find(attr) != attrs->end(); }

const std::string& ScalarArgs::String(const char* attr) const {
  static const std::string* const kEmpty = new std::string();
  const auto it = attrs->find(attr);
  if (it == attrs->end()) return *kEmpty;
  const auto* text = std::get_if<std::string>(&it->second);
  return text != nullptr ? *text : *kEmpty;
}

Scalar ScalarArgs::Attr(const char* attr) const {
  const DType type = operands[0].type();
  const auto it = attrs->find(attr);
  if (it == attrs->end()) return builder->Const(0.0, type);
  // An integer stays exact beyond 2^53.
  if (const auto* i = std::get_if<int64_t>(&it->second)) return builder->ConstInt(*i, type);
  return builder->Const(NumberOf(it->second), type);
}

Scalar Unary(ScalarOp op, Scalar a) { return a.builder->Emit(op, a.type(), a); }
Scalar Binary(ScalarOp op, Scalar a, Scalar b) { return a.builder->Emit(op, a.type(), a, b); }
Scalar Compare(ScalarOp op, Scalar a, Scalar b) { return a.builder->Emit(op, DType::kBool, a, b); }
Scalar Compare(ScalarOp op, Scalar a, double b) { return Compare(op, a, a.builder->Const(b, a.type())); }

Scalar operator+(Scalar a, Scalar b) { return Binary(ScalarOp::kAdd, a, b); }
Scalar operator-(Scalar a, Scalar b) { return Binary(ScalarOp::kSub, a, b); }
Scalar operator*(Scalar a, Scalar b) { return Binary(ScalarOp::kMul, a, b); }
Scalar operator/(Scalar a, Scalar b) { return Binary(ScalarOp::kDiv, a, b); }
Scalar operator-(Scalar a) { return Unary(ScalarOp::kNeg, a); }
Scalar operator+(Scalar a, double b) { return a + a.builder->Const(b, a.type()); }
Scalar operator-(Scalar a, double b) { return a - a.builder->Const(b, a.type()); }
Scalar operator*(Scalar a, double b) { return a * a.builder->Const(b, a.type()); }
Scalar operator/(Scalar a, double b) { return a / a.builder->Const(b, a.type()); }
Scalar operator+(double a, Scalar b) { return b.builder->Const(a, b.type()) + b; }
Scalar operator-(double a, Scalar b) { return b.builder->Const(a, b.type()) - b; }
Scalar operator*(double a, Scalar b) { return b.builder->Const(a, b.type()) * b; }
Scalar operator/(double a, Scalar b) { return b.builder->Const(a, b.type()) / b; }

Scalar Select(Scalar cond, Scalar a, Scalar b) { return cond.builder->Emit(ScalarOp::kSelect, a.type(), cond, a, b); }
Scalar Select(Scalar cond, double a, Scalar b) { return Select(cond, cond.builder->Const(a, b.type()), b); }
Scalar Select(Scalar cond, Scalar a, double b) { return Select(cond, a, cond.builder->Const(b, a.type())); }

Scalar CastTo(Scalar a, DType type) {
  if (a.type() == type) return a;
  if (IsBool(type)) return ToBool(a);
  return a.builder->Emit(ScalarOp::kCast, type, a);
}

Scalar ToBool(Scalar a) { return IsBool(a.type()) ? a : Compare(ScalarOp::kNe, a, 0.0); }

}  // namespace fuseline
