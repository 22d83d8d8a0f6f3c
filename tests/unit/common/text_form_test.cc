#include "common/ir/text_form.h"

#include <chrono>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/ir/verify_graph.h"
#include "common/status/error.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/testing/status_matchers.h"
#include "tests/unit/common/graph_comparison.h"

namespace fuseline {
namespace {

using ::fuseline::testing::GraphDifference;
using ::fuseline::testing::StatusIs;
constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;

// A graph whose one statement is `statement`, over inputs x: f32[2], k: i64[2], c: bool[2].
std::string WithStatement(std::string_view statement) {
  return absl::StrCat("graph g(x: f32[2], k: i64[2], c: bool[2]) {\n  ", std::string(statement), "\n  return %r\n}\n");
}

TEST(TextFormTest, ExampleOfTheManualIsCanonical) {
  constexpr char kText[] =
      "graph pointwise_example(x: f32[1024, 1024], w: f32[1024], b: f32[1024]) {\n"
      "  %t0 = mul(x, w)\n"
      "  %t1 = add(%t0, b)\n"
      "  %t2 = sigmoid(%t1)\n"
      "  return %t2\n"
      "}\n";
  const absl::StatusOr<Graph> graph = ParseGraph(kText);
  ASSERT_OK(graph);
  EXPECT_EQ(PrintGraph(*graph), kText);
  EXPECT_EQ(graph->type(graph->outputs[0].value).ToString(), "f32[1024, 1024]");
  EXPECT_EQ(graph->outputs[0].name, "out0");
  EXPECT_EQ(graph->NodeName(1), "%t1");
  EXPECT_EQ(graph->DisplayName(graph->inputs[1]), "w");
}

TEST(TextFormTest, CanonicalTextIsAFixedPoint) {
  constexpr const char* kTexts[] = {
      "graph (in0: f32[]) {\n  return in0\n}\n",
      "graph g(x: f32[64, 32]{1, 64}) {\n  return x, y = x\n}\n",
      "graph g(x: f32[batch, 4096], y: i64[batch]) {\n  %a = neg(x) : f32[batch, 4096]\n  return %a, out0 = y\n}\n",
      "graph g() {\n  %r = anything()\n  return z = %r\n}\n",
      "graph g(x: f32[2]) {\n  %v, %m = var_mean(x) {dims = [0]} : f32[], f32[]\n  return %m, %v\n}\n",
      "graph g(x: f32[2]) {\n  %v, %m = var_mean(x) : _, f32[]\n  return %m\n}\n",
      "graph g(x: f32[2]) {\n  %r = op(x, -1, 2.5, 1e+30, 1e-05, inf, -inf, nan, true, false, -0.0)\n  return %r\n}\n",
      "graph g(x: f32[2]) {\n  %r = op(x, nan(0x7ff8000000000001), nan(0xfff8000000000000))\n  return %r\n}\n",
      "graph g(x: f32[2]) {\n  %r = op(x) {a = -9223372036854775808, b = 1.0, c = true, d = \"q\\\"\\\\\\n\\t\\x01\", "
      "e = bf16, f = [], "
      "g = [-1, 2], h = [1.0, -inf], i = [true, false]}\n  return %r\n}\n",
      "graph g() {\n  %r = constant() {data = [1.0, 2.5, inf, nan], dtype = f32, shape = [2, 2]}\n  return %r\n}\n",
      "graph g() {\n  %r = constant() {data = [], dtype = f32, shape = [0]}\n  return %r\n}\n",
      "graph g(a.b_1: f32[2]) {\n  %_.x = neg(a.b_1)\n  %nan = neg(%_.x)\n  return %nan\n}\n",
  };
  for (const char* text : kTexts) {
    const absl::StatusOr<Graph> graph = ParseGraphText(text);
    ASSERT_OK(graph) << text;
    EXPECT_EQ(PrintGraph(*graph), text);
  }
}

TEST(TextFormTest, SpacesCommentsAndOrderOfAttributesDoNotMatter) {
  const absl::StatusOr<Graph> graph = ParseGraphText(
      "# a comment\ngraph g ( x:f32[ 2,3 ] {3,1} )\n{%v,%m=var_mean(x){keepdim=true,dims=[ -1 ]}# another\n%n = "
      "neg(%v) {} return a=%n,%m,x}  # end");
  ASSERT_OK(graph);
  EXPECT_EQ(PrintGraph(*graph),
            "graph g(x: f32[2, 3]) {\n  %v, %m = var_mean(x) {dims = [-1], keepdim = true}\n  %n = neg(%v)\n  return a "
            "= %n, %m, x\n}\n");
  EXPECT_EQ(graph->outputs[1].name, "out1");
}

TEST(TextFormTest, NumbersGetTheirKinds) {
  const absl::StatusOr<Graph> graph = ParseGraphText(
      WithStatement("%r = op(x, 7, 7.0, 1e2, -inf, true, -9223372036854775808, 1e-999, -1e-999, 4.9e-324, 1.)"));
  ASSERT_OK(graph);
  const std::vector<Operand>& operands = graph->nodes[0].operands;
  const auto literal = [&operands](size_t i) { return operands[i].literal; };
  EXPECT_FALSE(operands[0].is_literal());
  EXPECT_EQ(literal(1).kind, Literal::Kind::kInt);
  EXPECT_EQ(literal(1).i, 7);
  EXPECT_EQ(literal(2).kind, Literal::Kind::kFloat);
  EXPECT_EQ(literal(3).f, 100.0);
  EXPECT_EQ(literal(4).f, -std::numeric_limits<double>::infinity());
  EXPECT_EQ(literal(5).kind, Literal::Kind::kBool);
  EXPECT_EQ(literal(6).i, std::numeric_limits<int64_t>::min());
  EXPECT_EQ(literal(7).f, 0.0);
  EXPECT_TRUE(literal(8).f == 0.0 && std::signbit(literal(8).f));
  EXPECT_EQ(literal(9).f, std::numeric_limits<double>::denorm_min());
  EXPECT_EQ(literal(10).f, 1.0);
}

TEST(TextFormTest, MixedListIsAListOfFloats) {
  const absl::StatusOr<Graph> graph = ParseGraphText(WithStatement("%r = op(x) {l = [1, 2.5], m = [1, 2], n = []}"));
  ASSERT_OK(graph);
  const AttrMap& attrs = graph->nodes[0].attrs;
  EXPECT_EQ(std::get<std::vector<double>>(attrs.find("l")->second), (std::vector<double>{1.0, 2.5}));
  EXPECT_EQ(std::get<std::vector<int64_t>>(attrs.find("m")->second), (std::vector<int64_t>{1, 2}));
  EXPECT_TRUE(std::get<std::vector<int64_t>>(attrs.find("n")->second).empty());
}

TEST(TextFormTest, BadTextIsRefusedWithItsPlace) {
  const struct {
    std::string text;
    const char* message;
  } kRows[] = {
      {"", "line 1, column 1: expected 'graph', got the end of the text"},
      {"graf g() {}", "line 1, column 1: expected 'graph', got 'graf'"},
      {"graph g(x: f32[2]) {\n  return x\n} x", "line 3, column 3: expected the end of the text, got 'x'"},
      {"graph g(x: f32[2]) {\n  return\n}", "expected a value to return"},
      {"graph g(x: f32[2]) {\n", "line 2, column 1: expected a result such as '%t0', got the end of the text"},
      {"graph g(x f32[2]) {\n  return x\n}", "line 1, column 11: expected ':'"},
      {"graph g(x: f33[2]) {\n  return x\n}", "unknown dtype 'f33'"},
      {"graph g(x: f32[-2]) {\n  return x\n}", "dim -2 is negative"},
      {"graph g(x: f32[2.0]) {\n  return x\n}", "expected a dim, got '2.0'"},
      {"graph g(x: f32[2 3]) {\n  return x\n}", "expected ',' between dims"},
      {"graph g(x: f32[2], x: f32[2]) {\n  return x\n}", "line 1, column 20: the name 'x' is defined twice"},
      {"graph g(nan: f32[2]) {\n  return nan\n}", "an input cannot be called 'nan'"},
      {"graph g(true: f32[2]) {\n  return true\n}", "an input cannot be called 'true'"},
      {"graph g(x: f32[2]) {\n  return 1.0\n}", "expected a value to return"},
      {"graph g(x: f32[2]) {\n  return y = 2\n}", "expected a value to return"},
      {WithStatement("%r = add(x, %s)"), "line 2, column 15: no statement above defines '%s'"},
      {WithStatement("%r = add(x, %r)"), "no statement above defines '%r'"},
      {WithStatement("%r = add(x, y)"), "'y' is not an input"},
      {WithStatement("%r = add(x, %x)"), "'x' is an input"},
      {WithStatement("%r = neg(x)\n  %s = neg(r)"), "'r' is a result"},
      {WithStatement("%x = neg(x)"), "the name 'x' is defined twice"},
      {WithStatement("%r = neg(x)\n  %r = neg(x)"), "line 3, column 3: the name 'r' is defined twice"},
      {WithStatement("%r, %r = neg(x)"), "the name 'r' is defined twice"},
      {WithStatement("%r = neg(x"), "expected ',' between operands"},
      {WithStatement("%r = neg x)"), "expected '(' after the op"},
      {WithStatement("%r = neg(,)"), "expected an operand, got ','"},
      {WithStatement("%r = neg(x,)"), "expected an operand, got ')'"},
      {WithStatement("% = neg(x)"), "'%' without a name"},
      {WithStatement("%1 = neg(x)"), "'%' without a name"},
      {WithStatement("r = neg(x)"), "expected a result"},
      {WithStatement("%r = add(x, 9223372036854775808)"), "number 9223372036854775808 does not fit i64"},
      {WithStatement("%r = add(x, 1e999)"), "number 1e999 does not fit f64"},
      {WithStatement("%r = add(x, 2x)"), "malformed number"},
      {WithStatement("%r = add(x, 1e)"), "empty exponent"},
      {WithStatement("%r = add(x, -nan)"), "expected a number after '-'"},
      {WithStatement("%r = add(x, -y)"), "expected a number after '-'"},
      {WithStatement("%r = add(x, - 1)"), "expected a number after '-'"},
      {WithStatement("%r = add(x, nan(0x1))"), "is not a nan"},
      {WithStatement("%r = add(x, nan(0x7ff8000000000000"), "malformed nan"},
      {WithStatement("%r = sum(x) {dims = [0], dims = [0]}"), "attribute 'dims' is given twice"},
      {WithStatement("%r = sum(x) {dims = [0,]}"), "expected a number or a boolean in the list"},
      {WithStatement("%r = sum(x) {dims = [1, true]}"), "mixes booleans and numbers"},
      {WithStatement("%r = sum(x) {dims = [f32]}"), "expected a number or a boolean in the list"},
      {WithStatement("%r = sum(x) {dims = [[0]]}"), "expected a number or a boolean in the list"},
      {WithStatement("%r = sum(x) {dims [0]}"), "expected '='"},
      {WithStatement("%r = sum(x) {dtype = f31}"), "'f31', which is no dtype"},
      {WithStatement("%r = sum(x) {s = \"open}"), "the string has no end"},
      {WithStatement("%r = sum(x) {s = \"a\\q\"}"), "unknown escape"},
      {WithStatement("%r = sum(x) {s = \"a\\x1\"}"), "hexadecimal"},
      {WithStatement("%r = sum(x) {s = \"a\\"), "the string has no end"},
      {WithStatement("%r = neg(x) : f32[2]{1}, f32[2]"), "expected a result"},
      {WithStatement("%r = neg(x) : f32[2]{2}"), "only the type of an input has strides"},
      {WithStatement("%r = neg(x) ; f32"), "unexpected character ';'"},
      {WithStatement("%r = neg(x) \x01"), "unexpected character '\\x01'"},
      {WithStatement("%r = constant() {data = [1], shape = [1]}"), "data needs the attribute 'dtype'"},
      {WithStatement("%r = constant() {data = [1], data = [1], dtype = f32}"), "attribute 'data' is given twice"},
      {WithStatement("%r = constant() {data = [1, 256], dtype = u8}"),
       "line 2, column 31: element 256 does not fit u8"},
      {WithStatement("%r = constant() {data = [1.5], dtype = i32}"), "element 1.5 does not fit i32"},
      {WithStatement("%r = constant() {data = [1], dtype = bool}"), "element 1 does not fit bool"},
      {WithStatement("%r = constant() {data = [true], dtype = f32}"), "element true does not fit f32"},
      {WithStatement("%r = constant() {data = 1, dtype = f32}"), "expected '[' before the data"},
      {WithStatement("%r = constant() {data = [1 2], dtype = f32}"), "expected ',' between elements"},
  };
  for (const auto& row : kRows) {
    const absl::StatusOr<Graph> graph = ParseGraphText(row.text);
    EXPECT_THAT(graph, StatusIs(kInvalid, row.message)) << row.text;
    EXPECT_THAT(graph, StatusIs(kInvalid, "line ")) << row.text;
    EXPECT_EQ(GetErrorReason(graph.status()), ErrorReason::kGraphSyntax);
  }
}

TEST(TextFormTest, LimitsAreChecked) {
  const std::string text = "graph g() {\n  %r = constant() {data = [1, 2], dtype = f32, shape = [2]}\n  return %r\n}\n";
  GraphLimits limits;
  limits.max_text_bytes = static_cast<int64_t>(text.size());
  limits.max_nodes = 1;
  limits.max_constant_bytes = 8;
  EXPECT_OK(ParseGraph(text, limits));
  for (int64_t GraphLimits::*limit :
       {&GraphLimits::max_text_bytes, &GraphLimits::max_nodes, &GraphLimits::max_constant_bytes}) {
    GraphLimits tight = limits;
    --(tight.*limit);
    const absl::StatusOr<Graph> graph = ParseGraphText(text, tight);
    EXPECT_EQ(graph.status().code(), kInvalid);
    EXPECT_EQ(GetErrorReason(graph.status()), ErrorReason::kLimitExceeded);
  }
}

template <typename T>
std::string BytesOf(const std::vector<T>& values) {
  return std::string(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T));
}

TEST(ConstantTextTest, ElementsAreRoundedOnceToNearestEven) {
  using U16 = std::vector<uint16_t>;
  using U8 = std::vector<uint8_t>;
  const struct {
    const char* dtype;
    const char* data;
    std::string bytes;
  } kRows[] = {
      {"f64", "0.1, -0.0, 3", BytesOf(std::vector<double>{0.1, -0.0, 3.0})},
      {"f32", "0.1, -0.0, 16777217, 1e-46, 1e39, -1e39",
       BytesOf(std::vector<float>{0.1f, -0.0f, 16777216.0f, 0.0f, INFINITY, -INFINITY})},
      // Just above the middle of 1 and its successor: through a double this would be the middle, and round down.
      {"f32", "1.00000005960464477539062500000000001", BytesOf(std::vector<float>{1.00000011920928955078125f})},
      {"f16", "1, -2, 65504, 65519, 65520, 1e9, inf, -inf, nan, 6e-8, 2e-8, 5.960464477539063e-08",
       BytesOf(U16{0x3c00, 0xc000, 0x7bff, 0x7bff, 0x7c00, 0x7c00, 0x7c00, 0xfc00, 0x7e00, 0x0001, 0x0000, 0x0001})},
      {"f16", "1.00048828125, 1.00048828125000000000000001, 1.00146484375, 1.00146484374999999999999999",
       BytesOf(U16{0x3c00, 0x3c01, 0x3c02, 0x3c01})},
      {"bf16", "1, 3.140625, 3.4e38, 1e39, nan, 1e-40, -0.0",
       BytesOf(U16{0x3f80, 0x4049, 0x7f80, 0x7f80, 0x7fc0, 0x0001, 0x8000})},
      {"f8e4m3", "1, 448, 464, 1e9, -1e9, inf, nan, 0.001953125, 0.0009765625, 0.0009765626",
       BytesOf(U8{0x38, 0x7e, 0x7e, 0x7e, 0xfe, 0x7e, 0x7f, 0x01, 0x00, 0x01})},
      {"f8e5m2", "1, 57344, 1e9, inf, -inf, nan", BytesOf(U8{0x3c, 0x7b, 0x7b, 0x7c, 0xfc, 0x7e})},
      {"i64", "9223372036854775807, -9223372036854775808, 9007199254740993",
       BytesOf(std::vector<int64_t>{std::numeric_limits<int64_t>::max(), std::numeric_limits<int64_t>::min(),
                                    9007199254740993})},
      {"i32", "-1, 2.0", BytesOf(std::vector<int32_t>{-1, 2})},
      {"i16", "-32768", BytesOf(std::vector<int16_t>{-32768})},
      {"i8", "-128, 127", BytesOf(std::vector<int8_t>{-128, 127})},
      {"u8", "0, 255", BytesOf(U8{0, 255})},
      {"bool", "true, false", BytesOf(U8{1, 0})},
      {"f16", "nan(0x7e01), nan(0xfe00)", BytesOf(U16{0x7e01, 0xfe00})},
      {"f32", "nan(0xffc00000)", BytesOf(std::vector<uint32_t>{0xffc00000})},
  };
  for (const auto& row : kRows) {
    const std::string text =
        WithStatement(absl::StrCat("%r = constant() {data = [", row.data, "], dtype = ", row.dtype, "}"));
    const absl::StatusOr<Graph> graph = ParseGraphText(text);
    ASSERT_OK(graph) << text;
    EXPECT_EQ(*graph->nodes[0].constant_bytes, row.bytes) << row.dtype << ": " << row.data;
    EXPECT_EQ(graph->nodes[0].attrs.count("data"), 0u);
  }
  for (const char* bad : {"nan(0x7c00)", "nan(0x17e00)", "nan(0x0)"}) {
    EXPECT_THAT(ParseGraphText(WithStatement(absl::StrCat("%r = constant() {data = [", bad, "], dtype = f16}"))),
                StatusIs(kInvalid, "does not fit f16"));
  }
}

// Every bit pattern of the narrow dtypes, and many of the wide ones, through print and parse.
TEST(ConstantTextTest, EveryElementReadsBack) {
  const DType kDTypes[] = {DType::kF64, DType::kF32, DType::kF16, DType::kBF16, DType::kF8E4M3, DType::kF8E5M2,
                           DType::kI64, DType::kI32, DType::kI16, DType::kI8,   DType::kU8};
  for (DType dtype : kDTypes) {
    const int size = DTypeSizeBytes(dtype);
    const uint64_t count = size == 1 ? 256 : size == 2 ? 65536 : 20000;
    std::string bytes;
    uint64_t state = 88172645463325252u;  // xorshift
    for (uint64_t i = 0; i < count; ++i) {
      state ^= state << 13;
      state ^= state >> 7;
      state ^= state << 17;
      const uint64_t bits = size <= 2 ? i : state;
      bytes.append(reinterpret_cast<const char*>(&bits), static_cast<size_t>(size));
    }
    Graph graph = *ParseGraphText("graph g() {\n  %r = constant()\n  return %r\n}");
    graph.nodes[0].attrs = {{"dtype", dtype}, {"shape", std::vector<int64_t>{static_cast<int64_t>(count)}}};
    graph.nodes[0].constant_bytes = std::make_shared<const std::string>(bytes);
    ASSERT_OK(VerifyGraph(graph));
    absl::StatusOr<Graph> back = ParseGraph(PrintGraph(graph));
    ASSERT_OK(back) << DTypeName(dtype);
    EXPECT_EQ(GraphDifference(graph, *back), "") << DTypeName(dtype);
  }
}

TEST(ConstantTextTest, NarrowElementsAreShort) {
  const absl::StatusOr<Graph> graph =
      ParseGraphText(WithStatement("%r = constant() {data = [0.1, 1024, 3.14, 6e-8, 40000], dtype = f16}"));
  ASSERT_OK(graph);
  EXPECT_NE(PrintGraph(*graph).find("data = [0.1, 1024.0, 3.14, 6e-08, 40000.0]"), std::string::npos)
      << PrintGraph(*graph);
}

TEST(TextFormTest, DefaultsOfAVerifiedGraphAreNotPrinted) {
  constexpr char kText[] = "graph g(x: f32[2]) {\n  %r = sum(x) {dims = [0], keepdim = false}\n  return %r\n}\n";
  Graph graph = *ParseGraphText(kText);
  EXPECT_EQ(PrintGraph(graph), kText);
  ASSERT_OK(VerifyGraph(graph));
  EXPECT_EQ(PrintGraph(graph), "graph g(x: f32[2]) {\n  %r = sum(x) {dims = [0]}\n  return %r\n}\n");
}

std::vector<std::filesystem::path> CaseFiles() {
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(FUSELINE_SOURCE_DIR "/tests/cases")) {
    if (entry.path().extension() == ".json") files.push_back(entry.path());
  }
  return files;
}

