// What the importer of an op sees of one node: operands as graph values or as tensors that are known, attributes,
// and where to put the results. Errors stick, as those of the Emitter.
// Pipeline: ModelNode, values so far -> OpCall -> an importer (importers.h) -> values.
// Ownership: borrows the node, the values and the emitter. Thread-safety: thread-compatible.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "client/onnx/emitter.h"
#include "client/onnx/model.h"

namespace fuseline::onnx_import {

// A value of the model while it is imported. It is known (a tensor), a value of the graph, or both.
struct Imported {
  Val value;
  std::optional<Tensor> known;
  std::string name;
  bool failed = false;                // its node could not be imported: said once, at that node
  std::string problem;                // an initializer or input that can't be imported, said where it is used
  bool from_file = false;             // an initializer: it may become an input of the graph
  std::set<std::string> from_inputs;  // the inputs of the model that its elements (not only its shape) depend on
};

class OpCall {
 public:
  // Makes a value of the graph of one that is only known.
  using Materialize = Val (*)(void* context, Imported& value);

  OpCall(const ModelNode& node, int64_t opset, std::vector<Imported*> inputs, Emitter& emitter, Materialize materialize,
         void* context)
      : e(emitter),
        opset(opset),
        node_(node),
        inputs_(std::move(inputs)),
        results_(node.outputs.size()),
        materialize_(materialize),
        context_(context) {}

  Emitter& e;
  const int64_t opset;  // of the node's domain

  const std::string& op() const { return node_.op; }
  bool ok() const { return e.ok(); }
  void Fail(const std::string& message) { e.Fail(message); }
  // UNIMPLEMENTED: valid, but not imported.
  void Refuse(const std::string& message);

  size_t input_count() const { return inputs_.size(); }
  bool Has(size_t i) const { return i < inputs_.size() && inputs_[i] != nullptr; }
  Val In(size_t i);
  // Of an operand whether it is known or not.
  DType InType(size_t i) const;
  Shape InShape(size_t i) const;
  std::vector<Val> AllIn();
  // The elements of an operand that is known, or null.
  const Tensor* Known(size_t i) const;
  // The same where it must be known: an error that names the operand, and an empty tensor.
  const Tensor& MustKnow(size_t i, const char* what);
  Ints KnownInts(size_t i, const char* what);
  double KnownNumber(size_t i, const char* what);
  // The operand as a list of integers where it is there, else the attribute, else nothing: ONNX moved several from
  // attributes to operands.
  std::optional<Ints> IntsFrom(size_t i, const char* attribute);

  bool HasAttr(const char* name) const;
  int64_t Int(const char* name, int64_t otherwise);
  double Float(const char* name, double otherwise);
  std::string String(const char* name, const char* otherwise);
  Ints IntList(const char* name, Ints otherwise);
  std::vector<double> FloatList(const char* name, std::vector<double> otherwise);
  std::vector<std::string> StringList(const char* name, std::vector<std::string> otherwise);
  const Tensor* TensorAttr(const char* name);
  // Says that an attribute needs no attention.
  void Ignore(const char* name) { used_.insert(name); }
  // The attributes that nobody asked for.
  std::vector<std::string> UnusedAttributes() const;

  size_t output_count() const { return node_.outputs.size(); }
  // Asked for by name: not "".
  bool WantsOut(size_t i) const { return i < node_.outputs.size() && !node_.outputs[i].empty(); }
  void Out(size_t i, Val value);
  void OutKnown(size_t i, Tensor tensor);
  std::vector<Imported>& results() { return results_; }
  // Operands that had to be known and were not.
  const std::set<std::string>& wanted_inputs() const { return wanted_inputs_; }
  std::vector<Imported*>& inputs() { return inputs_; }
  void MarkShapeOnly() { shape_only_ = true; }  // the results' elements depend on shapes alone
  bool shape_only() const { return shape_only_; }

  // A dim counted from the start; an error where it is out of range.
  int64_t Axis(int64_t axis, int64_t rank);

 private:
  const Attribute* Find(const char* name);
  void WrongType(const char* name);

  const ModelNode& node_;
  std::vector<Imported*> inputs_;
  std::vector<Imported> results_;
  Materialize materialize_;
  void* context_;
  std::set<std::string, std::less<>> used_;
  std::set<std::string> wanted_inputs_;
  bool shape_only_ = false;
};

}  // namespace fuseline::onnx_import
