// Scalar expressions: what one element of a pointwise op's result is, in terms of primitive operations which every
// emitter prints. The op table's rows build them with ordinary operators:  [](ScalarArgs& a) { return 1.0 / (1.0 +
// Exp(-a[0])); } Pipeline: op table row -> ScalarExpr -> LowerGraph (which splices it into a LoopProgram).
// Thread-safety: thread-compatible.
#pragma once

#include <cstdint>
#include <vector>

#include "common/ir/graph.h"
#include "common/ir/types.h"

namespace fuseline {

// Primitive scalar operations. Operands have the instruction's type unless noted; floats are f32 or f64 (16- and 8-bit
// floats are computed in f32), integers wrap. Semantics of special values: docs/ir.md.
enum class ScalarOp : uint8_t {
  kInput,  // operand `index` of the op
  kConst,  // a constant of the instruction's type
  // Arithmetic, floats and integers.
  kAdd,
  kSub,
  kMul,
  kNeg,
  kAbs,
  kDiv,       // floats only, correctly rounded
  kQuotient,  // floats only: a / b within 2 ulp, for 1 <= b <= 2^64 or NaN. For the inside of functions, which may be 4
              // ulp off
  kFloorDiv,
  kTruncDiv,
  kRemainder,
  kFmod,  // integers, and floats by exact remainder
  kMaximum,
  kMinimum,  // NaN wins, -0.0 < +0.0
  kFmax,
  kFmin,  // NaN loses
  kPow,   // floats and integers
  // Floats only.
  kSqrt,
  kRsqrt,
  kExp,
  kExp2,
  kExpm1,
  kLog,
  kLog2,
  kLog10,
  kLog1p,
  kSin,
  kCos,
  kTan,
  kAsin,
  kAcos,
  kAtan,
  kSinh,
  kCosh,
  kTanh,
  kAsinh,
  kAcosh,
  kAtanh,
  kErf,
  kErfc,
  kLgamma,
  kFloor,
  kCeil,
  kTrunc,
  kRound,
  kAtan2,
  kHypot,
  kCopysign,
  kNextafter,
  kIsNan,
  kIsInf,
  kIsFinite,  // result bool
  // Comparisons: operands of any one type, result bool (IEEE: every comparison with NaN but != is false).
  kEq,
  kNe,
  kLt,
  kLe,
  kGt,
  kGe,
  // bool operands and result.
  kLogicalAnd,
  kLogicalOr,
  kLogicalXor,
  kLogicalNot,
  // Integers and bool.
  kBitAnd,
  kBitOr,
  kBitXor,
  kBitNot,
  kShiftLeft,
  kShiftRight,
  kSelect,      // (bool, a, b)
  kCast,        // from the operand's type to the instruction's, with the rules of docs/ir.md
  kBitcast,     // same size; a storage dtype on either side
  kCheckIndex,  // an i64 position: a negative one counts from the end. One outside [-extent, extent) is noted for the
                // call's error, and 0 goes on. `constant`: the extent, at least 1; `index`: the check's number
  kPhilox,  // (i64 seed, i64 counter) -> i64: 32 random bits, word `index` (0 to 3) of Philox-4x32-10's block `counter`
  kRound16,  // a float rounded to the storage dtype `storage` (f16, bf16, f8) and back to f32. The operand is f32, or
             // f64 (a cast from f64, i64 or i32 to 16 bits rounds once, not by way of f32); the result is f32
};
// "add", "exp", ...
const char* ScalarOpName(ScalarOp op);

struct ScalarInstr {
  ScalarOp op = ScalarOp::kConst;
  DType type = DType::kInvalid;    // of the result: a compute dtype (never f16, bf16, f8), or bool
  int32_t args[3] = {-1, -1, -1};  // indices of earlier instructions
  int32_t index = 0;               // kInput, kCheckIndex, kPhilox
  Literal constant;                // kConst
  DType storage =
      DType::kInvalid;  // kRound16: rounded to; kBitcast: the storage dtype bitcast from (args) — see storage_to
  DType storage_to = DType::kInvalid;  // kBitcast: the storage dtype bitcast to
};

class ScalarBuilder;

// A handle to an instruction of a builder; cheap to copy.
struct Scalar {
  ScalarBuilder* builder = nullptr;
  int32_t id = -1;
  DType type() const;
};

// Collects instructions in order of dependence.
class ScalarBuilder {
 public:
  Scalar Input(int index, DType type);
  Scalar Const(double value, DType type);
  Scalar ConstInt(int64_t value, DType type);
  Scalar ConstBool(bool value);
  Scalar Emit(ScalarOp op, DType type, Scalar a, Scalar b = {}, Scalar c = {});
  Scalar EmitInstr(const ScalarInstr& instr);
  const std::vector<ScalarInstr>& instrs() const { return instrs_; }

 private:
  std::vector<ScalarInstr> instrs_;
};

// What a row's scalar rule sees: the operands as scalars in their compute dtypes, attributes, and dtypes before
// widening.
struct ScalarArgs {
  ScalarBuilder* builder = nullptr;
  std::vector<Scalar> operands;
  std::vector<DType> operand_storage;  // dtypes of the operands as the graph has them
  DType result_storage = DType::kInvalid;
  const AttrMap* attrs = nullptr;  // defaults filled in

  Scalar operator[](size_t i) const { return operands[i]; }
  double Number(const char* attr) const;  // an int or float attribute
  bool Has(const char* attr) const;
  const std::string& String(const char* attr) const;
  Scalar Attr(const char* attr) const;  // as a constant of operand 0's compute dtype
};

// Operators build instructions. A plain number takes the other side's dtype.
Scalar operator+(Scalar a, Scalar b);
Scalar operator-(Scalar a, Scalar b);
Scalar operator*(Scalar a, Scalar b);
Scalar operator/(Scalar a, Scalar b);
Scalar operator-(Scalar a);
Scalar operator+(Scalar a, double b);
Scalar operator-(Scalar a, double b);
Scalar operator*(Scalar a, double b);
Scalar operator/(Scalar a, double b);
Scalar operator+(double a, Scalar b);
Scalar operator-(double a, Scalar b);
Scalar operator*(double a, Scalar b);
Scalar operator/(double a, Scalar b);
Scalar Unary(ScalarOp op, Scalar a);
Scalar Binary(ScalarOp op, Scalar a, Scalar b);
Scalar Compare(ScalarOp op, Scalar a, Scalar b);
Scalar Compare(ScalarOp op, Scalar a, double b);
Scalar Select(Scalar cond, Scalar a, Scalar b);
Scalar Select(Scalar cond, double a, Scalar b);
Scalar Select(Scalar cond, Scalar a, double b);
Scalar CastTo(Scalar a, DType type);
Scalar ToBool(Scalar a);  // a != 0; NaN is true

}  // namespace fuseline