TEST(TextFormTest, GraphOfEveryCaseReadsBack) {
  int verified_count = 0;
  const std::vector<std::filesystem::path> files = CaseFiles();
  for (const std::filesystem::path& file : files) {
    std::ifstream stream(file);
    const nlohmann::json json = nlohmann::json::parse(stream, nullptr, /*allow_exceptions=*/false);
    ASSERT_TRUE(json.is_object() && json.contains("graph")) << file;
    absl::StatusOr<Graph> graph = ParseGraphText(json["graph"].get<std::string>());
    ASSERT_OK(graph) << file;
    const absl::StatusOr<Graph> back = ParseGraphText(PrintGraph(*graph));
    ASSERT_OK(back) << file;
    EXPECT_EQ(GraphDifference(*graph, *back), "") << file;
    const absl::Status status = VerifyGraph(*graph);
    if (status.code() == absl::StatusCode::kUnimplemented) continue;
    if (json.contains("error")) continue;
    ASSERT_OK(status) << file;
    const absl::StatusOr<Graph> verified = ParseGraph(PrintGraph(*graph));
    ASSERT_OK(verified) << file;
    EXPECT_EQ(GraphDifference(*graph, *verified), "") << file;
    ++verified_count;
  }
  EXPECT_GT(files.size(), 500u);
  EXPECT_GT(verified_count, 500);
}

