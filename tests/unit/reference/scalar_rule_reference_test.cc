// Each pointwise row's scalar expression against its reference function, over special and random values.
#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <string>

#include "common/ir/op_table.h"
#include "common/ir/scalar_expr.h"
#include "common/tensor/tensor.h"
#include "gtest/gtest.h"
#include "tests/unit/reference/pointwise_samples.h"
#include "tests/unit/reference/scalar_evaluator.h"

namespace fuseline {
namespace {

// In units of the last place of the reference's result. The expression's own roundings are what differs: its primitives
// are exact here.
double UlpsAllowed(const std::string& op, double x) {
  static const std::map<std::string, double> kUlps = {
      {"mish", 8}, {"celu", 4}, {"hardsigmoid", 4}, {"lerp", 4}, {"floor_divide", 1}};
  // The argument's rounding grows with its square in erfc, and with its magnitude in exp of a cubic.
  if (op == "gelu") return 8 + (x < 0 ? 4 * x * x : 0);
  const auto it = kUlps.find(op);
  return it == kUlps.end() ? 3 : it->second;
}

// The magnitude that the error is relative to: the result's, or that of the largest term of a sum that may cancel.
double Scale(const std::string& op, const double* f, double value, double result) {
  double scale = std::fabs(result);
  if (op == "addcmul") scale = std::max({scale, std::fabs(f[0]), std::fabs(value * f[1] * f[2])});
  if (op == "addcdiv") scale = std::max({scale, std::fabs(f[0]), std::fabs(value * (f[1] / f[2]))});
  if (op == "lerp") scale = std::max({scale, std::fabs(f[0]), std::fabs(f[1]), std::fabs(f[2] * (f[1] - f[0]))});
  return scale;
}

// What a product with a subnormal factor may lose: the factor's own rounding, times the other factor.
double Floor(const std::string& op, DType dtype) {
  const bool is_product = op == "silu" || op == "mish" || op == "gelu";
  return is_product ? 512 * (dtype == DType::kF64 ? std::numeric_limits<double>::denorm_min() : 1.401298464324817e-45)
                    : 0;
}

double Ulp(DType dtype, double value) {
  const double magnitude = std::fabs(value);
  if (dtype == DType::kF64) return std::nextafter(magnitude, INFINITY) - magnitude;
  const float narrow = static_cast<float>(magnitude);
  return static_cast<double>(std::nextafterf(narrow, INFINITY)) - narrow;
}

struct Row {
  const OpDef* def;
  Graph graph;
  DType dtype;  // of the operands (`where`: of the values)
  DType result;
  ScalarBuilder builder;
  Scalar out;
  AttrMap attrs;  // as the interpreter hands them to the reference
};

bool MakeRow(const OpDef& def, DType dtype, const AttrMap& attrs, Row& row) {
  auto graph = SampleGraph(def, dtype, attrs);
  if (!graph.ok()) return false;
  row.def = &def;
  row.graph = *std::move(graph);
  row.dtype = dtype;
  const Node& node = row.graph.nodes[0];
  row.result = row.graph.type(node.results[0]).dtype;
  ScalarArgs args;
  args.builder = &row.builder;
  args.attrs = &node.attrs;
  args.result_storage = row.result;
  for (size_t k = 0; k < node.operands.size(); ++k) {
    const DType storage = row.graph.type(node.operands[k].value).dtype;
    args.operand_storage.push_back(storage);
    args.operands.push_back(row.builder.Input(static_cast<int>(k), ComputeDType(storage)));
  }
  row.out = def.scalar(args);
  row.attrs = node.attrs;
  for (auto& [name, value] : row.attrs) {
    double* number = std::get_if<double>(&value);
    if (number != nullptr && ComputeDType(dtype) == DType::kF32) *number = RoundToDType(DType::kF32, *number);
  }
  return true;
}

void CheckOne(const Row& row, const std::vector<ScalarValue>& operands) {
  double f[3] = {0, 0, 0};
  int64_t i[3] = {0, 0, 0};
  std::string text = row.def->name + std::string("(");
  const std::string op = row.def->name;
  const bool is_where = op == "where";
  for (size_t k = 0; k < operands.size(); ++k) {
    const bool is_float = IsFloat(row.dtype) && !(is_where && k == 0);
    f[k] = is_float ? operands[k].f : static_cast<double>(operands[k].i);
    i[k] = is_float ? 0 : operands[k].i;
    text += (k == 0 ? "" : ", ") + std::to_string(is_float ? f[k] : 0) + "/" + std::to_string(i[k]);
  }
  text += ") of " + std::string(DTypeName(row.dtype));
  ReferenceArgs args;
  args.f = f;
  args.i = i;
  args.operand_dtype = is_where ? DType::kBool : row.dtype;
  args.result_dtype = row.result;
  args.attrs = &row.attrs;
  const ScalarValue got = EvaluateScalar(row.builder.instrs(), row.out.id, operands);
  if (IsFloat(row.dtype)) {
    const double want = row.def->reference_float(args);
    if (!IsFloat(row.result)) {
      Tensor cell = Tensor::Allocate(row.result, {});
      cell.SetDouble(0, want);
      EXPECT_EQ(got.i, cell.GetInt(0)) << text;
      return;
    }
    const double rounded = RoundToDType(op == "cast" ? row.result : ComputeDType(row.result), want);
    if (std::isnan(rounded)) {
      EXPECT_TRUE(std::isnan(got.f)) << text << " gives " << got.f;
    } else if (std::isinf(rounded) || std::isinf(got.f)) {
      EXPECT_EQ(got.f, rounded) << text << ", exactly " << want;
    } else {
      const DType compute = ComputeDType(row.result);
      const double allowed =
          UlpsAllowed(op, f[0]) * Ulp(compute, Scale(op, f, args.Has("value") ? args.Number("value") : 1, rounded)) +
          Floor(op, compute);
      EXPECT_LE(std::fabs(got.f - rounded), allowed) << text << " gives " << got.f << ", not " << rounded;
    }
    return;
  }
  const int64_t want = row.def->reference_int(args);
  Tensor cell = Tensor::Allocate(row.result, {});
  cell.SetInt(0, want);
  if (IsFloat(row.result)) {
    EXPECT_EQ(got.f, cell.GetDouble(0)) << text;
  } else {
    EXPECT_EQ(got.i, cell.GetInt(0)) << text;
  }
}

std::vector<ScalarValue> Samples(DType dtype) {
  std::vector<ScalarValue> values;
  if (IsFloat(dtype)) {
    for (double v : SampleFloats(dtype)) values.push_back({v, 0});
  } else {
    for (int64_t v : SampleIntegers(dtype)) values.push_back({0, v});
  }
  return values;
}

// Operands on which the expression and the reference need not agree.
bool LeftOut(const Row& row, const std::vector<ScalarValue>& operands) {
  const std::string op = row.def->name;
  const bool divides = op == "floor_divide" || op == "trunc_divide" || op == "remainder" || op == "fmod";
  if (divides && !IsFloat(row.dtype)) return operands[1].i == 0;  // unspecified
  if (operands.size() < 3 || !IsFloat(row.dtype)) return false;
  // An intermediate value that overflows or vanishes in f32 does not in the reference's double.
  for (const ScalarValue& operand : operands) {
    const double magnitude = std::fabs(operand.f);
    if (std::isfinite(magnitude) && magnitude != 0 && (magnitude > 1e9 || magnitude < 1e-9)) return true;
  }
  return false;
}

void CheckRow(const Row& row, size_t arity) {
  const std::vector<ScalarValue> values = Samples(row.dtype);
  const bool is_where = std::string(row.def->name) == "where";
  const std::vector<ScalarValue> first = is_where ? Samples(DType::kBool) : values;
  // All pairs; triples are thinned out.
  for (size_t a = 0; a < first.size(); ++a) {
    for (size_t b = 0; b < (arity > 1 ? values.size() : 1); ++b) {
      for (size_t c = 0; c < (arity > 2 ? values.size() : 1); c += 5 + (a + b) % 7) {
        std::vector<ScalarValue> operands = {first[a]};
        if (arity > 1) operands.push_back(values[b]);
        if (arity > 2) operands.push_back(values[c]);
        if (!LeftOut(row, operands)) CheckOne(row, operands);
      }
    }
  }
}

class ScalarRuleReferenceTest : public ::testing::TestWithParam<const OpDef*> {};

TEST_P(ScalarRuleReferenceTest, ExpressionAgreesWithReference) {
  const OpDef& def = *GetParam();
  int rows = 0;
  for (const AttrMap& attrs : SampleAttrs(def)) {
    for (int d = 1; d < kDTypeCount; ++d) {
      Row row;
      if (!MakeRow(def, static_cast<DType>(d), attrs, row)) continue;
      // Bits of NaN payloads and the rounding of an operand to storage are the interpreter's and lowering's work.
      if (std::string(def.name) == "bitcast") {
        ++rows;
        continue;
      }
      CheckRow(row, static_cast<size_t>(def.min_operands));
      ++rows;
      if (HasFailure()) return;
    }
  }
  EXPECT_GT(rows, 0);
}

std::vector<const OpDef*> PointwiseRows() {
  std::vector<const OpDef*> rows;
  for (const OpDef* row : AllOps()) {
    if (row->kind == OpKind::kPointwise) rows.push_back(row);
  }
  return rows;
}

INSTANTIATE_TEST_SUITE_P(AllRows, ScalarRuleReferenceTest, ::testing::ValuesIn(PointwiseRows()),
                         [](const auto& info) { return std::string(info.param->name); });

}  // namespace
}  // namespace fuseline
