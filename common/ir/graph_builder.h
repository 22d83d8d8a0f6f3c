// Builds a graph node by node with types inferred at once. Used by clients, by decompositions and by tests.
// Ownership: owns the graph under construction. Thread-safety: thread-compatible. Errors: INVALID_ARGUMENT as
// VerifyGraph.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/ir/graph.h"
#include "common/ir/op_table.h"

namespace fuseline {

class GraphBuilder {
 public:
  explicit GraphBuilder(std::string name, GraphLimits limits = {});

  // Adds an input with a static type (symbolic dims: build the text form instead).
  absl::StatusOr<ValueId> AddInput(std::string_view name, const TensorType& type);
  // Adds a node and returns its results. An empty name gives "t<N>", which further results get always. A node that is
  // refused leaves the graph as it was.
  absl::StatusOr<std::vector<ValueId>> AddNode(std::string_view op, absl::Span<const Operand> operands,
                                               AttrMap attrs = {}, std::string_view name = "",
                                               std::string_view origin = "");
  // The same for ops with one result.
  absl::StatusOr<ValueId> Add(std::string_view op, absl::Span<const Operand> operands, AttrMap attrs = {});
  absl::StatusOr<ValueId> AddConstant(const TensorType& type, std::string bytes, std::string_view name = "");
  absl::Status AddOutput(std::string_view name, ValueId value);

  const Graph& graph() const { return graph_; }
  const TensorType& type(ValueId id) const { return graph_.type(id); }
  // Moves the graph out; the builder is empty afterwards.
  Graph Build();

  static Operand Value(ValueId id) { return Operand{id, {}}; }
  static Operand Number(double v);
  static Operand Integer(int64_t v);

 private:
  friend class GraphRewriter;
  absl::StatusOr<std::vector<ValueId>> Append(Node node, std::string_view name);
  absl::Status CheckNewName(std::string_view name) const;
  // The next "t<N>" that is free.
  std::string NewName();

  Graph graph_;
  GraphLimits limits_;
  int64_t next_name_ = 0;
  int64_t constant_bytes_ = 0;
  absl::flat_hash_set<std::string> names_;  // of the graph's values
  absl::flat_hash_set<std::string> output_names_;
};

}  // namespace fuseline