TEST(TextFormTest, ErrorOfEveryCaseIsRaised) {
  for (const std::filesystem::path& file : CaseFiles()) {
    std::ifstream stream(file);
    const nlohmann::json json = nlohmann::json::parse(stream, nullptr, /*allow_exceptions=*/false);
    if (!json.contains("error")) continue;
    const std::string contains = json["error"]["contains"];
    if (absl::StrContains(contains, "index")) continue;  // raised at run time
    const absl::StatusOr<Graph> graph = ParseGraph(json["graph"].get<std::string>());
    if (graph.status().code() == absl::StatusCode::kUnimplemented) continue;
    EXPECT_THAT(graph, StatusIs(kInvalid, contains)) << file;
  }
}

TEST(TextFormTest, LongChainIsParsedAndPrintedInLinearTime) {
  std::string text = "graph g(x: f32[4]) {\n";
  absl::StrAppend(&text, "  %t0 = neg(x)\n");
  for (int i = 1; i < 100'000; ++i) absl::StrAppend(&text, "  %t", i, " = add(%t", i - 1, ", 1.5)\n");
  absl::StrAppend(&text, "  return %t99999\n}\n");
  const auto start = std::chrono::steady_clock::now();
  const absl::StatusOr<Graph> graph = ParseGraphText(text);
  ASSERT_OK(graph);
  EXPECT_EQ(PrintGraph(*graph), text);
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(10));  // about 0.1 s on an idle core
}

