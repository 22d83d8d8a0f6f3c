// quantize and dequantize: their rows, and the reference by hand-made numbers.
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "common/ir/text_form.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/reference/reference_interpreter.h"
#include "tests/testing/status_matchers.h"

namespace fuseline {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

struct Given {
  DType dtype;
  Shape shape;
  std::vector<double> values;
};

struct QuantizationCase {
  const char* text;
  std::vector<Given> inputs;
  std::vector<double> want;
};

TEST(QuantizationTest, ReferenceGivesHandMadeNumbers) {
  const std::vector<QuantizationCase> cases = {
      // Halves to even, saturation, NaN.
      {"graph g(x: f32[8], s: f32[]) {\n  %q = quantize(x, s) {dtype = i8}\n  return y = %q\n}",
       {{DType::kF32, {8}, {0.25, 0.75, -0.25, -0.75, 100, -100, kNan, kInf}}, {DType::kF32, {}, {0.5}}},
       {0, 2, 0, -2, 127, -128, 0, 127}},
      {"graph g(x: f32[4], s: f32[], z: u8[]) {\n  %q = quantize(x, s, z) {dtype = u8}\n  return y = %q\n}",
       {{DType::kF32, {4}, {-3, 0, 3, 300}}, {DType::kF32, {}, {2}}, {DType::kU8, {}, {128}}},
       {126, 128, 130, 255}},
      {"graph g(x: f32[2, 3], s: f32[3], z: i8[3]) {\n  %q = quantize(x, s, z) {dtype = i8, axis = -1}\n"
       "  return y = %q\n}",
       {{DType::kF32, {2, 3}, {1, 2, 3, 4, 5, 6}}, {DType::kF32, {3}, {1, 0.5, 2}}, {DType::kI8, {3}, {0, 10, -1}}},
       {1, 14, 1, 4, 20, 2}},
      {"graph g(x: f64[2], s: f64[], z: i32[]) {\n  %q = quantize(x, s, z) {dtype = i32}\n  return y = %q\n}",
       {{DType::kF64, {2}, {16777217, -3e9}}, {DType::kF64, {}, {1}}, {DType::kI32, {}, {5}}},
       {16777222, -2147483648.0}},
      {"graph g(x: bf16[3], s: bf16[]) {\n  %q = quantize(x, s) {dtype = f8e4m3}\n  return y = %q\n}",
       {{DType::kBF16, {3}, {1, -3, 1e6}}, {DType::kBF16, {}, {2}}},
       {0.5, -1.5, 448}},
      {"graph g(q: u8[3], s: f32[], z: u8[]) {\n  %x = dequantize(q, s, z)\n  return y = %x\n}",
       {{DType::kU8, {3}, {0, 128, 255}}, {DType::kF32, {}, {0.5}}, {DType::kU8, {}, {128}}},
       {-64, 0, 63.5}},
      {"graph g(q: i8[2, 2], s: f16[2]) {\n  %x = dequantize(q, s) {axis = 0, dtype = f32}\n  return y = %x\n}",
       {{DType::kI8, {2, 2}, {1, 2, 3, 4}}, {DType::kF16, {2}, {0.5, 3}}},
       {0.5, 1, 9, 12}},
      // The difference of i32 is exact before it is rounded to f32.
      {"graph g(q: i32[2], s: f32[], z: i32[]) {\n  %x = dequantize(q, s, z)\n  return y = %x\n}",
       {{DType::kI32, {2}, {2147483647.0, -2147483648.0}}, {DType::kF32, {}, {1}}, {DType::kI32, {}, {2147483646.0}}},
       {1, -4294967296.0}},
      {"graph g(q: f8e5m2[2], s: f32[]) {\n  %x = dequantize(q, s)\n  return y = %x\n}",
       {{DType::kF8E5M2, {2}, {1.5, -4}}, {DType::kF32, {}, {2}}},
       {3, -8}},
  };
  for (const QuantizationCase& c : cases) {
    const absl::StatusOr<Graph> graph = ParseGraph(c.text);
    ASSERT_OK(graph.status()) << c.text;
    std::vector<Tensor> inputs;
    for (const Given& given : c.inputs) {
      Tensor tensor = Tensor::Allocate(given.dtype, given.shape);
      for (size_t i = 0; i < given.values.size(); ++i) tensor.SetDouble(static_cast<int64_t>(i), given.values[i]);
      inputs.push_back(tensor);
    }
    const auto results = reference::Interpret(*graph, inputs, CompileOptions());
    ASSERT_OK(results.status()) << c.text;
    for (size_t i = 0; i < c.want.size(); ++i)
      EXPECT_EQ((*results)[0].GetDouble(static_cast<int64_t>(i)), c.want[i]) << c.text << " at " << i;
  }
}

TEST(QuantizationTest, WrongTypesAreRefused) {
  const std::vector<std::pair<const char*, const char*>> cases = {
      {"graph g(x: f32[4], s: f16[]) {\n  %q = quantize(x, s) {dtype = i8}\n  return %q\n}", "the scale is f16"},
      {"graph g(x: f32[4], s: f32[]) {\n  %q = quantize(x, s) {dtype = i64}\n  return %q\n}",
       "attribute 'dtype' must be"},
      {"graph g(x: i32[4], s: i32[]) {\n  %q = quantize(x, s) {dtype = i8}\n  return %q\n}", "i32"},
      {"graph g(x: f32[4], s: f32[4]) {\n  %q = quantize(x, s) {dtype = i8}\n  return %q\n}", "attribute 'axis'"},
      {"graph g(x: f32[4], s: f32[3]) {\n  %q = quantize(x, s) {dtype = i8, axis = 0}\n  return %q\n}", "not of shape"},
      {"graph g(x: f32[4], s: f32[4]) {\n  %q = quantize(x, s) {dtype = i8, axis = 1}\n  return %q\n}", "dim"},
      {"graph g(x: f32[4], s: f32[], z: u8[]) {\n  %q = quantize(x, s, z) {dtype = i8}\n  return %q\n}",
       "the zero point is u8"},
      {"graph g(x: f32[4], s: f32[], z: f8e4m3[]) {\n  %q = quantize(x, s, z) {dtype = f8e4m3}\n  return %q\n}",
       "takes no zero point"},
      {"graph g(q: i64[4], s: f32[]) {\n  %x = dequantize(q, s)\n  return %x\n}", "operand 0 must be"},
      {"graph g(q: i8[4], s: f32[]) {\n  %x = dequantize(q, s) {dtype = i32}\n  return %x\n}", "i32"},
  };
  for (const auto& [text, message] : cases) {
    const absl::StatusOr<Graph> graph = ParseGraph(text);
    ASSERT_FALSE(graph.ok()) << text;
    EXPECT_EQ(graph.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(graph.status().message()), ::testing::HasSubstr(message)) << text;
  }
}

}  // namespace
}  // namespace fuseline
