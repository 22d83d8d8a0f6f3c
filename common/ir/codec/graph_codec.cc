#include "common/ir/codec/graph_codec.h"

#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "common/ir/value_names.h"
#include "common/status/error.h"
#include "common/status/status_macros.h"
#include "fuseline/v1/graph.pb.h"

namespace fuseline {
namespace {

// Far above what fits into a message, and low enough for ValueId.
constexpr int64_t kMaxValues = std::numeric_limits<int32_t>::max() / 2;

absl::Status Malformed(const std::string& subject, const std::string& message) {
  return InvalidArgument(ErrorReason::kGraphSyntax, subject, message);
}

// --- Encoding ---

void TypeToProto(const TensorType& type, v1::TensorType* proto) {
  proto->set_dtype(static_cast<v1::DataType>(type.dtype));
  for (const Dim& dim : type.dims) {
    if (dim.is_symbolic()) {
      proto->add_dims()->set_symbol(dim.symbol);
    } else {
      proto->add_dims()->set_size(dim.size);
    }
  }
  if (type.strides.has_value()) {
    v1::Layout* layout = proto->mutable_layout();
    layout->mutable_strides()->Add(type.strides->begin(), type.strides->end());
  }
}

void LiteralToProto(const Literal& literal, v1::Literal* proto) {
  switch (literal.kind) {
    case Literal::Kind::kInt:
      proto->set_int_value(literal.i);
      break;
    case Literal::Kind::kFloat:
      proto->set_float_value(literal.f);
      break;
    case Literal::Kind::kBool:
      proto->set_bool_value(literal.i != 0);
      break;
  }
}

struct AttributeEncoder {
  v1::Attribute& proto;
  void operator()(int64_t v) const { proto.set_int_value(v); }
  void operator()(double v) const { proto.set_float_value(v); }
  void operator()(bool v) const { proto.set_bool_value(v); }
  void operator()(const std::string& v) const { proto.set_string_value(v); }
  void operator()(DType v) const { proto.set_dtype_value(static_cast<v1::DataType>(v)); }
  void operator()(const std::vector<int64_t>& v) const {
    proto.mutable_int_list()->mutable_values()->Add(v.begin(), v.end());
  }
  void operator()(const std::vector<double>& v) const {
    proto.mutable_float_list()->mutable_values()->Add(v.begin(), v.end());
  }
  void operator()(const std::vector<bool>& v) const {
    v1::BoolList* list = proto.mutable_bool_list();
    for (const bool b : v) list->add_values(b);
  }
};

// --- Decoding ---

absl::StatusOr<DType> DTypeFromProto(v1::DataType proto, const std::string& subject) {
  if (proto == v1::DATA_TYPE_UNSPECIFIED || !v1::DataType_IsValid(proto)) {
    return Malformed(subject, absl::StrCat("'", subject, "': dtype ", static_cast<int>(proto),
                                           " is not one that this version knows"));
  }
  return static_cast<DType>(proto);
}

absl::StatusOr<TensorType> TypeFromProto(const v1::TensorType& proto, const std::string& subject,
                                         const GraphLimits& limits) {
  TensorType type;
  FUSELINE_ASSIGN_OR_RETURN(type.dtype, DTypeFromProto(proto.dtype(), subject));
  if (proto.dims_size() > limits.max_rank) {
    return InvalidArgument(
        ErrorReason::kLimitExceeded, subject,
        absl::StrCat("'", subject, "': rank ", proto.dims_size(), " is over the limit of ", limits.max_rank));
  }
  type.dims.reserve(static_cast<size_t>(proto.dims_size()));
  for (const v1::Dim& dim : proto.dims()) {
    switch (dim.kind_case()) {
      case v1::Dim::kSize:
        if (dim.size() < 0) return Malformed(subject, absl::StrCat("'", subject, "': negative dim ", dim.size()));
        type.dims.emplace_back(dim.size());
        break;
      case v1::Dim::kSymbol:
        if (dim.symbol().empty()) return Malformed(subject, absl::StrCat("'", subject, "': a dim's symbol is empty"));
        if (!IsValidName(dim.symbol())) {
          return InvalidArgument(ErrorReason::kGraphStructure, subject,
                                 absl::StrCat("'", subject, "': symbol '", dim.symbol(), "' is not a name"));
        }
        type.dims.push_back(Dim::Symbol(dim.symbol()));
        break;
      case v1::Dim::KIND_NOT_SET:
        return Malformed(subject, absl::StrCat("'", subject, "': a dim has neither size nor symbol"));
    }
  }
  if (proto.has_layout()) {
    if (proto.layout().strides_size() != proto.dims_size()) {
      return Malformed(subject, absl::StrCat("'", subject, "': ", proto.layout().strides_size(), " strides for ",
                                             proto.dims_size(), " dims"));
    }
    type.strides.emplace(proto.layout().strides().begin(), proto.layout().strides().end());
  }
  return type;
}

absl::StatusOr<Literal> LiteralFromProto(const v1::Literal& proto, const std::string& subject) {
  Literal literal;
  switch (proto.value_case()) {
    case v1::Literal::kIntValue:
      literal.kind = Literal::Kind::kInt;
      literal.i = proto.int_value();
      return literal;
    case v1::Literal::kFloatValue:
      literal.kind = Literal::Kind::kFloat;
      literal.f = proto.float_value();
      return literal;
    case v1::Literal::kBoolValue:
      literal.kind = Literal::Kind::kBool;
      literal.i = proto.bool_value() ? 1 : 0;
      return literal;
    case v1::Literal::VALUE_NOT_SET:
      break;
  }
  return Malformed(subject, absl::StrCat("node '", subject, "': a literal has no value"));
}

absl::StatusOr<AttrValue> AttributeFromProto(const v1::Attribute& proto, const std::string& subject,
                                             const std::string& name) {
  switch (proto.value_case()) {
    case v1::Attribute::kIntValue:
      return AttrValue(static_cast<int64_t>(proto.int_value()));
    case v1::Attribute::kFloatValue:
      return AttrValue(proto.float_value());
    case v1::Attribute::kBoolValue:
      return AttrValue(proto.bool_value());
    case v1::Attribute::kStringValue:
      return AttrValue(proto.string_value());
    case v1::Attribute::kDtypeValue: {
      const absl::StatusOr<DType> dtype = DTypeFromProto(proto.dtype_value(), name);
      if (!dtype.ok())
        return Malformed(subject, absl::StrCat("node '", subject, "': attribute ", dtype.status().message()));
      return AttrValue(*dtype);
    }
    case v1::Attribute::kIntList:
      return AttrValue(std::vector<int64_t>(proto.int_list().values().begin(), proto.int_list().values().end()));
    case v1::Attribute::kFloatList:
      return AttrValue(std::vector<double>(proto.float_list().values().begin(), proto.float_list().values().end()));
    case v1::Attribute::kBoolList:
      return AttrValue(std::vector<bool>(proto.bool_list().values().begin(), proto.bool_list().values().end()));
    case v1::Attribute::VALUE_NOT_SET:
      break;
  }
  return Malformed(subject, absl::StrCat("node '", subject, "': attribute '", name, "' has no value"));
}

// How messages name a node that is not decoded yet.
std::string NodeSubject(const v1::Node& node, int index) {
  if (node.results_size() > 0 && !node.results(0).name().empty()) return absl::StrCat("%", node.results(0).name());
  return absl::StrCat("nodes[", index, "]");
}

class GraphDecoder {
 public:
  GraphDecoder(const v1::Graph& proto, const GraphLimits& limits) : proto_(proto), limits_(limits) {}

