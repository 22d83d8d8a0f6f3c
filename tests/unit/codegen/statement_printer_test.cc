// The text of constants, indices and operations.
#include "server/codegen/statement_printer.h"

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <random>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace fuseline::codegen {
namespace {

using ::testing::Contains;

ScalarInstr FloatConstant(double v, DType type) {
  ScalarInstr s;
  s.op = ScalarOp::kConst;
  s.type = type;
  s.constant.kind = Literal::Kind::kFloat;
  s.constant.f = v;
  return s;
}
ScalarInstr IntConstant(int64_t v, DType type) {
  ScalarInstr s;
  s.op = ScalarOp::kConst;
  s.type = type;
  s.constant.i = v;
  return s;
}
BodyInstr Op(ScalarOp op, DType type) {
  BodyInstr i;
  i.scalar.op = op;
  i.scalar.type = type;
  return i;
}

TEST(StatementPrinterTest, FloatsHaveTheShortestTextThatReadsBackEqual) {
  const struct {
    double value;
    DType type;
    const char* text;
  } cases[] = {
      {0, DType::kF32, "0.0f"},
      {-0.0, DType::kF32, "(-0.0f)"},
      {-0.0, DType::kF64, "(-0.0)"},
      {1, DType::kF32, "1.0f"},
      {-2.5, DType::kF64, "(-2.5)"},
      {0.1, DType::kF32, "0.1f"},
      {0.1, DType::kF64, "0.1"},
      {1.0 / 3, DType::kF32, "0.33333334f"},
      {1.0 / 3, DType::kF64, "0.3333333333333333"},
      {0.1 + 0.2, DType::kF64, "0.30000000000000004"},
      {1e10, DType::kF32, "1e+10f"},
      {1e-45, DType::kF32, "1e-45f"},
      {16777217, DType::kF32, "16777216.0f"},
      {std::numeric_limits<float>::max(), DType::kF32, "3.4028235e+38f"},
      {std::numeric_limits<double>::denorm_min(), DType::kF64, "5e-324"},
      {std::numeric_limits<double>::max(), DType::kF64, "1.7976931348623157e+308"},
      {1e300, DType::kF32, "FL_INF_F32"},  // past f32's range
      {std::numeric_limits<double>::infinity(), DType::kF32, "FL_INF_F32"},
      {-std::numeric_limits<double>::infinity(), DType::kF64, "(-FL_INF_F64)"},
      {std::numeric_limits<double>::quiet_NaN(), DType::kF32, "FL_NAN_F32"},
      {-std::numeric_limits<double>::quiet_NaN(), DType::kF64, "FL_NAN_F64"},
  };
  for (const auto& c : cases) {
    StatementPrinter printer;
    EXPECT_EQ(printer.Constant(FloatConstant(c.value, c.type)), c.text);
  }
}

TEST(StatementPrinterTest, RandomFloatsReadBackEqual) {
  std::mt19937_64 random(3);
  for (int i = 0; i < 20000; ++i) {
    const uint64_t bits = random();
    double d;
    std::memcpy(&d, &bits, sizeof d);
    float f;
    std::memcpy(&f, &bits, sizeof f);
    StatementPrinter printer;
    const auto read = [](std::string text) {
      if (text[0] == '(') text = text.substr(1);
      return text;
    };
    if (std::isfinite(d)) {
      const std::string text = printer.Constant(FloatConstant(d, DType::kF64));
      ASSERT_EQ(std::strtod(read(text).c_str(), nullptr), d) << text;
    }
    if (std::isfinite(f)) {
      const std::string text = printer.Constant(FloatConstant(f, DType::kF32));
      ASSERT_EQ(std::strtof(read(text).c_str(), nullptr), f) << text;
    }
  }
}

TEST(StatementPrinterTest, IntegersHaveTheirType) {
  const struct {
    int64_t value;
    DType type;
    const char* text;
  } cases[] = {
      {5, DType::kI64, "5ll"},
      {-5, DType::kI64, "(-5ll)"},
      {std::numeric_limits<int64_t>::min(), DType::kI64, "(-9223372036854775807ll - 1)"},
      {std::numeric_limits<int64_t>::max(), DType::kI64, "9223372036854775807ll"},
      {7, DType::kI32, "7"},
      {-7, DType::kI32, "(-7)"},
      {std::numeric_limits<int32_t>::min(), DType::kI32, "(-2147483647 - 1)"},
      {-128, DType::kI8, "(signed char)(-128)"},
      {255, DType::kU8, "(unsigned char)255"},
      {-32768, DType::kI16, "(short)(-32768)"},
      {0, DType::kBool, "false"},
      {1, DType::kBool, "true"},
  };
  for (const auto& c : cases) {
    StatementPrinter printer;
    EXPECT_EQ(printer.Constant(IntConstant(c.value, c.type)), c.text);
  }
}

TEST(StatementPrinterTest, PlainOperatorsWhereTheyMeanTheSame) {
  const std::string args[3] = {"a", "b", "c"};
  const std::string one[3] = {"a", "", ""};
  const struct {
    ScalarOp op;
    DType result;
    DType operand;
    bool unary;
    const char* text;
  } cases[] = {
      {ScalarOp::kAdd, DType::kF32, DType::kF32, false, "a + b"},
      {ScalarOp::kSub, DType::kF64, DType::kF64, false, "a - b"},
      {ScalarOp::kLt, DType::kBool, DType::kI64, false, "a < b"},
      {ScalarOp::kNeg, DType::kF32, DType::kF32, true, "-a"},
      {ScalarOp::kSelect, DType::kF32, DType::kF32, false, "a ? b : c"},
  };
  for (const auto& c : cases) {
    StatementPrinter printer;
    EXPECT_EQ(printer.Operation(Op(c.op, c.result), c.operand, c.unary ? one : args), c.text);
    EXPECT_TRUE(printer.needed().empty()) << c.text;
  }
}

TEST(StatementPrinterTest, FunctionsAreNeededFromThePrelude) {
  const std::string args[3] = {"a", "b", ""};
  const std::string one[3] = {"a", "", ""};
  StatementPrinter printer;
  // Integers wrap: C's + would overflow.
  EXPECT_EQ(printer.Operation(Op(ScalarOp::kAdd, DType::kI32), DType::kI32, args), "fl_add_i32(a, b)");
  EXPECT_EQ(printer.Operation(Op(ScalarOp::kExp, DType::kF32), DType::kF32, one), "fl_exp_f32(a)");
  EXPECT_EQ(printer.Operation(Op(ScalarOp::kIsNan, DType::kBool), DType::kF64, one), "fl_is_nan_f64(a)");
  EXPECT_EQ(printer.Operation(Op(ScalarOp::kCast, DType::kI64), DType::kF32, one), "fl_cast_f32_to_i64(a)");
  EXPECT_EQ(printer.Operation(Op(ScalarOp::kCast, DType::kF32), DType::kF32, one), "a");
  BodyInstr round = Op(ScalarOp::kRound16, DType::kF32);
  round.scalar.storage = DType::kBF16;
  EXPECT_EQ(printer.Operation(round, DType::kF64, one), "fl_round_bf16_f64(a)");
  for (const char* name : {"fl_add_i32", "fl_exp_f32", "fl_is_nan_f64", "fl_cast_f32_to_i64", "fl_round_bf16_f64"}) {
    EXPECT_THAT(printer.needed(), Contains(std::string(name)));
  }
}

TEST(StatementPrinterTest, StorageIsConvertedWhereItDiffers) {
  StatementPrinter printer;
  EXPECT_EQ(printer.FromStorage(DType::kF32, "x[i]"), "x[i]");
  EXPECT_EQ(printer.FromStorage(DType::kBF16, "x[i]"), "fl_load_bf16(x[i])");
  EXPECT_EQ(printer.ToStorage(DType::kBool, "v"), "fl_store_bool(v)");
  EXPECT_STREQ(StorageTypeName(DType::kBool), "unsigned char");
  EXPECT_STREQ(ComputeTypeName(DType::kF16), "float");
}

TEST(StatementPrinterTest, IdentitiesChangeNothing) {
  const struct {
    ReductionKind kind;
    DType type;
    const char* text;
  } cases[] = {
      {ReductionKind::kSum, DType::kF32, "0.0f"},
      {ReductionKind::kSum, DType::kI64, "0ll"},
      {ReductionKind::kProd, DType::kF64, "1.0"},
      {ReductionKind::kProd, DType::kI64, "1ll"},
      {ReductionKind::kAmax, DType::kF32, "(-FL_INF_F32)"},
      {ReductionKind::kAmin, DType::kF32, "FL_INF_F32"},
      {ReductionKind::kAmax, DType::kI32, "(-2147483647 - 1)"},
      {ReductionKind::kAmin, DType::kU8, "(unsigned char)255"},
      {ReductionKind::kAmax, DType::kU8, "(unsigned char)0"},
      {ReductionKind::kArgmax, DType::kI64, "(-9223372036854775807ll - 1)"},
      {ReductionKind::kAny, DType::kBool, "false"},
      {ReductionKind::kAll, DType::kBool, "true"},
  };
  for (const auto& c : cases) {
    StatementPrinter printer;
    EXPECT_EQ(printer.Identity(c.kind, c.type), c.text);
  }
}

TEST(StatementPrinterTest, AccumulatorsCombine) {
  StatementPrinter printer;
  EXPECT_EQ(printer.Combine(ReductionKind::kSum, DType::kF32, "a", "b"), "a + b");
  EXPECT_EQ(printer.Combine(ReductionKind::kSum, DType::kI64, "a", "b"), "fl_add_i64(a, b)");
  EXPECT_EQ(printer.Combine(ReductionKind::kAmax, DType::kF32, "a", "b"), "fl_maximum_f32(a, b)");
  EXPECT_EQ(printer.Combine(ReductionKind::kAll, DType::kBool, "a", "b"), "fl_logical_and_bool(a, b)");
  EXPECT_EQ(printer.Better(ReductionKind::kArgmin, DType::kF32, "a", "i", "b", "j"), "fl_better_min_f32(a, i, b, j)");
}

}  // namespace
}  // namespace fuseline::codegen
