// The body of one kernel: what a fusion group computes at an element of its loops, as straight-line code with every
// view, copy and intermediate resolved into loads, scalar operations, reductions and stores. Both emitters print from
// it. Pipeline: FusionGroup -> BuildKernelBody -> KernelBody -> schedule -> emitters. Loops: `extents` with `reduced`
// flags; row variables first in order, reduced ones after. An instruction is `full` where it depends on a reduced
// variable, else it is the same for a whole row. Passes: a reduction over values of pass k runs in pass k over the row;
// its result is known from pass k + 1 on. Ownership: values. Thread-safety: thread-compatible. Errors: INTERNAL only.
// Tested by tests/unit/codegen/kernel_body_test.cc
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "server/fuser/fusion_plan.h"
#include "server/lowering/loop_program.h"

namespace fuseline::codegen {

using lowering::IndexExpr;
using lowering::TensorId;

inline constexpr TensorId kPartialParam = -1;
inline constexpr TensorId kChecksParam = -2;

// A pointer argument.
struct BodyParam {
  std::string name;               // "in0", "out0", "partial0"
  TensorId tensor = -1;           // kPartialParam: partial results of a split reduction; kChecksParam: index checks
  int32_t partial = -1;           // which partial result
  DType dtype = DType::kInvalid;  // storage
  int64_t element_count = 0;
  bool written = false;
};

struct BodyInstr {
  // kOp: constants too. kGuard: a bool, whether all bounds hold.
  enum class Kind : uint8_t { kLoad, kIndex, kOp, kReduction, kGuard } kind = Kind::kOp;
  // kOp: args refer to BodyInstr ids; kLoad: args[0] is the guard under which it reads, or -1; kCheckIndex: args[1] is
  // the guard under which it notes an error, or -1. `type` holds for every kind.
  ScalarInstr scalar;
  int32_t param = -1;  // kLoad; kCheckIndex: the checks
  // kLoad: element offset; kIndex: the value. IndexExpr::Value(i, …) in expressions of a body is instruction i.
  IndexExpr offset;
  std::vector<lowering::IndexBound> bounds;  // kGuard
  int32_t reduction = -1;                    // kReduction: whose result it is
  bool full = false;
  int32_t pass = 0;  // first pass (full) or point between passes (row) at which it can be computed
  std::string hint;  // the op it stems from, for the name in the text
};

struct BodyReduction {
  ReductionKind kind = ReductionKind::kNone;
  int32_t value = -1;            // full instruction
  int32_t arg = -1;              // kArgmax, kArgmin: the i64 position
  DType type = DType::kInvalid;  // of `value`
  int32_t pass = 0;
  lowering::Accumulation accumulation = lowering::Accumulation::kFree;  // kChained: `value` is the product of two
  bool returns_index() const { return kind == ReductionKind::kArgmax || kind == ReductionKind::kArgmin; }
};

struct BodyStore {
  int32_t param = -1;
  IndexExpr offset;
  int32_t value = -1;
  bool full = false;
  int32_t pass = 0;
};

// The one store of a scan, scatter or sort: what it does with its values, in row-major order of the reduced variables.
struct BodyOrdered {
  lowering::LoopNode::Kind kind = lowering::LoopNode::Kind::kScan;
  ReductionKind reduction = ReductionKind::kNone;  // kScan; kScatter: kNone replaces
  bool descending = false;                         // kSort; what is stored is the position, not the value
  int32_t arg = -1;                                // kScan of kArgmax, which stores positions: the i64 position
};

// Only elements with start + var < limit exist (the last piece of a split row may be short).
struct BodyBound {
  int32_t var = -1;
  IndexExpr start;
  int64_t limit = 0;
};

struct KernelBody {
  std::vector<int64_t> extents;
  std::vector<bool> reduced;
  std::vector<BodyParam> params;
  std::vector<BodyInstr> instrs;  // topological
  std::vector<BodyReduction> reductions;
  std::vector<BodyStore> stores;
  std::optional<BodyBound> bound;
  std::optional<BodyOrdered> ordered;
  bool inner = false;  // the reduced loops lie within the kept ones: the last dim that is not 1 is reduced
  int32_t passes = 0;  // over the row; 0: everything is per row (or pointwise without reduced loops)
  int64_t row_count() const;
  int64_t reduced_count() const;
  bool has_reduced() const;
  // kFree unless some reduction says otherwise; reductions of both other kinds never share a body.
  lowering::Accumulation accumulation() const;
  std::vector<int32_t> row_vars() const;
  std::vector<int32_t> reduced_vars() const;
};

absl::StatusOr<KernelBody> BuildKernelBody(const lowering::LoopProgram& program, const fuser::FusionGroup& group);

// Calls `visit` with every instruction that this one uses: operands, guards, positions in its index expressions. A
// reduction's result uses none: its value belongs to an earlier pass.
void ForEachUse(const BodyInstr& instr, absl::FunctionRef<void(int32_t)> visit);
void ForEachUse(const BodyStore& store, absl::FunctionRef<void(int32_t)> visit);
// Replaces each of them by rename(it).
void RenameUses(BodyInstr& instr, absl::FunctionRef<int32_t(int32_t)> rename);
void RenameUses(BodyStore& store, absl::FunctionRef<int32_t(int32_t)> rename);
// Whether its index expressions use the loop variable.
bool IndexUses(const BodyInstr& instr, int32_t var);
// Whether the value is the same for `lanes` neighbours of the loop variable, the first of which is a multiple of
// `lanes`.
bool SameForLanes(const IndexExpr& e, int32_t var, int64_t lanes);
// Likewise whether it is within the bound: of a concat or a pad, where that begins at a multiple of `lanes`.
bool SameForLanes(const lowering::IndexBound& bound, int32_t var, int64_t lanes, absl::Span<const int64_t> extents);
// Likewise all of an instruction's index expressions.
bool SameForLanes(const BodyInstr& instr, int32_t var, int64_t lanes, absl::Span<const int64_t> extents);
// By instruction: whether its value may differ between such neighbours. `var` < 0: none does.
std::vector<bool> DiffersBetweenLanes(const KernelBody& body, int32_t var, int64_t lanes);
// For each instruction, whether it differs from one value of the loop variable to another within a pass.
std::vector<bool> DependsOnLoop(const KernelBody& body, int32_t var);

// Sets `full` and `pass` of everything and `passes` from the operands. Called after instructions were added or
// replaced.
void AssignPasses(KernelBody& body);
// Drops extents of 1 and merges neighbouring loops of one kind wherever every index allows it.
void CollapseLoops(KernelBody& body);
// Makes the reduced loops one, in row-major order.
void FlattenReducedLoops(KernelBody& body);
// Drops instructions and parameters that nothing uses.
void RemoveDeadCode(KernelBody& body);
// Renumbers the loop variables: the new variable i is the old order[i].
void ReorderLoops(KernelBody& body, const std::vector<int32_t>& order);
// Applies `values` to the loop variables everywhere; `extents` and `reduced` describe the new ones.
void SubstituteLoops(KernelBody& body, const std::vector<IndexExpr>& values, std::vector<int64_t> extents,
                     std::vector<bool> reduced);

// Readable text, for golden files.
std::string PrintKernelBody(const KernelBody& body);

}  // namespace fuseline::codegen