TEST(TextFormTest, DeepNestingIsRefusedWithoutRecursion) {
  EXPECT_EQ(ParseGraphText(std::string(1'000'000, '(')).status().code(), kInvalid);
  EXPECT_EQ(
      ParseGraphText(WithStatement(absl::StrCat("%r = op(x) {a = ", std::string(1'000'000, '['), "}"))).status().code(),
      kInvalid);
}

// Any change of one character gives an error or a graph that prints and reads back; never a crash.
TEST(TextFormTest, MutatedTextNeverBreaksTheParser) {
  const std::string text =
      "graph g(x: f32[2, n]{3, 1}, y: i64[n]) {\n  %a, %b = op(x, -1.5e3, nan(0x7ff8000000000001)) {d = [1, 2.5], s = "
      "\"a\\x41\", t = f16} : f32[n], _\n"
      "  %c = constant() {data = [1, -inf, nan], dtype = bf16, shape = [3]}\n  return z = %a, y, %c\n}\n";
  ASSERT_OK(ParseGraphText(text));
  const std::string alphabet("%(){}[],=:\"\\#-.0e_x \n\0\xff", 24);
  for (size_t i = 0; i < text.size(); ++i) {
    for (char c : alphabet) {
      std::string mutated = text;
      mutated[i] = c;
      const absl::StatusOr<Graph> graph = ParseGraphText(mutated);
      if (!graph.ok()) continue;
      const absl::StatusOr<Graph> back = ParseGraphText(PrintGraph(*graph));
      ASSERT_OK(back) << mutated;
      ASSERT_EQ(GraphDifference(*graph, *back), "") << mutated;
    }
    if (i + 1 == text.size()) continue;  // the last character is the newline after the brace
    EXPECT_FALSE(ParseGraphText(text.substr(0, i)).ok());
  }
}

}  // namespace
}  // namespace fuseline
