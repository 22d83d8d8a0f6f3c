#include "common/ir/canonical.h"

#include "common/status/str_cat.h"

#include <bit>
#include <utility>

namespace fuseline {
namespace {

// Bumped whenever the encoding changes, so that keys made by different versions never meet.
constexpr std::string_view kMagic = "fuseline-graph";
constexpr uint64_t kEncodingVersion = 1;

// The live nodes in the order of a depth-first walk from the outputs, operands first. The order follows from the
// structure alone.
std::vector<NodeId> CanonicalOrder(const Graph& graph) {
  std::vector<NodeId> order;
  std::vector<bool> entered(graph.nodes.size(), false);
  struct Frame {
    NodeId node;
    size_t next_operand;
  };
  std::vector<Frame> stack;  // a path in the graph: each node stands on it at most once
  const auto enter = [&](ValueId value) {
    const NodeId producer = graph.value(value).producer;
    if (producer == kNoNode || entered[static_cast<size_t>(producer)]) return;
    entered[static_cast<size_t>(producer)] = true;
    stack.push_back({producer, 0});
  };
  for (const GraphOutput& output : graph.outputs) {
    enter(output.value);
    while (!stack.empty()) {
      Frame& frame = stack.back();
      const Node& node = graph.nodes[static_cast<size_t>(frame.node)];
      if (frame.next_operand == node.operands.size()) {
        order.push_back(frame.node);
        stack.pop_back();
        continue;
      }
      const Operand& operand = node.operands[frame.next_operand++];
      if (!operand.is_literal()) enter(operand.value);  // invalidates frame
    }
  }
  return order;
}

std::string InputName(size_t position) { return StrCat("in", position); }
std::string ResultName(size_t position) { return StrCat("v", position); }

// Little-endian numbers of fixed width, and everything of variable length behind its length: no two sequences of fields
// share an encoding.
class ByteWriter {
 public:
  void Uint(uint64_t value) {
    for (int i = 0; i < 8; ++i) bytes_.push_back(static_cast<char>(value >> (8 * i)));
  }
  void Int(int64_t value) { Uint(static_cast<uint64_t>(value)); }
  void Double(double value) { Uint(std::bit_cast<uint64_t>(value)); }
  void Tag(uint8_t value) { bytes_.push_back(static_cast<char>(value)); }
  void Count(size_t count) { Uint(count); }
  void String(std::string_view value) {
    Count(value.size());
    bytes_.append(value);
  }
  std::string Take() { return std::move(bytes_); }

 private:
  std::string bytes_;
};

struct AttrWriter {
  ByteWriter& writer;

