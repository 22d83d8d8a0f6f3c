#include "common/ir/op_table.h"

#include <limits>
#include <set>
#include <string>

#include "common/ir/ops/type_rules.h"
#include "common/ir/scalar_expr.h"
#include "gtest/gtest.h"
#include "tests/testing/status_matchers.h"
#include "tests/unit/reference/pointwise_samples.h"

namespace fuseline {
namespace {

TEST(OpTableTest, NamesAreSortedAndUnique) {
  const auto& rows = AllOps();
  ASSERT_FALSE(rows.empty());
  for (size_t k = 1; k < rows.size(); ++k) EXPECT_LT(std::string(rows[k - 1]->name), std::string(rows[k]->name));
}

TEST(OpTableTest, EachRowIsFoundByItsName) {
  for (const OpDef* row : AllOps()) EXPECT_EQ(FindOp(row->name), row) << row->name;
}

TEST(OpTableTest, UnknownNamesAreNotFound) {
  EXPECT_EQ(FindOp("no_such_op"), nullptr);
  EXPECT_EQ(FindOp(""), nullptr);
}

TEST(OpTableTest, EveryOpOfTheDocumentIsKnown) {
  for (const char* name : {"abs",
                           "neg",
                           "sign",
                           "ceil",
                           "floor",
                           "round",
                           "trunc",
                           "sqrt",
                           "rsqrt",
                           "reciprocal",
                           "square",
                           "exp",
                           "exp2",
                           "expm1",
                           "log",
                           "log2",
                           "log10",
                           "log1p",
                           "sin",
                           "cos",
                           "tan",
                           "asin",
                           "acos",
                           "atan",
                           "sinh",
                           "cosh",
                           "tanh",
                           "asinh",
                           "acosh",
                           "atanh",
                           "erf",
                           "erfc",
                           "lgamma",
                           "sigmoid",
                           "log_sigmoid",
                           "relu",
                           "relu6",
                           "silu",
                           "mish",
                           "softsign",
                           "logical_not",
                           "bitwise_not",
                           "isnan",
                           "isinf",
                           "isfinite",
                           "gelu",
                           "elu",
                           "celu",
                           "selu",
                           "leaky_relu",
                           "softplus",
                           "hardtanh",
                           "hardsigmoid",
                           "hardswish",
                           "clamp",
                           "threshold",
                           "cast",
                           "bitcast",
                           "add",
                           "sub",
                           "mul",
                           "div",
                           "floor_divide",
                           "trunc_divide",
                           "remainder",
                           "fmod",
                           "pow",
                           "maximum",
                           "minimum",
                           "fmax",
                           "fmin",
                           "atan2",
                           "hypot",
                           "copysign",
                           "nextafter",
                           "bitwise_and",
                           "bitwise_or",
                           "bitwise_xor",
                           "shift_left",
                           "shift_right",
                           "logical_and",
                           "logical_or",
                           "logical_xor",
                           "eq",
                           "ne",
                           "lt",
                           "le",
                           "gt",
                           "ge",
                           "where",
                           "lerp",
                           "addcmul",
                           "addcdiv",
                           "clamp_tensor",
                           "full",
                           "iota",
                           "rand",
                           "randn",
                           "constant",
                           "reshape",
                           "permute",
                           "transpose",
                           "broadcast_to",
                           "squeeze",
                           "unsqueeze",
                           "slice",
                           "flip",
                           "pad",
                           "concat",
                           "stack",
                           "tile",
                           "repeat_interleave",
                           "roll",
                           "diagonal",
                           "tril",
                           "triu",
                           "gather",
                           "index_select",
                           "embedding",
                           "take_along_dim",
                           "scatter",
                           "scatter_add",
                           "index_add",
                           "one_hot",
                           "sum",
                           "mean",
                           "prod",
                           "amax",
                           "amin",
                           "any",
                           "all",
                           "argmax",
                           "argmin",
                           "var",
                           "std",
                           "var_mean",
                           "logsumexp",
                           "norm",
                           "cumsum",
                           "cumprod",
                           "cummax",
                           "sort",
                           "topk",
                           "softmax",
                           "log_softmax",
                           "layer_norm",
                           "rms_norm",
                           "group_norm",
                           "batch_norm",
                           "batch_norm_train",
                           "cross_entropy",
                           "mse_loss",
                           "glu",
                           "dropout",
                           "matmul",
                           "linear",
                           "einsum",
                           "conv",
                           "attention",
                           "max_pool",
                           "avg_pool"}) {
    EXPECT_NE(FindOp(name), nullptr) << name;
  }
}

TEST(OpTableTest, EachRowHasWhatItsKindNeeds) {
  for (const OpDef* row : AllOps()) {
    SCOPED_TRACE(row->name);
    EXPECT_NE(row->infer, nullptr);
    EXPECT_EQ(row->scalar != nullptr, row->kind == OpKind::kPointwise);
    EXPECT_EQ(row->reference_float != nullptr || row->reference_int != nullptr, row->kind == OpKind::kPointwise);
    EXPECT_EQ(row->reduction != ReductionKind::kNone, row->kind == OpKind::kReduction);
    EXPECT_EQ(row->decompose != nullptr, row->kind == OpKind::kComposite);
    if (row->max_operands >= 0) {  // -1: any number
      EXPECT_LE(row->min_operands, row->max_operands);
    }
    EXPECT_EQ(row->max_operands == 0, row->kind == OpKind::kCreation);
    EXPECT_GE(row->results, 1);
    std::set<std::string> names;
    for (const AttrSpec& spec : row->attrs) {
      EXPECT_TRUE(names.insert(spec.name).second) << spec.name;
      EXPECT_FALSE(spec.required && spec.default_value.has_value()) << spec.name;
    }
  }
}

TEST(OpTableTest, EachPointwiseRowTakesSomeDTypeAndRefusesF8Arithmetic) {
  for (const OpDef* row : AllOps()) {
    if (row->kind != OpKind::kPointwise) continue;
    SCOPED_TRACE(row->name);
    bool taken = false;
    for (const AttrMap& attrs : SampleAttrs(*row)) {
      for (int d = 1; d < kDTypeCount; ++d) {
        const DType dtype = static_cast<DType>(d);
        const auto graph = SampleGraph(*row, dtype, attrs);
        taken = taken || graph.ok();
        const std::string name = row->name;
        const bool moves_only = name == "cast" || name == "bitcast";
        EXPECT_FALSE(graph.ok() && IsF8(dtype) && !moves_only) << DTypeName(dtype);
      }
    }
    EXPECT_TRUE(taken);
  }
}

// The rule has a reference for every dtype that it takes, and its expression has the result's compute dtype.
TEST(OpTableTest, EachScalarRuleBuildsForEveryDTypeItTakes) {
  for (const OpDef* row : AllOps()) {
    if (row->kind != OpKind::kPointwise) continue;
    for (const AttrMap& attrs : SampleAttrs(*row)) {
      for (int d = 1; d < kDTypeCount; ++d) {
        const DType dtype = static_cast<DType>(d);
        const auto graph = SampleGraph(*row, dtype, attrs);
        if (!graph.ok()) continue;
        SCOPED_TRACE(std::string(row->name) + " of " + std::string(DTypeName(dtype)));
        const Node& node = graph->nodes[0];
        ScalarBuilder builder;
        ScalarArgs args;
        args.builder = &builder;
        args.attrs = &node.attrs;
        args.result_storage = graph->type(node.results[0]).dtype;
        for (size_t k = 0; k < node.operands.size(); ++k) {
          const DType storage = graph->type(node.operands[k].value).dtype;
          args.operand_storage.push_back(storage);
          args.operands.push_back(builder.Input(static_cast<int>(k), ComputeDType(storage)));
        }
        const Scalar out = row->scalar(args);
        EXPECT_EQ(out.type(), ComputeDType(args.result_storage));
        for (size_t k = 0; k < builder.instrs().size(); ++k) {
          const ScalarInstr& instr = builder.instrs()[k];
          EXPECT_EQ(instr.type, ComputeDType(instr.type)) << ScalarOpName(instr.op);
          for (int32_t arg : instr.args) EXPECT_LT(arg, static_cast<int32_t>(k));
        }
        EXPECT_NE(IsFloat(dtype) ? row->reference_float != nullptr : row->reference_int != nullptr, false);
      }
    }
  }
}

struct SliceCase {
  int64_t start, end, step, size;
  int64_t want_start, want_count;
};

TEST(OpTableTest, SlicesAreClampedAsPythonDoes) {
  constexpr int64_t kMin = std::numeric_limits<int64_t>::min(), kMax = std::numeric_limits<int64_t>::max();
  const SliceCase cases[] = {
      {0, 5, 1, 5, 0, 5},       {-3, -1, 1, 5, 2, 2},      {1, kMax, 2, 6, 1, 3},        {kMin, kMax, 1, 4, 0, 4},
      {-1, kMin, -1, 4, 3, 4},  {kMax, kMin, -3, 7, 6, 3}, {3, 3, 1, 5, 3, 0},           {4, 1, 1, 5, 4, 0},
      {0, kMax, kMax, 9, 0, 1}, {8, kMin, kMin, 9, 8, 1},  {0, kMax, 1, 0, 0, 0},        {-1, kMin, -1, 0, -1, 0},
      {1, 4, -1, 5, 1, 0},      {5, 9, 1, 5, 5, 0},        {kMin, kMin + 1, 1, 5, 0, 0},
  };
  for (const SliceCase& c : cases) {
    const ops::SliceRange range = ops::ClampSlice(c.start, c.end, c.step, c.size);
    EXPECT_EQ(range.count, c.want_count) << c.start << ":" << c.end << ":" << c.step << " of " << c.size;
    EXPECT_EQ(range.start, c.want_start) << c.start << ":" << c.end << ":" << c.step << " of " << c.size;
  }
}

struct RefusedCase {
  const char* op;
  DType dtype;
  AttrMap attrs;
  const char* message;
};

TEST(OpTableTest, TypeRulesRefuseWhatTheDocumentRefuses) {
  const RefusedCase cases[] = {
      {"div", DType::kI32, {}, "not i32"},
      {"exp", DType::kI64, {}, "not i64"},
      {"add", DType::kBool, {}, "not bool"},
      {"add", DType::kF8E4M3, {}, "not f8e4m3"},
      {"nextafter", DType::kBF16, {}, "takes f64 and f32"},
      {"bitwise_and", DType::kF32, {}, "not f32"},
      {"clamp", DType::kU8, {{"min", int64_t{-1}}}, "attribute 'min'"},
      {"clamp", DType::kI32, {{"max", 0.5}}, "attribute 'max'"},
      {"gelu", DType::kF32, {{"approximate", std::string("fast")}}, "approximate"},
      {"celu", DType::kF32, {{"alpha", 0.0}}, "alpha"},
      {"bitcast", DType::kF32, {{"dtype", DType::kI64}}, "differ in size"},
      {"bitcast", DType::kU8, {{"dtype", DType::kBool}}, "bool"},
  };
  for (const RefusedCase& c : cases) {
    EXPECT_THAT(SampleGraph(*FindOp(c.op), c.dtype, c.attrs),
                testing::StatusIs(absl::StatusCode::kInvalidArgument, c.message))
        << c.op;
  }
}

}  // namespace
}  // namespace fuseline
