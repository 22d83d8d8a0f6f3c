// Tested by tests/unit/lowering/loop_program_test.cc
#include "server/lowering/loop_program.h"

#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/status/error.h"
#include "common/status/status_macros.h"

namespace fuseline::lowering {
namespace {

const char* ReductionName(ReductionKind kind) {
  switch (kind) {
    case ReductionKind::kNone:
      return "none";
    case ReductionKind::kSum:
      return "sum";
    case ReductionKind::kProd:
      return "prod";
    case ReductionKind::kAmax:
      return "amax";
    case ReductionKind::kAmin:
      return "amin";
    case ReductionKind::kAny:
      return "any";
    case ReductionKind::kAll:
      return "all";
    case ReductionKind::kArgmax:
      return "argmax";
    case ReductionKind::kArgmin:
      return "argmin";
    case ReductionKind::kVarMean:
      return "var_mean";
  }
  return "?";
}

std::string PrintIndex(const std::vector<IndexExpr>& index) {
  return absl::StrCat(
      "[", absl::StrJoin(index, ", ", [](std::string* s, const IndexExpr& e) { s->append(e.ToString()); }), "]");
}

std::string PrintGuards(const std::vector<IndexBound>& guards) {
  return absl::StrJoin(guards, " and ", [](std::string* s, const IndexBound& b) {
    absl::StrAppend(s, b.low, " <= ", b.value.ToString(), " < ", b.high);
  });
}

std::string PrintConstant(const ScalarInstr& instr) {
  if (instr.constant.kind == Literal::Kind::kFloat) return absl::StrCat(instr.constant.f);
  return absl::StrCat(instr.constant.i);
}

// One instruction as nested text would blow up where values are shared; so one line for each.
std::string PrintInstr(const LoopProgram& program, const LoopNode& node, size_t i) {
  const ScalarInstr& instr = node.body[i];
  std::string text = absl::StrCat("    s", i, " = ");
  switch (instr.op) {
    case ScalarOp::kInput: {
      const LoopInput& in = node.inputs[static_cast<size_t>(instr.index)];
      if (in.tensor == kIndexValue) return absl::StrCat(text, "index ", in.value.ToString());
      if (in.tensor == kGuardValue) return absl::StrCat(text, "whether ", PrintGuards(in.guards));
      return absl::StrCat(text, "load ", program.tensor(in.tensor).name, PrintIndex(in.index),
                          in.guards.empty() ? "" : " where ", PrintGuards(in.guards));
    }
    case ScalarOp::kConst:
      return absl::StrCat(text, std::string(DTypeName(instr.type)), " ", PrintConstant(instr));
    default:
      break;
  }
  std::vector<std::string> args;
  for (int32_t a : instr.args) {
    if (a >= 0) args.push_back(absl::StrCat("s", a));
  }
  absl::StrAppend(&text, ScalarOpName(instr.op), "(", absl::StrJoin(args, ", "), ")");
  if (instr.op == ScalarOp::kCast) absl::StrAppend(&text, " to ", std::string(DTypeName(instr.type)));
  if (instr.op == ScalarOp::kRound16) absl::StrAppend(&text, " to ", std::string(DTypeName(instr.storage)));
  if (instr.op == ScalarOp::kBitcast) absl::StrAppend(&text, " to ", std::string(DTypeName(instr.storage_to)));
  return text;
}

absl::Status Broken(const char* constraint, const LoopProgram& program, const LoopNode& node, const char* what) {
  return Internal(absl::StrCat("loop program (", constraint, "): tensor '",
                               node.tensor >= 0 ? program.tensor(node.tensor).name : "?", "': ", what));
}

// Recursion: as deep as divisions are nested, which kMaxIndexNodes bounds.
bool UsesOnly(const IndexExpr& e, const LoopNode& node) {
  for (const IndexExpr::Term& t : e.terms()) {
    bool known = t.operand == nullptr || UsesOnly(*t.operand, node);
    if (t.kind == IndexExpr::Term::Kind::kVar) known = t.var >= 0 && static_cast<size_t>(t.var) < node.domain.size();
    if (t.kind == IndexExpr::Term::Kind::kValue) known = t.var >= 0 && static_cast<size_t>(t.var) < node.values.size();
    if (!known) return false;
  }
  return true;
}

// Operations whose operands are of one type. Casts, roundings and bitcasts take any; a select's condition is bool.
bool OperandTypesFit(const LoopNode& node, const ScalarInstr& instr) {
  if (instr.op == ScalarOp::kCast || instr.op == ScalarOp::kRound16 || instr.op == ScalarOp::kBitcast) return true;
  const size_t first = instr.op == ScalarOp::kSelect ? 1 : 0;
  if (first == 1 && !IsBool(node.body[static_cast<size_t>(instr.args[0])].type)) return false;
  for (size_t a = first + 1; a < 3; ++a) {
    if (instr.args[a] < 0) continue;
    if (node.body[static_cast<size_t>(instr.args[a])].type != node.body[static_cast<size_t>(instr.args[first])].type)
      return false;
  }
  return true;
}

absl::Status VerifyNode(const LoopProgram& program, LoopNodeId id) {
  const LoopNode& node = program.node(id);
  if (node.tensor < 0 || program.tensor(node.tensor).producer != id)
    return Broken("L5", program, node, "not its producer");
  const bool scatter = node.kind == LoopNode::Kind::kScatter;
  const Shape expected =
      scatter ? program.tensor(node.into).shape : (node.is_reduction() ? node.kept_shape() : node.domain);
  if (program.tensor(node.tensor).shape != expected)
    return Broken(node.is_ordered() ? "L6" : "L4", program, node, "shape is not that of the domain");
  if (scatter && (program.tensor(node.into).kind != LoopTensor::Kind::kComputed ||
                  program.tensor(node.into).producer >= id || program.tensor(node.into).output >= 0)) {
    return Broken("L6", program, node, "writes into a tensor that is not its own");
  }
  if (node.kind != LoopNode::Kind::kPointwise && node.reduced.size() != node.domain.size())
    return Broken("L4", program, node, "no flag for each dim");
  if ((node.is_reduction() || node.kind == LoopNode::Kind::kScan) && node.reduction == ReductionKind::kNone)
    return Broken("L4", program, node, "reduction without kind");
  const bool empty = ElementCount(node.domain) == 0;
  for (const LoopInput& in : node.inputs) {
    for (const IndexBound& b : in.guards) {
      if (!UsesOnly(b.value, node)) return Broken("L2", program, node, "guard over an unknown variable");
    }
    if (!in.reads_tensor()) continue;
    const LoopTensor& t = program.tensor(in.tensor);
    if (t.kind == LoopTensor::Kind::kComputed && t.producer >= id)
      return Broken("L1", program, node, "reads a later tensor");
    if (in.index.size() != t.shape.size()) return Broken("L2", program, node, "index of the wrong rank");
    for (const IndexExpr& e : in.index) {
      if (!UsesOnly(e, node)) return Broken("L2", program, node, "index over an unknown variable");
    }
    for (size_t d = 0; d < in.index.size() && !empty && in.guards.empty(); ++d) {
      const IndexRange r = RangeOf(in.index[d], node.domain);
      if (r.low < 0 || r.high >= t.shape[d]) return Broken("L2", program, node, "index out of the shape");
    }
  }
  for (size_t i = 0; i < node.body.size(); ++i) {
    const ScalarInstr& instr = node.body[i];
    for (int32_t a : instr.args) {
      if (a >= static_cast<int32_t>(i)) return Broken("L3", program, node, "instruction uses a later one");
    }
    if (!OperandTypesFit(node, instr)) return Broken("L3", program, node, "operands of unequal types");
    if (instr.op == ScalarOp::kInput && (instr.index < 0 || instr.index >= static_cast<int32_t>(node.inputs.size()))) {
      return Broken("L3", program, node, "unknown input");
    }
    if (IsHalf(instr.type) || IsF8(instr.type) || instr.type == DType::kInvalid) {
      return Broken("L3", program, node, "instruction of a storage dtype");
    }
  }
  if (node.result < 0 || node.result >= static_cast<int32_t>(node.body.size()))
    return Broken("L3", program, node, "no result");
  return absl::OkStatus();
}

}  // namespace

Shape LoopNode::kept_shape() const {
  Shape s;
  for (size_t i = 0; i < domain.size(); ++i) {
    if (i >= reduced.size() || !reduced[i]) s.push_back(domain[i]);
  }
  return s;
}

const char* AccumulationName(Accumulation accumulation) {
  switch (accumulation) {
    case Accumulation::kFree:
      break;
    case Accumulation::kByShape:
      return ", ordered by shape";
    case Accumulation::kChained:
      return ", chained";
  }
  return "";
}

DType ReductionResultType(const LoopNode& node) {
  if (node.reduction == ReductionKind::kArgmax || node.reduction == ReductionKind::kArgmin) return DType::kI64;
  return node.body[static_cast<size_t>(node.result)].type;
}

absl::Status VerifyLoopProgram(const LoopProgram& program) {
  for (size_t i = 0; i < program.nodes.size(); ++i) {
    FUSELINE_RETURN_IF_ERROR(VerifyNode(program, static_cast<LoopNodeId>(i)));
  }
  for (size_t o = 0; o < program.outputs.size(); ++o) {
    const LoopTensor& t = program.tensor(program.outputs[o]);
    if (t.kind != LoopTensor::Kind::kComputed || t.output != static_cast<int32_t>(o)) {
      return Internal("loop program (L5): an output is not computed");
    }
  }
  return absl::OkStatus();
}

std::string PrintLoopProgram(const LoopProgram& program) {
  std::string out;
  for (const LoopTensor& t : program.tensors) {
    if (t.kind == LoopTensor::Kind::kComputed) continue;
    absl::StrAppend(&out, t.kind == LoopTensor::Kind::kInput ? "input " : "constant ", t.name, ": ",
                    TensorType::Make(t.dtype, t.shape).ToString(), "\n");
  }
  for (const LoopNode& n : program.nodes) {
    const LoopTensor& t = program.tensor(n.tensor);
    absl::StrAppend(&out, t.name, ": ", TensorType::Make(t.dtype, t.shape).ToString(), " = ", n.label, " over [");
    for (size_t i = 0; i < n.domain.size(); ++i) {
      absl::StrAppend(&out, i ? ", " : "", i < n.reduced.size() && n.reduced[i] ? "r" : "d", i, "<", n.domain[i]);
    }
    absl::StrAppend(&out, "]", t.output >= 0 ? absl::StrCat(" -> out", t.output) : "", "\n");
    for (size_t i = 0; i < n.body.size(); ++i) absl::StrAppend(&out, PrintInstr(program, n, i), "\n");
    if (n.is_reduction()) {
      absl::StrAppend(&out, "    ", ReductionName(n.reduction), " of s", n.result, AccumulationName(n.accumulation),
                      "\n");
    } else if (n.kind == LoopNode::Kind::kScan) {
      absl::StrAppend(&out, "    scan ", ReductionName(n.reduction), " of s", n.result, "\n");
    } else if (n.kind == LoopNode::Kind::kSort) {
      absl::StrAppend(&out, "    order of s", n.result, n.descending ? " descending" : "", "\n");
    } else if (n.kind == LoopNode::Kind::kScatter) {
      absl::StrAppend(&out, "    ", n.reduction == ReductionKind::kSum ? "add s" : "set s", n.result, " to ",
                      program.tensor(n.into).name, PrintIndex(n.position), "\n");
    } else {
      absl::StrAppend(&out, "    store s", n.result, "\n");
    }
  }
  return out;
}

}  // namespace fuseline::lowering
