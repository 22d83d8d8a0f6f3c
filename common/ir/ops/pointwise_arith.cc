// Pointwise ops on numbers, bits and truth values: arithmetic, comparisons, logic, selection and casts.
#include <cmath>
#include <cstdint>
#include <limits>

#include "absl/strings/str_cat.h"
#include "common/ir/ops/op_rows.h"
#include "common/ir/ops/type_rules.h"
#include "common/status/status_macros.h"

namespace fuseline::ops {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

// --- Integers as the machine has them: wrapping, by way of unsigned. ---

int64_t WrapAdd(int64_t a, int64_t b) {
  return static_cast<int64_t>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b));
}
int64_t WrapSub(int64_t a, int64_t b) {
  return static_cast<int64_t>(static_cast<uint64_t>(a) - static_cast<uint64_t>(b));
}
int64_t WrapMul(int64_t a, int64_t b) {
  return static_cast<int64_t>(static_cast<uint64_t>(a) * static_cast<uint64_t>(b));
}
int64_t WrapNeg(int64_t a) { return WrapSub(0, a); }

// Quotient and remainder of any pair: division by zero is unspecified (0 here), and -1 does not trap on the least
// integer.
int64_t TruncQuotient(int64_t a, int64_t b) { return b == 0 ? 0 : b == -1 ? WrapNeg(a) : a / b; }
int64_t TruncRemainder(int64_t a, int64_t b) { return b == 0 || b == -1 ? 0 : a % b; }

int64_t IntPow(int64_t base, int64_t exponent) {
  if (exponent < 0) {
    if (base == 1) return 1;
    if (base == -1) return exponent % 2 == 0 ? 1 : -1;
    return 0;
  }
  int64_t result = 1;
  for (; exponent > 0; exponent >>= 1) {
    if (exponent & 1) result = WrapMul(result, base);
    base = WrapMul(base, base);
  }
  return result;
}

int64_t WidthBits(DType dtype) { return DTypeSizeBytes(dtype) * 8; }

// --- Floats. ---

// -0.0 orders below +0.0, and NaN wins.
double Maximum(double a, double b) {
  if (std::isnan(a) || std::isnan(b)) return kNan;
  if (a == b) return std::signbit(a) ? b : a;
  return a > b ? a : b;
}
double Minimum(double a, double b) {
  if (std::isnan(a) || std::isnan(b)) return kNan;
  if (a == b) return std::signbit(a) ? a : b;
  return a < b ? a : b;
}

double FloorQuotient(double a, double b) {
  if (b == 0) return a / b;
  const double remainder = std::fmod(a, b);
  double quotient = (a - remainder) / b;
  if (remainder != 0 && (b < 0) != (remainder < 0)) quotient -= 1;
  return std::round(quotient);  // it is an integer but for the rounding of the division
}
double TruncateQuotient(double a, double b) {
  if (b == 0 || std::isinf(a)) return std::isinf(a) && std::isinf(b) ? kNan : a / b;
  return std::round((a - std::fmod(a, b)) / b);
}
double FloorRemainder(double a, double b) {
  const double remainder = std::fmod(a, b);
  return remainder != 0 && (b < 0) != (remainder < 0) ? remainder + b : remainder;
}

bool Truth(double x) { return x != 0; }  // NaN is true

// --- Rules. ---

Scalar BoolOr(ScalarArgs& a, ScalarOp for_integers, ScalarOp for_bool) {
  return Binary(IsBool(a[0].type()) ? for_bool : for_integers, a[0], a[1]);
}

absl::StatusOr<std::vector<TensorType>> WhereRule(const InferArgs& args) {
  if (!IsBool(args.operands[0].dtype)) {
    return TypeError(absl::StrCat("the condition must be bool, not ", NameOf(args.operands[0].dtype)));
  }
  FUSELINE_RETURN_IF_ERROR(CheckDType(args.operands[1].dtype, DTypeSet::kAll));
  FUSELINE_RETURN_IF_ERROR(CheckEqualDTypes(args.operands, 1));
  FUSELINE_ASSIGN_OR_RETURN(const Shape shape, BroadcastOperands(args));
  return std::vector<TensorType>{TensorType::Make(args.operands[1].dtype, shape)};
}