  void operator()(int64_t v) const { writer.Int(v); }
  void operator()(double v) const { writer.Double(v); }
  void operator()(bool v) const { writer.Tag(v ? 1 : 0); }
  void operator()(const std::string& v) const { writer.String(v); }
  void operator()(DType v) const { writer.Tag(static_cast<uint8_t>(v)); }
  template <typename T>
  void operator()(const std::vector<T>& v) const {
    writer.Count(v.size());
    for (const T item : v) (*this)(item);
  }
};

void WriteType(const TensorType& type, ByteWriter& writer) {
  writer.Tag(static_cast<uint8_t>(type.dtype));
  writer.Count(type.dims.size());
  for (const Dim& dim : type.dims) {
    writer.String(dim.symbol);
    if (!dim.is_symbolic()) writer.Int(dim.size);
  }
  writer.Tag(type.strides.has_value() ? 1 : 0);
  if (type.strides.has_value()) {
    writer.Count(type.strides->size());
    for (int64_t stride : *type.strides) writer.Int(stride);
  }
}

void WriteOperand(const Operand& operand, ByteWriter& writer) {
  if (!operand.is_literal()) {
    writer.Tag(0);
    writer.Int(operand.value);
    return;
  }
  writer.Tag(1);
  writer.Tag(static_cast<uint8_t>(operand.literal.kind));
  if (operand.literal.kind == Literal::Kind::kFloat) {
    writer.Double(operand.literal.f);
  } else {
    writer.Int(operand.literal.i);
  }
}

void WriteNode(const Node& node, ByteWriter& writer) {
  writer.String(node.op);
  writer.Count(node.operands.size());
  for (const Operand& operand : node.operands) WriteOperand(operand, writer);
  writer.Count(node.results.size());
  for (ValueId id : node.results) writer.Int(id);
  writer.Count(node.attrs.size());
  for (const auto& [name, value] : node.attrs) {
    writer.String(name);
    writer.Tag(static_cast<uint8_t>(value.index()));
    std::visit(AttrWriter{writer}, value);
  }
  writer.Tag(node.constant_bytes != nullptr ? 1 : 0);
  if (node.constant_bytes != nullptr) writer.String(*node.constant_bytes);
}

}  // namespace

Graph Canonicalize(const Graph& graph) {
  Graph result;
  result.opset_version = graph.opset_version;
  std::vector<ValueId> renamed(graph.values.size(), kNoValue);
  const auto add_value = [&](ValueId from, std::string name, NodeId producer, int index) {
    const auto to = static_cast<ValueId>(result.values.size());
    renamed[static_cast<size_t>(from)] = to;
    Value value;
    value.name = std::move(name);
    value.producer = producer;
    value.result_index = index;
    value.type = graph.type(from);
    result.values.push_back(std::move(value));
    return to;
  };
  // Unused inputs stay: they are part of the signature.
  for (ValueId id : graph.inputs) {
    const size_t position = result.inputs.size();
    result.inputs.push_back(add_value(id, InputName(position), kNoNode, static_cast<int>(position)));
  }
  size_t next_name = 0;
  const std::vector<NodeId> order = CanonicalOrder(graph);
  result.nodes.reserve(order.size());
  for (NodeId from : order) {
    const Node& source = graph.nodes[static_cast<size_t>(from)];
    const auto to = static_cast<NodeId>(result.nodes.size());
    Node node = source;
    node.origin.clear();
    for (Operand& operand : node.operands) {
      if (!operand.is_literal()) operand.value = renamed[static_cast<size_t>(operand.value)];
    }
    for (size_t i = 0; i < node.results.size(); ++i) {
      node.results[i] = add_value(source.results[i], ResultName(next_name++), to, static_cast<int>(i));
    }
    result.nodes.push_back(std::move(node));
  }
  for (const GraphOutput& output : graph.outputs) {
    result.outputs.push_back({StrCat("out", result.outputs.size()), renamed[static_cast<size_t>(output.value)]});
  }
  return result;
}

absl::flat_hash_map<std::string, std::string> CanonicalNames(const Graph& graph) {
  absl::flat_hash_map<std::string, std::string> names;
  for (size_t i = 0; i < graph.inputs.size(); ++i) names.emplace(InputName(i), graph.value(graph.inputs[i]).name);
  size_t next_name = 0;
  for (NodeId node : CanonicalOrder(graph)) {
    for (ValueId id : graph.nodes[static_cast<size_t>(node)].results) {
      names.emplace(ResultName(next_name++), graph.value(id).name);
    }
  }
  return names;
}

std::string CanonicalBytes(const Graph& canonical) {
  ByteWriter writer;
  writer.String(kMagic);
  writer.Uint(kEncodingVersion);
  writer.Int(canonical.opset_version);
  writer.Count(canonical.inputs.size());
  for (ValueId id : canonical.inputs) {
    writer.Int(id);
    WriteType(canonical.type(id), writer);
  }
  writer.Count(canonical.nodes.size());
  for (const Node& node : canonical.nodes) WriteNode(node, writer);
  writer.Count(canonical.outputs.size());
  for (const GraphOutput& output : canonical.outputs) writer.Int(output.value);
  return writer.Take();
}

}  // namespace fuseline
