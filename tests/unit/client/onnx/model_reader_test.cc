#include "client/onnx/model_reader.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/client/onnx/model_text.h"

namespace fuseline::onnx_import {
namespace {

using ::testing::HasSubstr;
using testing::ModelOfGraph;

std::string TensorBytes(const std::string& text) {
  ::onnx::TensorProto tensor;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &tensor)) << text;
  return tensor.SerializeAsString();
}

TEST(ModelReaderTest, BytesThatAreNoModelAreAnError) {
  for (const std::string& bytes : {std::string("graph g() {}"), std::string("\xff\xff\xff", 3), std::string()}) {
    const absl::StatusOr<Model> model = ReadModel(bytes);
    ASSERT_FALSE(model.ok());
    EXPECT_THAT(std::string(model.status().message()), HasSubstr("not an ONNX model"));
  }
}

TEST(ModelReaderTest, TruncatedModelsAreErrorsOrModels) {
  const std::string bytes = ModelOfGraph(
      "initializer { name: \"w\" dims: 2 data_type: 1 float_data: 1 float_data: 2 }"
      "node { input: \"w\" output: \"y\" op_type: \"Relu\" } output { name: \"y\" }");
  ASSERT_FALSE(bytes.empty());
  int errors = 0;
  for (size_t n = 0; n < bytes.size(); ++n) errors += !ReadModel(bytes.substr(0, n)).ok();
  EXPECT_GT(errors, 0);
  EXPECT_TRUE(ReadModel(bytes).ok());
}

struct TensorCase {
  const char* situation;
  const char* text;
  double first;
};

class TensorFileTest : public ::testing::TestWithParam<TensorCase> {};

TEST_P(TensorFileTest, HoldsItsElements) {
  const absl::StatusOr<FileTensor> file = ReadTensorFile(TensorBytes(GetParam().text));
  ASSERT_TRUE(file.ok()) << file.status();
  ASSERT_EQ(file->problem, "");
  ASSERT_GT(file->tensor.element_count(), 0);
  const bool is_float = IsFloat(file->tensor.dtype());
  EXPECT_EQ(is_float ? file->tensor.GetDouble(0) : static_cast<double>(file->tensor.GetInt(0)), GetParam().first);
}

INSTANTIATE_TEST_SUITE_P(
    Tensors, TensorFileTest,
    ::testing::Values(TensorCase{"FloatData", "data_type: 1 dims: 1 float_data: 1.5", 1.5},
                      TensorCase{"RawData",
                                 "data_type: 7 dims: 1 raw_data: \"\\003\\000\\000\\000\\000\\000\\000\\000\"", 3},
                      TensorCase{"HalfAsBits", "data_type: 10 int32_data: 15360", 1},
                      TensorCase{"BoolAsInteger", "data_type: 9 dims: 2 int32_data: 7 int32_data: 0", 1},
                      TensorCase{"SmallInteger", "data_type: 3 dims: 1 int32_data: -5", -5},
                      TensorCase{"Double", "data_type: 11 double_data: 0.1", 0.1}),
    [](const auto& info) { return info.param.situation; });

TEST(ModelReaderTest, DataThatDoesNotFitTheShapeIsAnError) {
  for (const char* text : {"data_type: 1 dims: 3 float_data: 1", "data_type: 1 dims: 2 raw_data: \"abc\"",
                           "data_type: 1 dims: -1 float_data: 1", "data_type: 1 dims: 4611686018427387904 dims: 4",
                           "data_type: 7 dims: 1 float_data: 1"}) {
    EXPECT_FALSE(ReadTensorFile(TensorBytes(text)).ok()) << text;
  }
}

TEST(ModelReaderTest, WhatIsNotSupportedIsAProblemOfThePart) {
  const struct {
    const char* text;
    const char* problem;
  } cases[] = {{"data_type: 8 dims: 1 string_data: \"a\"", "string"},
               {"data_type: 13 dims: 1 uint64_data: 1", "uint64"},
               {"data_type: 1 dims: 1 data_location: EXTERNAL", "external data"},
               {"data_type: 99 dims: 1", "number 99"}};
  for (const auto& c : cases) {
    const absl::StatusOr<FileTensor> file = ReadTensorFile(TensorBytes(c.text));
    ASSERT_TRUE(file.ok()) << file.status();
    EXPECT_THAT(file->problem, HasSubstr(c.problem));
  }
}

TEST(ModelReaderTest, CountsAreBounded) {
  ReadLimits limits;
  limits.max_nodes = 1;
  const std::string bytes = ModelOfGraph("node { op_type: \"Relu\" } node { op_type: \"Relu\" }");
  const absl::StatusOr<Model> model = ReadModel(bytes, limits);
  ASSERT_FALSE(model.ok());
  EXPECT_THAT(std::string(model.status().message()), HasSubstr("2 nodes, and 1 are allowed"));
  limits.max_bytes = 3;
  EXPECT_THAT(std::string(ReadModel(bytes, limits).status().message()), HasSubstr("bytes"));
}

}  // namespace
}  // namespace fuseline::onnx_import
