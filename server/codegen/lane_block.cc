#include "server/codegen/lane_block.h"

#include <set>

#include "absl/strings/str_cat.h"

namespace fuseline::codegen {
namespace {

std::string Identifier(const std::string& hint) {
  std::string out;
  for (char c : hint)
    out += (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ? c : '_';
  return out;
}

}  // namespace

void TextWriter::Line(const std::string& text) {
  text_.append(static_cast<size_t>(depth_) * 2, ' ');
  text_ += text;
  text_ += '\n';
}

ValueNames::ValueNames(const KernelBody& body) {
  // "mul_0", "add_1": the op and a number of the kernel's own, so that equal kernels have equal texts. A second load of
  // one tensor and steps within an op have numbers too.
  std::set<std::string> loads;
  int32_t next = 0;
  for (size_t i = 0; i < body.instrs.size(); ++i) {
    const BodyInstr& instr = body.instrs[i];
    std::string name;
    if (instr.kind == BodyInstr::Kind::kLoad) {
      name = absl::StrCat("x_", Identifier(instr.hint));
      if (!loads.insert(name).second) name = absl::StrCat(name, "_", i);
    } else {
      name = absl::StrCat(instr.hint.empty() ? "s" : Identifier(instr.hint) + "_",
                          instr.hint.empty() ? static_cast<int32_t>(i) : next++);
    }
    names_.push_back(std::move(name));
  }
}

bool StatementEmitter::IsConstant(int32_t instr) const {
  const BodyInstr& i = body_.instrs[static_cast<size_t>(instr)];
  return i.kind == BodyInstr::Kind::kOp && i.scalar.op == ScalarOp::kConst;
}

std::string StatementEmitter::TypeOf(int32_t instr) const {
  return ComputeTypeName(body_.instrs[static_cast<size_t>(instr)].scalar.type);
}

std::string StatementEmitter::Use(int32_t instr, const Outside& outside) {
  if (IsConstant(instr)) return printer_.Constant(body_.instrs[static_cast<size_t>(instr)].scalar);
  if (outside) {
    std::string text = outside(instr);
    if (!text.empty()) return text;
  }
  return names_.name(instr);
}

std::string StatementEmitter::Offset(const IndexExpr& e, const StatementPrinter::VarName& var, const Outside& outside) {
  return printer_.Index(e, [&](int32_t v) { return v >= 0 ? var(v) : Use(-1 - v, outside); });
}

std::string StatementEmitter::Guard(int32_t instr, const StatementPrinter::VarName& var, const Outside& outside) {
  std::string out;
  for (const lowering::IndexBound& b : body_.instrs[static_cast<size_t>(instr)].bounds) {
    const lowering::IndexRange range = lowering::RangeOf(b.value, body_.extents);
    const std::string value = Offset(b.value, var, outside);
    const auto condition = [&](const char* comparison, int64_t limit) {
      absl::StrAppend(&out, out.empty() ? "" : " && ", value, comparison, limit,
                      limit > INT32_MAX || limit < -INT32_MAX ? "ll" : "");
    };
    if (range.low < b.low) condition(" >= ", b.low);
    if (range.high >= b.high) condition(" < ", b.high);
  }
  return out.empty() ? "true" : out;
}

std::string StatementEmitter::Define(int32_t instr, const StatementPrinter::VarName& var, const Outside& outside) {
  const BodyInstr& i = body_.instrs[static_cast<size_t>(instr)];
  std::string value;
  if (i.kind == BodyInstr::Kind::kIndex) {
    value = Offset(i.offset, var, outside);
  } else if (i.kind == BodyInstr::Kind::kGuard) {
    value = Guard(instr, var, outside);
  } else if (i.scalar.op == ScalarOp::kCheckIndex) {
    value = absl::StrCat(printer_.Function("fl_check_index"), "(", Use(i.scalar.args[0], outside), ", ",
                         i.scalar.constant.i, "ll, ", body_.params[static_cast<size_t>(i.param)].name, " + ",
                         2 * i.scalar.index, ")");
    if (i.scalar.args[1] >= 0) value = absl::StrCat(Use(i.scalar.args[1], outside), " ? ", value, " : 0ll");
  } else {
    std::string args[3];
    for (int a = 0; a < 3; ++a) {
      if (i.scalar.args[a] >= 0) args[a] = Use(i.scalar.args[a], outside);
    }
    const int32_t first = i.scalar.op == ScalarOp::kSelect ? i.scalar.args[1] : i.scalar.args[0];
    const DType operand_type = first >= 0 ? body_.instrs[static_cast<size_t>(first)].scalar.type : i.scalar.type;
    value = printer_.Operation(i, operand_type, args);
  }
  return absl::StrCat("const ", TypeOf(instr), " ", name(instr), " = ", value, ";");
}

std::string StatementEmitter::DefineLoad(int32_t instr, const StatementPrinter::VarName& var, const Outside& outside) {
  const BodyInstr& i = body_.instrs[static_cast<size_t>(instr)];
  const BodyParam& param = body_.params[static_cast<size_t>(i.param)];
  const std::string guard = i.scalar.args[0] >= 0 ? Use(i.scalar.args[0], outside) : "";
  std::string offset = Offset(i.offset, var, outside);
  if (unconditional_ && !guard.empty()) offset = absl::StrCat(guard, " ? ", offset, " : 0");
  std::string value = printer_.FromStorage(param.dtype, absl::StrCat(param.name, "[", offset, "]"));
  if (!unconditional_ && !guard.empty()) value = absl::StrCat(guard, " ? ", value, " : (", TypeOf(instr), ")0");
  return absl::StrCat("const ", TypeOf(instr), " ", name(instr), " = ", value, ";");
}

std::string StatementEmitter::DefineLane(int32_t instr, const std::string& lane) {
  const BodyInstr& i = body_.instrs[static_cast<size_t>(instr)];
  const DType storage = body_.params[static_cast<size_t>(i.param)].dtype;
  return absl::StrCat("const ", TypeOf(instr), " ", name(instr), " = ", printer_.FromStorage(storage, lane), ";");
}

std::string StatementEmitter::Accumulate(int32_t reduction, const std::string& acc, const std::string& acc_at,
                                         const Outside& outside) {
  const BodyReduction& r = body_.reductions[static_cast<size_t>(reduction)];
  if (r.accumulation == lowering::Accumulation::kChained) {
    const ScalarInstr& product = body_.instrs[static_cast<size_t>(r.value)].scalar;
    return absl::StrCat(acc, " = ", printer_.Function(absl::StrCat("fl_chain_", std::string(DTypeName(r.type)))), "(",
                        Use(product.args[0], outside), ", ", Use(product.args[1], outside), ", ", acc, ");");
  }
  const std::string value = Use(r.value, outside);
  if (!r.returns_index()) return absl::StrCat(acc, " = ", printer_.Combine(r.kind, r.type, acc, value), ";");
  const std::string at = Use(r.arg, outside);
  return absl::StrCat("if (", printer_.Better(r.kind, r.type, acc, acc_at, value, at), ") ", acc, " = ", value, ", ",
                      acc_at, " = ", at, ";");
}

}  // namespace fuseline::codegen
