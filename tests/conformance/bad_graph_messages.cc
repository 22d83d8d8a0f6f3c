// Graphs as messages that are malformed, or that are no graphs.
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/conformance/bad_inputs.h"

namespace fuseline::testing {
namespace {

constexpr char kX[] = R"(inputs { name: "x" type { dtype: DATA_TYPE_F32 dims { size: 4 } } } )";
constexpr char kNeg[] = R"(nodes { op: "neg" operands { value_name: "x" } results { name: "a" } } )";
constexpr char kY[] = R"(outputs { name: "y" value_name: "a" } )";

BadInput Graph(const char* name, const std::string& graph, ErrorReason reason, const char* error) {
  return Request(name, "CompileService.Compile", {absl::StrCat("spec { target: 'cpu' graph { ", graph, " } }")}, reason,
                 error);
}

std::string Repeat(const std::string& text, int64_t count) {
  std::string all;
  for (int64_t i = 0; i < count; ++i) all += text;
  return all;
}

}  // namespace

std::vector<BadInput> BadGraphMessages() {
  return {
      Graph("empty graph", "", ErrorReason::kGraphStructure, "the graph returns nothing"),
      Graph("graph without outputs", absl::StrCat(kX, kNeg), ErrorReason::kGraphStructure, "the graph returns nothing"),
      Graph("op set of the future", absl::StrCat(R"(opset_version: 2 )", kX, kNeg, kY), ErrorReason::kUnsupported,
            "op set 2 is newer than this version's, 1"),
      Graph("negative op set", absl::StrCat(R"(opset_version: -1 )", kX, kNeg, kY), ErrorReason::kGraphSyntax,
            "'opset_version' is negative"),
      Graph("graph with a bad name", absl::StrCat(R"(name: "a graph" )", kX, kNeg, kY), ErrorReason::kGraphStructure,
            "the graph's name 'a graph' is not a name"),
      Graph("input without a name", absl::StrCat(R"(inputs { type { dtype: DATA_TYPE_F32 } } )", kY),
            ErrorReason::kGraphSyntax, "input 0 has no name"),
      Graph("input without a type", absl::StrCat(R"(inputs { name: "x" } )", kNeg, kY), ErrorReason::kGraphSyntax,
            "'x': dtype 0 is not one that this version knows"),
      Graph("input with a space in its name",
            R"(inputs { name: "x y" type { dtype: DATA_TYPE_F32 dims { size: 4 } } } outputs { value_index: 0 })",
            ErrorReason::kGraphStructure, "input 0: 'x y' is not a name"),
      Graph("input with a NUL in its name",
            R"(inputs { name: "x\000y" type { dtype: DATA_TYPE_F32 dims { size: 4 } } } outputs { value_index: 0 })",
            ErrorReason::kGraphStructure, "input 0: 'x"),
      Graph("input called like a literal",
            R"(inputs { name: "nan" type { dtype: DATA_TYPE_F32 dims { size: 4 } } } outputs { value_index: 0 })",
            ErrorReason::kGraphStructure, "input 0: 'nan' is not a name"),
      Graph("name that is no UTF-8",
            R"(inputs { name: "\377\376" type { dtype: DATA_TYPE_F32 dims { size: 4 } } } outputs { value_index: 0 })",
            ErrorReason::kGraphSyntax, "the message can't be decoded"),
      Graph("unknown dtype", absl::StrCat(R"(inputs { name: "x" type { dtype: 99 dims { size: 4 } } } )", kNeg, kY),
            ErrorReason::kGraphSyntax, "'x': dtype 99 is not one that this version knows"),
      Graph("dim without a size",
            absl::StrCat(R"(inputs { name: "x" type { dtype: DATA_TYPE_F32 dims {  } } } )", kNeg, kY),
            ErrorReason::kGraphSyntax, "'x': a dim has neither size nor symbol"),
      Graph("negative dim",
            absl::StrCat(R"(inputs { name: "x" type { dtype: DATA_TYPE_F32 dims { size: -4 } } } )", kNeg, kY),
            ErrorReason::kGraphSyntax, "'x': negative dim -4"),
      Graph("symbol without a name",
            absl::StrCat(R"(inputs { name: "x" type { dtype: DATA_TYPE_F32 dims { symbol: "" } } } )", kNeg, kY),
            ErrorReason::kGraphSyntax, "'x': a dim's symbol is empty"),
      Graph("symbol that is no name",
            absl::StrCat(R"(inputs { name: "x" type { dtype: DATA_TYPE_F32 dims { symbol: "4 rows" } } } )", kNeg, kY),
            ErrorReason::kGraphStructure, "'x': symbol '4 rows' is not a name"),
      Graph(
          "strides of another rank",
          absl::StrCat(
              R"(inputs { name: "x" type { dtype: DATA_TYPE_F32 dims { size: 4 } layout { strides: 1 strides: 2 } } } )",
              kNeg, kY),
          ErrorReason::kGraphSyntax, "'x': 2 strides for 1 dims"),
      Graph(
          "sizes whose product overflows",
          absl::StrCat(
              R"(inputs { name: "x" type { dtype: DATA_TYPE_F32 dims { size: 9223372036854775807 } dims { size: 9223372036854775807 } } } )",
              kNeg, kY),
          ErrorReason::kLimitExceeded,
          "input 'x': f32[9223372036854775807, 9223372036854775807] has more than 1048576 elements"),
      Graph(
          "rank over the limit",
          absl::StrCat(
              R"(inputs { name: "x" type { dtype: DATA_TYPE_F32 dims { size: 1 } dims { size: 1 } dims { size: 1 } dims { size: 1 } dims { size: 1 } dims { size: 1 } dims { size: 1 } dims { size: 1 } dims { size: 1 }  } } )",
              kNeg, kY),
          ErrorReason::kLimitExceeded, "'x': rank 9 is over the limit of 8"),
      Graph("two inputs of one name", absl::StrCat(kX, kX, kNeg, kY), ErrorReason::kGraphStructure,
            "two values have the name 'x'"),
      Graph("node without an op",
            absl::StrCat(kX, R"(nodes { op: "" operands { value_name: "x" } results { name: "a" } } )", kY),
            ErrorReason::kGraphStructure, "node '%a': : unknown op"),
      Graph("op that is not there",
            absl::StrCat(kX, R"(nodes { op: "neg\000" operands { value_name: "x" } results { name: "a" } } )", kY),
            ErrorReason::kGraphStructure, "unknown op"),
      Graph("node without results",
            absl::StrCat(kX, R"(nodes { op: "neg" operands { value_name: "x" } } outputs { value_name: "x" })"),
            ErrorReason::kGraphSyntax, "node 'nodes[0]' has no results"),
      Graph(
          "result of a bad name",
          absl::StrCat(
              kX,
              R"(nodes { op: "neg" operands { value_name: "x" } results { name: "%a" } } outputs { value_index: 1 })"),
          ErrorReason::kGraphStructure, "node '%%a': '%a' is not a name"),
      Graph("result called like an input",
            absl::StrCat(
                kX,
                R"(nodes { op: "neg" operands { value_name: "x" } results { name: "x" } } outputs { value_index: 1 })"),
            ErrorReason::kGraphStructure, "two values have the name 'x'"),
      Graph("operand that is not set",
            absl::StrCat(kX, R"(nodes { op: "neg" operands {  } results { name: "a" } } )", kY),
            ErrorReason::kGraphSyntax, "node '%a': operand 0 is not set"),
      Graph("operand of an unknown name",
            absl::StrCat(kX, R"(nodes { op: "neg" operands { value_name: "z" } results { name: "a" } } )", kY),
            ErrorReason::kGraphStructure, "node '%a': operand 0 is 'z', which no input or earlier node defines"),
      Graph("operand of a negative number",
            absl::StrCat(kX, R"(nodes { op: "neg" operands { value_index: -1 } results { name: "a" } } )", kY),
            ErrorReason::kGraphStructure, "node '%a': operand 0 is value -1, which no input or earlier node defines"),
      Graph("operand of a number too large",
            absl::StrCat(kX, R"(nodes { op: "neg" operands { value_index: 7 } results { name: "a" } } )", kY),
            ErrorReason::kGraphStructure, "node '%a': operand 0 is value 7, which no input or earlier node defines"),
      Graph("node that reads itself by name",
            absl::StrCat(kX, R"(nodes { op: "neg" operands { value_name: "a" } results { name: "a" } } )", kY),
            ErrorReason::kGraphStructure, "node '%a': operand 0 is 'a', which no input or earlier node defines"),
      Graph("node that reads itself by number",
            absl::StrCat(kX, R"(nodes { op: "neg" operands { value_index: 1 } results { name: "a" } } )", kY),
            ErrorReason::kGraphStructure, "node '%a': operand 0 is value 1, which no input or earlier node defines"),
      Graph(
          "two nodes that read each other",
          absl::StrCat(
              kX,
              R"(nodes { op: "neg" operands { value_name: "b" } results { name: "a" } } nodes { op: "neg" operands { value_name: "a" } results { name: "b" } } )",
              kY),
          ErrorReason::kGraphStructure, "node '%a': operand 0 is 'b', which no input or earlier node defines"),
      Graph(
          "node that reads a later one by number",
          absl::StrCat(
              kX,
              R"(nodes { op: "neg" operands { value_index: 2 } results { name: "a" } } nodes { op: "neg" operands { value_index: 0 } results { name: "b" } } )",
              kY),
          ErrorReason::kGraphStructure, "node '%a': operand 0 is value 2, which no input or earlier node defines"),
      Graph("literal that is not set",
            absl::StrCat(kX, R"(nodes { op: "neg" operands { literal { } } results { name: "a" } } )", kY),
            ErrorReason::kGraphSyntax, "node '%a': a literal has no value"),
      Graph(
          "attribute that is not set",
          absl::StrCat(
              kX,
              R"(nodes { op: "sum" attributes { key: "dims" value { } } operands { value_name: "x" } results { name: "a" } } )",
              kY),
          ErrorReason::kGraphSyntax, "node '%a': attribute 'dims' has no value"),
      Graph(
          "attribute without a name",
          absl::StrCat(
              kX,
              R"(nodes { op: "sum" attributes { key: "" value { int_value: 1 } } operands { value_name: "x" } results { name: "a" } } )",
              kY),
          ErrorReason::kGraphStructure, "node '%a': sum: unknown attribute ''"),
      Graph(
          "attribute of an unknown dtype",
          absl::StrCat(
              kX,
              R"(nodes { op: "cast" attributes { key: "dtype" value { dtype_value: 77 } } operands { value_name: "x" } results { name: "a" } } )",
              kY),
          ErrorReason::kGraphSyntax, "node '%a': attribute 'dtype': dtype 77 is not one that this version knows"),
      Graph(
          "attribute of no dtype",
          absl::StrCat(
              kX,
              R"(nodes { op: "cast" attributes { key: "dtype" value { dtype_value: DATA_TYPE_UNSPECIFIED } } operands { value_name: "x" } results { name: "a" } } )",
              kY),
          ErrorReason::kGraphSyntax, "node '%a': attribute 'dtype': dtype 0 is not one that this version knows"),
      Graph(
          "infinite attribute",
          absl::StrCat(
              R"(inputs { name: "x" type { dtype: DATA_TYPE_I32 dims { size: 4 } } } nodes { op: "clamp" attributes { key: "max" value { float_value: inf } } operands { value_name: "x" } results { name: "a" } } )",
              kY),
          ErrorReason::kGraphTypeMismatch, "node '%a': clamp: attribute 'max'"),
      Graph("data of an op that is no constant",
            absl::StrCat(
                kX, R"(nodes { op: "neg" operands { value_name: "x" } constant_data: "1234" results { name: "a" } } )",
                kY),
            ErrorReason::kGraphStructure, "node '%a': neg: only a constant has data"),
      Graph(
          "constant without data",
          absl::StrCat(
              R"(nodes { op: "constant" attributes { key: "dtype" value { dtype_value: DATA_TYPE_F32 } } attributes { key: "shape" value { int_list { values: 2 } } }  results { name: "a" } } )",
              kY),
          ErrorReason::kGraphStructure, "node '%a': constant: attribute 'data' is required"),
      Graph(
          "constant with a byte too few",
          absl::StrCat(
              R"(nodes { op: "constant" attributes { key: "dtype" value { dtype_value: DATA_TYPE_F32 } } attributes { key: "shape" value { int_list { values: 2 } } } constant_data: "1234567" results { name: "a" } } )",
              kY),
          ErrorReason::kGraphTypeMismatch, "node '%a': constant: data has 7 bytes, f32[2] has 8"),
      Graph(
          "constant with too many bytes",
          absl::StrCat(
              R"(nodes { op: "constant" attributes { key: "dtype" value { dtype_value: DATA_TYPE_F32 } } attributes { key: "shape" value { int_list { values: 2 } } } constant_data: "123456789012" results { name: "a" } } )",
              kY),
          ErrorReason::kGraphTypeMismatch, "node '%a': constant: data has 3 elements, f32[2] has 2"),
      Graph(
          "constant of bools that are neither",
          absl::StrCat(
              R"(nodes { op: "constant" attributes { key: "dtype" value { dtype_value: DATA_TYPE_BOOL } } attributes { key: "shape" value { int_list { values: 2 } } } constant_data: "\000\002" results { name: "a" } } )",
              kY),
          ErrorReason::kGraphTypeMismatch, "node '%a': constant: a bool in the data is neither 0 nor 1"),
      Graph("output that is not set", absl::StrCat(kX, kNeg, R"(outputs { name: "y" })"), ErrorReason::kGraphSyntax,
            "output 'y' names no value"),
      Graph("output of an unknown name", absl::StrCat(kX, kNeg, R"(outputs { name: "y" value_name: "z" })"),
            ErrorReason::kGraphStructure, "output 'y' returns a value that the graph does not define"),
      Graph("output of a number too large", absl::StrCat(kX, kNeg, R"(outputs { name: "y" value_index: 2 })"),
            ErrorReason::kGraphStructure, "output 'y' returns a value that the graph does not define"),
      Graph("output of a bad name", absl::StrCat(kX, kNeg, R"(outputs { name: "y y" value_name: "a" })"),
            ErrorReason::kGraphStructure, "output 0: 'y y' is not a name"),
      Graph("two outputs of one name", absl::StrCat(kX, kNeg, kY, kY), ErrorReason::kGraphStructure,
            "output 1: the name 'y' is used twice"),
      Graph(
          "declared type of another shape",
          absl::StrCat(
              kX,
              R"(nodes { op: "neg" operands { value_name: "x" } results { name: "a" declared_type { dtype: DATA_TYPE_F32 dims { size: 5 } } } } )",
              kY),
          ErrorReason::kGraphTypeMismatch, "node '%a': neg: the declared type f32[5] is not the inferred f32[4]"),
      Graph(
          "declared type without a dtype",
          absl::StrCat(
              kX,
              R"(nodes { op: "neg" operands { value_name: "x" } results { name: "a" declared_type { dims { size: 4 } } } } )",
              kY),
          ErrorReason::kGraphSyntax, "'%a': dtype 0 is not one that this version knows"),
      Graph("too many nodes",
            absl::StrCat(kX, Repeat(R"(nodes { op: "neg" operands { value_index: 0 } results { } } )", kMaxNodes + 1),
                         "outputs { value_index: 0 }"),
            ErrorReason::kLimitExceeded, "graph has 1001 nodes, over the limit of 1000"),
      Graph("node with too many results",
            absl::StrCat(kX, R"(nodes { op: "neg" operands { value_index: 0 } )", Repeat("results { } ", 300),
                         "} outputs { value_index: 0 }"),
            ErrorReason::kGraphStructure, "node '%v1': neg: gives 1 result, not 300"),
      Graph("node with too many operands",
            absl::StrCat(kX, R"(nodes { op: "neg" )", Repeat("operands { value_index: 0 } ", 300),
                         "results { } } outputs { value_index: 0 }"),
            ErrorReason::kGraphStructure, "node '%v1': neg: takes 1 operand, got 300"),
  };
}

}  // namespace fuseline::testing
