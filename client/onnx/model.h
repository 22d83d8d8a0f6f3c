// An ONNX model as plain structs, free of protobuf: what the importers of the ops read.
// Pipeline: bytes -> ReadModel (model_reader.h) -> Model -> ImportModel -> Graph.
// Ownership: values; tensors share their storage. Thread-safety: immutable after reading.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "common/ir/types.h"
#include "common/tensor/tensor.h"

namespace fuseline::onnx_import {

// A tensor of the file, or why it can't be one here (strings, 16-bit unsigned integers, external data, …).
struct FileTensor {
  std::string name;
  Tensor tensor;
  std::string problem;
};

struct Attribute {
  std::variant<std::monostate, int64_t, double, std::string, std::vector<int64_t>, std::vector<double>,
               std::vector<std::string>, FileTensor>
      value;
  std::string problem;   // of a kind that can't be imported: a graph, a sparse tensor, a type
  std::string ref_name;  // in the body of a function: the attribute of the call that it stands for
};

struct ModelNode {
  std::string name;
  std::string op;
  std::string domain;               // "" is ONNX's own
  std::vector<std::string> inputs;  // "" where an optional one is left out
  std::vector<std::string> outputs;
  std::map<std::string, Attribute, std::less<>> attributes;
};

struct ModelDim {
  std::optional<int64_t> size;
  std::string symbol;  // may be empty: unknown
};

struct ModelValue {
  std::string name;
  DType dtype = DType::kInvalid;
  std::string problem;  // of a type that is no tensor of ours
  std::optional<std::vector<ModelDim>> dims;
};

struct ModelFunction {
  std::string domain;
  std::string name;
  std::vector<std::string> inputs;
  std::vector<std::string> outputs;
  std::map<std::string, Attribute, std::less<>> defaults;
  std::vector<ModelNode> nodes;
  std::map<std::string, int64_t, std::less<>> opsets;
};

struct Model {
  std::string name;
  std::map<std::string, int64_t, std::less<>> opsets;  // version by domain
  std::vector<ModelValue> inputs;                      // those with an initializer too
  std::vector<ModelValue> outputs;
  std::vector<FileTensor> initializers;
  std::vector<std::string> problems;  // of the file as a whole: sparse initializers
  std::vector<ModelNode> nodes;
  std::vector<ModelFunction> functions;
};

}  // namespace fuseline::onnx_import