  absl::StatusOr<Graph> Decode() {
    FUSELINE_RETURN_IF_ERROR(DecodeHeader());
    for (int i = 0; i < proto_.inputs_size(); ++i) FUSELINE_RETURN_IF_ERROR(DecodeInput(i));
    for (int i = 0; i < proto_.nodes_size(); ++i) FUSELINE_RETURN_IF_ERROR(DecodeNode(i));
    for (int i = 0; i < proto_.outputs_size(); ++i) FUSELINE_RETURN_IF_ERROR(DecodeOutput(i));
    return std::move(graph_);
  }

 private:
  absl::Status DecodeHeader() {
    graph_.name = proto_.name();
    graph_.opset_version = proto_.opset_version() == 0 ? 1 : proto_.opset_version();
    if (graph_.opset_version < 0) return Malformed("opset_version", "'opset_version' is negative");
    if (graph_.opset_version > kOpsetVersion) {
      return Unimplemented("opset_version", absl::StrCat("op set ", graph_.opset_version,
                                                         " is newer than this version's, ", kOpsetVersion));
    }
    if (proto_.nodes_size() > limits_.max_nodes) {
      return InvalidArgument(
          ErrorReason::kLimitExceeded, "nodes",
          absl::StrCat("graph has ", proto_.nodes_size(), " nodes, over the limit of ", limits_.max_nodes));
    }
    int64_t values = proto_.inputs_size();
    for (const v1::Node& node : proto_.nodes()) values += node.results_size();
    if (values > kMaxValues) return InvalidArgument(ErrorReason::kLimitExceeded, "nodes", "graph has too many values");
    graph_.values.reserve(static_cast<size_t>(values));
    graph_.nodes.reserve(static_cast<size_t>(proto_.nodes_size()));
    for (const v1::Node& node : proto_.nodes()) {
      for (const v1::NodeResult& result : node.results()) {
        if (!result.name().empty()) given_names_.insert(result.name());
      }
    }
    for (const v1::GraphInput& input : proto_.inputs()) given_names_.insert(input.name());
    return absl::OkStatus();
  }