absl::StatusOr<std::vector<TensorType>> NextafterRule(const InferArgs& args) {
  const DType dtype = args.operands[0].dtype;
  if (dtype != DType::kF32 && dtype != DType::kF64) {
    return TypeError(absl::StrCat("takes f64 and f32, not ", NameOf(dtype), ": 16-bit floats are computed in f32"));
  }
  return SameTypeRule(args, DTypeSet::kFloats);
}

absl::StatusOr<std::vector<TensorType>> AddcmulRule(const InferArgs& args) {
  FUSELINE_RETURN_IF_ERROR(CheckAttrHolds(args, "value", args.operands[0].dtype));
  return SameTypeRule(args, DTypeSet::kNumbers);
}

absl::StatusOr<std::vector<TensorType>> CastRule(const InferArgs& args) {
  return std::vector<TensorType>{TensorType::Make(args.Type("dtype"), args.operands[0].shape())};
}

absl::StatusOr<std::vector<TensorType>> BitcastRule(const InferArgs& args) {
  const DType from = args.operands[0].dtype, to = args.Type("dtype");
  if (IsBool(from) || IsBool(to)) return TypeError("takes no bool, whose bits other than 0 and 1 have no meaning");
  if (DTypeSizeBytes(from) != DTypeSizeBytes(to)) {
    return TypeError(absl::StrCat(NameOf(from), " and ", NameOf(to), " differ in size"));
  }
  return std::vector<TensorType>{TensorType::Make(to, args.operands[0].shape())};
}

// Internal: between a 16-bit float and the f32 that it is computed in, with no rounding (`cast` rounds its operand).
absl::StatusOr<std::vector<TensorType>> WidenRule(const InferArgs& args) {
  if (!IsHalf(args.operands[0].dtype)) return TypeError("takes f16 and bf16");
  return std::vector<TensorType>{TensorType::Make(DType::kF32, args.operands[0].shape())};
}
absl::StatusOr<std::vector<TensorType>> NarrowRule(const InferArgs& args) {
  if (args.operands[0].dtype != DType::kF32 || !IsHalf(args.Type("dtype")))
    return TypeError("takes f32 and gives f16 or bf16");
  return std::vector<TensorType>{TensorType::Make(args.Type("dtype"), args.operands[0].shape())};
}

Scalar CastScalar(ScalarArgs& a) {
  const DType to = a.result_storage;
  if (!IsHalf(to) && !IsF8(to)) return CastTo(a[0], to);
  // One rounding: f64 and the integers that f32 can't hold go to 16 or 8 bits from f64.
  const DType from = a[0].type();
  const bool by_f64 = from == DType::kF64 || from == DType::kI64 || from == DType::kI32;
  ScalarInstr round;
  round.op = ScalarOp::kRound16;
  round.type = DType::kF32;
  round.storage = to;
  round.args[0] = CastTo(a[0], by_f64 ? DType::kF64 : DType::kF32).id;
  return a.builder->EmitInstr(round);
}

Scalar BitcastScalar(ScalarArgs& a) {
  ScalarInstr instr;
  instr.op = ScalarOp::kBitcast;
  instr.type = ComputeDType(a.result_storage);
  instr.storage = a.operand_storage[0];
  instr.storage_to = a.result_storage;
  instr.args[0] = a[0].id;
  return a.builder->EmitInstr(instr);
}

