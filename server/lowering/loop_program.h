// The loop IR: every computed tensor is one loop nest with a scalar body; views have become index maps of the loads.
// Pipeline: Graph -> LowerGraph -> LoopProgram -> Fuse.
// Invariants (numbers are those of docs/ir.md; VerifyLoopProgram checks them):
//   (L1) nodes stand in topological order;
//   (L2) a load's index has one expression for each dim of its tensor, over the node's loop variables and values, and
//   stays within the shape wherever its guards hold; (L3) a body's instructions use earlier instructions only, with
//   operand types that the operation takes; (L4) a pointwise node's tensor has the shape of the node's domain, a
//   reduction's that of the dims kept; (L5) every output is computed by exactly one node; (L6) a scan's or sort's
//   tensor has the shape of the node's domain; what a scatter writes into is computed by a node that nothing else
//   reads.
// Units: extents in elements. Ownership: values; constants' bytes are shared. Thread-safety: thread-compatible.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "common/ir/graph.h"
#include "common/ir/op_table.h"
#include "common/ir/scalar_expr.h"
#include "common/ir/types.h"
#include "server/lowering/index_expr.h"

namespace fuseline::lowering {

using TensorId = int32_t;
using LoopNodeId = int32_t;
inline constexpr TensorId kIndexValue = -1;
inline constexpr TensorId kGuardValue = -2;

struct LoopTensor {
  enum class Kind : uint8_t { kInput, kConstant, kComputed } kind = Kind::kComputed;
  std::string name;               // as in the graph, without '%'
  DType dtype = DType::kInvalid;  // as stored
  Shape shape;
  std::vector<int64_t> strides;                       // in memory, in elements; dense except for inputs
  int32_t input = -1;                                 // kInput: position in the signature
  std::shared_ptr<const std::string> constant_bytes;  // kConstant
  LoopNodeId producer = -1;                           // kComputed
  int32_t output = -1;                                // position among the graph's outputs; -1: not returned
  int64_t element_count() const { return ElementCount(shape); }
  int64_t size_bytes() const { return element_count() * DTypeSizeBytes(dtype); }
};

// What a body's kInput reads: an element of a tensor, the value of an index expression as i64, or whether bounds hold
// as bool. Expressions run over the node's loop variables; IndexExpr::Value(k, …) is LoopNode::values[k].
struct LoopInput {
  TensorId tensor = kIndexValue;
  std::vector<IndexExpr> index;  // a tensor's
  IndexExpr value;               // kIndexValue
  // A tensor's: where one does not hold, nothing is read and the value is unspecified. kGuardValue: what is asked.
  std::vector<IndexBound> guards;
  bool reads_tensor() const { return tensor >= 0; }
};

// An index that must lie within [-extent, extent) at run time; ScalarOp::kCheckIndex refers to it.
struct IndexCheck {
  std::string node;  // of the client's graph, for the error
  int64_t extent = 0;
  NodeId source = kNoNode;  // whose name `node` is
};

// In which order a reduction combines. What does not show in the bits (integers, amax, any) is free in any case.
enum class Accumulation : uint8_t {
  kFree,     // as its kernel likes
  kByShape,  // numerics = eager: as the node's own domain and kind say, whatever the kernel (codegen's partial sums)
  // numerics = eager, products of two factors: one after the other from 0, each product and addition one fma where the
  // target has it. What tiles do, of whatever size.
  kChained,
};

struct LoopNode {
  enum class Kind : uint8_t {
    kPointwise,
    kReduction,
    kScan,     // along the one reduced variable, in order: the tensor holds what has been combined up to each element
    kScatter,  // `into`, with the elements at `position` replaced (kNone) or combined with (kSum, kProd, kAmax, kAmin),
               // in row-major order of the reduced variables; elements of different other variables never share a
               // position
    kSort,     // the positions (i64) along the one reduced variable in the order of the body's values; stable
  } kind = Kind::kPointwise;
  Shape domain;               // loop extents; variable i runs over [0, domain[i])
  std::vector<bool> reduced;  // which loop variables are reduced, or run in order
  std::vector<LoopInput> inputs;
  std::vector<ScalarInstr> body;  // kInput's index refers to `inputs`
  std::vector<int32_t> values;    // i64 instructions that the inputs after them use as positions
  int32_t result = -1;            // the instruction whose value is stored or reduced
  ReductionKind reduction = ReductionKind::kNone;
  Accumulation accumulation = Accumulation::kFree;  // kReduction
  IndexExpr arg_index;  // kArgmax, kArgmin (scans too): the position to return, over the loop variables
  TensorId into = -1;   // kScatter: a computed tensor of the result's shape, whose memory it takes over
  // kScatter: where each is written to, over the loop variables and values. kScan: the same, if not at its own place.
  std::vector<IndexExpr> position;
  bool descending = false;               // kSort; NaN counts as the largest
  DType round_result = DType::kInvalid;  // kReduction: round the result to this 16-bit float (numerics = eager)
  TensorId tensor = -1;                  // computed
  NodeId source = kNoNode;               // the node of the client's graph it stems from
  std::string label;                     // the op's name, for kernel names and reports
  bool is_reduction() const { return kind == Kind::kReduction; }
  // Has a kernel of its own loops, which nothing but its operands' pointwise nodes joins.
  bool is_ordered() const { return kind == Kind::kScan || kind == Kind::kScatter || kind == Kind::kSort; }
  // The dims that are kept, in order.
  Shape kept_shape() const;
};

// What a graph op costs when every op is a kernel of its own; the report compares with it.
struct SourceOp {
  std::string op;
  std::string name;  // "%t0"
  bool is_view = false;
  int64_t transfers = 0;  // tensors read and written
  int64_t bytes = 0;
  bool makes_intermediate = false;  // its result is neither a view nor returned
};

struct LoopProgram {
  std::vector<LoopTensor> tensors;
  std::vector<LoopNode> nodes;
  std::vector<TensorId> outputs;  // in signature order
  std::vector<SourceOp> sources;  // one for each node of the graph
  std::vector<IndexCheck> checks;
  const LoopTensor& tensor(TensorId id) const { return tensors[static_cast<size_t>(id)]; }
  const LoopNode& node(LoopNodeId id) const { return nodes[static_cast<size_t>(id)]; }
};

// INTERNAL naming the constraint that is broken: a bug in lowering, never the user's fault.
absl::Status VerifyLoopProgram(const LoopProgram& program);
// Readable text, for golden files and `--emit loops`.
std::string PrintLoopProgram(const LoopProgram& program);

// ", chained": for texts; nothing for kFree.
const char* AccumulationName(Accumulation accumulation);

// The type of a reduction's result before it is stored: i64 for argmax and argmin, else the reduced value's type.
DType ReductionResultType(const LoopNode& node);

}  // namespace fuseline::lowering
