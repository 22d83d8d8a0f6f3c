#include "server/reference/reference_interpreter.h"

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/ir/graph_builder.h"
#include "common/ir/text_form.h"
#include "gtest/gtest.h"
#include "tests/testing/status_matchers.h"

namespace fuseline {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

Tensor Make(DType dtype, Shape shape, const std::vector<double>& values) {
  Tensor t = Tensor::Allocate(dtype, std::move(shape));
  for (size_t i = 0; i < values.size(); ++i) t.SetDouble(static_cast<int64_t>(i), values[i]);
  return t;
}

std::vector<double> Values(const Tensor& t) {
  std::vector<double> values;
  for (int64_t i = 0; i < t.element_count(); ++i) values.push_back(t.GetDouble(i));
  return values;
}

absl::StatusOr<std::vector<Tensor>> RunText(const std::string& text, const std::vector<Tensor>& inputs,
                                            Numerics numerics = Numerics::kFused) {
  absl::StatusOr<Graph> graph = ParseGraph(text);
  if (!graph.ok()) return graph.status();
  CompileOptions options;
  options.numerics = numerics;
  return reference::Interpret(*graph, inputs, options);
}

struct OpCase {
  const char* statement;  // of x (and y), giving %r
  Tensor x;
  std::vector<double> want;
  Shape shape;
};

void ExpectValues(const std::vector<double>& got, const std::vector<double>& want, const std::string& what) {
  ASSERT_EQ(got.size(), want.size()) << what;
  for (size_t i = 0; i < got.size(); ++i) {
    if (std::isnan(want[i])) {
      EXPECT_TRUE(std::isnan(got[i])) << what << " at " << i << ": " << got[i];
    } else {
      EXPECT_EQ(got[i], want[i]) << what << " at " << i;
      EXPECT_EQ(std::signbit(got[i]), std::signbit(want[i])) << what << " at " << i;
    }
  }
}

TEST(ReferenceInterpreterTest, OpsGiveTheirDefinitions) {
  const Tensor m = Make(DType::kF32, {2, 3}, {1, 2, 3, 4, 5, 6});
  const Tensor s = Make(DType::kF32, {5}, {-0.0, kNan, kInf, -kInf, 2});
  const OpCase cases[] = {
      {"permute(x) {dims = [1, 0]}", m, {1, 4, 2, 5, 3, 6}, {3, 2}},
      {"transpose(x) {dim0 = -1, dim1 = 0}", m, {1, 4, 2, 5, 3, 6}, {3, 2}},
      {"flip(x) {dims = [-1]}", m, {3, 2, 1, 6, 5, 4}, {2, 3}},
      {"flip(x)", m, {6, 5, 4, 3, 2, 1}, {2, 3}},
      {"slice(x) {starts = [-1], ends = [-4], steps = [-2], dims = [1]}", m, {3, 1, 6, 4}, {2, 2}},
      {"slice(x) {starts = [1, 0], ends = [9, 2]}", m, {4, 5}, {1, 2}},
      {"slice(x) {starts = [2], ends = [1], dims = [1]}", m, {}, {2, 0}},
      {"reshape(x) {shape = [3, -1]}", m, {1, 2, 3, 4, 5, 6}, {3, 2}},
      {"unsqueeze(x) {dim = -1}", m, {1, 2, 3, 4, 5, 6}, {2, 3, 1}},
      {"broadcast_to(x) {shape = [2, 2, 3]}", m, {1, 2, 3, 4, 5, 6, 1, 2, 3, 4, 5, 6}, {2, 2, 3}},
      {"tile(x) {repeats = [2, 1]}", m, {1, 2, 3, 4, 5, 6, 1, 2, 3, 4, 5, 6}, {4, 3}},
      {"repeat_interleave(x) {repeats = 2, dim = 0}", m, {1, 2, 3, 1, 2, 3, 4, 5, 6, 4, 5, 6}, {4, 3}},
      {"roll(x) {shifts = [1], dims = [1]}", m, {3, 1, 2, 6, 4, 5}, {2, 3}},
      {"roll(x) {shifts = [-1]}", m, {2, 3, 4, 5, 6, 1}, {2, 3}},
      {"diagonal(x) {offset = 1}", m, {2, 6}, {2}},
      {"diagonal(x) {dim0 = 1, dim1 = 0, offset = -1}", m, {2, 6}, {2}},
      {"pad(x) {low = [0, 1], high = [1, -1], value = 9}", m, {9, 1, 2, 9, 4, 5, 9, 9, 9}, {3, 3}},
      {"pad(x) {low = [0, 2], high = [0, 1], mode = \"reflect\"}", m, {3, 2, 1, 2, 3, 2, 6, 5, 4, 5, 6, 5}, {2, 6}},
      {"pad(x) {low = [0, 2], high = [0, 1], mode = \"edge\"}", m, {1, 1, 1, 2, 3, 3, 4, 4, 4, 5, 6, 6}, {2, 6}},
      {"pad(x) {low = [0, 2], high = [0, 1], mode = \"wrap\"}", m, {2, 3, 1, 2, 3, 1, 5, 6, 4, 5, 6, 4}, {2, 6}},
      {"concat(x, x) {dim = 1}", m, {1, 2, 3, 1, 2, 3, 4, 5, 6, 4, 5, 6}, {2, 6}},
      {"stack(x, x) {dim = 2}", m, {1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6}, {2, 3, 2}},
      {"tril(x) {diagonal = 1}", m, {1, 2, 0, 4, 5, 6}, {2, 3}},
      {"triu(x)", m, {1, 2, 3, 0, 5, 6}, {2, 3}},
      {"one_hot(x) {classes = 3, dtype = f32}", Make(DType::kI64, {2}, {2, -3}), {0, 0, 1, 1, 0, 0}, {2, 3}},
      {"glu(x) {dim = 0}", Make(DType::kF32, {4, 1}, {2, 6, 0, kInf}), {1, 6}, {2, 1}},
      {"instance_norm(x) {eps = 0.0}", Make(DType::kF32, {1, 2, 2}, {1, 3, 10, 10.5}), {-1, 1, -1, 1}, {1, 2, 2}},
      {"sum(x) {dims = [0]}", m, {5, 7, 9}, {3}},
      {"sum(x) {dims = [1], keepdim = true}", m, {6, 15}, {2, 1}},
      {"sum(x) {dims = []}", m, {1, 2, 3, 4, 5, 6}, {2, 3}},
      {"prod(x)", m, {720}, {}},
      {"mean(x) {dims = [-1]}", m, {2, 5}, {2}},
      {"var(x) {dims = [1], correction = 0}", m, {2.0f / 3.0f, 2.0f / 3.0f}, {2}},
      {"std(x) {dims = [1]}", m, {1, 1}, {2}},
      {"argmax(x)", m, {5}, {}},
      {"argmin(x) {dim = 0, keepdim = true}", m, {0, 0, 0}, {1, 3}},
      {"norm(x) {p = 1.0, dims = [1]}", m, {6, 15}, {2}},
      {"norm(x) {p = inf, dims = [0]}", m, {4, 5, 6}, {3}},
      {"norm(x) {p = 0.0}", s, {kNan}, {}},
      {"amax(x)", s, {kNan}, {}},
      {"argmax(x)", s, {1}, {}},
      {"argmin(x)", s, {1}, {}},
      {"any(x)", s, {1}, {}},
      {"all(x)", s, {0}, {}},
      {"relu(x)", s, {0.0, kNan, kInf, 0.0, 2}, {5}},
      {"silu(x)", s, {-0.0, kNan, kInf, 0.0, static_cast<float>(2 / (1 + std::exp(-2.0)))}, {5}},
      {"isnan(x)", s, {0, 1, 0, 0, 0}, {5}},
      {"logical_not(x)", s, {1, 0, 0, 0, 0}, {5}},
      {"cast(x) {dtype = i32}", s, {0, 0, 2147483647, -2147483648.0, 2}, {5}},
      {"cast(x) {dtype = bool}", s, {0, 1, 1, 1, 1}, {5}},
      {"bitcast(x) {dtype = i32}", Make(DType::kF32, {2}, {1, -0.0}), {0x3f800000, -2147483648.0}, {2}},
      {"softmax(x) {dim = 0}", Make(DType::kF32, {2}, {1e30, 1e30}), {0.5, 0.5}, {2}},
      {"log_softmax(x) {dim = 0}", Make(DType::kF32, {2}, {-kInf, 7}), {-kInf, 0}, {2}},
      {"softmax(x) {dim = 0}", Make(DType::kF32, {2}, {-kInf, -kInf}), {kNan, kNan}, {2}},
      {"logsumexp(x)", Make(DType::kF32, {2}, {-kInf, -kInf}), {-kInf}, {}},
      {"logsumexp(x)", Make(DType::kF32, {0}, {}), {-kInf}, {}},
      {"norm(x)", Make(DType::kF32, {0}, {}), {0}, {}},
      {"mean(x)", Make(DType::kF32, {0}, {}), {kNan}, {}},
      {"var(x)", Make(DType::kF32, {1}, {3}), {kNan}, {}},
      {"norm(x)", Make(DType::kF64, {2}, {0x1.8p600, 0x1p601}), {0x1.4p601}, {}},
      {"sum(x)", Make(DType::kU8, {3}, {200, 200, 200}), {600}, {}},
      {"sum(x) {dtype = u8}", Make(DType::kU8, {3}, {200, 200, 200}), {88}, {}},
      {"sum(x)", Make(DType::kF64, {4}, {1e16, 1, 1, -1e16}), {2}, {}},
      {"amax(x)", Make(DType::kF32, {2}, {-0.0, 0.0}), {0.0}, {}},
      {"amin(x)", Make(DType::kF32, {2}, {0.0, -0.0}), {-0.0}, {}},
      {"argmax(x)", Make(DType::kF32, {2}, {-0.0, 0.0}), {0}, {}},
      {"add(x, 1)", Make(DType::kI8, {1}, {127}), {-128}, {1}},
      {"mul(x, 0.1)", Make(DType::kF16, {1}, {1}), {0.0999755859375}, {1}},
      {"iota() {shape = [2, 2], dim = 1, dtype = i64}", m, {0, 1, 0, 1}, {2, 2}},
      {"full() {shape = [2], value = true, dtype = bool}", m, {1, 1}, {2}},
  };
  for (const OpCase& c : cases) {
    const std::string text = "graph g(x: " + TensorType::Make(c.x.dtype(), c.x.shape()).ToString() +
                             ") {\n  %r = " + c.statement + "\n  return %r\n}\n";
    const auto outputs = RunText(text, {c.x});
    ASSERT_OK(outputs) << text;
    EXPECT_EQ((*outputs)[0].shape(), c.shape) << text;
    ExpectValues(Values((*outputs)[0]), c.want, c.statement);
  }
}

TEST(ReferenceInterpreterTest, OperandsBroadcast) {
  const auto outputs = RunText("graph g(a: f32[2, 1], b: f32[3]) {\n  %r = sub(a, b)\n  return %r\n}\n",
                               {Make(DType::kF32, {2, 1}, {10, 20}), Make(DType::kF32, {3}, {1, 2, 3})});
  ASSERT_OK(outputs);
  ExpectValues(Values((*outputs)[0]), {9, 8, 7, 19, 18, 17}, "sub");
}

TEST(ReferenceInterpreterTest, WhereNeverLeaksTheOtherBranch) {
  const auto outputs = RunText("graph g(c: bool[2], a: f32[2]) {\n  %r = where(c, a, 0.0)\n  return %r\n}\n",
                               {Make(DType::kBool, {2}, {1, 0}), Make(DType::kF32, {2}, {3, kNan})});
  ASSERT_OK(outputs);
  ExpectValues(Values((*outputs)[0]), {3, 0}, "where");
}

TEST(ReferenceInterpreterTest, LiteralConditionIsABool) {
  for (const char* dtype : {"i32", "f32", "bool"}) {
    const std::string text = "graph g(a: " + std::string(dtype) + "[1], b: " + dtype +
                             "[1]) {\n  %r = where(true, a, b)\n  %s = where(false, a, b)\n  return %r, %s\n}\n";
    const Tensor a = Make(*ParseDType(dtype), {1}, {1});
    const Tensor b = Make(*ParseDType(dtype), {1}, {0});
    const auto outputs = RunText(text, {a, b});
    ASSERT_OK(outputs) << dtype;
    ExpectValues(Values((*outputs)[0]), {1}, dtype);
    ExpectValues(Values((*outputs)[1]), {0}, dtype);
  }
}

constexpr char kHalfChain[] = "graph g(x: f16[1]) {\n  %a = add(x, 0.5)\n  %b = sub(%a, x)\n  return y = %b\n}\n";
constexpr char kHalfChainStored[] =
    "graph g(x: f16[1]) {\n  %a = add(x, 0.5)\n  %b = sub(%a, x)\n  return y = %b, a = %a\n}\n";

TEST(ReferenceInterpreterTest, FusedKeepsHalvesInF32UntilTheyAreStored) {
  const Tensor x = Make(DType::kF16, {1}, {2048});
  auto fused = RunText(kHalfChain, {x}, Numerics::kFused);
  ASSERT_OK(fused);
  EXPECT_EQ((*fused)[0].GetDouble(0), 0.5);
  auto eager = RunText(kHalfChain, {x}, Numerics::kEager);
  ASSERT_OK(eager);
  EXPECT_EQ((*eager)[0].GetDouble(0), 0);
  auto stored = RunText(kHalfChainStored, {x}, Numerics::kFused);
  ASSERT_OK(stored);
  EXPECT_EQ((*stored)[0].GetDouble(0), 0);  // %a is returned, so %b sees it rounded
}

TEST(ReferenceInterpreterTest, CastsSeeTheirOperandRounded) {
  const auto outputs =
      RunText("graph g(x: f16[1]) {\n  %a = add(x, 0.5)\n  %c = cast(%a) {dtype = f32}\n  return y = %c\n}\n",
              {Make(DType::kF16, {1}, {2048})});
  ASSERT_OK(outputs);
  EXPECT_EQ((*outputs)[0].GetDouble(0), 2048);
}

TEST(ReferenceInterpreterTest, ViewsOfHugeBroadcastsTakeNoMemory) {
  const auto outputs = RunText(
      "graph g(x: f32[1]) {\n  %b = broadcast_to(x) {shape = [1099511627776]}\n"
      "  %s = slice(%b) {starts = [-2], ends = [1099511627776]}\n  return %s\n}\n",
      {Make(DType::kF32, {1}, {3})});
  ASSERT_OK(outputs);
  ExpectValues(Values((*outputs)[0]), {3, 3}, "slice");
}

TEST(ReferenceInterpreterTest, InputsThatDoNotFitAreRefused) {
  const char* text = "graph g(x: f32[2]) {\n  %r = neg(x)\n  return %r\n}\n";
  EXPECT_THAT(RunText(text, {}), testing::StatusIs(absl::StatusCode::kInvalidArgument, "1 inputs, not 0"));
  EXPECT_THAT(RunText(text, {Make(DType::kF32, {3}, {1, 2, 3})}),
              testing::StatusIs(absl::StatusCode::kInvalidArgument, "input 'x'"));
  EXPECT_THAT(RunText(text, {Make(DType::kF64, {2}, {1, 2})}),
              testing::StatusIs(absl::StatusCode::kInvalidArgument, "f64[2]"));
}

TEST(ReferenceInterpreterTest, InputsAndRepeatedValuesMayBeReturned) {
  const auto outputs = RunText("graph g(x: f32[1]) {\n  %r = neg(x)\n  return a = x, b = %r, c = %r\n}\n",
                               {Make(DType::kF32, {1}, {2})});
  ASSERT_OK(outputs);
  EXPECT_EQ((*outputs)[0].GetDouble(0), 2);
  EXPECT_EQ((*outputs)[1].GetDouble(0), -2);
  EXPECT_EQ((*outputs)[2].GetDouble(0), -2);
}

// Each composite by its definition and by its decomposition.
struct CompositeCase {
  const char* op;
  std::vector<Shape> operands;
  AttrMap attrs;
};

void CheckDecomposition(const CompositeCase& c, DType dtype, Numerics numerics, double tolerance) {
  const OpDef* def = FindOp(c.op);
  ASSERT_NE(def, nullptr);
  GraphBuilder whole("whole"), parts("parts");
  std::vector<Operand> operands;
  std::vector<ValueId> part_operands;
  std::vector<Tensor> inputs;
  for (size_t k = 0; k < c.operands.size(); ++k) {
    const TensorType type = TensorType::Make(dtype, c.operands[k]);
    operands.push_back(GraphBuilder::Value(*whole.AddInput(absl::StrCat("x", k), type)));
    part_operands.push_back(*parts.AddInput(absl::StrCat("x", k), type));
    Tensor input = Tensor::Allocate(dtype, c.operands[k]);
    for (int64_t i = 0; i < input.element_count(); ++i) {
      input.SetDouble(i, 0.25 + std::fabs(std::sin(1.7 * static_cast<double>(i + 31 * static_cast<int64_t>(k)))) * 3);
    }
    inputs.push_back(input);
  }
  const auto results = whole.AddNode(c.op, operands, c.attrs);
  ASSERT_OK(results);
  for (ValueId id : *results) ASSERT_OK(whole.AddOutput(absl::StrCat("y", id), id));
  const Graph direct = whole.Build();
  const auto part_results = def->decompose(parts, direct.nodes[0], part_operands);
  ASSERT_OK(part_results);
  ASSERT_EQ(part_results->size(), results->size());
  for (size_t k = 0; k < part_results->size(); ++k)
    ASSERT_OK(parts.AddOutput(absl::StrCat("y", k), (*part_results)[k]));
  const Graph decomposed = parts.Build();
  CompileOptions options;
  options.numerics = numerics;
  const auto want = reference::Interpret(direct, inputs, options);
  const auto got = reference::Interpret(decomposed, inputs, options);
  ASSERT_OK(want);
  ASSERT_OK(got);
  for (size_t k = 0; k < want->size(); ++k) {
    ASSERT_EQ((*got)[k].shape(), (*want)[k].shape());
    ASSERT_EQ((*got)[k].dtype(), (*want)[k].dtype());
    for (int64_t i = 0; i < (*want)[k].element_count(); ++i) {
      const double w = (*want)[k].GetDouble(i), g = (*got)[k].GetDouble(i);
      if (std::isnan(w)) {
        EXPECT_TRUE(std::isnan(g)) << g;
      } else if (std::isinf(w)) {
        EXPECT_EQ(g, w);
      } else {
        EXPECT_NEAR(g, w, tolerance * (1 + std::fabs(w)));
      }
    }
  }
}

TEST(ReferenceInterpreterTest, DecompositionsAgreeWithDefinitions) {
  const std::vector<int64_t> d1 = {1}, d02 = {0, 2}, none = {};
  const CompositeCase cases[] = {
      {"mean", {{3, 4}}, {}},
      {"mean", {{3, 4}}, {{"dims", d1}, {"keepdim", true}}},
      {"mean", {{3, 0}}, {{"dims", d1}}},
      {"mean", {{3, 4}}, {{"dims", none}}},
      {"var", {{3, 4}}, {{"dims", d1}}},
      {"var", {{3, 1}}, {{"dims", d1}}},
      {"std", {{3, 4, 5}}, {{"dims", d02}, {"correction", int64_t{0}}}},
      {"logsumexp", {{3, 4, 5}}, {{"dims", d02}}},
      {"logsumexp", {{3, 0}}, {{"dims", d1}, {"keepdim", true}}},
      {"norm", {{3, 4}}, {}},
      {"norm", {{3, 4}}, {{"p", 1.0}, {"dims", d1}}},
      {"norm", {{3, 4}}, {{"p", 0.0}, {"dims", d1}, {"keepdim", true}}},
      {"norm", {{3, 4}}, {{"p", 3.0}, {"dims", d1}}},
      {"norm", {{3, 4}}, {{"p", -2.0}, {"dims", d1}}},
      {"norm", {{3, 4}}, {{"p", kInf}, {"dims", d1}}},
      {"norm", {{3, 4}}, {{"p", -kInf}, {"dims", d1}}},
      {"norm", {{3, 0}}, {{"dims", d1}}},
      {"softmax", {{3, 4}}, {{"dim", int64_t{0}}}},
      {"softmax", {{3, 0}}, {{"dim", int64_t{1}}}},
      {"log_softmax", {{3, 4}}, {{"dim", int64_t{-1}}}},
      {"layer_norm", {{3, 4, 5}}, {{"dims", d1}}},
      {"layer_norm", {{3, 4, 5}, {3, 5}}, {{"dims", d02}}},
      {"layer_norm", {{3, 4, 5}, {3, 5}, {3, 5}}, {{"dims", d02}, {"eps", 0.1}}},
      {"rms_norm", {{3, 4}, {4}}, {{"dims", d1}}},
      {"group_norm", {{2, 6, 5}, {6}, {6}}, {{"groups", int64_t{3}}}},
      {"group_norm", {{2, 6}}, {{"groups", int64_t{2}}}},
      {"batch_norm", {{2, 3, 4}, {3}, {3}}, {}},
      {"batch_norm", {{2, 3, 4}, {3}, {3}, {3}, {3}}, {{"eps", 1e-3}}},
      {"batch_norm_train", {{2, 3, 4}, {3}, {3}}, {}},
      {"mse_loss", {{3, 4}, {4}}, {}},
      {"mse_loss", {{3, 4}, {3, 4}}, {{"reduction", std::string("sum")}}},
      {"mse_loss", {{3, 1}, {3, 4}}, {{"reduction", std::string("none")}}},
  };
  for (const CompositeCase& c : cases) {
    SCOPED_TRACE(c.op);
    CheckDecomposition(c, DType::kF64, Numerics::kFused, 1e-13);
    CheckDecomposition(c, DType::kF32, Numerics::kFused, 1e-5);
    CheckDecomposition(c, DType::kF16, Numerics::kFused, 1e-3);
    CheckDecomposition(c, DType::kBF16, Numerics::kEager, 8e-3);
  }
}

}  // namespace
}  // namespace fuseline
