#include "client/onnx/import_model.h"

#include <string>
#include <vector>

#include "common/ir/text_form.h"
#include "common/ir/verify_graph.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/client/onnx/model_text.h"

namespace fuseline::onnx_import {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::ModelBytes;
using testing::ModelOfGraph;
using ::testing::Not;
using testing::SizeText;
using testing::ValueText;

std::string Import(const std::string& bytes, const ImportOptions& options = {}) {
  absl::StatusOr<ImportedModel> imported = ImportModelBytes(bytes, options);
  if (!imported.ok()) return imported.status().ToString();
  if (absl::Status verified = VerifyGraph(imported->graph); !verified.ok()) return verified.ToString();
  return PrintGraph(imported->graph);
}

const std::string kX23 = "input { " + ValueText("x", SizeText(2) + SizeText(3)) + " } ";
const std::string kOutput = "output { name: \"y\" } ";

TEST(ImportModelTest, NodesBecomeOps) {
  const std::string text = Import(ModelOfGraph(kX23 + kOutput +
                                               "node { input: \"x\" input: \"x\" output: \"s\" op_type: \"Add\" }"
                                               "node { input: \"s\" output: \"y\" op_type: \"Sigmoid\" }"));
  EXPECT_THAT(text, HasSubstr("add(x, x)"));
  EXPECT_THAT(text, HasSubstr("sigmoid("));
  EXPECT_THAT(text, HasSubstr("return y = "));
}

TEST(ImportModelTest, ShapeArithmeticIsFolded) {
  // y = reshape(x, concat(shape(x)[1:2], [-1]))
  const std::string text =
      Import(ModelOfGraph(kX23 + kOutput +
                          "initializer { name: \"one\" dims: 1 data_type: 7 int64_data: 1 }"
                          "initializer { name: \"rest\" dims: 1 data_type: 7 int64_data: -1 }"
                          "node { input: \"x\" output: \"shape\" op_type: \"Shape\" }"
                          "node { input: \"shape\" input: \"one\" output: \"n\" op_type: \"Gather\" }"
                          "node { input: \"n\" input: \"rest\" output: \"to\" op_type: \"Concat\" attribute { name: "
                          "\"axis\" type: INT i: 0 } }"
                          "node { input: \"x\" input: \"to\" output: \"y\" op_type: \"Reshape\" }"));
  EXPECT_THAT(text, HasSubstr("reshape(x) {shape = [3, -1]}"));
  EXPECT_THAT(text, Not(HasSubstr("constant")));
}

TEST(ImportModelTest, EveryProblemIsNamedAtOnce) {
  const std::string text = Import(ModelOfGraph(
      kX23 + kOutput +
      "node { input: \"x\" output: \"a\" op_type: \"Frobnicate\" }"
      "node { input: \"x\" output: \"b\" name: \"odd\" op_type: \"Relu\" attribute { name: \"twist\" type: INT i: 1 } }"
      "node { input: \"a\" output: \"c\" op_type: \"Sqrt\" }"
      "node { input: \"x\" output: \"d\" op_type: \"If\" }"
      "node { input: \"x\" output: \"y\" op_type: \"SequenceConstruct\" }"));
  EXPECT_THAT(text, HasSubstr("UNIMPLEMENTED"));
  EXPECT_THAT(text, HasSubstr("4 problems"));
  EXPECT_THAT(text, HasSubstr("op Frobnicate"));
  EXPECT_THAT(text, HasSubstr("node 'odd' (Relu): attribute 'twist'"));
  EXPECT_THAT(text, HasSubstr("op If: control flow"));
  EXPECT_THAT(text, HasSubstr("op SequenceConstruct: sequences"));
  EXPECT_THAT(text, Not(HasSubstr("Sqrt")));  // it only follows from the first
}

TEST(ImportModelTest, WeightsAreConstantsOrInputs) {
  std::string data;
  for (int i = 0; i < 99; ++i) data += " float_data: 1";
  const std::string bytes = ModelOfGraph("input { " + ValueText("x", SizeText(99)) + " } " + kOutput +
                                         "initializer { name: \"w/0\" dims: 99 data_type: 1" + data +
                                         " }"
                                         "node { input: \"x\" input: \"w/0\" output: \"y\" op_type: \"Mul\" }");
  EXPECT_THAT(Import(bytes), HasSubstr("constant"));
  ImportOptions options;
  options.weights_as_inputs = true;
  const absl::StatusOr<ImportedModel> imported = ImportModelBytes(bytes, options);
  ASSERT_TRUE(imported.ok()) << imported.status();
  EXPECT_THAT(imported->input_names, ElementsAre("x", "w/0"));
  ASSERT_EQ(imported->weights.size(), 1u);
  EXPECT_EQ(imported->weights[0].input, "w_0");
  EXPECT_EQ(imported->weights[0].tensor.GetDouble(98), 1.0);
  EXPECT_THAT(PrintGraph(imported->graph), HasSubstr("mul(x, w_0)"));
}

TEST(ImportModelTest, SymbolsAndShapesAreAskedFor) {
  const std::string bytes = ModelOfGraph("input { " + ValueText("x", "dim { dim_param: \"n\" } " + SizeText(3)) +
                                         " } " + kOutput + "node { input: \"x\" output: \"y\" op_type: \"Relu\" }");
  EXPECT_THAT(Import(bytes), HasSubstr("input 'x': the size of dim 0, 'n', is open"));
  ImportOptions options;
  options.symbols["n"] = 5;
  EXPECT_THAT(Import(bytes, options), HasSubstr("x: f32[5, 3]"));
  options = {};
  options.shapes["x"] = {7, 3};
  EXPECT_THAT(Import(bytes, options), HasSubstr("x: f32[7, 3]"));
}

TEST(ImportModelTest, InputsThatShapesDependOnCanBeGiven) {
  const std::string bytes = ModelOfGraph(kX23 + "input { " + ValueText("to", SizeText(1), 7) + " } " + kOutput +
                                         "node { input: \"to\" output: \"same\" op_type: \"Identity\" }"
                                         "node { input: \"x\" input: \"same\" output: \"y\" op_type: \"Reshape\" }");
  EXPECT_THAT(Import(bytes), HasSubstr("depends on the inputs 'to'"));
  ImportOptions options;
  Tensor to = Tensor::Allocate(DType::kI64, {1});
  to.SetInt(0, 6);
  options.known_inputs["to"] = to;
  const absl::StatusOr<ImportedModel> imported = ImportModelBytes(bytes, options);
  ASSERT_TRUE(imported.ok()) << imported.status();
  EXPECT_THAT(imported->input_names, ElementsAre("x"));
  EXPECT_THAT(imported->constant_inputs, ElementsAre("to"));
}

TEST(ImportModelTest, CastLikeOfAKnownValueIsFolded) {
  const std::string text = Import(ModelOfGraph(
      kX23 + kOutput +
      "initializer { name: \"rows\" dims: 2 data_type: 1 float_data: 3 float_data: 2 }"
      "node { output: \"i\" op_type: \"Constant\" attribute { name: \"value\" type: TENSOR t { dims: 1 data_type: 7 "
      "int64_data: 0 } } }"
      "node { input: \"rows\" input: \"i\" output: \"to\" op_type: \"CastLike\" }"
      "node { input: \"x\" input: \"to\" output: \"y\" op_type: \"Reshape\" }"));
  EXPECT_THAT(text, HasSubstr("reshape(x) {shape = [3, 2]}"));
}

TEST(ImportModelTest, WideFiltersOfResizeAreAProductWithAMatrix) {
  const auto resize = [](int sizes, const std::string& attribute) {
    return Import(ModelOfGraph(
        "input { " + ValueText("x", SizeText(1) + SizeText(100)) + " } " + kOutput +
            "initializer { name: \"sizes\" dims: 2 data_type: 7 int64_data: 1 int64_data: " + std::to_string(sizes) +
            " } node { input: \"x\" input: \"\" input: \"\" input: \"sizes\" output: \"y\" op_type: "
            "\"Resize\" attribute { name: \"mode\" type: STRING s: \"linear\" } " +
            attribute + " }",
        18));
  };
  const std::string antialias = "attribute { name: \"antialias\" type: INT i: 1 }";
  EXPECT_THAT(resize(10, antialias), HasSubstr("linear("));
  EXPECT_THAT(resize(10, ""), Not(HasSubstr("linear(")));
  EXPECT_THAT(resize(50, antialias), Not(HasSubstr("linear(")));
  EXPECT_THAT(resize(50, "attribute { name: \"keep_aspect_ratio_policy\" type: STRING s: \"not_larger\" }"),
              HasSubstr("index_select("));
}

TEST(ImportModelTest, AttentionIsOneOpUnlessItsStepsAreAskedFor) {
  const std::string shape = SizeText(1) + SizeText(2) + SizeText(4) + SizeText(8);
  const std::string inputs = "input { " + ValueText("q", shape) + " } input { " + ValueText("k", shape) +
                             " } input { " + ValueText("v", shape) + " } ";
  const auto attention = [&](const std::string& attribute) {
    return Import(ModelOfGraph(
        inputs + kOutput + "node { input: \"q\" input: \"k\" input: \"v\" output: \"y\" op_type: \"Attention\" " +
            attribute + " }",
        23));
  };
  EXPECT_THAT(attention(""), HasSubstr("attention(q, k, v)"));
  EXPECT_THAT(attention("attribute { name: \"softcap\" type: FLOAT f: 2 }"), HasSubstr("tanh("));
  EXPECT_THAT(attention("attribute { name: \"wings\" type: INT i: 2 }"), HasSubstr("attribute 'wings' is not known"));
}

TEST(ImportModelTest, NewerOpsetsAreRefused) {
  const std::string text =
      Import(ModelOfGraph(kX23 + kOutput + "node { input: \"x\" output: \"y\" op_type: \"Relu\" }", 99));
  EXPECT_THAT(text, HasSubstr("opset 99 is not imported"));
}

TEST(ImportModelTest, FunctionsAreReplacedByTheirBodies) {
  const std::string function =
      "functions { name: \"Twice\" domain: \"d\" input: \"a\" output: \"b\" opset_import { version: 17 }"
      " node { input: \"a\" input: \"a\" output: \"b\" op_type: \"Add\" } }";
  const std::string text = Import(ModelBytes(
      "ir_version: 8 opset_import { version: 17 } opset_import { domain: \"d\" version: 1 } graph { name: \"g\" " +
      kX23 + kOutput +
      "node { input: \"x\" output: \"t\" op_type: \"Twice\" domain: \"d\" }"
      "node { input: \"t\" output: \"y\" op_type: \"Twice\" domain: \"d\" } } " +
      function));
  EXPECT_THAT(text, HasSubstr("add(x, x)"));
  EXPECT_THAT(text, HasSubstr("add(%t0, %t0)"));
}

TEST(ImportModelTest, FunctionsThatCallEachOtherEndWithAnError) {
  const std::string text =
      Import(ModelBytes("ir_version: 8 opset_import { version: 17 } graph { name: \"g\" " + kX23 + kOutput +
                        "node { input: \"x\" output: \"y\" op_type: \"F\" domain: \"d\" } }"
                        "functions { name: \"F\" domain: \"d\" input: \"a\" output: \"b\" node { input: \"a\" output: "
                        "\"b\" op_type: \"F\" domain: \"d\" } }"));
  EXPECT_THAT(text, HasSubstr("nested more than"));
}

// An operand of the wrong rank or a missing one is an error, whatever the op.
struct BrokenNode {
  const char* situation;
  const char* node;
};

class BrokenNodeTest : public ::testing::TestWithParam<BrokenNode> {};

TEST_P(BrokenNodeTest, IsAnErrorThatNamesTheNode) {
  const std::string text = Import(ModelOfGraph("input { " + ValueText("x", "") + " } " + kOutput +
                                               "node { name: \"n\" output: \"y\" " + GetParam().node + " }"));
  EXPECT_THAT(text, HasSubstr("node 'n'")) << text;
}

INSTANTIATE_TEST_SUITE_P(
    Nodes, BrokenNodeTest,
    ::testing::Values(
        BrokenNode{"NoOperand", "op_type: \"Sqrt\""},
        BrokenNode{"ScalarConvolved", "op_type: \"Conv\" input: \"x\" input: \"x\""},
        BrokenNode{"ScalarTransposeConvolved", "op_type: \"ConvTranspose\" input: \"x\" input: \"x\""},
        BrokenNode{"ScalarPooled",
                   "op_type: \"MaxPool\" input: \"x\" attribute { name: \"kernel_shape\" type: INTS ints: 2 }"},
        BrokenNode{"PoolWithoutKernel", "op_type: \"AveragePool\" input: \"x\""},
        BrokenNode{"ScalarNormalized",
                   "op_type: \"BatchNormalization\" input: \"x\" input: \"x\" input: \"x\" input: \"x\" input: \"x\""},
        BrokenNode{"ScalarUnrolled", "op_type: \"LSTM\" input: \"x\" input: \"x\" input: \"x\""},
        BrokenNode{"ScalarSampled", "op_type: \"GridSample\" input: \"x\" input: \"x\""},
        BrokenNode{"ScalarLrn", "op_type: \"LRN\" input: \"x\" attribute { name: \"size\" type: INT i: 3 }"},
        BrokenNode{"SoftmaxOfAScalar", "op_type: \"Softmax\" input: \"x\""},
        BrokenNode{"AxisOutOfRange", "op_type: \"Concat\" input: \"x\" attribute { name: \"axis\" type: INT i: 5 }"},
        BrokenNode{"WrongAttributeType",
                   "op_type: \"Elu\" input: \"x\" attribute { name: \"alpha\" type: STRING s: \"a\" }"},
        BrokenNode{"EinsumOfFewOperands",
                   "op_type: \"Einsum\" input: \"x\" attribute { name: \"equation\" type: STRING s: \"i,j->ij\" }"},
        BrokenNode{"GroupsOfAScalar", "op_type: \"GroupNormalization\" input: \"x\" input: \"x\" input: \"x\""},
        BrokenNode{"DetOfAScalar", "op_type: \"Det\" input: \"x\""},
        BrokenNode{"DepthToSpaceOfAScalar",
                   "op_type: \"DepthToSpace\" input: \"x\" attribute { name: \"blocksize\" type: INT i: 2 }"},
        BrokenNode{"DftOfAScalar", "op_type: \"DFT\" input: \"x\""},
        BrokenNode{"ReverseOfAScalar", "op_type: \"ReverseSequence\" input: \"x\" input: \"x\""}),
    [](const auto& info) { return info.param.situation; });

}  // namespace
}  // namespace fuseline::onnx_import
