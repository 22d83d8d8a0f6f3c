#include "common/case_file/case_file.h"

#include <cmath>
#include <filesystem>

#include "common/status/error.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/status_matchers.h"

namespace fuseline {
namespace {

using ::fuseline::testing::StatusIs;

constexpr char kMinimal[] = R"({"name": "c", "graph": "graph g(x: f32[4]) { return x }",
  "inputs": {"x": INPUT}, "outputs": {"y": OUTPUT}EXTRA})";
constexpr char kInput[] = R"({"dtype": "f32", "shape": [4], "data": [1, "nan", -3, 2.5]})";
constexpr char kOutput[] = R"({"dtype": "f32", "shape": [], "data": ["-0.0"]})";

std::string Replace(std::string text, const std::string& from, const std::string& to) {
  const size_t at = text.find(from);
  return at == std::string::npos ? text : text.replace(at, from.size(), to);
}
std::string MakeCase(const std::string& input, const std::string& output = kOutput, const std::string& extra = "") {
  return Replace(Replace(Replace(kMinimal, "INPUT", input), "OUTPUT", output), "EXTRA", extra);
}

TEST(CaseFileTest, ReadsEveryField) {
  const auto c = ParseCaseFile(
      MakeCase(kInput, kOutput, R"(, "source": "here", "why": "since", "tolerance": {"rtol": 1e-6, "atol": 2},
    "options": {"numerics": "eager", "fast_math": true, "allow_tf32": true, "fuse": false}, "symbols": {"n": 3})"));
  ASSERT_OK(c);
  EXPECT_EQ(c->name, "c");
  EXPECT_EQ(c->source, "here");
  EXPECT_EQ(c->why, "since");
  EXPECT_EQ(c->graph_text, "graph g(x: f32[4]) { return x }");
  ASSERT_EQ(c->inputs.size(), 1u);
  EXPECT_EQ(c->inputs[0].name, "x");
  EXPECT_EQ(c->inputs[0].tensor.shape(), Shape({4}));
  EXPECT_TRUE(std::isnan(c->inputs[0].tensor.GetDouble(1)));
  EXPECT_EQ(c->inputs[0].tensor.GetDouble(3), 2.5);
  ASSERT_EQ(c->outputs.size(), 1u);
  EXPECT_FALSE(c->outputs[0].reference);
  EXPECT_TRUE(std::signbit(c->outputs[0].tensor.GetDouble(0)));
  EXPECT_EQ(c->tolerance.rtol, 1e-6);
  EXPECT_EQ(c->tolerance.atol, 2);
  EXPECT_TRUE(c->tolerance.negative_zero_matters);
  EXPECT_EQ(c->options, (CompileOptions{Numerics::kEager, true, true, false}));
  EXPECT_THAT(c->symbols, ::testing::ElementsAre(::testing::Pair("n", 3)));
  EXPECT_FALSE(c->error.has_value());
}

TEST(CaseFileTest, PlainZeroHasNoSign) {
  const auto c = ParseCaseFile(MakeCase(kInput, R"({"dtype": "f32", "shape": [2], "data": [-0.0, 0]})"));
  ASSERT_OK(c);
  EXPECT_FALSE(std::signbit(c->outputs[0].tensor.GetDouble(0)));
}

TEST(CaseFileTest, IntegersAreExact) {
  const auto c =
      ParseCaseFile(MakeCase(R"({"dtype": "i64", "shape": [2], "data": [9223372036854775807, -9223372036854775808]})"));
  ASSERT_OK(c);
  EXPECT_EQ(c->inputs[0].tensor.GetInt(0), std::numeric_limits<int64_t>::max());
  EXPECT_EQ(c->inputs[0].tensor.GetInt(1), std::numeric_limits<int64_t>::min());
}

TEST(CaseFileTest, FillSpreadsOneValue) {
  const auto c = ParseCaseFile(MakeCase(R"({"dtype": "bool", "shape": [2, 2], "fill": true})"));
  ASSERT_OK(c);
  for (int64_t i = 0; i < 4; ++i) EXPECT_EQ(c->inputs[0].tensor.GetInt(i), 1);
}

TEST(CaseFileTest, RandomIsGivenByItsSeed) {
  const std::string text =
      MakeCase(R"({"dtype": "i32", "shape": [100], "random": "int", "seed": 5, "low": 10, "high": 13})");
  const auto a = ParseCaseFile(text);
  const auto b = ParseCaseFile(text);
  const auto other = ParseCaseFile(Replace(text, "\"seed\": 5", "\"seed\": 6"));
  ASSERT_OK(a);
  ASSERT_OK(b);
  ASSERT_OK(other);
  EXPECT_EQ(a->inputs[0].tensor.bytes(), b->inputs[0].tensor.bytes());
  EXPECT_NE(a->inputs[0].tensor.bytes(), other->inputs[0].tensor.bytes());
  for (int64_t i = 0; i < 100; ++i) {
    EXPECT_GE(a->inputs[0].tensor.GetInt(i), 10);
    EXPECT_LT(a->inputs[0].tensor.GetInt(i), 13);
  }
}

TEST(CaseFileTest, ReferenceOutputHasNoTensor) {
  const auto c =
      ParseCaseFile(MakeCase(R"({"dtype": "f32", "shape": [4], "random": "normal", "seed": 1})", "\"reference\""));
  ASSERT_OK(c);
  EXPECT_TRUE(c->outputs[0].reference);
}

TEST(CaseFileTest, ExpectedErrorStandsForOutputs) {
  const auto c = ParseCaseFile(
      R"({"name": "c", "graph": "g", "inputs": {}, "error": {"code": "INVALID_ARGUMENT", "contains": "amax"}})");
  ASSERT_OK(c);
  ASSERT_TRUE(c->error.has_value());
  EXPECT_EQ(c->error->code, absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(c->error->contains, "amax");
  EXPECT_TRUE(c->outputs.empty());
}

struct BadRow {
  std::string text;
  const char* subject;
  const char* message;
};

TEST(CaseFileTest, BadFilesAreRefusedNamingTheField) {
  const std::string deep(100, '[');
  const BadRow rows[] = {
      {"", "", "not JSON"},
      {"[1]", "", "expected a JSON object"},
      {deep, "", "nested deeper"},
      {"{\"name\": 3}", "name", "expected a string"},
      {R"({"name": "c"})", "graph", "is missing"},
      {R"({"name": "c", "graph": "g"})", "outputs", "exactly one of 'outputs' and 'error'"},
      {R"({"name": "c", "graph": "g", "outputs": {}})", "outputs", "at least one output"},
      {R"({"name": "c", "graph": "g", "inputs": [], "outputs": {"y": "reference"}})", "inputs", "expected an object"},
      {MakeCase("3"), "inputs.x", "expected an object"},
      {MakeCase(R"({"dtype": "f31", "shape": [], "data": [1]})"), "inputs.x.dtype", "unknown dtype 'f31'"},
      {MakeCase(R"({"dtype": "f32", "shape": 3, "data": [1]})"), "inputs.x.shape", "list of sizes"},
      {MakeCase(R"({"dtype": "f32", "shape": [-1], "data": [1]})"), "inputs.x.shape[0]", "outside"},
      {MakeCase(R"({"dtype": "f32", "shape": [1,1,1,1,1,1,1,1,1,1,1,1,1], "data": [1]})"), "inputs.x.shape",
       "more than 12 dims"},
      {MakeCase(R"({"dtype": "f32", "shape": [4294967296, 4294967296], "fill": 1})"), "inputs.x", "too large"},
      {MakeCase(R"({"dtype": "f32", "shape": [1099511627776, 1099511627776, 0], "data": []})"), "inputs.x",
       "too large"},
      {MakeCase(R"({"dtype": "f32", "shape": [2], "data": [1]})"), "inputs.x.data", "2 elements, the list has 1"},
      {MakeCase(R"({"dtype": "f32", "shape": [2], "data": [1, "one"]})"), "inputs.x.data[1]", "expected a number"},
      {MakeCase(R"({"dtype": "f32", "shape": [1], "data": [true]})"), "inputs.x.data[0]", "expected a number"},
      {MakeCase(R"({"dtype": "u8", "shape": [1], "data": [256]})"), "inputs.x.data[0]", "outside [0, 255]"},
      {MakeCase(R"({"dtype": "i8", "shape": [1], "data": [-129]})"), "inputs.x.data[0]", "outside [-128, 127]"},
      {MakeCase(R"({"dtype": "i64", "shape": [1], "data": [9223372036854775808]})"), "inputs.x.data[0]",
       "does not fit 64 bits"},
      {MakeCase(R"({"dtype": "i64", "shape": [1], "data": [1.0]})"), "inputs.x.data[0]", "expected an integer"},
      {MakeCase(R"({"dtype": "bool", "shape": [1], "data": [1]})"), "inputs.x.data[0]", "true or false"},
      {MakeCase(R"({"dtype": "f32", "shape": [1], "data": [1], "fill": 1})"), "inputs.x", "exactly one of"},
      {MakeCase(R"({"dtype": "f32", "shape": [1], "data": [1], "sed": 1})"), "inputs.x.sed", "unknown field"},
      {MakeCase(R"({"dtype": "f32", "shape": [1], "random": "gamma"})"), "inputs.x.random", "got \"gamma\""},
      {MakeCase(R"({"dtype": "i32", "shape": [1], "random": "normal"})"), "inputs.x.random", "float dtype"},
      {MakeCase(R"({"dtype": "u8", "shape": [1], "random": "int", "low": -1})"), "inputs.x.low", "outside [0, 255]"},
      {MakeCase(R"({"dtype": "f32", "shape": [1], "random": "uniform", "low": 2})"), "inputs.x.low", "below 'high'"},
      {MakeCase(kInput, "\"ref\""), "outputs.y", "\"reference\""},
      {MakeCase(kInput, R"({"dtype": "f32", "shape": [1], "fill": 1})"), "outputs.y", "expected 'data'"},
      {MakeCase(kInput, kOutput, R"(, "tolerance": {"rtol": -1})"), "tolerance.rtol", "at least 0"},
      {MakeCase(kInput, kOutput, R"(, "options": {"numerics": "lazy"})"), "options.numerics", "lazy"},
      {MakeCase(kInput, kOutput, R"(, "options": {"fats_math": true})"), "options.fats_math", "unknown field"},
      {MakeCase(kInput, kOutput, R"(, "symbols": {"n": -1})"), "symbols.n", "outside"},
      {MakeCase(kInput, kOutput, R"(, "error": {"code": "INTERNAL"})"), "outputs", "exactly one of"},
      {R"({"name": "c", "graph": "g", "error": {"code": "OOPS"}})", "error.code", "unknown status code 'OOPS'"},
      {MakeCase(kInput, kOutput, R"(, "nmae": 1)"), "nmae", "unknown field"},
  };
  for (const BadRow& row : rows) {
    SCOPED_TRACE(row.text);
    const auto c = ParseCaseFile(row.text);
    EXPECT_THAT(c, StatusIs(absl::StatusCode::kInvalidArgument, row.message));
    EXPECT_EQ(GetErrorReason(c.status()), ErrorReason::kCaseFile);
    EXPECT_EQ(GetErrorSubject(c.status()), row.subject);
  }
}

TEST(CaseFileTest, BoundsAreKept) {
  EXPECT_THAT(ParseCaseFile(MakeCase(kInput), {.max_text_bytes = 10}),
              StatusIs(absl::StatusCode::kInvalidArgument, "larger than 10 bytes"));
  EXPECT_THAT(ParseCaseFile(MakeCase(kInput), {.max_tensor_bytes = 16}),
              StatusIs(absl::StatusCode::kInvalidArgument, "too large"));
  EXPECT_OK(ParseCaseFile(MakeCase(kInput), {.max_tensor_bytes = 20}));
}

TEST(CaseFileTest, MissingFileNamesThePath) {
  EXPECT_THAT(ReadCaseFile("/nowhere/c.json"), StatusIs(absl::StatusCode::kNotFound, "/nowhere/c.json"));
}

TEST(CaseFileTest, WrittenFileReadsBackEqual) {
  CaseFile c;
  c.name = "a \"quoted\" name";
  c.source = "x";
  c.why = "y";
  c.graph_text = "graph g(x: f32[2]) {\n  return x\n}";
  c.options.numerics = Numerics::kEager;
  c.options.fuse = false;
  c.symbols = {{"n", 4}};
  c.tolerance = {.rtol = 0.1, .atol = 1e-7, .negative_zero_matters = true};
  for (const DType dtype : {DType::kF64, DType::kF32, DType::kF16, DType::kBF16, DType::kF8E5M2}) {
    Tensor t = Tensor::Allocate(dtype, {6});
    const double values[] = {0.1, -0.0, INFINITY, NAN, 3, 1e-3};
    for (int64_t i = 0; i < 6; ++i) t.SetDouble(i, values[i]);
    c.inputs.push_back({std::string(DTypeName(dtype)), t});
  }
  for (const DType dtype : {DType::kI64, DType::kI8, DType::kBool}) {
    Tensor t = Tensor::Allocate(dtype, {1, 2});
    t.SetInt(0, 1);
    t.SetInt(1, dtype == DType::kI64 ? std::numeric_limits<int64_t>::min() : 0);
    c.outputs.push_back({std::string(DTypeName(dtype)), false, t});
  }
  c.outputs.push_back({"r", true, {}});
  const auto back = ParseCaseFile(WriteCaseFile(c));
  ASSERT_OK(back);
  EXPECT_EQ(back->name, c.name);
  EXPECT_EQ(back->graph_text, c.graph_text);
  EXPECT_EQ(back->options, c.options);
  EXPECT_EQ(back->symbols, c.symbols);
  EXPECT_EQ(back->tolerance.rtol, c.tolerance.rtol);
  EXPECT_EQ(back->tolerance.atol, c.tolerance.atol);
  ASSERT_EQ(back->inputs.size(), c.inputs.size());
  for (size_t i = 0; i < c.inputs.size(); ++i) {
    EXPECT_EQ(back->inputs[i].name, c.inputs[i].name);
    EXPECT_EQ(back->inputs[i].tensor.bytes(), c.inputs[i].tensor.bytes()) << c.inputs[i].name;
  }
  ASSERT_EQ(back->outputs.size(), c.outputs.size());
  for (size_t i = 0; i + 1 < c.outputs.size(); ++i)
    EXPECT_EQ(back->outputs[i].tensor.bytes(), c.outputs[i].tensor.bytes());
  EXPECT_TRUE(back->outputs.back().reference);
}

TEST(CaseFileTest, WrittenErrorReadsBackEqual) {
  CaseFile c;
  c.name = "c";
  c.graph_text = "g";
  c.error = ExpectedError{absl::StatusCode::kInvalidArgument, "text"};
  const auto back = ParseCaseFile(WriteCaseFile(c));
  ASSERT_OK(back);
  ASSERT_TRUE(back->error.has_value());
  EXPECT_EQ(back->error->code, absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(back->error->contains, "text");
}

TEST(CaseFileTest, EveryPinnedCaseParsesAndSurvivesWriting) {
  int count = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(FUSELINE_SOURCE_DIR "/tests/cases")) {
    if (entry.path().extension() != ".json") continue;
    SCOPED_TRACE(entry.path().string());
    const auto c = ReadCaseFile(entry.path().string());
    ASSERT_OK(c);
    const auto back = ParseCaseFile(WriteCaseFile(*c));
    ASSERT_OK(back);
    ASSERT_EQ(back->outputs.size(), c->outputs.size());
    for (size_t i = 0; i < c->outputs.size(); ++i) {
      EXPECT_TRUE(
          CompareTensors("y", back->outputs[i].tensor, c->outputs[i].tensor, {.negative_zero_matters = true}).passed());
    }
    ++count;
  }
  EXPECT_GT(count, 300);
}

}  // namespace
}  // namespace fuseline