void AddUnary(std::vector<OpDef>& rows) {
  rows.push_back(PointwiseRow(
      "abs", 1, Same<DTypeSet::kNumbers>, [](ScalarArgs& a) { return Unary(ScalarOp::kAbs, a[0]); },
      [](const ReferenceArgs& r) { return std::fabs(r.f[0]); },
      [](const ReferenceArgs& r) { return r.i[0] < 0 ? WrapNeg(r.i[0]) : r.i[0]; }));
  rows.push_back(PointwiseRow(
      "neg", 1, Same<DTypeSet::kNumbers>, [](ScalarArgs& a) { return -a[0]; },
      [](const ReferenceArgs& r) { return -r.f[0]; }, [](const ReferenceArgs& r) { return WrapNeg(r.i[0]); }));
  rows.push_back(PointwiseRow(
      "sign", 1, Same<DTypeSet::kNumbers>,
      [](ScalarArgs& a) {  // what is neither above nor below zero stays: NaN and the zeros
        const Scalar below = a[0].type() == DType::kU8 ? a[0] : Select(Compare(ScalarOp::kLt, a[0], 0.0), -1.0, a[0]);
        return Select(Compare(ScalarOp::kGt, a[0], 0.0), 1.0, below);
      },
      [](const ReferenceArgs& r) {
        return std::isnan(r.f[0]) ? kNan : r.f[0] > 0 ? 1.0 : r.f[0] < 0 ? -1.0 : r.f[0];
      },
      [](const ReferenceArgs& r) { return static_cast<int64_t>(r.i[0] > 0) - static_cast<int64_t>(r.i[0] < 0); }));
  rows.push_back(PointwiseRow(
      "square", 1, Same<DTypeSet::kNumbers>, [](ScalarArgs& a) { return a[0] * a[0]; },
      [](const ReferenceArgs& r) { return r.f[0] * r.f[0]; },
      [](const ReferenceArgs& r) { return WrapMul(r.i[0], r.i[0]); }));
  rows.push_back(PointwiseRow(
      "logical_not", 1, ToBoolResult<DTypeSet::kAll>,
      [](ScalarArgs& a) { return Unary(ScalarOp::kLogicalNot, ToBool(a[0])); },
      [](const ReferenceArgs& r) { return Truth(r.f[0]) ? 0.0 : 1.0; },
      [](const ReferenceArgs& r) { return static_cast<int64_t>(r.i[0] == 0); }));
  rows.push_back(PointwiseRow(
      "bitwise_not", 1, Same<DTypeSet::kIntegersAndBool>,
      [](ScalarArgs& a) { return Unary(IsBool(a[0].type()) ? ScalarOp::kLogicalNot : ScalarOp::kBitNot, a[0]); },
      nullptr,
      [](const ReferenceArgs& r) { return IsBool(r.operand_dtype) ? static_cast<int64_t>(r.i[0] == 0) : ~r.i[0]; }));
}

