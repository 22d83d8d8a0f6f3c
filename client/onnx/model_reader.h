// Reads ONNX's protobuf messages: the only code that knows them.
// Pipeline: bytes of a .onnx or .pb file -> ReadModel, ReadTensorFile -> Model, FileTensor.
// Errors: INVALID_ARGUMENT for bytes that are no such message, counts over their limits, tensors whose data does not
// fit their shape. What is well-formed but can't be imported is kept as a `problem` of the part, so that all can be
// named at once. Thread-safety: pure functions. Tested by tests/unit/client/onnx/model_reader_test.cc
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "client/onnx/model.h"

namespace fuseline::onnx_import {

struct ReadLimits {
  int64_t max_bytes = int64_t{2} << 30;  // of a file; protobuf's own limit
  int64_t max_nodes = 100'000;           // of the graph and of all functions together
  int64_t max_tensors = 100'000;
};

absl::StatusOr<Model> ReadModel(const std::string& bytes, const ReadLimits& limits = {});
// A file with one TensorProto, as the data sets of backend tests are. `uint16_as`: a 16-bit float whose bits stand
// there as unsigned integers, where the writer had no such type.
absl::StatusOr<FileTensor> ReadTensorFile(const std::string& bytes, DType uint16_as = DType::kInvalid);

// ONNX's name of a number of TensorProto.DataType: "uint16".
std::string OnnxTypeName(int64_t data_type);
// The dtype, or kInvalid where there is none.
DType DTypeOfOnnx(int64_t data_type);

}  // namespace fuseline::onnx_import
