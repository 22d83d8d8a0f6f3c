// What lowering an op takes: the graph, the program under construction, and how the values lowered so far are read.
// Ownership: refers to the graph and the options. Thread-safety: thread-compatible.
#pragma once

#include <string>
#include <vector>

#include "absl/types/span.h"
#include "common/ir/graph.h"
#include "common/ir/scalar_expr.h"
#include "common/target/compile_options.h"
#include "server/lowering/loop_program.h"

namespace fuseline::lowering {

// A graph value as its readers see it: a tensor and, for each of the value's dims' variables, where in the tensor the
// element is.
struct ValueView {
  TensorId tensor = -1;
  std::vector<IndexExpr> index;
};

class LoweringContext {
 public:
  LoweringContext(const Graph& graph, const std::vector<NodeId>& source, const CompileOptions& options)
      : graph_(graph), source_(source), options_(options), views_(graph.values.size()) {}

  const Graph& graph() const { return graph_; }
  const CompileOptions& options() const { return options_; }
  const Node& node(NodeId id) const { return graph_.nodes[static_cast<size_t>(id)]; }
  ValueView& view(ValueId id) { return views_[static_cast<size_t>(id)]; }
  Shape shape(ValueId id) const { return graph_.type(id).shape(); }
  DType dtype(ValueId id) const { return graph_.type(id).dtype; }
  LoopProgram& program() { return program_; }

  // A node of the op `id` over `domain`, with no inputs and no body.
  LoopNode StartNode(NodeId id, Shape domain) const;
  TensorId AddTensor(LoopTensor t);
  // Adds the node and the tensor it computes.
  TensorId AddComputed(LoopNode node, DType dtype, Shape shape, const std::string& name);
  // `result` is the whole of `tensor`, which has its shape.
  void SetResult(ValueId result, TensorId tensor);

  // The operand's element `at`, whose expressions run over `domain`, the node's loop extents. Where a guard does not
  // hold nothing is read, and the value is unspecified.
  LoopInput ReadAt(ValueId id, absl::Span<const IndexExpr> at, const Shape& domain,
                   std::vector<IndexBound> guards = {});
  // The operand broadcast to `domain` as NumPy does.
  LoopInput ReadBroadcast(ValueId id, const Shape& domain);
  // Operand `k` of the node as a value of the body, in its compute dtype: appends to `n.inputs`. `at` as in ReadAt.
  // A literal is a constant.
  Scalar ReadOperand(LoopNode& n, ScalarBuilder& builder, NodeId id, size_t k, absl::Span<const IndexExpr> at,
                     std::vector<IndexBound> guards = {});
  // Whether all guards hold, as a bool of the body.
  static Scalar ReadGuard(LoopNode& n, ScalarBuilder& builder, std::vector<IndexBound> guards);

  // A loop nest that copies the view into a tensor of its own. `id` may be kNoNode.
  ValueView Materialise(NodeId id, ValueId value, ValueView v);

  // `s` rounded to `storage` and back.
  static Scalar Round(ScalarBuilder& builder, Scalar s, DType storage);
  static Scalar LiteralScalar(ScalarBuilder& builder, const Literal& literal, DType dtype);

 protected:
  const Graph& graph_;
  const std::vector<NodeId>& source_;
  const CompileOptions& options_;
  LoopProgram program_;
  std::vector<ValueView> views_;
};

}  // namespace fuseline::lowering
