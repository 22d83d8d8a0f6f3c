#include "tests/unit/reference/scalar_evaluator.h"

#include <cmath>
#include <cstring>
#include <limits>

#include "common/ir/philox.h"
#include "common/tensor/tensor.h"

namespace fuseline {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

int Bits(DType type) { return DTypeSizeBytes(type) * 8; }

int64_t Wrap(DType type, uint64_t value) {
  if (type == DType::kBool) return value != 0;
  if (type == DType::kU8) return static_cast<int64_t>(value & 0xff);
  const int drop = 64 - Bits(type);
  return static_cast<int64_t>(value << drop) >> drop;
}

double Larger(double a, double b) {
  return std::isnan(a + b) && (std::isnan(a) || std::isnan(b)) ? kNan
         : a == b                                              ? (std::signbit(b) ? a : b)
         : a < b                                               ? b
                                                               : a;
}
double Smaller(double a, double b) { return -Larger(-a, -b); }
double FlooredRemainder(double a, double b) {
  const double r = std::fmod(a, b);
  return r != 0 && std::signbit(r) != std::signbit(b) ? r + b : r;
}

double FlooredQuotient(double a, double b) {
  if (b == 0) return a / b;
  const double r = std::fmod(a, b);
  return std::nearbyint((a - r) / b) - (r != 0 && std::signbit(r) != std::signbit(b) ? 1 : 0);
}

double FloatOp(ScalarOp op, DType type, double a, double b) {
  switch (op) {
    case ScalarOp::kAdd:
      return a + b;
    case ScalarOp::kSub:
      return a - b;
    case ScalarOp::kMul:
      return a * b;
    case ScalarOp::kDiv:
    case ScalarOp::kQuotient:
      return a / b;
    case ScalarOp::kNeg:
      return -a;
    case ScalarOp::kAbs:
      return std::abs(a);
    case ScalarOp::kFloorDiv:
      return FlooredQuotient(a, b);
    case ScalarOp::kTruncDiv:
      return b == 0 || (std::isinf(a) && !std::isinf(b)) ? a / b : std::nearbyint((a - std::fmod(a, b)) / b);
    case ScalarOp::kRemainder:
      return FlooredRemainder(a, b);
    case ScalarOp::kFmod:
      return std::fmod(a, b);
    case ScalarOp::kMaximum:
      return Larger(a, b);
    case ScalarOp::kMinimum:
      return Smaller(a, b);
    case ScalarOp::kFmax:
      return std::isnan(a) ? b : std::isnan(b) ? a : Larger(a, b);
    case ScalarOp::kFmin:
      return std::isnan(a) ? b : std::isnan(b) ? a : Smaller(a, b);
    case ScalarOp::kPow:
      return std::pow(a, b);
    case ScalarOp::kSqrt:
      return std::sqrt(a);
    case ScalarOp::kRsqrt:
      return 1 / std::sqrt(a);
    case ScalarOp::kExp:
      return std::exp(a);
    case ScalarOp::kExp2:
      return std::exp2(a);
    case ScalarOp::kExpm1:
      return std::expm1(a);
    case ScalarOp::kLog:
      return std::log(a);
    case ScalarOp::kLog2:
      return std::log2(a);
    case ScalarOp::kLog10:
      return std::log10(a);
    case ScalarOp::kLog1p:
      return std::log1p(a);
    case ScalarOp::kSin:
      return std::sin(a);
    case ScalarOp::kCos:
      return std::cos(a);
    case ScalarOp::kTan:
      return std::tan(a);
    case ScalarOp::kAsin:
      return std::asin(a);
    case ScalarOp::kAcos:
      return std::acos(a);
    case ScalarOp::kAtan:
      return std::atan(a);
    case ScalarOp::kSinh:
      return std::sinh(a);
    case ScalarOp::kCosh:
      return std::cosh(a);
    case ScalarOp::kTanh:
      return std::tanh(a);
    case ScalarOp::kAsinh:
      return std::asinh(a);
    case ScalarOp::kAcosh:
      return std::acosh(a);
    case ScalarOp::kAtanh:
      return std::atanh(a);
    case ScalarOp::kErf:
      return std::erf(a);
    case ScalarOp::kErfc:
      return std::erfc(a);
    case ScalarOp::kLgamma:
      return std::lgamma(a);
    case ScalarOp::kFloor:
      return std::floor(a);
    case ScalarOp::kCeil:
      return std::ceil(a);
    case ScalarOp::kTrunc:
      return std::trunc(a);
    case ScalarOp::kRound:
      return std::rint(a);
    case ScalarOp::kAtan2:
      return std::atan2(a, b);
    case ScalarOp::kHypot:
      return std::hypot(a, b);
    case ScalarOp::kCopysign:
      return std::copysign(a, b);
    case ScalarOp::kNextafter:
      return type == DType::kF32 ? std::nextafterf(static_cast<float>(a), static_cast<float>(b)) : std::nextafter(a, b);
    default:
      return kNan;
  }
}

uint64_t IntOp(ScalarOp op, DType type, int64_t a, int64_t b) {
  const uint64_t ua = static_cast<uint64_t>(a), ub = static_cast<uint64_t>(b);
  const bool divides = b != 0 && b != -1;
  const int64_t quotient = b == -1 ? static_cast<int64_t>(0 - ua) : divides ? a / b : 0;
  const int64_t rest = divides ? a % b : 0;
  const bool adjust = rest != 0 && (rest ^ b) < 0;
  switch (op) {
    case ScalarOp::kAdd:
      return ua + ub;
    case ScalarOp::kSub:
      return ua - ub;
    case ScalarOp::kMul:
      return ua * ub;
    case ScalarOp::kNeg:
      return 0 - ua;
    case ScalarOp::kAbs:
      return a < 0 ? 0 - ua : ua;
    case ScalarOp::kTruncDiv:
      return static_cast<uint64_t>(quotient);
    case ScalarOp::kFloorDiv:
      return static_cast<uint64_t>(quotient) - (adjust ? 1 : 0);
    case ScalarOp::kFmod:
      return static_cast<uint64_t>(rest);
    case ScalarOp::kRemainder:
      return static_cast<uint64_t>(adjust ? rest + b : rest);
    case ScalarOp::kMaximum:
    case ScalarOp::kFmax:
      return static_cast<uint64_t>(a < b ? b : a);
    case ScalarOp::kMinimum:
    case ScalarOp::kFmin:
      return static_cast<uint64_t>(a < b ? a : b);
    case ScalarOp::kPow: {
      if (b < 0) return a == 1 ? 1 : a == -1 ? (b % 2 == 0 ? 1 : ~uint64_t{0}) : 0;
      uint64_t power = 1, base = ua;
      for (uint64_t e = ub; e != 0; e >>= 1, base *= base) power *= e & 1 ? base : 1;
      return power;
    }
    case ScalarOp::kBitAnd:
    case ScalarOp::kLogicalAnd:
      return ua & ub;
    case ScalarOp::kBitOr:
    case ScalarOp::kLogicalOr:
      return ua | ub;
    case ScalarOp::kBitXor:
    case ScalarOp::kLogicalXor:
      return ua ^ ub;
    case ScalarOp::kBitNot:
      return ~ua;
    case ScalarOp::kLogicalNot:
      return ua == 0 ? 1 : 0;
    case ScalarOp::kShiftLeft:
      return b < 0 || b >= Bits(type) ? 0 : ua << b;
    case ScalarOp::kShiftRight:
      return static_cast<uint64_t>(b < 0 || b >= Bits(type) ? (a < 0 ? -1 : 0) : a >> b);
    default:
      return 0;
  }
}

template <typename T>
bool Compare(ScalarOp op, T a, T b) {
  switch (op) {
    case ScalarOp::kEq:
      return a == b;
    case ScalarOp::kNe:
      return a != b;
    case ScalarOp::kLt:
      return a < b;
    case ScalarOp::kLe:
      return a <= b;
    case ScalarOp::kGt:
      return a > b;
    default:
      return a >= b;
  }
}

}  // namespace