void AddArithmetic(std::vector<OpDef>& rows) {
  rows.push_back(PointwiseRow(
      "add", 2, Same<DTypeSet::kNumbers>, [](ScalarArgs& a) { return a[0] + a[1]; },
      [](const ReferenceArgs& r) { return r.f[0] + r.f[1]; },
      [](const ReferenceArgs& r) { return WrapAdd(r.i[0], r.i[1]); }));
  rows.push_back(PointwiseRow(
      "sub", 2, Same<DTypeSet::kNumbers>, [](ScalarArgs& a) { return a[0] - a[1]; },
      [](const ReferenceArgs& r) { return r.f[0] - r.f[1]; },
      [](const ReferenceArgs& r) { return WrapSub(r.i[0], r.i[1]); }));
  rows.push_back(PointwiseRow(
      "mul", 2, Same<DTypeSet::kNumbers>, [](ScalarArgs& a) { return a[0] * a[1]; },
      [](const ReferenceArgs& r) { return r.f[0] * r.f[1]; },
      [](const ReferenceArgs& r) { return WrapMul(r.i[0], r.i[1]); }));
  rows.push_back(PointwiseRow(
      "div", 2, Same<DTypeSet::kFloats>, [](ScalarArgs& a) { return a[0] / a[1]; },
      [](const ReferenceArgs& r) { return r.f[0] / r.f[1]; }, nullptr));
  rows.push_back(PointwiseRow(
      "floor_divide", 2, Same<DTypeSet::kNumbers>,
      [](ScalarArgs& a) { return Binary(ScalarOp::kFloorDiv, a[0], a[1]); },
      [](const ReferenceArgs& r) { return FloorQuotient(r.f[0], r.f[1]); },
      [](const ReferenceArgs& r) {
        const int64_t remainder = TruncRemainder(r.i[0], r.i[1]);
        return WrapSub(TruncQuotient(r.i[0], r.i[1]), remainder != 0 && (remainder < 0) != (r.i[1] < 0) ? 1 : 0);
      }));
  rows.push_back(PointwiseRow(
      "trunc_divide", 2, Same<DTypeSet::kNumbers>,
      [](ScalarArgs& a) { return Binary(ScalarOp::kTruncDiv, a[0], a[1]); },
      [](const ReferenceArgs& r) { return TruncateQuotient(r.f[0], r.f[1]); },
      [](const ReferenceArgs& r) { return TruncQuotient(r.i[0], r.i[1]); }));
  rows.push_back(PointwiseRow(
      "remainder", 2, Same<DTypeSet::kNumbers>, [](ScalarArgs& a) { return Binary(ScalarOp::kRemainder, a[0], a[1]); },
      [](const ReferenceArgs& r) { return FloorRemainder(r.f[0], r.f[1]); },
      [](const ReferenceArgs& r) {
        const int64_t remainder = TruncRemainder(r.i[0], r.i[1]);
        return remainder != 0 && (remainder < 0) != (r.i[1] < 0) ? remainder + r.i[1] : remainder;
      }));
  rows.push_back(PointwiseRow(
      "fmod", 2, Same<DTypeSet::kNumbers>, [](ScalarArgs& a) { return Binary(ScalarOp::kFmod, a[0], a[1]); },
      [](const ReferenceArgs& r) { return std::fmod(r.f[0], r.f[1]); },
      [](const ReferenceArgs& r) { return TruncRemainder(r.i[0], r.i[1]); }));
  rows.push_back(PointwiseRow(
      "pow", 2, Same<DTypeSet::kNumbers>, [](ScalarArgs& a) { return Binary(ScalarOp::kPow, a[0], a[1]); },
      [](const ReferenceArgs& r) { return std::pow(r.f[0], r.f[1]); },
      [](const ReferenceArgs& r) { return IntPow(r.i[0], r.i[1]); }));
  rows.push_back(PointwiseRow(
      "maximum", 2, Same<DTypeSet::kNumbers>, [](ScalarArgs& a) { return Binary(ScalarOp::kMaximum, a[0], a[1]); },
      [](const ReferenceArgs& r) { return Maximum(r.f[0], r.f[1]); },
      [](const ReferenceArgs& r) { return r.i[0] > r.i[1] ? r.i[0] : r.i[1]; }));
  rows.push_back(PointwiseRow(
      "minimum", 2, Same<DTypeSet::kNumbers>, [](ScalarArgs& a) { return Binary(ScalarOp::kMinimum, a[0], a[1]); },
      [](const ReferenceArgs& r) { return Minimum(r.f[0], r.f[1]); },
      [](const ReferenceArgs& r) { return r.i[0] < r.i[1] ? r.i[0] : r.i[1]; }));
  rows.push_back(PointwiseRow(
      "fmax", 2, Same<DTypeSet::kNumbers>, [](ScalarArgs& a) { return Binary(ScalarOp::kFmax, a[0], a[1]); },
      [](const ReferenceArgs& r) {
        return std::isnan(r.f[0]) ? r.f[1] : std::isnan(r.f[1]) ? r.f[0] : Maximum(r.f[0], r.f[1]);
      },
      [](const ReferenceArgs& r) { return r.i[0] > r.i[1] ? r.i[0] : r.i[1]; }));
  rows.push_back(PointwiseRow(
      "fmin", 2, Same<DTypeSet::kNumbers>, [](ScalarArgs& a) { return Binary(ScalarOp::kFmin, a[0], a[1]); },
      [](const ReferenceArgs& r) {
        return std::isnan(r.f[0]) ? r.f[1] : std::isnan(r.f[1]) ? r.f[0] : Minimum(r.f[0], r.f[1]);
      },
      [](const ReferenceArgs& r) { return r.i[0] < r.i[1] ? r.i[0] : r.i[1]; }));
  rows.push_back(PointwiseRow(
      "copysign", 2, Same<DTypeSet::kFloats>,
      [](ScalarArgs& a) {  // a NaN has no sign to copy
        return Select(a.builder->Emit(ScalarOp::kIsNan, DType::kBool, a[1]), a[1],
                      Binary(ScalarOp::kCopysign, a[0], a[1]));
      },
      [](const ReferenceArgs& r) { return std::isnan(r.f[1]) ? kNan : std::copysign(r.f[0], r.f[1]); }, nullptr));
  rows.push_back(PointwiseRow(
      "nextafter", 2, NextafterRule, [](ScalarArgs& a) { return Binary(ScalarOp::kNextafter, a[0], a[1]); },
      [](const ReferenceArgs& r) {
        if (r.operand_dtype == DType::kF64) return std::nextafter(r.f[0], r.f[1]);
        return static_cast<double>(std::nextafter(static_cast<float>(r.f[0]), static_cast<float>(r.f[1])));
      },
      nullptr));
}

