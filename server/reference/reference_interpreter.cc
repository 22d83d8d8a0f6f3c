// Tested by tests/unit/reference/reference_interpreter_test.cc
#include "server/reference/reference_interpreter.h"

#include <new>
#include <stdexcept>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/ir/op_table.h"
#include "common/status/error.h"
#include "common/status/status_macros.h"
#include "server/reference/array.h"
#include "server/reference/reference_ops.h"

namespace fuseline::reference {

int64_t OpContext::Int(const char* name) const {
  const auto it = node.attrs.find(name);
  const int64_t* exact = it == node.attrs.end() ? nullptr : std::get_if<int64_t>(&it->second);
  return exact != nullptr ? *exact : static_cast<int64_t>(Number(name));
}

double OpContext::Number(const char* name) const {
  const auto it = node.attrs.find(name);
  if (it == node.attrs.end()) return 0;
  if (const auto* i = std::get_if<int64_t>(&it->second)) return static_cast<double>(*i);
  const auto* f = std::get_if<double>(&it->second);
  return f != nullptr ? *f : 0;
}

bool OpContext::Bool(const char* name) const {
  const auto it = node.attrs.find(name);
  const bool* value = it == node.attrs.end() ? nullptr : std::get_if<bool>(&it->second);
  return value != nullptr && *value;
}

const std::vector<int64_t>& OpContext::Ints(const char* name) const {
  static const std::vector<int64_t>* const kEmpty = new std::vector<int64_t>();
  const auto it = node.attrs.find(name);
  const auto* value = it == node.attrs.end() ? nullptr : std::get_if<std::vector<int64_t>>(&it->second);
  return value != nullptr ? *value : *kEmpty;
}

std::string OpContext::String(const char* name) const {
  const auto it = node.attrs.find(name);
  const auto* value = it == node.attrs.end() ? nullptr : std::get_if<std::string>(&it->second);
  return value != nullptr ? *value : "";
}

namespace {

absl::Status CheckInputs(const Graph& graph, const std::vector<Tensor>& inputs) {
  if (inputs.size() != graph.inputs.size()) {
    return InvalidArgument(ErrorReason::kTensorMismatch, "",
                           absl::StrCat("the graph has ", graph.inputs.size(), " inputs, not ", inputs.size()));
  }
  for (size_t i = 0; i < inputs.size(); ++i) {
    const Value& value = graph.value(graph.inputs[i]);
    if (inputs[i].dtype() != value.type.dtype || inputs[i].shape() != value.type.shape()) {
      return InvalidArgument(ErrorReason::kTensorMismatch, value.name,
                             absl::StrCat("input '", value.name, "' is ", value.type.ToString(), ", not ",
                                          TensorType::Make(inputs[i].dtype(), inputs[i].shape()).ToString()));
    }
  }
  return absl::OkStatus();
}

// A literal takes the dtype of the first operand that is a value; the condition of `where` stands aside and is bool.
DType LiteralDType(const Graph& graph, const Node& node, size_t operand) {
  const bool has_condition = node.op == "where";
  if (has_condition && operand == 0) return DType::kBool;
  for (size_t k = has_condition ? 1 : 0; k < node.operands.size(); ++k) {
    if (!node.operands[k].is_literal()) return graph.type(node.operands[k].value).dtype;
  }
  return DType::kF32;
}

absl::StatusOr<std::vector<Array>> Evaluate(const OpContext& context, const std::vector<Array>& operands) {
  const auto one = [](absl::StatusOr<Array> array) -> absl::StatusOr<std::vector<Array>> {
    if (!array.ok()) return array.status();
    return std::vector<Array>{*std::move(array)};
  };
  switch (context.node.def->kind) {
    case OpKind::kPointwise:
      return one(EvaluatePointwise(context, operands));
    case OpKind::kCreation:
      return one(EvaluateCreation(context));
    case OpKind::kView:
      return one(EvaluateView(context, operands[0]));
    case OpKind::kReduction:
      return EvaluateReduction(context, operands[0]);
    case OpKind::kComposite:
      return EvaluateComposite(context, operands);
    case OpKind::kLayout:
      return one(EvaluateLayout(context, operands));
    case OpKind::kIndexing:
      return one(EvaluateIndexing(context, operands));
    case OpKind::kOrdered:
      return EvaluateOrdered(context, operands);
    case OpKind::kContraction:
      return one(EvaluateContraction(context, operands));
    case OpKind::kWindow:
      return EvaluateWindow(context, operands);
  }
  return Internal(absl::StrCat("op '", context.node.op, "' has no reference"));
}

absl::StatusOr<std::vector<Tensor>> Run(const Graph& graph, const std::vector<Tensor>& inputs,
                                        const CompileOptions& options) {
  // Values are dropped after their last reader.
  std::vector<int64_t> readers(graph.values.size(), 0);
  std::vector<bool> returned(graph.values.size(), false);
  for (const Node& node : graph.nodes) {
    for (const Operand& operand : node.operands) {
      if (!operand.is_literal()) ++readers[static_cast<size_t>(operand.value)];
    }
  }
  for (const GraphOutput& output : graph.outputs) {
    ++readers[static_cast<size_t>(output.value)];
    returned[static_cast<size_t>(output.value)] = true;
  }
  std::vector<Array> values(graph.values.size());
  for (size_t i = 0; i < inputs.size(); ++i) {
    const size_t id = static_cast<size_t>(graph.inputs[i]);
    if (readers[id] > 0) values[id] = FromTensor(inputs[i]);
  }
  for (size_t n = 0; n < graph.nodes.size(); ++n) {
    const Node& node = graph.nodes[n];
    bool is_read = false;
    for (ValueId result : node.results) is_read = is_read || readers[static_cast<size_t>(result)] > 0;
    if (!is_read) {  // its operands may have had no other reader; they stay until the end, which is harmless
      continue;
    }
    std::vector<Array> operands;
    for (size_t k = 0; k < node.operands.size(); ++k) {
      const Operand& operand = node.operands[k];
      operands.push_back(operand.is_literal() ? LiteralArray(operand.literal, LiteralDType(graph, node, k))
                                              : values[static_cast<size_t>(operand.value)]);
    }
    std::vector<TensorType> result_types;
    for (ValueId result : node.results) result_types.push_back(graph.type(result));
    const OpContext context{node, result_types, options.numerics};
    auto results = Evaluate(context, operands);
    if (!results.ok())
      return Wrap(results.status(), absl::StrCat("node '", graph.NodeName(static_cast<NodeId>(n)), "'"));
    for (size_t r = 0; r < node.results.size(); ++r) {
      const size_t id = static_cast<size_t>(node.results[r]);
      // Where a value is stored, every reader sees the stored value.
      if (readers[id] > 0) values[id] = returned[id] ? Stored((*results)[r]) : (*results)[r];
    }
    for (const Operand& operand : node.operands) {
      if (!operand.is_literal() && --readers[static_cast<size_t>(operand.value)] == 0)
        values[static_cast<size_t>(operand.value)] = {};
    }
  }
  std::vector<Tensor> outputs;
  for (const GraphOutput& output : graph.outputs)
    outputs.push_back(ToTensor(values[static_cast<size_t>(output.value)]));
  return outputs;
}

}  // namespace

absl::StatusOr<std::vector<Tensor>> Interpret(const Graph& graph, const std::vector<Tensor>& inputs,
                                              const CompileOptions& options) {
  FUSELINE_RETURN_IF_ERROR(CheckInputs(graph, inputs));
  try {
    return Run(graph, inputs, options);
  } catch (const std::bad_alloc&) {
    return MakeError(absl::StatusCode::kResourceExhausted, ErrorReason::kDeviceMemory, "",
                     "the reference interpreter has too little memory for this graph");
  } catch (const std::length_error&) {
    return MakeError(absl::StatusCode::kResourceExhausted, ErrorReason::kDeviceMemory, "",
                     "the reference interpreter has too little memory for this graph");
  }
}

}  // namespace fuseline::reference
