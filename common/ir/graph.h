// The graph IR: a list of nodes in SSA form over typed values. A plain struct, made by the text parser, the protobuf
// codec or GraphBuilder, and checked by VerifyGraph; every later stage takes a verified graph. Pipeline: text or proto
// -> Graph -> Canonicalize, ComputeFingerprint, LowerGraph, the reference interpreter. Invariants of a verified graph
// (numbers are those of docs/ir.md):
//   (G1) nodes stand in topological order: an operand is an input or a result of an earlier node;
//   (G2) every value has one producer, every name is unique and matches [A-Za-z_][A-Za-z0-9_.]*;
//   (G3) every node's op is in the op table, with the operands and attributes that its row allows;
//   (G4) every value's type is the one that the op's type rule infers;
//   (G5) sizes and counts are within GraphLimits.
// Ownership: values; constants' bytes are shared. Thread-safety: thread-compatible.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "common/ir/types.h"

namespace fuseline {

struct OpDef;  // op_table.h

using ValueId = int32_t;
using NodeId = int32_t;
inline constexpr ValueId kNoValue = -1;
inline constexpr NodeId kNoNode = -1;

// A number written in the graph. Its dtype comes from where it stands.
struct Literal {
  enum class Kind : uint8_t { kInt, kFloat, kBool } kind = Kind::kInt;
  int64_t i = 0;   // kInt; kBool as 0 or 1
  double f = 0.0;  // kFloat
  double AsDouble() const { return kind == Kind::kFloat ? f : static_cast<double>(i); }
};

// A value, or a literal that stands for a 0-d tensor.
struct Operand {
  ValueId value = kNoValue;
  Literal literal;
  bool is_literal() const { return value == kNoValue; }
};

using AttrValue = std::variant<int64_t, double, bool, std::string, DType, std::vector<int64_t>, std::vector<double>,
                               std::vector<bool>>;
using AttrMap = std::map<std::string, AttrValue, std::less<>>;

struct Node {
  std::string op;              // the op's name
  const OpDef* def = nullptr;  // its row; set by VerifyGraph, never null afterwards
  std::vector<Operand> operands;
  std::vector<ValueId> results;
  AttrMap attrs;  // as written; defaults are filled in by VerifyGraph
  // `constant` only: the elements, dense row-major in the storage dtype, little-endian. Shared between copies of the
  // graph.
  std::shared_ptr<const std::string> constant_bytes;
  std::string origin;  // where the node comes from in the client's program; not part of the key
};

struct Value {
  std::string name;                         // without the '%'
  NodeId producer = kNoNode;                // kNoNode: an input
  int result_index = 0;                     // among the producer's results; for an input, its position
  TensorType type;                          // inferred by VerifyGraph, given for inputs
  std::optional<TensorType> declared_type;  // the ": type" of the text form; must equal the inferred one
};

struct GraphOutput {
  std::string name;
  ValueId value = kNoValue;
};

struct Graph {
  std::string name;
  int64_t opset_version = 1;
  std::vector<ValueId> inputs;
  std::vector<Value> values;
  std::vector<Node> nodes;
  std::vector<GraphOutput> outputs;

  const Value& value(ValueId id) const { return values[static_cast<size_t>(id)]; }
  const TensorType& type(ValueId id) const { return values[static_cast<size_t>(id)].type; }
  // "%t3" for a result, "x" for an input: how messages name it.
  std::string DisplayName(ValueId id) const;
  // The name of a node's first result, with '%': how messages name the node.
  std::string NodeName(NodeId id) const;
  bool is_static() const;  // no symbolic dim in any input
};

// Bounds on what a client may send. Flags of the server set them.
struct GraphLimits {
  int64_t max_nodes = 100'000;
  int64_t max_rank = 12;
  int64_t max_elements = int64_t{1} << 40;   // of one tensor
  int64_t max_constant_bytes = 256ll << 20;  // of all constants together
  int64_t max_text_bytes = 512ll << 20;
};

}  // namespace fuseline
