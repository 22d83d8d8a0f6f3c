#include "common/ir/verify_graph.h"

#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_join.h"
#include "common/ir/type_limits.h"
#include "common/ir/value_names.h"
#include "common/ir/verify_node.h"
#include "common/status/error.h"
#include "common/status/status_macros.h"
#include "common/status/str_cat.h"

namespace fuseline {
namespace {

absl::Status StructureError(std::string_view subject, std::string_view message) {
  return InvalidArgument(ErrorReason::kGraphStructure, subject, message);
}

absl::Status InputError(const Value& input, const absl::Status& status) {
  return MakeError(status.code(), GetErrorReason(status), StrCat("inputs.", input.name),
                   StrCat("input '", input.name, "': ", status.message()));
}

// Checks the invariants (G1) to (G5) of graph.h.
class GraphVerifier {
 public:
  GraphVerifier(Graph& graph, const GraphLimits& limits) : graph_(graph), limits_(limits) {}

  absl::Status Verify() {
    FUSELINE_RETURN_IF_ERROR(CheckCounts());
    defined_.assign(graph_.values.size(), false);
    names_.reserve(graph_.values.size());
    FUSELINE_RETURN_IF_ERROR(CheckInputs());
    is_static_ = graph_.is_static();
    for (size_t i = 0; i < graph_.nodes.size(); ++i) FUSELINE_RETURN_IF_ERROR(CheckNode(static_cast<NodeId>(i)));
    for (size_t i = 0; i < graph_.values.size(); ++i) {
      if (!defined_[i])
        return StructureError("", StrCat("value '", graph_.values[i].name, "' is neither an input nor a result"));
    }
    return CheckOutputs();
  }

 private:
  bool IsValueId(ValueId id) const { return id >= 0 && static_cast<size_t>(id) < graph_.values.size(); }
  bool IsDefined(ValueId id) const { return IsValueId(id) && defined_[static_cast<size_t>(id)]; }

  // (G5), for counts; sizes are checked with the types.
  absl::Status CheckCounts() const {
    if (graph_.opset_version != 1) {
      return Unimplemented("", StrCat("opset version ", graph_.opset_version, " is not supported, only version 1"));
    }
    if (!graph_.name.empty() && !IsValidName(graph_.name)) {
      return StructureError("", StrCat("the graph's name '", graph_.name, "' is not a name"));
    }
    const struct {
      size_t count;
      const char* noun;
      int64_t limit;
    } counts[] = {{graph_.nodes.size(), "nodes", limits_.max_nodes},
                  {graph_.inputs.size(), "inputs", kMaxInputs},
                  {graph_.outputs.size(), "outputs", kMaxOutputs}};
    for (const auto& [count, noun, limit] : counts) {
      if (static_cast<int64_t>(count) > limit) {
        return InvalidArgument(ErrorReason::kLimitExceeded, "",
                               StrCat("the graph has ", count, " ", noun, ", over the limit of ", limit));
      }
    }
    return absl::OkStatus();
  }

  // (G2): takes the value as defined, by nothing else before, under a new and valid name.
  absl::Status Define(ValueId id, NodeId producer, size_t index, std::string_view subject, std::string_view where) {
    if (!IsValueId(id)) return StructureError(subject, StrCat(where, ": there is no value #", id));
    const Value& value = graph_.value(id);
    if (defined_[static_cast<size_t>(id)])
      return StructureError(subject, StrCat(where, ": value '", value.name, "' is defined twice"));
    defined_[static_cast<size_t>(id)] = true;
    if (value.producer != producer || static_cast<size_t>(value.result_index) != index) {
      return StructureError(subject, StrCat(where, ": value '", value.name, "' names another producer"));
    }
    if (!IsValidName(value.name) || (producer == kNoNode && IsLiteralWord(value.name))) {
      return StructureError(subject, StrCat(where, ": '", value.name, "' is not a name"));
    }
    if (!names_.insert(value.name).second) {
      return StructureError(subject, StrCat(where, ": the name '", value.name, "' is used twice"));
    }
    return absl::OkStatus();
  }