void AddBits(std::vector<OpDef>& rows) {
  rows.push_back(PointwiseRow(
      "bitwise_and", 2, Same<DTypeSet::kIntegersAndBool>,
      [](ScalarArgs& a) { return BoolOr(a, ScalarOp::kBitAnd, ScalarOp::kLogicalAnd); }, nullptr,
      [](const ReferenceArgs& r) { return r.i[0] & r.i[1]; }));
  rows.push_back(PointwiseRow(
      "bitwise_or", 2, Same<DTypeSet::kIntegersAndBool>,
      [](ScalarArgs& a) { return BoolOr(a, ScalarOp::kBitOr, ScalarOp::kLogicalOr); }, nullptr,
      [](const ReferenceArgs& r) { return r.i[0] | r.i[1]; }));
  rows.push_back(PointwiseRow(
      "bitwise_xor", 2, Same<DTypeSet::kIntegersAndBool>,
      [](ScalarArgs& a) { return BoolOr(a, ScalarOp::kBitXor, ScalarOp::kLogicalXor); }, nullptr,
      [](const ReferenceArgs& r) { return r.i[0] ^ r.i[1]; }));
  // A count outside [0, width) shifts everything out.
  rows.push_back(PointwiseRow(
      "shift_left", 2, Same<DTypeSet::kIntegers>,
      [](ScalarArgs& a) { return Binary(ScalarOp::kShiftLeft, a[0], a[1]); }, nullptr,
      [](const ReferenceArgs& r) {
        if (r.i[1] < 0 || r.i[1] >= WidthBits(r.operand_dtype)) return int64_t{0};
        return static_cast<int64_t>(static_cast<uint64_t>(r.i[0]) << r.i[1]);
      }));
  rows.push_back(PointwiseRow(
      "shift_right", 2, Same<DTypeSet::kIntegers>,
      [](ScalarArgs& a) { return Binary(ScalarOp::kShiftRight, a[0], a[1]); }, nullptr,
      [](const ReferenceArgs& r) {
        if (r.i[1] < 0 || r.i[1] >= WidthBits(r.operand_dtype)) return r.i[0] < 0 ? int64_t{-1} : int64_t{0};
        return r.i[0] >> r.i[1];
      }));
  rows.push_back(PointwiseRow(
      "logical_and", 2, ToBoolResult<DTypeSet::kAll>,
      [](ScalarArgs& a) { return Binary(ScalarOp::kLogicalAnd, ToBool(a[0]), ToBool(a[1])); },
      [](const ReferenceArgs& r) { return Truth(r.f[0]) && Truth(r.f[1]) ? 1.0 : 0.0; },
      [](const ReferenceArgs& r) { return static_cast<int64_t>(r.i[0] != 0 && r.i[1] != 0); }));
  rows.push_back(PointwiseRow(
      "logical_or", 2, ToBoolResult<DTypeSet::kAll>,
      [](ScalarArgs& a) { return Binary(ScalarOp::kLogicalOr, ToBool(a[0]), ToBool(a[1])); },
      [](const ReferenceArgs& r) { return Truth(r.f[0]) || Truth(r.f[1]) ? 1.0 : 0.0; },
      [](const ReferenceArgs& r) { return static_cast<int64_t>(r.i[0] != 0 || r.i[1] != 0); }));
  rows.push_back(PointwiseRow(
      "logical_xor", 2, ToBoolResult<DTypeSet::kAll>,
      [](ScalarArgs& a) { return Binary(ScalarOp::kLogicalXor, ToBool(a[0]), ToBool(a[1])); },
      [](const ReferenceArgs& r) { return Truth(r.f[0]) != Truth(r.f[1]) ? 1.0 : 0.0; },
      [](const ReferenceArgs& r) { return static_cast<int64_t>((r.i[0] != 0) != (r.i[1] != 0)); }));
}