ScalarValue EvaluateScalar(const std::vector<ScalarInstr>& instrs, int32_t result,
                           const std::vector<ScalarValue>& inputs) {
  std::vector<ScalarValue> values(instrs.size());
  for (size_t k = 0; k < instrs.size(); ++k) {
    const ScalarInstr& instr = instrs[k];
    ScalarValue& out = values[k];
    ScalarValue arg[3];
    DType from = DType::kInvalid;
    for (int j = 0; j < 3; ++j) {
      if (instr.args[j] >= 0) arg[j] = values[static_cast<size_t>(instr.args[j])];
    }
    if (instr.args[0] >= 0) from = instrs[static_cast<size_t>(instr.args[0])].type;
    switch (instr.op) {
      case ScalarOp::kPhilox:
        out.i = PhiloxBlock(static_cast<uint64_t>(arg[0].i),
                            static_cast<uint64_t>(arg[1].i))[static_cast<size_t>(instr.index)];
        continue;
      case ScalarOp::kInput:
        out = inputs[static_cast<size_t>(instr.index)];
        continue;
      case ScalarOp::kConst:
        out.f = instr.constant.f;
        out.i = instr.constant.i;
        continue;
      case ScalarOp::kIsNan:
        out.i = std::isnan(arg[0].f);
        continue;
      case ScalarOp::kIsInf:
        out.i = std::isinf(arg[0].f);
        continue;
      case ScalarOp::kIsFinite:
        out.i = std::isfinite(arg[0].f);
        continue;
      case ScalarOp::kEq:
      case ScalarOp::kNe:
      case ScalarOp::kLt:
      case ScalarOp::kLe:
      case ScalarOp::kGt:
      case ScalarOp::kGe:
        out.i = IsFloat(from) ? Compare(instr.op, arg[0].f, arg[1].f) : Compare(instr.op, arg[0].i, arg[1].i);
        continue;
      case ScalarOp::kSelect:
        out = arg[0].i != 0 ? arg[1] : arg[2];
        continue;
      case ScalarOp::kRound16:
        out.f = RoundToDType(instr.storage, arg[0].f);
        continue;
      case ScalarOp::kCast: {
        Tensor cell = Tensor::Allocate(instr.type, {});
        IsFloat(from) ? cell.SetDouble(0, arg[0].f) : cell.SetInt(0, arg[0].i);
        out.f = IsFloat(instr.type) ? cell.GetDouble(0) : 0;
        out.i = IsFloat(instr.type) ? 0 : cell.GetInt(0);
        continue;
      }
      case ScalarOp::kBitcast: {
        Tensor cell = Tensor::Allocate(instr.storage, {});
        IsFloat(instr.storage) ? cell.SetDouble(0, arg[0].f) : cell.SetInt(0, arg[0].i);
        const Tensor seen = *Tensor::FromBytes(instr.storage_to, {}, cell.bytes());
        out.f = IsFloat(instr.storage_to) ? seen.GetDouble(0) : 0;
        out.i = IsFloat(instr.storage_to) ? 0 : seen.GetInt(0);
        continue;
      }
      default:
        break;
    }
    if (IsFloat(instr.type)) {
      out.f = RoundToDType(instr.type, FloatOp(instr.op, instr.type, arg[0].f, arg[1].f));
    } else {
      out.i = Wrap(instr.type, IntOp(instr.op, instr.type, arg[0].i, arg[1].i));
    }
  }
  return values[static_cast<size_t>(result)];
}

}  // namespace fuseline
