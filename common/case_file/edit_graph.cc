#include "common/case_file/edit_graph.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/ir/graph_builder.h"
#include "common/ir/op_table.h"
#include "common/ir/verify_graph.h"
#include "common/status/error.h"
#include "common/status/status_macros.h"

namespace fuseline {
namespace {

size_t At(int32_t id) { return static_cast<size_t>(id); }

int64_t Resized(int64_t size, const std::optional<GraphEdit::Resize>& resize) {
  return resize.has_value() && size == resize->from ? resize->to : size;
}

Shape Resized(Shape shape, const std::optional<GraphEdit::Resize>& resize) {
  for (int64_t& size : shape) size = Resized(size, resize);
  return shape;
}

class Editor {
 public:
  Editor(const GraphWithInputs& from, const GraphEdit& edit)
      : from_(from.graph), inputs_(from.inputs), edit_(edit), builder_(from.graph.name) {}

  absl::StatusOr<GraphWithInputs> Run(std::vector<ValueId>* renamed) {
    if (edit_.outputs.has_value()) {
      outputs_ = *edit_.outputs;
    } else {
      for (const GraphOutput& output : from_.outputs) outputs_.push_back(output.value);
    }
    for (ValueId& id : outputs_) id = Source(id);
    MarkNeeded();
    renamed_.assign(from_.values.size(), kNoValue);
    FUSELINE_RETURN_IF_ERROR(AddInputs());
    for (size_t n = 0; n < from_.nodes.size(); ++n) {
      if (node_needed_[n]) FUSELINE_RETURN_IF_ERROR(AddNode(static_cast<NodeId>(n)));
    }
    for (size_t i = 0; i < outputs_.size(); ++i) {
      if (renamed_[At(outputs_[i])] == kNoValue) return Misplaced(outputs_[i]);
      const std::string name = edit_.outputs.has_value() ? OutputName(i) : from_.outputs[i].name;
      FUSELINE_RETURN_IF_ERROR(builder_.AddOutput(name, renamed_[At(outputs_[i])]));
    }
    if (renamed != nullptr) *renamed = renamed_;
    result_.graph = builder_.Build();
    FUSELINE_RETURN_IF_ERROR(VerifyGraph(result_.graph));
    return std::move(result_);
  }

 private:
  // What stands for the value. Replacements may be chained; each leads to an earlier value or stays unresolved.
  ValueId Source(ValueId id) const {
    for (size_t step = 0; step <= edit_.replaced.size(); ++step) {
      const auto it = edit_.replaced.find(id);
      if (it == edit_.replaced.end()) break;
      id = it->second;
    }
    return id;
  }

  const Node& NodeOf(size_t n) const {
    const auto it = edit_.nodes.find(static_cast<NodeId>(n));
    return it == edit_.nodes.end() ? from_.nodes[n] : it->second;
  }

  bool IsCut(ValueId id) const { return edit_.cuts.find(id) != edit_.cuts.end(); }

  // The name that the output had, or one like it.
  std::string OutputName(size_t i) const {
    const ValueId id = (*edit_.outputs)[i];
    for (const GraphOutput& output : from_.outputs) {
      const bool is_first = std::find(edit_.outputs->begin(), edit_.outputs->end(), id) - edit_.outputs->begin() ==
                            static_cast<std::ptrdiff_t>(i);
      if (output.value == id && is_first) return output.name;
    }
    return absl::StrCat("reduced", i);
  }

  static absl::Status Misplaced(ValueId id) {
    return InvalidArgument(ErrorReason::kGraphStructure, "", absl::StrCat("value ", id, " is read before it is made"));
  }

  void MarkNeeded() {
    needed_.assign(from_.values.size(), false);
    for (const ValueId id : outputs_) needed_[At(id)] = true;
    node_needed_.assign(from_.nodes.size(), false);
    for (size_t n = from_.nodes.size(); n-- > 0;) {
      const Node& node = NodeOf(n);
      node_needed_[n] = std::any_of(node.results.begin(), node.results.end(),
                                    [&](ValueId id) { return needed_[At(id)] && !IsCut(id); });
      if (!node_needed_[n]) continue;
      for (const Operand& operand : node.operands) {
        if (!operand.is_literal()) needed_[At(Source(operand.value))] = true;
      }
    }
  }

  absl::Status AddInput(ValueId id, TensorType type, Tensor tensor) {
    FUSELINE_ASSIGN_OR_RETURN(renamed_[At(id)], builder_.AddInput(from_.value(id).name, type));
    result_.inputs.push_back(std::move(tensor));
    return absl::OkStatus();
  }