void AddComparisons(std::vector<OpDef>& rows) {
  rows.push_back(PointwiseRow(
      "eq", 2, ToBoolResult<DTypeSet::kAll>, [](ScalarArgs& a) { return Compare(ScalarOp::kEq, a[0], a[1]); },
      [](const ReferenceArgs& r) { return r.f[0] == r.f[1] ? 1.0 : 0.0; },
      [](const ReferenceArgs& r) { return static_cast<int64_t>(r.i[0] == r.i[1]); }));
  rows.push_back(PointwiseRow(
      "ne", 2, ToBoolResult<DTypeSet::kAll>, [](ScalarArgs& a) { return Compare(ScalarOp::kNe, a[0], a[1]); },
      [](const ReferenceArgs& r) { return r.f[0] != r.f[1] ? 1.0 : 0.0; },
      [](const ReferenceArgs& r) { return static_cast<int64_t>(r.i[0] != r.i[1]); }));
  rows.push_back(PointwiseRow(
      "lt", 2, ToBoolResult<DTypeSet::kAll>, [](ScalarArgs& a) { return Compare(ScalarOp::kLt, a[0], a[1]); },
      [](const ReferenceArgs& r) { return r.f[0] < r.f[1] ? 1.0 : 0.0; },
      [](const ReferenceArgs& r) { return static_cast<int64_t>(r.i[0] < r.i[1]); }));
  rows.push_back(PointwiseRow(
      "le", 2, ToBoolResult<DTypeSet::kAll>, [](ScalarArgs& a) { return Compare(ScalarOp::kLe, a[0], a[1]); },
      [](const ReferenceArgs& r) { return r.f[0] <= r.f[1] ? 1.0 : 0.0; },
      [](const ReferenceArgs& r) { return static_cast<int64_t>(r.i[0] <= r.i[1]); }));
  rows.push_back(PointwiseRow(
      "gt", 2, ToBoolResult<DTypeSet::kAll>, [](ScalarArgs& a) { return Compare(ScalarOp::kGt, a[0], a[1]); },
      [](const ReferenceArgs& r) { return r.f[0] > r.f[1] ? 1.0 : 0.0; },
      [](const ReferenceArgs& r) { return static_cast<int64_t>(r.i[0] > r.i[1]); }));
  rows.push_back(PointwiseRow(
      "ge", 2, ToBoolResult<DTypeSet::kAll>, [](ScalarArgs& a) { return Compare(ScalarOp::kGe, a[0], a[1]); },
      [](const ReferenceArgs& r) { return r.f[0] >= r.f[1] ? 1.0 : 0.0; },
      [](const ReferenceArgs& r) { return static_cast<int64_t>(r.i[0] >= r.i[1]); }));
}

