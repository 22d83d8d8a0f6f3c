#include "server/codegen/statement_printer.h"

#include <cmath>
#include <cstdio>
#include <limits>

#include "absl/strings/str_cat.h"

namespace fuseline::codegen {
namespace {

std::string Name(DType dtype) { return std::string(DTypeName(dtype)); }

std::string FloatText(double v, bool f32) {
  char buffer[400];
  std::snprintf(buffer, sizeof buffer, f32 ? "%.9g" : "%.17g", v);
  // The shortest text that reads back equal.
  for (int digits = 1; digits < (f32 ? 9 : 17); ++digits) {
    char shorter[400];
    std::snprintf(shorter, sizeof shorter, "%.*g", digits, v);
    const double back = std::strtod(shorter, nullptr);
    if (f32 ? static_cast<float>(back) == static_cast<float>(v) : back == v) {
      std::snprintf(buffer, sizeof buffer, "%s", shorter);
      break;
    }
  }
  std::string text = buffer;
  if (text.find_first_of(".e") == std::string::npos) text += ".0";
  if (f32) text += "f";
  return text[0] == '-' ? "(" + text + ")" : text;  // "a - -1" reads badly, "--1" is another operator
}

std::string IntText(int64_t v, DType dtype) {
  if (dtype == DType::kI64) {
    if (v == std::numeric_limits<int64_t>::min()) return "(-9223372036854775807ll - 1)";
    return v < 0 ? absl::StrCat("(", v, "ll)") : absl::StrCat(v, "ll");
  }
  if (dtype == DType::kI32) {
    if (v == std::numeric_limits<int32_t>::min()) return "(-2147483647 - 1)";
    return v < 0 ? absl::StrCat("(", v, ")") : absl::StrCat(v);
  }
  return absl::StrCat("(", ComputeTypeName(dtype), ")", v < 0 ? "(" : "", v, v < 0 ? ")" : "");
}

int64_t LowestInt(DType dtype) {
  switch (dtype) {
    case DType::kI64:
      return std::numeric_limits<int64_t>::min();
    case DType::kI32:
      return std::numeric_limits<int32_t>::min();
    case DType::kI16:
      return std::numeric_limits<int16_t>::min();
    case DType::kI8:
      return std::numeric_limits<int8_t>::min();
    default:
      return 0;
  }
}
int64_t HighestInt(DType dtype) {
  switch (dtype) {
    case DType::kI64:
      return std::numeric_limits<int64_t>::max();
    case DType::kI32:
      return std::numeric_limits<int32_t>::max();
    case DType::kI16:
      return std::numeric_limits<int16_t>::max();
    case DType::kI8:
      return std::numeric_limits<int8_t>::max();
    case DType::kU8:
      return std::numeric_limits<uint8_t>::max();
    default:
      return 1;
  }
}

// The operator where plain C++ means what the IR means.
const char* InfixOf(ScalarOp op, DType type) {
  const bool is_float = IsFloat(type);
  switch (op) {
    case ScalarOp::kAdd:
      return is_float ? "+" : nullptr;
    case ScalarOp::kSub:
      return is_float ? "-" : nullptr;
    case ScalarOp::kMul:
      return is_float ? "*" : nullptr;
    case ScalarOp::kEq:
      return "==";
    case ScalarOp::kNe:
      return "!=";
    case ScalarOp::kLt:
      return "<";
    case ScalarOp::kLe:
      return "<=";
    case ScalarOp::kGt:
      return ">";
    case ScalarOp::kGe:
      return ">=";
    default:
      return nullptr;
  }
}

}  // namespace

const char* ComputeTypeName(DType dtype) {
  switch (dtype) {
    case DType::kF64:
      return "double";
    case DType::kF32:
      return "float";
    case DType::kI64:
      return "long long";
    case DType::kI32:
      return "int";
    case DType::kI16:
      return "short";
    case DType::kI8:
      return "signed char";
    case DType::kU8:
      return "unsigned char";
    case DType::kBool:
      return "bool";
    default:
      return "float";
  }
}

const char* StorageTypeName(DType dtype) {
  switch (dtype) {
    case DType::kF16:
      return "fl_f16";
    case DType::kBF16:
      return "fl_bf16";
    case DType::kF8E4M3:
      return "fl_f8e4m3";
    case DType::kF8E5M2:
      return "fl_f8e5m2";
    case DType::kBool:
      return "unsigned char";
    default:
      return ComputeTypeName(dtype);
  }
}

std::string StatementPrinter::Constant(const ScalarInstr& instr) {
  const DType type = instr.type;
  if (IsBool(type)) return instr.constant.AsDouble() != 0 ? "true" : "false";
  if (IsInteger(type)) {
    return IntText(
        instr.constant.kind == Literal::Kind::kFloat ? static_cast<int64_t>(instr.constant.f) : instr.constant.i, type);
  }
  const bool f32 = type == DType::kF32;
  const double v = f32 ? static_cast<double>(static_cast<float>(instr.constant.AsDouble())) : instr.constant.AsDouble();
  if (std::isnan(v)) return Function(f32 ? "FL_NAN_F32" : "FL_NAN_F64");
  if (std::isinf(v)) {
    const std::string inf = Function(f32 ? "FL_INF_F32" : "FL_INF_F64");
    return v < 0 ? absl::StrCat("(-", inf, ")") : inf;
  }
  return FloatText(v, f32);
}

std::string StatementPrinter::Index(const IndexExpr& expr, const VarName& var) const { return expr.ToString(var); }

std::string StatementPrinter::FromStorage(DType dtype, const std::string& element) {
  if (IsHalf(dtype) || IsF8(dtype) || IsBool(dtype))
    return absl::StrCat(Function("fl_load_" + Name(dtype)), "(", element, ")");
  return element;
}

std::string StatementPrinter::ToStorage(DType dtype, const std::string& value) {
  if (IsHalf(dtype) || IsF8(dtype) || IsBool(dtype))
    return absl::StrCat(Function("fl_store_" + Name(dtype)), "(", value, ")");
  return value;
}

std::string StatementPrinter::Operation(const BodyInstr& instr, DType operand_type, const std::string args[3]) {
  const ScalarInstr& s = instr.scalar;
  switch (s.op) {
    case ScalarOp::kConst:
      return Constant(s);
    case ScalarOp::kNeg:
      if (IsFloat(s.type)) return absl::StrCat("-", args[0]);
      break;
    case ScalarOp::kSelect:
      return absl::StrCat(args[0], " ? ", args[1], " : ", args[2]);
    case ScalarOp::kCast:
      if (operand_type == s.type) return args[0];
      return absl::StrCat(Function(absl::StrCat("fl_cast_", Name(operand_type), "_to_", Name(s.type))), "(", args[0],
                          ")");
    case ScalarOp::kRound16:
      return absl::StrCat(Function(absl::StrCat("fl_round_", Name(s.storage), "_", Name(operand_type))), "(", args[0],
                          ")");
    case ScalarOp::kPhilox:
      return absl::StrCat(Function("fl_philox_word"), "(", args[0], ", ", args[1], ", 0ll, ", s.index, ")");
    case ScalarOp::kBitcast:
      return absl::StrCat(Function(absl::StrCat("fl_bitcast_", Name(s.storage), "_to_", Name(s.storage_to))), "(",
                          args[0], ")");
    default:
      break;
  }
  if (const char* infix = InfixOf(s.op, operand_type)) return absl::StrCat(args[0], " ", infix, " ", args[1]);
  std::string op = ScalarOpName(s.op);
  if (s.op == ScalarOp::kIsNan) op = "is_nan";
  if (s.op == ScalarOp::kIsInf) op = "is_inf";
  if (s.op == ScalarOp::kIsFinite) op = "is_finite";
  std::string text = absl::StrCat(Function(absl::StrCat("fl_", op, "_", Name(operand_type))), "(", args[0]);
  for (int i = 1; i < 3; ++i) {
    if (!args[i].empty()) absl::StrAppend(&text, ", ", args[i]);
  }
  return text + ")";
}

std::string StatementPrinter::Identity(ReductionKind kind, DType type) {
  ScalarInstr c;
  c.type = type;
  c.constant.kind = IsFloat(type) ? Literal::Kind::kFloat : Literal::Kind::kInt;
  switch (kind) {
    case ReductionKind::kProd:
    case ReductionKind::kAll:
      c.constant.i = 1;
      c.constant.f = 1;
      break;
    case ReductionKind::kAmax:
    case ReductionKind::kArgmax:
      c.constant.i = LowestInt(type);
      c.constant.f = -std::numeric_limits<double>::infinity();
      break;
    case ReductionKind::kAmin:
    case ReductionKind::kArgmin:
      c.constant.i = HighestInt(type);
      c.constant.f = std::numeric_limits<double>::infinity();
      break;
    default:
      break;
  }
  return Constant(c);
}

std::string StatementPrinter::Combine(ReductionKind kind, DType type, const std::string& a, const std::string& b) {
  const char* op = nullptr;
  switch (kind) {
    case ReductionKind::kSum:
      if (IsFloat(type)) return absl::StrCat(a, " + ", b);
      op = "add";
      break;
    case ReductionKind::kProd:
      if (IsFloat(type)) return absl::StrCat(a, " * ", b);
      op = "mul";
      break;
    case ReductionKind::kAmax:
      op = "maximum";
      break;
    case ReductionKind::kAmin:
      op = "minimum";
      break;
    case ReductionKind::kAny:
      op = "logical_or";
      break;
    default:
      op = "logical_and";
      break;
  }
  return absl::StrCat(Function(absl::StrCat("fl_", op, "_", Name(type))), "(", a, ", ", b, ")");
}

std::string StatementPrinter::Better(ReductionKind kind, DType type, const std::string& a, const std::string& ia,
                                     const std::string& b, const std::string& ib) {
  const char* which = kind == ReductionKind::kArgmax ? "max" : "min";
  return absl::StrCat(Function(absl::StrCat("fl_better_", which, "_", Name(type))), "(", a, ", ", ia, ", ", b, ", ", ib,
                      ")");
}

}  // namespace fuseline::codegen
