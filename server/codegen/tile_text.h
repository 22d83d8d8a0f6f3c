// What the texts of tiled contractions have in common on every target: loop variables from positions, the statements of
// a factor or of an element of the result. Ownership: refers to the kernel. Thread-safety: thread-compatible.
#pragma once

#include <string>
#include <vector>

#include "server/codegen/lane_block.h"
#include "server/codegen/schedule/scheduled_kernel.h"
#include "server/codegen/statement_printer.h"

namespace fuseline::codegen {

class TileText {
 public:
  // `index_type`: of positions and loop variables.
  TileText(const ScheduledKernel& kernel, std::string index_type)
      : kernel_(kernel), body_(kernel.body), index_type_(std::move(index_type)), emit_(kernel, printer_) {}

  TextWriter& out() { return out_; }
  // See StatementEmitter.
  void ReadUnconditionally() { emit_.ReadUnconditionally(); }
  StatementPrinter& printer() { return printer_; }
  const std::string& index_type() const { return index_type_; }
  // "loops [d0 < 64, r1 < 32]", for the kernel's comment.
  std::string Loops() const;
  // Defines the loop variables `vars` from their row-major position.
  void Decode(const std::string& position, const std::vector<int32_t>& vars);
  // The statements of a factor; the text of its value.
  std::string Factor(const TileFactor& factor);
  // What is stored for an element of the result whose sum is `sum`.
  void Element(const std::string& sum);

 private:
  std::string Var(int32_t v) const;
  void Statement(int32_t instr);

  const ScheduledKernel& kernel_;
  const KernelBody& body_;
  std::string index_type_;
  StatementPrinter printer_;
  StatementEmitter emit_;
  TextWriter out_;
};

}  // namespace fuseline::codegen