void AddTernary(std::vector<OpDef>& rows) {
  // `where` has a bool first and values of any dtype after it: the interpreter reads f or i of operands 1 and 2.
  rows.push_back(PointwiseRow(
      "where", 3, WhereRule, [](ScalarArgs& a) { return Select(a[0], a[1], a[2]); },
      [](const ReferenceArgs& r) { return r.f[0] != 0 ? r.f[1] : r.f[2]; },
      [](const ReferenceArgs& r) { return r.i[0] != 0 ? r.i[1] : r.i[2]; }));
  // From the nearer end, so that lerp(a, b, 1) is b.
  rows.push_back(PointwiseRow(
      "lerp", 3, Same<DTypeSet::kFloats>,
      [](ScalarArgs& a) {
        const Scalar d = a[1] - a[0];
        return Select(Compare(ScalarOp::kLt, a[2], 0.5), a[0] + a[2] * d, a[1] - d * (1.0 - a[2]));
      },
      [](const ReferenceArgs& r) {
        const double d = r.f[1] - r.f[0], w = r.f[2];
        return w < 0.5 ? r.f[0] + w * d : r.f[1] - d * (1 - w);
      },
      nullptr));
  rows.push_back(PointwiseRow(
      "addcmul", 3, AddcmulRule,
      [](ScalarArgs& a) { return a[0] + (a.Number("value") == 1 ? a[1] * a[2] : a.Attr("value") * a[1] * a[2]); },
      [](const ReferenceArgs& r) { return r.f[0] + r.Number("value") * r.f[1] * r.f[2]; },
      [](const ReferenceArgs& r) {
        const AttrValue& value = r.attrs->find("value")->second;
        const int64_t* whole = std::get_if<int64_t>(&value);
        return WrapAdd(r.i[0], WrapMul(whole != nullptr ? *whole : static_cast<int64_t>(r.Number("value")),
                                       WrapMul(r.i[1], r.i[2])));
      },
      {{"value", AttrType::kScalar, false, AttrValue(int64_t{1})}}));
  rows.push_back(PointwiseRow(
      "addcdiv", 3, Same<DTypeSet::kFloats>,
      [](ScalarArgs& a) { return a[0] + (a.Number("value") == 1 ? a[1] / a[2] : a.Attr("value") * (a[1] / a[2])); },
      [](const ReferenceArgs& r) { return r.f[0] + r.Number("value") * (r.f[1] / r.f[2]); }, nullptr,
      {{"value", AttrType::kFloat, false, AttrValue(1.0)}}));
  rows.push_back(PointwiseRow(
      "clamp_tensor", 3, Same<DTypeSet::kNumbers>,
      [](ScalarArgs& a) { return Binary(ScalarOp::kMinimum, Binary(ScalarOp::kMaximum, a[0], a[1]), a[2]); },
      [](const ReferenceArgs& r) { return Minimum(Maximum(r.f[0], r.f[1]), r.f[2]); },
      [](const ReferenceArgs& r) {
        const int64_t low = r.i[0] > r.i[1] ? r.i[0] : r.i[1];
        return low < r.i[2] ? low : r.i[2];
      }));
}

void AddCasts(std::vector<OpDef>& rows) {
  // The interpreter stores with the cast rules, so the reference hands the value on (bitcast: the interpreter copies
  // bytes).
  rows.push_back(PointwiseRow(
      "cast", 1, CastRule, CastScalar, [](const ReferenceArgs& r) { return r.f[0]; },
      [](const ReferenceArgs& r) { return r.i[0]; }, {{"dtype", AttrType::kDType, true}}));
  rows.push_back(PointwiseRow(
      "bitcast", 1, BitcastRule, BitcastScalar, [](const ReferenceArgs& r) { return r.f[0]; },
      [](const ReferenceArgs& r) { return r.i[0]; }, {{"dtype", AttrType::kDType, true}}));
  rows.push_back(PointwiseRow(
      "widen", 1, WidenRule, [](ScalarArgs& a) { return a[0]; }, [](const ReferenceArgs& r) { return r.f[0]; },
      nullptr));
  rows.push_back(PointwiseRow(
      "narrow", 1, NarrowRule, [](ScalarArgs& a) { return a[0]; }, [](const ReferenceArgs& r) { return r.f[0]; },
      nullptr, {{"dtype", AttrType::kDType, true}}));
}

}  // namespace

void AddPointwiseArithRows(std::vector<OpDef>& rows) {
  AddUnary(rows);
  AddArithmetic(rows);
  AddBits(rows);
  AddComparisons(rows);
  AddTernary(rows);
  AddCasts(rows);
}

}  // namespace fuseline::ops