  absl::Status CheckInputs() {
    for (size_t i = 0; i < graph_.inputs.size(); ++i) {
      FUSELINE_RETURN_IF_ERROR(Define(graph_.inputs[i], kNoNode, i, StrCat("inputs[", i, "]"), StrCat("input ", i)));
      Value& input = graph_.values[static_cast<size_t>(graph_.inputs[i])];
      const absl::Status status = CheckTensorType(input.type, limits_);
      if (!status.ok()) return InputError(input, status);
      DropDenseStrides(input.type);
      if (input.declared_type.has_value()) {
        return InputError(input, StructureError("", "a declared type is for results"));
      }
    }
    return absl::OkStatus();
  }

  absl::Status CheckNode(NodeId id) {
    Node& node = graph_.nodes[static_cast<size_t>(id)];
    const absl::Status status = CheckNodeParts(id, node);
    if (status.ok()) return status;
    // Errors of Define name the node already.
    return GetErrorSubject(status).empty() ? NodeError(status, graph_.NodeName(id), node.op) : status;
  }

  // (G1), (G3) and, in a static graph, (G4).
  absl::Status CheckNodeParts(NodeId id, Node& node) {
    for (size_t i = 0; i < node.operands.size(); ++i) {
      const Operand& operand = node.operands[i];
      if (operand.is_literal() || IsDefined(operand.value)) continue;
      return StructureError(
          "", StrCat("operand ", i, " ('", graph_.DisplayName(operand.value), "') is not defined before its use"));
    }
    FUSELINE_RETURN_IF_ERROR(CheckNodeStructure(node));
    constant_bytes_ += ConstantBytes(node);
    if (constant_bytes_ > limits_.max_constant_bytes) return ConstantBytesOverLimit(limits_);
    const std::string name = graph_.NodeName(id);
    for (size_t i = 0; i < node.results.size(); ++i) {
      FUSELINE_RETURN_IF_ERROR(Define(node.results[i], id, i, name, StrCat("node '", name, "'")));
      graph_.values[static_cast<size_t>(node.results[i])].type = TensorType();
    }
    if (!is_static_) return absl::OkStatus();
    FUSELINE_ASSIGN_OR_RETURN(std::vector<TensorType> types, InferNodeTypes(graph_, node, limits_));
    for (size_t i = 0; i < types.size(); ++i) {
      Value& value = graph_.values[static_cast<size_t>(node.results[i])];
      if (value.declared_type.has_value() && *value.declared_type != types[i]) {
        return InvalidArgument(ErrorReason::kGraphTypeMismatch, "",
                               StrCat("the declared type ", value.declared_type->ToString(), " is not the inferred ",
                                      types[i].ToString()));
      }
      value.type = std::move(types[i]);
    }
    return absl::OkStatus();
  }

  absl::Status CheckOutputs() const {
    if (graph_.outputs.empty()) return StructureError("outputs", "the graph returns nothing");
    absl::flat_hash_set<std::string_view> names;
    for (size_t i = 0; i < graph_.outputs.size(); ++i) {
      const GraphOutput& output = graph_.outputs[i];
      const std::string subject = StrCat("outputs[", i, "]");
      if (!IsValidName(output.name) || IsLiteralWord(output.name)) {
        return StructureError(subject, StrCat("output ", i, ": '", output.name, "' is not a name"));
      }
      if (!names.insert(output.name).second) {
        return StructureError(subject, StrCat("output ", i, ": the name '", output.name, "' is used twice"));
      }
      if (!IsDefined(output.value)) {
        return StructureError(subject, StrCat("output '", output.name, "': there is no value #", output.value));
      }
    }
    return absl::OkStatus();
  }

