// Prints the scalar statements of kernels: types, constants, index expressions, loads, stores, operations. The text is
// the same for every target; what differs lies in the preludes' definitions of the functions that it calls.
// Thread-safety: thread-compatible; collects the prelude functions that the text needs.
// Tested by tests/unit/codegen/statement_printer_test.cc
#pragma once

#include <functional>
#include <set>
#include <string>

#include "common/ir/types.h"
#include "server/codegen/kernel_body.h"

namespace fuseline::codegen {

// "float": what a value of a compute dtype has in the text.
const char* ComputeTypeName(DType dtype);
// "fl_bf16": what an element in memory has.
const char* StorageTypeName(DType dtype);

class StatementPrinter {
 public:
  using VarName = std::function<std::string(int32_t)>;

  std::string Constant(const ScalarInstr& instr);
  std::string Index(const IndexExpr& expr, const VarName& var) const;
  // An element in memory as a value, and back.
  std::string FromStorage(DType dtype, const std::string& element);
  std::string ToStorage(DType dtype, const std::string& value);
  // `args`: the operands' texts.
  std::string Operation(const BodyInstr& instr, DType operand_type, const std::string args[3]);
  // The value that changes nothing when combined.
  std::string Identity(ReductionKind kind, DType type);
  // Two accumulators combined (not for argmax and argmin).
  std::string Combine(ReductionKind kind, DType type, const std::string& a, const std::string& b);
  // "fl_better_max_f32(a, ia, b, ib)": whether b at ib comes before a at ia.
  std::string Better(ReductionKind kind, DType type, const std::string& a, const std::string& ia, const std::string& b,
                     const std::string& ib);

  // A prelude function's name, which is from now on needed.
  std::string Function(const std::string& name) {
    needed_.insert(name);
    return name;
  }
  const std::set<std::string>& needed() const { return needed_; }

 private:
  std::set<std::string> needed_;
};

}  // namespace fuseline::codegen
