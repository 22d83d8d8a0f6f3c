// The part of a kernel's text that both emitters share: names of values, and the statements of one phase for one
// element (or lane). Thread-safety: thread-compatible.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "server/codegen/schedule/scheduled_kernel.h"
#include "server/codegen/statement_printer.h"

namespace fuseline::codegen {

// Appends indented lines.
class TextWriter {
 public:
  void Line(const std::string& text);
  void Open(const std::string& text) {
    Line(text + " {");
    ++depth_;
  }
  void Close(const std::string& tail = "") {
    --depth_;
    Line("}" + tail);
  }
  // A preprocessor line, not indented.
  void Directive(const std::string& text) { text_ += text + "\n"; }
  const std::string& text() const { return text_; }

 private:
  std::string text_;
  int depth_ = 0;
};

// Names and texts of a kernel's values.
class ValueNames {
 public:
  explicit ValueNames(const KernelBody& body);
  const std::string& name(int32_t instr) const { return names_[static_cast<size_t>(instr)]; }

 private:
  std::vector<std::string> names_;
};

class StatementEmitter {
 public:
  // How an operand that is not computed in the current scope is written, or "" to use its plain name.
  using Outside = std::function<std::string(int32_t instr)>;

  StatementEmitter(const ScheduledKernel& kernel, StatementPrinter& printer)
      : body_(kernel.body), printer_(printer), names_(kernel.body) {}

  const std::string& name(int32_t instr) const { return names_.name(instr); }
  // The text of a value where it is used: a constant's own text, else its name (or what `outside` says).
  std::string Use(int32_t instr, const Outside& outside);
  // "const float v0 = a * b;" for a kOp, kIndex or kGuard instruction.
  std::string Define(int32_t instr, const StatementPrinter::VarName& var, const Outside& outside);
  // "const float in0_x = fl_load_bf16(in0[…]);"
  std::string DefineLoad(int32_t instr, const StatementPrinter::VarName& var, const Outside& outside = nullptr);
  // The same for a lane of a vector that has been loaded.
  std::string DefineLane(int32_t instr, const std::string& lane);
  // An index expression's text, with the values that it uses.
  std::string Offset(const IndexExpr& e, const StatementPrinter::VarName& var, const Outside& outside = nullptr);
  // "acc0 = acc0 + v;", or the argmax form with acc0_at.
  std::string Accumulate(int32_t reduction, const std::string& acc, const std::string& acc_at, const Outside& outside);
  bool IsConstant(int32_t instr) const;
  // From now on a guarded load reads the first element where its guard does not hold, rather than nothing: g++ 12,
  // without jump threading, vectorises loads under a condition of the outer loops without that condition
  // (tests/cases/differential/lp_pool_padded_rows.json).
  void ReadUnconditionally() { unconditional_ = true; }
  std::string TypeOf(int32_t instr) const;

 private:
  std::string Guard(int32_t instr, const StatementPrinter::VarName& var, const Outside& outside);

  const KernelBody& body_;
  StatementPrinter& printer_;
  ValueNames names_;
  bool unconditional_ = false;
};

}  // namespace fuseline::codegen
