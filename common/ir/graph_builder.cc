#include "common/ir/graph_builder.h"

#include <utility>

#include "common/ir/type_limits.h"
#include "common/ir/value_names.h"
#include "common/ir/verify_node.h"
#include "common/status/error.h"
#include "common/status/status_macros.h"
#include "common/status/str_cat.h"

namespace fuseline {
namespace {

// The sets hash Abseil's string_view.
absl::string_view Key(std::string_view name) { return absl::string_view(name.data(), name.size()); }

}  // namespace

GraphBuilder::GraphBuilder(std::string name, GraphLimits limits) : limits_(limits) { graph_.name = std::move(name); }

absl::Status GraphBuilder::CheckNewName(std::string_view name) const {
  if (!IsValidName(name)) {
    return InvalidArgument(ErrorReason::kGraphStructure, name, StrCat("'", name, "' is not a name"));
  }
  if (names_.contains(Key(name))) {
    return InvalidArgument(ErrorReason::kGraphStructure, name, StrCat("the name '", name, "' is used twice"));
  }
  return absl::OkStatus();
}

std::string GraphBuilder::NewName() {
  // A name which the caller has taken is skipped for good, so that the search is short on average.
  std::string name;
  do {
    name = StrCat("t", next_name_++);
  } while (names_.contains(Key(name)));
  return name;
}

absl::StatusOr<ValueId> GraphBuilder::AddInput(std::string_view name, const TensorType& type) {
  FUSELINE_RETURN_IF_ERROR(CheckNewName(name));
  const auto refuse = [name](ErrorReason reason, std::string_view message) {
    return InvalidArgument(reason, StrCat("inputs.", name), StrCat("input '", name, "': ", message));
  };
  if (IsLiteralWord(name)) return refuse(ErrorReason::kGraphStructure, "the name is a literal's");
  if (!type.is_static()) return refuse(ErrorReason::kGraphStructure, "the type has symbolic dims");
  const absl::Status status = CheckTensorType(type, limits_);
  if (!status.ok()) return refuse(GetErrorReason(status), std::string(status.message()));
  if (static_cast<int64_t>(graph_.inputs.size()) >= kMaxInputs) {
    return refuse(ErrorReason::kLimitExceeded, StrCat("more than ", kMaxInputs, " inputs"));
  }
  const auto id = static_cast<ValueId>(graph_.values.size());
  fuseline::Value value;
  value.name = std::string(name);
  value.result_index = static_cast<int>(graph_.inputs.size());
  value.type = type;
  DropDenseStrides(value.type);
  names_.insert(value.name);
  graph_.values.push_back(std::move(value));
  graph_.inputs.push_back(id);
  return id;
}

absl::StatusOr<std::vector<ValueId>> GraphBuilder::AddNode(std::string_view op, absl::Span<const Operand> operands,
                                                           AttrMap attrs, std::string_view name,
                                                           std::string_view origin) {
  Node node;
  node.op = std::string(op);
  node.operands.assign(operands.begin(), operands.end());
  node.attrs = std::move(attrs);
  node.origin = std::string(origin);
  return Append(std::move(node), name);
}

absl::StatusOr<std::vector<ValueId>> GraphBuilder::Append(Node node, std::string_view name) {
  if (!name.empty()) FUSELINE_RETURN_IF_ERROR(CheckNewName(name));
  const std::string shown = name.empty() ? StrCat("%t", next_name_) : StrCat("%", name);
  const auto refuse = [&](const absl::Status& status) { return NodeError(status, shown, node.op); };
  if (static_cast<int64_t>(graph_.nodes.size()) >= limits_.max_nodes) {
    return refuse(InvalidArgument(ErrorReason::kLimitExceeded, "", StrCat("more than ", limits_.max_nodes, " nodes")));
  }
  for (const Operand& operand : node.operands) {
    if (operand.is_literal()) continue;
    if (operand.value < 0 || static_cast<size_t>(operand.value) >= graph_.values.size()) {
      return refuse(InvalidArgument(ErrorReason::kGraphStructure, "", StrCat("there is no value #", operand.value)));
    }
  }
  const OpDef* def = FindOp(node.op);
  if (def != nullptr) {
    for (int i = 0; i < def->results; ++i) node.results.push_back(static_cast<ValueId>(graph_.values.size()) + i);
  }
  const absl::Status structure = CheckNodeStructure(node);
  if (!structure.ok()) return refuse(structure);
  if (constant_bytes_ + ConstantBytes(node) > limits_.max_constant_bytes)
    return refuse(ConstantBytesOverLimit(limits_));
  absl::StatusOr<std::vector<TensorType>> types = InferNodeTypes(graph_, node, limits_);
  if (!types.ok()) return refuse(types.status());

  // Nothing fails from here on: a refused node leaves the graph as it was.
  constant_bytes_ += ConstantBytes(node);
  const auto id = static_cast<NodeId>(graph_.nodes.size());
  for (size_t i = 0; i < types->size(); ++i) {
    fuseline::Value value;
    value.name = i == 0 && !name.empty() ? std::string(name) : NewName();
    value.producer = id;
    value.result_index = static_cast<int>(i);
    value.type = std::move((*types)[i]);
    names_.insert(value.name);
    graph_.values.push_back(std::move(value));
  }
  std::vector<ValueId> results = node.results;
  graph_.nodes.push_back(std::move(node));
  return results;
}

absl::StatusOr<ValueId> GraphBuilder::Add(std::string_view op, absl::Span<const Operand> operands, AttrMap attrs) {
  const OpDef* def = FindOp(op);
  if (def != nullptr && def->results != 1) {
    return InvalidArgument(ErrorReason::kGraphStructure, "", StrCat(op, ": gives ", def->results, " results, not one"));
  }
  FUSELINE_ASSIGN_OR_RETURN(const std::vector<ValueId> results, AddNode(op, operands, std::move(attrs)));
  return results[0];
}

absl::StatusOr<ValueId> GraphBuilder::AddConstant(const TensorType& type, std::string bytes, std::string_view name) {
  if (!type.is_static()) {
    return InvalidArgument(ErrorReason::kGraphStructure, name, "constant: the type has symbolic dims");
  }
  Node node;
  node.op = "constant";
  node.attrs.emplace("dtype", type.dtype);
  node.attrs.emplace("shape", type.shape());
  node.constant_bytes = std::make_shared<const std::string>(std::move(bytes));
  FUSELINE_ASSIGN_OR_RETURN(const std::vector<ValueId> results, Append(std::move(node), name));
  return results[0];
}

absl::Status GraphBuilder::AddOutput(std::string_view name, ValueId value) {
  const std::string subject = StrCat("outputs[", graph_.outputs.size(), "]");
  const auto refuse = [&](std::string_view message) {
    return InvalidArgument(ErrorReason::kGraphStructure, subject, StrCat("output '", name, "': ", message));
  };
  if (!IsValidName(name) || IsLiteralWord(name)) return refuse("not a name");
  if (value < 0 || static_cast<size_t>(value) >= graph_.values.size())
    return refuse(StrCat("there is no value #", value));
  if (static_cast<int64_t>(graph_.outputs.size()) >= kMaxOutputs)
    return refuse(StrCat("more than ", kMaxOutputs, " outputs"));
  if (!output_names_.insert(std::string(name)).second) return refuse("the name is used twice");
  graph_.outputs.push_back({std::string(name), value});
  return absl::OkStatus();
}

Graph GraphBuilder::Build() {
  names_.clear();
  output_names_.clear();
  next_name_ = 0;
  constant_bytes_ = 0;
  return std::exchange(graph_, Graph());
}

Operand GraphBuilder::Number(double v) {
  Operand operand;
  operand.literal.kind = Literal::Kind::kFloat;
  operand.literal.f = v;
  return operand;
}

Operand GraphBuilder::Integer(int64_t v) {
  Operand operand;
  operand.literal.i = v;
  return operand;
}

}  // namespace fuseline