  absl::Status AddInputs() {
    for (size_t i = 0; i < from_.inputs.size(); ++i) {
      const ValueId id = from_.inputs[i];
      if (!needed_[At(id)]) continue;
      TensorType type = from_.type(id);
      Tensor tensor = inputs_[i];
      if (const auto it = edit_.input_types.find(id); it != edit_.input_types.end()) type = it->second;
      if (const auto it = edit_.input_tensors.find(id); it != edit_.input_tensors.end()) tensor = it->second;
      const Shape resized = Resized(type.shape(), edit_.resize);
      if (resized != type.shape()) {
        type = TensorType::Make(type.dtype, resized);
        tensor = LeadingPart(tensor, resized);
      }
      FUSELINE_RETURN_IF_ERROR(AddInput(id, type, tensor));
    }
    for (const auto& [id, tensor] : edit_.cuts) {
      if (needed_[At(id)])
        FUSELINE_RETURN_IF_ERROR(AddInput(id, TensorType::Make(from_.type(id).dtype, tensor.shape()), tensor));
    }
    return absl::OkStatus();
  }

  absl::Status AddConstant(const Node& node) {
    const TensorType& type = from_.type(node.results[0]);
    const Shape shape = Resized(type.shape(), edit_.resize);
    std::string bytes = *node.constant_bytes;
    if (shape != type.shape()) {
      FUSELINE_ASSIGN_OR_RETURN(const Tensor whole, Tensor::FromBytes(type.dtype, type.shape(), bytes));
      bytes = std::string(LeadingPart(whole, shape).bytes());
    }
    FUSELINE_ASSIGN_OR_RETURN(renamed_[At(node.results[0])],
                              builder_.AddConstant(TensorType::Make(type.dtype, shape), std::move(bytes)));
    return absl::OkStatus();
  }

  AttrMap ResizedAttrs(const Node& node) const {
    AttrMap attrs = node.attrs;
    for (auto& [name, value] : attrs) {
      auto* sizes = std::get_if<std::vector<int64_t>>(&value);
      if (sizes != nullptr && name != "dims") *sizes = Resized(*sizes, edit_.resize);
      auto* number = std::get_if<int64_t>(&value);
      if (number != nullptr && (name == "classes" || name == "k")) *number = Resized(*number, edit_.resize);
    }
    return attrs;
  }

  absl::Status AddNode(NodeId n) {
    const Node& node = NodeOf(At(n));
    if (node.constant_bytes != nullptr) return AddConstant(node);
    std::vector<Operand> operands = node.operands;
    for (Operand& operand : operands) {
      if (operand.is_literal()) continue;
      const ValueId source = Source(operand.value);
      if (renamed_[At(source)] == kNoValue) return Misplaced(source);
      operand.value = renamed_[At(source)];
    }
    if (!edit_.resize.has_value()) return Append(node, operands, node.attrs);
    AttrMap attrs = ResizedAttrs(node);
    const absl::Status status = Append(node, operands, attrs);
    if (status.ok() || node.op != "reshape") return status;
    // A size of a reshape may be a product that the resized dim was part of.
    const Shape shape = std::get<std::vector<int64_t>>(attrs["shape"]);
    const int64_t count = operands[0].is_literal() ? 1 : builder_.type(operands[0].value).element_count();
    for (size_t d = 0; d < shape.size(); ++d) {
      Shape without = shape;
      without.erase(without.begin() + static_cast<std::ptrdiff_t>(d));
      const int64_t others = ElementCount(without);
      if (others <= 0 || count % others != 0) continue;
      Shape fitted = shape;
      fitted[d] = count / others;
      attrs["shape"] = fitted;
      return Append(node, operands, attrs);
    }
    return status;
  }

  absl::Status Append(const Node& node, const std::vector<Operand>& operands, const AttrMap& attrs) {
    FUSELINE_ASSIGN_OR_RETURN(const std::vector<ValueId> results,
                              builder_.AddNode(node.op, operands, attrs, "", node.origin));
    for (size_t r = 0; r < results.size() && r < node.results.size(); ++r) {
      if (!IsCut(node.results[r])) renamed_[At(node.results[r])] = results[r];
    }
    return absl::OkStatus();
  }

  const Graph& from_;
  const std::vector<Tensor>& inputs_;
  const GraphEdit& edit_;
  GraphBuilder builder_;
  GraphWithInputs result_;
  std::vector<ValueId> outputs_;
  std::vector<bool> needed_;
  std::vector<bool> node_needed_;
  std::vector<ValueId> renamed_;
};

}  // namespace

absl::StatusOr<GraphWithInputs> EditGraph(const GraphWithInputs& from, const GraphEdit& edit,
                                          std::vector<ValueId>* renamed) {
  return Editor(from, edit).Run(renamed);
}

Tensor LeadingPart(const Tensor& tensor, const Shape& shape) {
  Tensor part = Tensor::Allocate(tensor.dtype(), shape);
  const std::vector<int64_t> strides = DenseStrides(tensor.shape());
  const int64_t size = DTypeSizeBytes(tensor.dtype());
  std::vector<int64_t> position(shape.size(), 0);
  for (int64_t k = 0; k < part.element_count(); ++k) {
    int64_t at = 0;
    for (size_t d = 0; d < shape.size(); ++d) at += position[d] * strides[d];
    std::memcpy(static_cast<char*>(part.data()) + k * size, static_cast<const char*>(tensor.data()) + at * size,
                static_cast<size_t>(size));
    for (size_t d = shape.size(); d-- > 0;) {
      if (++position[d] < shape[d]) break;
      position[d] = 0;
    }
  }
  return part;
}

}  // namespace fuseline
