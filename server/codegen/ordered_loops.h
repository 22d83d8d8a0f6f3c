// The text that the kernels of scans, scatters and sorts have in common on all targets: what is done with one element,
// and the walk along a row.
// Pipeline: ScheduledKernel of kind kOrdered -> OrderedLoops -> lines of a kernel.
// Thread-safety: thread-compatible. Tested by tests/unit/codegen/ordered_kernel_test.cc
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "server/codegen/lane_block.h"
#include "server/codegen/schedule/scheduled_kernel.h"
#include "server/codegen/statement_printer.h"

namespace fuseline::codegen {

class OrderedLoops {
 public:
  explicit OrderedLoops(const ScheduledKernel& kernel)
      : k_(kernel), body_(kernel.body), emit_(kernel, printer_), store_(kernel.body.stores[0]) {}
  // See StatementEmitter.
  void ReadUnconditionally() { emit_.ReadUnconditionally(); }

  TextWriter& out() { return out_; }
  StatementPrinter& printer() { return printer_; }

  // "in0", or "(d1 + lane)" for the loop of the lanes.
  std::string Var(int32_t v) const;
  // "// scan in order, a thread a row; loops [d0 < 4, r1 < 8]"
  void Comment();
  // Splits a row-major position into loop variables.
  void Decode(const std::string& position, const std::vector<int32_t>& vars);
  // A pointer argument's type; `restrict` is appended where nothing else points to it: what is only read, and a scan's
  // or scatter's result.
  std::string PointerType(const BodyParam& p);
  const char* Restrict(const BodyParam& p) const;
  // A scan or scatter of the row, or of `lanes` neighbouring ones: a variable of the text where the kernel has lanes.
  void WalkAlong();

  // What does not depend on the place in the row.
  void RowStatements();
  // What is computed at `place` of the row; afterwards value() and, of a scan for positions, position() are texts of
  // it.
  void ElementStatements(const std::string& place);
  std::string value() { return emit_.Use(store_.value, nullptr); }
  std::string position() { return emit_.Use(body_.ordered->arg, nullptr); }
  // Scan.
  std::string Identity() { return printer_.Identity(body_.ordered->reduction, KeyDType()); }
  bool scans_positions() const { return body_.ordered->arg >= 0; }
  DType value_dtype() const { return KeyDType(); }
  // The result's element `place` of the row is `value`, or a position.
  void StoreValue(const std::string& place, const std::string& value);

  // Sort.
  // keys[r] = …, order[r] = r for the place `r` of the row; `base` is the row's first element of the scratch.
  void FillKey(const std::string& place);
  // "fl_below_f32(a, at_a, b, at_b)": whether b comes before a.
  std::string ComesBefore(const std::string& a, const std::string& at_a, const std::string& b, const std::string& at_b);
  // The result's element `place` of the row is `position`.
  void StorePosition(const std::string& place, const std::string& position);
  std::string KeyType() const { return ComputeTypeName(KeyDType()); }
  int64_t size() const { return body_.reduced_count(); }

 private:
  StatementPrinter::VarName Names() const;
  DType KeyDType() const { return body_.instrs[static_cast<size_t>(store_.value)].scalar.type; }
  void Statements(bool full);
  void Combine(const std::string& lane);
  std::string Element();

  const ScheduledKernel& k_;
  const KernelBody& body_;
  StatementPrinter printer_;
  StatementEmitter emit_;
  const BodyStore& store_;
  TextWriter out_;
};

}  // namespace fuseline::codegen
