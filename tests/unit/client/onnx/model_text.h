// ONNX models for tests, from the text form of protobuf.
// Thread-safety: pure functions.
#pragma once

#include <string>

#include "google/protobuf/text_format.h"
#include "onnx/onnx.pb.h"

namespace fuseline::testing {

// The bytes of the ModelProto that `text` spells; empty where it does not.
inline std::string ModelBytes(const std::string& text) {
  ::onnx::ModelProto model;
  if (!google::protobuf::TextFormat::ParseFromString(text, &model)) return "";
  return model.SerializeAsString();
}

// "name: "x" type {…}", an f32 tensor's declaration. `dims`: dim {dim_value: 2} …
inline std::string ValueText(const std::string& name, const std::string& dims, int type = 1) {
  return "name: \"" + name + "\" type { tensor_type { elem_type: " + std::to_string(type) + " shape { " + dims +
         " } } }";
}

inline std::string SizeText(int64_t size) { return "dim { dim_value: " + std::to_string(size) + " } "; }

// A model with the given text of its graph.
inline std::string ModelOfGraph(const std::string& graph, int opset = 17) {
  return ModelBytes("ir_version: 8 opset_import { version: " + std::to_string(opset) + " } graph { name: \"g\" " +
                    graph + " }");
}

}  // namespace fuseline::testing