  absl::Status DecodeInput(int index) {
    const v1::GraphInput& proto = proto_.inputs(index);
    if (proto.name().empty()) {
      return Malformed(absl::StrCat("inputs[", index, "]"), absl::StrCat("input ", index, " has no name"));
    }
    Value value;
    value.name = proto.name();
    value.result_index = index;
    FUSELINE_ASSIGN_OR_RETURN(value.type, TypeFromProto(proto.type(), proto.name(), limits_));
    FUSELINE_ASSIGN_OR_RETURN(const ValueId id, AddValue(std::move(value)));
    graph_.inputs.push_back(id);
    return absl::OkStatus();
  }

  absl::Status DecodeNode(int index) {
    const v1::Node& proto = proto_.nodes(index);
    const std::string subject = NodeSubject(proto, index);
    Node node;
    node.op = proto.op();
    node.origin = proto.origin();
    if (proto.results_size() == 0) return Malformed(subject, absl::StrCat("node '", subject, "' has no results"));
    node.operands.reserve(static_cast<size_t>(proto.operands_size()));
    for (int i = 0; i < proto.operands_size(); ++i) {
      FUSELINE_ASSIGN_OR_RETURN(Operand operand, DecodeOperand(proto.operands(i), subject, i));
      node.operands.push_back(operand);
    }
    for (const auto& [name, attribute] : proto.attributes()) {
      FUSELINE_ASSIGN_OR_RETURN(AttrValue value, AttributeFromProto(attribute, subject, name));
      node.attrs.emplace(name, std::move(value));
    }
    if (proto.has_constant_data()) {
      constant_bytes_ += static_cast<int64_t>(proto.constant_data().size());
      if (constant_bytes_ > limits_.max_constant_bytes) {
        return InvalidArgument(ErrorReason::kLimitExceeded, subject,
                               absl::StrCat("node '", subject, "': constants are over the limit of ",
                                            limits_.max_constant_bytes, " bytes in all"));
      }
      node.constant_bytes = std::make_shared<const std::string>(proto.constant_data());
    }
    for (int i = 0; i < proto.results_size(); ++i) {
      const v1::NodeResult& result = proto.results(i);
      Value value;
      value.name = result.name().empty() ? MakeName() : result.name();
      value.producer = index;
      value.result_index = i;
      if (result.has_declared_type()) {
        FUSELINE_ASSIGN_OR_RETURN(value.declared_type, TypeFromProto(result.declared_type(), subject, limits_));
      }
      FUSELINE_ASSIGN_OR_RETURN(const ValueId id, AddValue(std::move(value)));
      node.results.push_back(id);
    }
    graph_.nodes.push_back(std::move(node));
    return absl::OkStatus();
  }

  absl::StatusOr<Operand> DecodeOperand(const v1::Operand& proto, const std::string& subject, int index) {
    Operand operand;
    const auto where = [&] { return absl::StrCat("node '", subject, "': operand ", index); };
    switch (proto.kind_case()) {
      case v1::Operand::kValueIndex:
        operand.value = FindIndex(proto.value_index());
        if (operand.value == kNoValue) {
          return InvalidArgument(
              ErrorReason::kGraphStructure, subject,
              absl::StrCat(where(), " is value ", proto.value_index(), ", which no input or earlier node defines"));
        }
        return operand;
      case v1::Operand::kValueName:
        operand.value = FindName(proto.value_name());
        if (operand.value == kNoValue) {
          return InvalidArgument(
              ErrorReason::kGraphStructure, subject,
              absl::StrCat(where(), " is '", proto.value_name(), "', which no input or earlier node defines"));
        }
        return operand;
      case v1::Operand::kLiteral: {
        FUSELINE_ASSIGN_OR_RETURN(operand.literal, LiteralFromProto(proto.literal(), subject));
        return operand;
      }
      case v1::Operand::KIND_NOT_SET:
        break;
    }
    return Malformed(subject, absl::StrCat(where(), " is not set"));
  }

