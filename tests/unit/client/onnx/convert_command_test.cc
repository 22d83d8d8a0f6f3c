// `fuseline convert`, and .onnx files where commands take a graph.
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/program_runner.h"
#include "tests/unit/client/onnx/model_text.h"

namespace fuseline::testing {
namespace {

using ::testing::HasSubstr;

ProgramResult Fuseline(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), FUSELINE_CLI);
  return RunProgram(arguments);
}

std::string Affine(const std::string& dims) {
  std::string data;
  for (int i = 0; i < 65; ++i) data += " float_data: 2";
  return ModelOfGraph("input { " + ValueText("x", dims) + " } output { name: \"y\" } " +
                      "initializer { name: \"w\" dims: 65 data_type: 1" + data + " }" +
                      "node { input: \"x\" input: \"w\" output: \"t\" op_type: \"Mul\" }"
                      "node { input: \"t\" output: \"y\" op_type: \"Relu\" }");
}

TEST(ConvertCommandTest, WritesTheGraphAndItsWeights) {
  const TemporaryFolder folder;
  const std::string model = folder.Write("m.onnx", Affine(SizeText(65)));
  const ProgramResult result =
      Fuseline({"convert", model, "-o", folder.path("m.fl"), "--weights=inputs", "--weights-dir", folder.path()});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("2 nodes, 2 inputs (1 of them weights)"));
  EXPECT_THAT(folder.Read("m.fl"), HasSubstr("w: f32[65]"));
  EXPECT_THAT(folder.Read("m.fl"), HasSubstr("relu("));
  EXPECT_THAT(folder.Read("w.npy"), HasSubstr("NUMPY"));
}

TEST(ConvertCommandTest, ModelsStandWhereGraphsDo) {
  const TemporaryFolder folder;
  const ProgramResult result = Fuseline({"fmt", folder.Write("m.onnx", Affine(SizeText(65)))});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("mul(x, "));
}

TEST(ConvertCommandTest, SymbolsAreAskedForAndTaken) {
  const TemporaryFolder folder;
  const std::string model = folder.Write("m.onnx", Affine("dim { dim_param: \"n\" } " + SizeText(65)));
  const ProgramResult without = Fuseline({"convert", model});
  EXPECT_EQ(without.exit_code, 1);
  EXPECT_THAT(without.err, HasSubstr("'n', is open"));
  const ProgramResult with = Fuseline({"convert", model, "--symbol", "n=3"});
  EXPECT_EQ(with.exit_code, 0) << with.err;
  EXPECT_THAT(with.out, HasSubstr("x: f32[3, 65]"));
}

TEST(ConvertCommandTest, WhatIsNoModelIsAnErrorThatNamesTheFile) {
  const TemporaryFolder folder;
  const ProgramResult result = Fuseline({"convert", folder.Write("bad.onnx", "graph g() {}")});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.err, HasSubstr("bad.onnx"));
  EXPECT_THAT(result.err, HasSubstr("not an ONNX model"));
}

}  // namespace
}  // namespace fuseline::testing