  Graph& graph_;
  const GraphLimits& limits_;
  bool is_static_ = false;
  int64_t constant_bytes_ = 0;
  std::vector<bool> defined_;
  absl::flat_hash_set<std::string_view> names_;  // point into the graph's values
};

absl::Status BindType(const SymbolSizes& sizes, TensorType& type) {
  for (Dim& dim : type.dims) {
    if (!dim.is_symbolic()) continue;
    const auto it = sizes.find(dim.symbol);
    if (it == sizes.end())
      return InvalidArgument(ErrorReason::kTensorMismatch, "", StrCat("symbol '", dim.symbol, "' has no size"));
    dim = Dim(it->second);
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status VerifyGraph(Graph& graph, const GraphLimits& limits) { return GraphVerifier(graph, limits).Verify(); }

std::vector<std::string> GraphSymbols(const Graph& graph) {
  std::vector<std::string> symbols;
  absl::flat_hash_set<std::string_view> seen;
  for (ValueId id : graph.inputs) {
    for (const Dim& dim : graph.type(id).dims) {
      if (dim.is_symbolic() && seen.insert(dim.symbol).second) symbols.push_back(dim.symbol);
    }
  }
  return symbols;
}

absl::StatusOr<Graph> BindSymbols(const Graph& graph, const SymbolSizes& sizes, const GraphLimits& limits) {
  const std::vector<std::string> symbols = GraphSymbols(graph);
  const absl::flat_hash_set<std::string_view> known(symbols.begin(), symbols.end());
  for (const auto& [symbol, size] : sizes) {
    if (!known.contains(symbol)) {
      return InvalidArgument(ErrorReason::kTensorMismatch, StrCat("symbols.", symbol),
                             StrCat("symbol '", symbol, "' is in no input's type"));
    }
    if (size < 0) {
      return InvalidArgument(ErrorReason::kTensorMismatch, StrCat("symbols.", symbol),
                             StrCat("symbol '", symbol, "': size ", size, " is negative"));
    }
  }
  Graph bound = graph;
  for (ValueId id : bound.inputs) {
    Value& input = bound.values[static_cast<size_t>(id)];
    const absl::Status status = BindType(sizes, input.type);
    if (!status.ok()) return InputError(input, status);
  }
  for (Value& value : bound.values) {
    if (!value.declared_type.has_value()) continue;
    const absl::Status status = BindType(sizes, *value.declared_type);
    if (!status.ok()) return Wrap(status, StrCat("the type declared for '%", value.name, "'"));
  }
  FUSELINE_RETURN_IF_ERROR(VerifyGraph(bound, limits));
  return bound;
}

absl::StatusOr<SymbolSizes> SolveSymbols(const Graph& graph, const std::vector<Shape>& input_shapes) {
  if (input_shapes.size() != graph.inputs.size()) {
    return InvalidArgument(ErrorReason::kTensorMismatch, "inputs",
                           StrCat("got ", input_shapes.size(), " tensors for ", graph.inputs.size(), " inputs"));
  }
  SymbolSizes sizes;
  for (size_t i = 0; i < input_shapes.size(); ++i) {
    const Value& input = graph.value(graph.inputs[i]);
    const Shape& shape = input_shapes[i];
    const auto mismatch = [&](std::string_view why) {
      return InvalidArgument(ErrorReason::kTensorMismatch, StrCat("inputs.", input.name),
                             StrCat("input '", input.name, "': shape [", absl::StrJoin(shape, ", "), "] does not fit ",
                                    input.type.ToString(), why));
    };
    if (shape.size() != input.type.dims.size()) return mismatch("");
    for (size_t d = 0; d < shape.size(); ++d) {
      const Dim& dim = input.type.dims[d];
      if (shape[d] < 0) return mismatch(": a size is negative");
      if (!dim.is_symbolic()) {
        if (dim.size != shape[d]) return mismatch("");
        continue;
      }
      const auto [it, is_new] = sizes.emplace(dim.symbol, shape[d]);
      if (!is_new && it->second != shape[d])
        return mismatch(StrCat(": symbol '", dim.symbol, "' is ", it->second, " elsewhere"));
    }
  }
  return sizes;
}

}  // namespace fuseline