  absl::Status DecodeOutput(int index) {
    const v1::GraphOutput& proto = proto_.outputs(index);
    GraphOutput output;
    output.name = proto.name().empty() ? absl::StrCat("out", index) : proto.name();
    switch (proto.value_case()) {
      case v1::GraphOutput::kValueIndex:
        output.value = FindIndex(proto.value_index());
        break;
      case v1::GraphOutput::kValueName:
        output.value = FindName(proto.value_name());
        break;
      case v1::GraphOutput::VALUE_NOT_SET:
        return Malformed(output.name, absl::StrCat("output '", output.name, "' names no value"));
    }
    if (output.value == kNoValue) {
      return InvalidArgument(ErrorReason::kGraphStructure, output.name,
                             absl::StrCat("output '", output.name, "' returns a value that the graph does not define"));
    }
    graph_.outputs.push_back(std::move(output));
    return absl::OkStatus();
  }

  absl::StatusOr<ValueId> AddValue(Value value) {
    const ValueId id = static_cast<ValueId>(graph_.values.size());
    if (!ids_.emplace(value.name, id).second) {
      return InvalidArgument(ErrorReason::kGraphStructure, value.name,
                             absl::StrCat("two values have the name '", value.name, "'"));
    }
    graph_.values.push_back(std::move(value));
    return id;
  }

  ValueId FindIndex(int64_t index) const {
    return index >= 0 && index < static_cast<int64_t>(graph_.values.size()) ? static_cast<ValueId>(index) : kNoValue;
  }
  ValueId FindName(const std::string& name) const {
    const auto it = ids_.find(name);
    return it == ids_.end() ? kNoValue : it->second;
  }

  // "v7" for value 7, made longer where the client took that name.
  std::string MakeName() {
    std::string name = absl::StrCat("v", graph_.values.size());
    while (given_names_.contains(name)) name += "_";
    return name;
  }

  const v1::Graph& proto_;
  const GraphLimits& limits_;
  Graph graph_;
  int64_t constant_bytes_ = 0;
  absl::flat_hash_map<std::string, ValueId> ids_;
  absl::flat_hash_set<std::string> given_names_;
};

}  // namespace

void GraphToProto(const Graph& graph, v1::Graph* proto) {
  proto->Clear();
  proto->set_name(graph.name);
  proto->set_opset_version(graph.opset_version);
  // Values are numbered by where the message defines them, which need not be their ids' order.
  std::vector<int64_t> number(graph.values.size(), -1);
  int64_t next = 0;
  for (const ValueId id : graph.inputs) {
    number[static_cast<size_t>(id)] = next++;
    v1::GraphInput* input = proto->add_inputs();
    input->set_name(graph.value(id).name);
    TypeToProto(graph.type(id), input->mutable_type());
  }
  for (const Node& node : graph.nodes) {
    v1::Node* out = proto->add_nodes();
    out->set_op(node.op);
    out->set_origin(node.origin);
    for (const Operand& operand : node.operands) {
      v1::Operand* o = out->add_operands();
      if (operand.is_literal()) {
        LiteralToProto(operand.literal, o->mutable_literal());
      } else {
        o->set_value_index(number[static_cast<size_t>(operand.value)]);
      }
    }
    for (const auto& [name, value] : node.attrs)
      std::visit(AttributeEncoder{(*out->mutable_attributes())[name]}, value);
    if (node.constant_bytes != nullptr) out->set_constant_data(*node.constant_bytes);
    for (const ValueId id : node.results) {
      number[static_cast<size_t>(id)] = next++;
      v1::NodeResult* result = out->add_results();
      result->set_name(graph.value(id).name);
      if (graph.value(id).declared_type.has_value())
        TypeToProto(*graph.value(id).declared_type, result->mutable_declared_type());
    }
  }
  for (const GraphOutput& output : graph.outputs) {
    v1::GraphOutput* out = proto->add_outputs();
    out->set_name(output.name);
    out->set_value_index(number[static_cast<size_t>(output.value)]);
  }
}

absl::StatusOr<Graph> GraphFromProto(const v1::Graph& proto, const GraphLimits& limits) {
  return GraphDecoder(proto, limits).Decode();
}

}  // namespace fuseline
