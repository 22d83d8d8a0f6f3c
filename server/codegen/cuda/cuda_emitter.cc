#include "server/codegen/cuda/cuda_emitter.h"

#include <algorithm>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "server/codegen/cuda/cuda_tile_emitter.h"
#include "server/codegen/lane_block.h"
#include "server/codegen/prelude.h"
#include "server/codegen/statement_printer.h"

namespace fuseline::codegen {
namespace {

using Kind = ScheduledKernel::Kind;
using InstrKind = BodyInstr::Kind;

const char* ReduceName(ReductionKind kind) {
  switch (kind) {
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
    default:
      return "none";
  }
}

class CudaEmitter {
 public:
  explicit CudaEmitter(const ScheduledKernel& kernel)
      : k_(kernel), body_(kernel.body), emit_(kernel, printer_), index_type_(kernel.wide_index ? "long long" : "int") {
    kept_.assign(body_.instrs.size(), false);
    for (int32_t i : k_.phases.kept) kept_[static_cast<size_t>(i)] = true;
    exported_.assign(body_.instrs.size(), false);
    if (k_.kind == Kind::kColumn) FindExported();
  }

  std::string Emit() {
    Signature();
    switch (k_.kind) {
      case Kind::kPointwise:
        Pointwise();
        break;
      case Kind::kOrdered:
        break;
      case Kind::kColumn:
        ColumnIndices(k_.threads_per_row);
        for (const Phase& p : k_.phases.phases) p.row ? ColumnRowPhase(p) : ColumnPass(p);
        break;
      case Kind::kRow:
        RowIndices();
        DeclareHeld();
        for (const Phase& p : k_.phases.phases) p.row ? RowPhase(p) : RowPass(p);
        break;
      case Kind::kTile:
        break;  // CudaTileText
    }
    out_.Close();
    std::set<std::string> needed = printer_.needed();
    return absl::StrCat(CudaPrelude().Render(needed), "\n", out_.text());
  }

 private:
  std::string Const(int64_t v) const { return k_.wide_index ? absl::StrCat(v, "ll") : absl::StrCat(v); }

  void Signature() {
    std::vector<std::string> args;
    for (const BodyParam& p : body_.params) {
      if (IsHalf(p.dtype) || IsF8(p.dtype)) printer_.Function(StorageTypeName(p.dtype));
      args.push_back(absl::StrCat(p.written ? "" : "const ", StorageTypeName(p.dtype), "* __restrict__ ", p.name));
    }
    printer_.Function("FL_KERNEL");
    out_.Line(absl::StrCat("// ", k_.description, "; loops ", LoopText()));
    out_.Open(absl::StrCat("FL_KERNEL(", k_.dims.block[0], ") ", k_.name, "(", absl::StrJoin(args, ", "), ")"));
  }

  std::string LoopText() const {
    std::vector<std::string> loops;
    for (size_t i = 0; i < body_.extents.size(); ++i) {
      loops.push_back(absl::StrCat(body_.reduced[i] ? "r" : "d", i, " < ", body_.extents[i]));
    }
    return absl::StrCat("[", absl::StrJoin(loops, ", "), "]");
  }

  static std::string VarBase(const KernelBody& body, int32_t v) {
    return absl::StrCat(body.reduced[static_cast<size_t>(v)] ? "r" : "d", v);
  }

  // A loop variable inside a lane loop, and at its first lane.
  StatementPrinter::VarName LaneVar() const {
    return [this](int32_t v) {
      return v == k_.vector_var && k_.lanes > 1 ? absl::StrCat("(", VarBase(body_, v), " + lane)") : VarBase(body_, v);
    };
  }
  StatementPrinter::VarName BaseVar() const {
    return [this](int32_t v) { return VarBase(body_, v); };
  }

  // Splits a row-major position into the loop variables `vars`; `outermost`: another name for the first.
  void Decode(const std::string& position, const std::vector<int32_t>& vars, const std::string& outermost = "") {
    int64_t stride = 1;
    std::vector<std::string> lines;
    for (size_t i = vars.size(); i-- > 0;) {
      const int64_t extent = body_.extents[static_cast<size_t>(vars[i])];
      std::string text = position;
      if (stride > 1) text = absl::StrCat(text, " / ", Const(stride));
      if (i > 0) text = absl::StrCat(stride > 1 ? absl::StrCat("(", text, ")") : text, " % ", Const(extent));
      const std::string name = i == 0 && !outermost.empty() ? outermost : VarBase(body_, vars[i]);
      lines.push_back(absl::StrCat("const ", index_type_, " ", name, " = ", text, ";"));
      stride *= std::max<int64_t>(extent, 1);
    }
    for (size_t i = lines.size(); i-- > 0;) out_.Line(lines[i]);
  }

  void Pointwise() {
    const Phase& phase = k_.phases.phases[0];
    const int64_t elements = body_.row_count() / k_.unroll;  // that the threads' first vectors cover
    const int64_t step = int64_t{k_.dims.block[0]} * k_.lanes;
    const std::string thread = absl::StrCat(printer_.Function("fl_thread"), "()");
    const std::string block = absl::StrCat("(", index_type_, ")", printer_.Function("fl_block"), "()");
    const std::string lanes = k_.lanes > 1 ? absl::StrCat(" * ", k_.lanes) : "";
    out_.Line(
        absl::StrCat("const ", index_type_, " e = (", block, " * ", k_.dims.block[0], " + ", thread, ")", lanes, ";"));
    if (elements != k_.dims.grid[0] * step) out_.Line(absl::StrCat("if (e >= ", Const(elements), ") return;"));
    const std::vector<int32_t> vars = body_.row_vars();
    if (k_.unroll == 1) {
      Decode("e", vars);
      LaneBlock(phase.instrs, {}, phase.stores, false);
      return;
    }
    const std::string outermost = VarBase(body_, vars[0]);
    Decode("e", vars, outermost + "_first");
    out_.Directive("#pragma unroll");
    out_.Open(absl::StrCat("for (int u = 0; u < ", k_.unroll, "; ++u)"));
    out_.Line(absl::StrCat("const ", index_type_, " ", outermost, " = ", outermost, "_first + u * ",
                           Const(body_.extents[static_cast<size_t>(vars[0])] / k_.unroll), ";"));
    LaneBlock(phase.instrs, {}, phase.stores, false);
    out_.Close();
  }

  // Column kernels: a thread has `lanes` neighbouring rows.
  void ColumnIndices(int32_t threads) {
    const int64_t rows = body_.row_count();
    const std::string thread = absl::StrCat(printer_.Function("fl_thread"), "()");
    const std::string block = absl::StrCat("(", index_type_, ")", printer_.Function("fl_block"), "()");
    const int64_t columns = k_.rows_per_block;
    std::string x = thread;
    if (threads > 1) {
      out_.Line(absl::StrCat("const int x = ", thread, " % ", columns, ", y = ", thread, " / ", columns, ";"));
      x = "x";
    } else {
      out_.Line("const int y = 0;");
    }
    std::string position = absl::StrCat("(", block, " * ", columns, " + ", x, ")");
    if (k_.lanes > 1) position = absl::StrCat(position, " * ", k_.lanes);
    const bool exact = rows == k_.dims.grid[0] * columns * k_.lanes;
    // Threads past the end take part in the barriers and store nothing.
    out_.Line(absl::StrCat("const ", index_type_, " at = ", position, ";"));
    inactive_possible_ = !exact;
    if (inactive_possible_) out_.Line(absl::StrCat("const bool active = at < ", Const(rows), ";"));
    out_.Line(absl::StrCat("const ", index_type_, " e = ", inactive_possible_ ? "active ? at : 0" : "at", ";"));
    Decode("e", body_.row_vars());
  }

  void RowIndices() {
    const int64_t rows = body_.row_count();
    const std::string thread = absl::StrCat(printer_.Function("fl_thread"), "()");
    const std::string block = absl::StrCat("(", index_type_, ")", printer_.Function("fl_block"), "()");
    if (k_.rows_per_block > 1) {
      out_.Line(absl::StrCat("const int thread = ", thread, " % ", k_.threads_per_row, ";"));
      out_.Line(absl::StrCat("const ", index_type_, " at = ", block, " * ", k_.rows_per_block, " + ", thread, " / ",
                             k_.threads_per_row, ";"));
    } else {
      out_.Line(absl::StrCat("const int thread = ", thread, ";"));
      out_.Line(absl::StrCat("const ", index_type_, " at = ", block, ";"));
    }
    inactive_possible_ = rows % k_.rows_per_block != 0;
    if (inactive_possible_) out_.Line(absl::StrCat("const bool active = at < ", Const(rows), ";"));
    out_.Line(absl::StrCat("const ", index_type_, " row = ", inactive_possible_ ? "active ? at : 0" : "at", ";"));
    Decode("row", body_.row_vars());
  }

  // What a persistent thread holds from pass to pass.
  void DeclareHeld() {
    for (int32_t i : k_.phases.kept) {
      const BodyInstr& instr = body_.instrs[static_cast<size_t>(i)];
      if (instr.kind == InstrKind::kLoad && k_.vector_load[static_cast<size_t>(i)]) {
        out_.Line(absl::StrCat(VecType(body_.params[static_cast<size_t>(instr.param)].dtype), " ", emit_.name(i),
                               "_held[", k_.chunks, "];"));
      } else {
        out_.Line(absl::StrCat(emit_.TypeOf(i), " ", emit_.name(i), "_held[", k_.chunks, "][", k_.lanes, "];"));
      }
    }
  }

  std::string VecType(DType dtype) {
    return absl::StrCat(printer_.Function("fl_vec"), "<", StorageTypeName(dtype), ", ", k_.lanes, ">");
  }

  void RowPhase(const Phase& phase) {
    for (int32_t i : phase.instrs) RowStatement(i);
    if (phase.stores.empty()) return;
    if (inactive_possible_ || k_.threads_per_row > 1) {
      out_.Open(absl::StrCat("if (", inactive_possible_ ? "active" : "",
                             inactive_possible_ && k_.threads_per_row > 1 ? " && " : "",
                             k_.threads_per_row > 1 ? "thread == 0" : "", ")"));
    } else {
      out_.Open("");
    }
    for (int32_t s : phase.stores) ScalarStore(s, BaseVar(), nullptr);
    out_.Close();
  }

  void RowStatement(int32_t i) {
    const BodyInstr& instr = body_.instrs[static_cast<size_t>(i)];
    if (emit_.IsConstant(i) || instr.kind == InstrKind::kReduction) return;
    if (instr.kind == InstrKind::kLoad) {
      out_.Line(emit_.DefineLoad(i, BaseVar()));
    } else {
      out_.Line(emit_.Define(i, BaseVar(), nullptr));
    }
  }

  void ScalarStore(int32_t s, const StatementPrinter::VarName& var, const StatementEmitter::Outside& outside) {
    const BodyStore& store = body_.stores[static_cast<size_t>(s)];
    const BodyParam& p = body_.params[static_cast<size_t>(store.param)];
    out_.Line(absl::StrCat(p.name, "[", emit_.Offset(store.offset, var, outside),
                           "] = ", printer_.ToStorage(p.dtype, emit_.Use(store.value, outside)), ";"));
  }

  void DeclareAccumulators(const Phase& phase) {
    for (int32_t r : phase.reductions) {
      const BodyReduction& red = body_.reductions[static_cast<size_t>(r)];
      const std::string type = ComputeTypeName(red.type);
      const std::string init = printer_.Identity(red.kind, red.type);
      const std::string array = k_.kind == Kind::kColumn || HasLaneSums(red) ? absl::StrCat("[", k_.lanes, "]") : "";
      if (array.empty()) {
        out_.Line(absl::StrCat(type, " acc", r, " = ", init, ";"));
        if (red.returns_index()) out_.Line(absl::StrCat("long long acc", r, "_at = 9223372036854775807ll;"));
      } else {
        out_.Line(absl::StrCat(type, " acc", r, array, ";"));
        if (red.returns_index()) out_.Line(absl::StrCat("long long acc", r, "_at", array, ";"));
        out_.Directive("#pragma unroll");
        out_.Line(absl::StrCat("for (int lane = 0; lane < ", k_.lanes, "; ++lane) acc", r, "[lane] = ", init,
                               red.returns_index() ? absl::StrCat(", acc", r, "_at[lane] = 9223372036854775807ll") : "",
                               ";"));
      }
    }
  }

  // A row's lanes have partial sums of their own where the order of combining is pinned (partial_sums.h).
  bool HasLaneSums(const BodyReduction& r) const {
    return k_.kind == Kind::kRow && k_.lanes > 1 && r.accumulation != lowering::Accumulation::kFree;
  }

  // Leaves the combined lanes in the first one.
  void CombineLanes(int32_t r, const BodyReduction& red) {
    const auto lane = [&](int32_t i) { return absl::StrCat("acc", r, "[", i, "]"); };
    for (int32_t half = k_.lanes / 2; half > 0; half /= 2) {
      for (int32_t i = 0; i < half; ++i) {
        out_.Line(
            absl::StrCat(lane(i), " = ", printer_.Combine(red.kind, red.type, lane(2 * i), lane(2 * i + 1)), ";"));
      }
    }
  }

  void RowPass(const Phase& phase) {
    DeclareAccumulators(phase);
    const int64_t reduced = body_.reduced_count();
    const int64_t step = int64_t{k_.threads_per_row} * k_.lanes;
    const std::vector<int32_t> vars = body_.reduced_vars();
    if (vars.empty()) {
      out_.Open("");
      in_chunk_ = "0";
    } else if (k_.persistent) {
      out_.Directive("#pragma unroll");
      out_.Open(absl::StrCat("for (int c = 0; c < ", k_.chunks, "; ++c)"));
      out_.Line(absl::StrCat("const ", index_type_, " r = (c * ", k_.threads_per_row, " + thread)",
                             k_.lanes > 1 ? absl::StrCat(" * ", k_.lanes) : "", ";"));
      in_chunk_ = "c";
    } else {
      if (!body_.bound) out_.Directive("#pragma unroll 4");
      out_.Open(absl::StrCat("for (", index_type_, " r = thread", k_.lanes > 1 ? absl::StrCat(" * ", k_.lanes) : "",
                             "; r < ", Const(reduced), "; r += ", step, ")"));
    }
    std::string guard;
    if (k_.persistent && !vars.empty() && reduced != step * k_.chunks) guard = absl::StrCat("r < ", Const(reduced));
    const bool guarded = OpenGuarded(guard, vars, "r");
    LaneBlock(phase.instrs, phase.reductions, phase.stores, true);
    if (guarded) out_.Close();
    out_.Close();
    for (int32_t r : phase.reductions) {
      const BodyReduction& red = body_.reductions[static_cast<size_t>(r)];
      const std::string f = printer_.Function(
          absl::StrCat("fl_row_reduce_", ReduceName(red.kind), "_", std::string(DTypeName(red.type))));
      if (red.returns_index()) {
        out_.Line(absl::StrCat(f, "<", k_.threads_per_row, ">(acc", r, ", acc", r, "_at);"));
        DefineResults(r, "");
        continue;
      }
      const std::string lane = HasLaneSums(red) ? "[0]" : "";
      if (!lane.empty()) CombineLanes(r, red);
      out_.Line(absl::StrCat("acc", r, lane, " = ", f, "<", k_.threads_per_row, ">(acc", r, lane, ");"));
      DefineResults(r, lane);
    }
  }

  // Decodes the reduced position and opens the guards that apply: past the end of the row, past the bound of a piece.
  bool OpenGuarded(std::string guard, const std::vector<int32_t>& vars, const std::string& position) {
    if (!guard.empty()) out_.Open(absl::StrCat("if (", guard, ")"));
    if (!vars.empty()) Decode(position, vars);
    if (body_.bound) {
      const std::string text = absl::StrCat(emit_.Offset(body_.bound->start, BaseVar()), " + ",
                                            VarBase(body_, body_.bound->var), " < ", Const(body_.bound->limit));
      if (guard.empty()) {
        out_.Open(absl::StrCat("if (", text, ")"));
        return true;
      }
      out_.Line(absl::StrCat("if (!(", text, ")) continue;"));
    }
    return !guard.empty();
  }

  // The values of kReduction instructions, from the combined accumulators.
  void DefineResults(int32_t reduction, const std::string& lane) {
    for (size_t i = 0; i < body_.instrs.size(); ++i) {
      const BodyInstr& instr = body_.instrs[i];
      if (instr.kind != InstrKind::kReduction || instr.reduction != reduction) continue;
      const bool index = body_.reductions[static_cast<size_t>(reduction)].returns_index() && instr.scalar.index == 0;
      out_.Line(absl::StrCat("const ", emit_.TypeOf(static_cast<int32_t>(i)), " ", emit_.name(static_cast<int32_t>(i)),
                             " = acc", reduction, index ? "_at" : "", lane, ";"));
    }
  }

  // Column kernels: row values that a later phase uses live in arrays over the lanes.
  void FindExported() {
    std::vector<int32_t> home(body_.instrs.size(), -1);
    for (size_t p = 0; p < k_.phases.phases.size(); ++p) {
      for (int32_t i : k_.phases.phases[p].instrs) home[static_cast<size_t>(i)] = static_cast<int32_t>(p);
    }
    const auto used = [&](int32_t id, size_t phase) {
      if (id < 0 || body_.instrs[static_cast<size_t>(id)].full || emit_.IsConstant(id)) return;
      if (body_.instrs[static_cast<size_t>(id)].kind == InstrKind::kReduction) return;
      if (home[static_cast<size_t>(id)] != static_cast<int32_t>(phase)) exported_[static_cast<size_t>(id)] = true;
    };
    for (size_t p = 0; p < k_.phases.phases.size(); ++p) {
      const Phase& phase = k_.phases.phases[p];
      for (int32_t i : phase.instrs) {
        ForEachUse(body_.instrs[static_cast<size_t>(i)], [&](int32_t id) { used(id, p); });
      }
      for (int32_t r : phase.reductions) {
        used(body_.reductions[static_cast<size_t>(r)].value, p);
        used(body_.reductions[static_cast<size_t>(r)].arg, p);
      }
      for (int32_t s : phase.stores) ForEachUse(body_.stores[static_cast<size_t>(s)], [&](int32_t id) { used(id, p); });
    }
  }

  // `lane`: of the value; what vector accesses use is the same for all of them.
  StatementEmitter::Outside ColumnOutside(const std::string& lane = "lane") {
    return [this, lane = absl::StrCat("[", lane, "]")](int32_t id) -> std::string {
      const BodyInstr& instr = body_.instrs[static_cast<size_t>(id)];
      if (instr.kind == InstrKind::kReduction) {
        const BodyReduction& r = body_.reductions[static_cast<size_t>(instr.reduction)];
        return absl::StrCat("acc", instr.reduction, r.returns_index() && instr.scalar.index == 0 ? "_at" : "", lane);
      }
      if (!instr.full && exported_[static_cast<size_t>(id)] && !defining_[static_cast<size_t>(id)]) {
        return absl::StrCat(emit_.name(id), "_of", lane);
      }
      return "";
    };
  }

  void ColumnRowPhase(const Phase& phase) {
    const bool anything = std::any_of(phase.instrs.begin(), phase.instrs.end(), [&](int32_t i) {
      return !emit_.IsConstant(i) && body_.instrs[static_cast<size_t>(i)].kind != InstrKind::kReduction;
    });
    if (!anything && phase.stores.empty()) return;
    for (int32_t i : phase.instrs) {
      if (exported_[static_cast<size_t>(i)])
        out_.Line(absl::StrCat(emit_.TypeOf(i), " ", emit_.name(i), "_of[", k_.lanes, "];"));
    }
    std::string guard;
    // Values that later phases need are computed by all threads; what is only stored, by those that store.
    const bool exports = std::any_of(phase.instrs.begin(), phase.instrs.end(),
                                     [&](int32_t i) { return exported_[static_cast<size_t>(i)]; });
    const std::string store_guard =
        absl::StrCat(inactive_possible_ ? "active" : "", inactive_possible_ && k_.threads_per_row > 1 ? " && " : "",
                     k_.threads_per_row > 1 ? "y == 0" : "");
    const bool guard_all = !exports && !store_guard.empty();
    out_.Open(guard_all ? absl::StrCat("if (", store_guard, ")") : "");
    store_guard_ = guard_all ? "" : store_guard;
    LaneBlock(phase.instrs, {}, phase.stores, false);
    store_guard_.clear();
    out_.Close();
  }

  void ColumnPass(const Phase& phase) {
    DeclareAccumulators(phase);
    const std::vector<int32_t> vars = body_.reduced_vars();
    const int64_t reduced = body_.reduced_count();
    if (vars.empty()) {
      out_.Open("if (y == 0)");
    } else {
      if (!body_.bound) out_.Directive("#pragma unroll 4");
      out_.Open(absl::StrCat("for (", index_type_, " r = y; r < ", Const(reduced), "; r += ", k_.threads_per_row, ")"));
    }
    const bool guarded = OpenGuarded("", vars, "r");
    store_guard_ = inactive_possible_ ? "active" : "";
    LaneBlock(phase.instrs, phase.reductions, phase.stores, false);
    store_guard_.clear();
    if (guarded) out_.Close();
    out_.Close();
    for (int32_t r : phase.reductions) {
      const BodyReduction& red = body_.reductions[static_cast<size_t>(r)];
      const std::string f = printer_.Function(
          absl::StrCat("fl_column_reduce_", ReduceName(red.kind), "_", std::string(DTypeName(red.type))));
      out_.Line(absl::StrCat(f, "<", k_.rows_per_block, ", ", k_.threads_per_row, ", ", k_.lanes, ">(acc", r,
                             red.returns_index() ? absl::StrCat(", acc", r, "_at") : "", ");"));
    }
  }

  // Vector loads, the statements for each lane, vector stores.
  void LaneBlock(const std::vector<int32_t>& instrs, const std::vector<int32_t>& reductions,
                 const std::vector<int32_t>& stores, bool row_pass) {
    defining_.assign(body_.instrs.size(), false);
    for (int32_t i : instrs) defining_[static_cast<size_t>(i)] = true;
    // Held values of earlier passes that this one uses.
    std::vector<int32_t> taken;
    if (row_pass) {
      std::vector<bool> seen(body_.instrs.size(), false);
      const auto use = [&](int32_t id) {
        if (id < 0 || seen[static_cast<size_t>(id)] || !kept_[static_cast<size_t>(id)] ||
            defining_[static_cast<size_t>(id)])
          return;
        seen[static_cast<size_t>(id)] = true;
        taken.push_back(id);
      };
      for (int32_t i : instrs) {
        ForEachUse(body_.instrs[static_cast<size_t>(i)], use);
      }
      for (int32_t r : reductions) {
        use(body_.reductions[static_cast<size_t>(r)].value);
        use(body_.reductions[static_cast<size_t>(r)].arg);
      }
      for (int32_t s : stores) ForEachUse(body_.stores[static_cast<size_t>(s)], use);
    }
    // A vector load's guard and positions are the same for all lanes, and come before it.
    const StatementEmitter::Outside outside = k_.kind == Kind::kColumn ? ColumnOutside() : StatementEmitter::Outside();
    const StatementEmitter::Outside of_all =
        k_.kind == Kind::kColumn ? ColumnOutside("0") : StatementEmitter::Outside();
    std::vector<bool> done(body_.instrs.size(), false);
    for (int32_t i : instrs) {
      if (k_.vector_load[static_cast<size_t>(i)]) DefineUses(i, done);
    }
    for (int32_t i : instrs) {
      if (!k_.vector_load[static_cast<size_t>(i)]) continue;
      const BodyInstr& instr = body_.instrs[static_cast<size_t>(i)];
      const BodyParam& p = body_.params[static_cast<size_t>(instr.param)];
      std::string load = absl::StrCat(printer_.Function("fl_load_vec"), "<", k_.lanes, ">(", p.name, " + ",
                                      Parenthesised(emit_.Offset(instr.offset, BaseVar(), of_all)), ")");
      if (instr.scalar.args[0] >= 0)
        load = absl::StrCat(emit_.Use(instr.scalar.args[0], of_all), " ? ", load, " : ", VecType(p.dtype), "{}");
      if (kept_[static_cast<size_t>(i)]) {
        out_.Line(absl::StrCat(emit_.name(i), "_held[", in_chunk_, "] = ", load, ";"));
      } else {
        out_.Line(absl::StrCat("const ", VecType(p.dtype), " ", emit_.name(i), "_vec = ", load, ";"));
      }
    }
    bool any_vector_store = false;
    for (int32_t s : stores) {
      if (!k_.vector_store[static_cast<size_t>(s)]) continue;
      any_vector_store = true;
      const BodyParam& p = body_.params[static_cast<size_t>(body_.stores[static_cast<size_t>(s)].param)];
      if (IsHalf(p.dtype)) {
        out_.Line(absl::StrCat("float ", p.name, "_lanes[", k_.lanes, "];"));
      } else {
        out_.Line(absl::StrCat(VecType(p.dtype), " ", p.name, "_vec;"));
      }
    }
    if (k_.lanes > 1) {
      // What is the same for all lanes is computed before them.
      for (int32_t i : instrs) {
        if (SameForAllLanes(i) && !done[static_cast<size_t>(i)]) LaneStatement(i);
      }
      out_.Directive("#pragma unroll");
      out_.Open(absl::StrCat("for (int lane = 0; lane < ", k_.lanes, "; ++lane)"));
    } else if (k_.kind == Kind::kColumn) {
      out_.Open("");
      out_.Line("constexpr int lane = 0;");
    }
    for (int32_t i : taken) {
      if (k_.vector_load[static_cast<size_t>(i)]) {
        out_.Line(emit_.DefineLane(i, absl::StrCat(emit_.name(i), "_held[", in_chunk_, "].lane[lane]")));
      } else {
        out_.Line(absl::StrCat("const ", emit_.TypeOf(i), " ", emit_.name(i), " = ", emit_.name(i), "_held[", in_chunk_,
                               "][", k_.lanes > 1 ? "lane" : "0", "];"));
      }
    }
    for (int32_t i : instrs) {
      if (k_.lanes == 1 || !SameForAllLanes(i)) LaneStatement(i);
    }
    for (int32_t r : reductions) {
      const std::string lane =
          k_.kind == Kind::kColumn || HasLaneSums(body_.reductions[static_cast<size_t>(r)]) ? "[lane]" : "";
      out_.Line(emit_.Accumulate(r, absl::StrCat("acc", r, lane), absl::StrCat("acc", r, "_at", lane), outside));
    }
    for (int32_t s : stores) {
      const BodyStore& store = body_.stores[static_cast<size_t>(s)];
      if (k_.vector_store[static_cast<size_t>(s)]) {
        const BodyParam& p = body_.params[static_cast<size_t>(store.param)];
        if (IsHalf(p.dtype)) {
          out_.Line(absl::StrCat(p.name, "_lanes[lane] = ", emit_.Use(store.value, outside), ";"));
        } else {
          out_.Line(absl::StrCat(
              p.name, "_vec.lane[lane] = ", printer_.ToStorage(p.dtype, emit_.Use(store.value, outside)), ";"));
        }
      } else {
        const std::string guard = row_pass ? (inactive_possible_ ? "active" : "") : store_guard_;
        if (!guard.empty()) out_.Open(absl::StrCat("if (", guard, ")"));
        ScalarStore(s, LaneVar(), outside);
        if (!guard.empty()) out_.Close();
      }
    }
    if (k_.lanes > 1 || k_.kind == Kind::kColumn) out_.Close();
    if (any_vector_store) {
      const std::string guard = row_pass ? (inactive_possible_ ? "active" : "") : store_guard_;
      if (!guard.empty()) out_.Open(absl::StrCat("if (", guard, ")"));
      for (int32_t s : stores) {
        if (!k_.vector_store[static_cast<size_t>(s)]) continue;
        const BodyStore& store = body_.stores[static_cast<size_t>(s)];
        const BodyParam& p = body_.params[static_cast<size_t>(store.param)];
        const bool packed = IsHalf(p.dtype);
        const std::string f = printer_.Function(
            packed ? absl::StrCat("fl_store_packed_", std::string(DTypeName(p.dtype))) : "fl_store_vec");
        out_.Line(absl::StrCat(f, "<", k_.lanes, ">(", p.name, " + ",
                               Parenthesised(emit_.Offset(store.offset, BaseVar(), of_all)), ", ", p.name,
                               packed ? "_lanes);" : "_vec);"));
      }
      if (!guard.empty()) out_.Close();
    }
  }

  // Defines what the instruction uses, as far as this phase computes it. Recursion: as deep as positions depend on
  // positions, which the fuser bounds.
  void DefineUses(int32_t i, std::vector<bool>& done) {
    ForEachUse(body_.instrs[static_cast<size_t>(i)], [&](int32_t use) {
      if (!defining_[static_cast<size_t>(use)] || done[static_cast<size_t>(use)]) return;
      done[static_cast<size_t>(use)] = true;
      DefineUses(use, done);
      LaneStatement(use, /*before_lanes=*/true);
    });
  }

  static std::string Parenthesised(const std::string& text) {
    return text.find(' ') == std::string::npos ? text : absl::StrCat("(", text, ")");
  }

  // Neither the instruction nor its operands differ from lane to lane, and nothing needs it in an array.
  bool SameIndexForAllLanes(const BodyInstr& instr) const {
    if (k_.kind == Kind::kColumn) return !IndexUses(instr, k_.vector_var);
    return SameForLanes(instr, k_.vector_var, k_.lanes, body_.extents);
  }

  bool SameForAllLanes(int32_t id) {
    if (same_.empty()) {
      same_.assign(body_.instrs.size(), false);
      for (size_t i = 0; i < body_.instrs.size(); ++i) {
        const BodyInstr& instr = body_.instrs[i];
        bool same = !kept_[i] && !exported_[i];
        if (k_.vector_var >= 0) same = same && SameIndexForAllLanes(instr);
        if (instr.kind == InstrKind::kReduction) same = k_.kind == Kind::kRow;
        ForEachUse(instr, [&](int32_t use) { same = same && same_[static_cast<size_t>(use)]; });
        same_[i] = same;
      }
    }
    return same_[static_cast<size_t>(id)];
  }

  // `before_lanes`: the value is the same for all lanes, and is computed once before them.
  void LaneStatement(int32_t i, bool before_lanes = false) {
    const BodyInstr& instr = body_.instrs[static_cast<size_t>(i)];
    if (emit_.IsConstant(i) || instr.kind == InstrKind::kReduction) return;
    const StatementEmitter::Outside outside =
        k_.kind == Kind::kColumn ? ColumnOutside(before_lanes ? "0" : "lane") : StatementEmitter::Outside();
    const StatementPrinter::VarName var = before_lanes || SameForAllLanes(i) ? BaseVar() : LaneVar();
    if (instr.kind == InstrKind::kLoad) {
      if (k_.vector_load[static_cast<size_t>(i)]) {
        const std::string from = kept_[static_cast<size_t>(i)] ? absl::StrCat("_held[", in_chunk_, "]") : "_vec";
        out_.Line(emit_.DefineLane(i, absl::StrCat(emit_.name(i), from, ".lane[lane]")));
      } else {
        out_.Line(emit_.DefineLoad(i, var, outside));
      }
    } else {
      out_.Line(emit_.Define(i, var, outside));
    }
    const std::string each = before_lanes ? absl::StrCat("for (int lane = 0; lane < ", k_.lanes, "; ++lane) ") : "";
    if (kept_[static_cast<size_t>(i)] && !(instr.kind == InstrKind::kLoad && k_.vector_load[static_cast<size_t>(i)])) {
      out_.Line(absl::StrCat(each, emit_.name(i), "_held[", in_chunk_, "][", k_.lanes > 1 ? "lane" : "0",
                             "] = ", emit_.name(i), ";"));
    }
    if (exported_[static_cast<size_t>(i)])
      out_.Line(absl::StrCat(each, emit_.name(i), "_of[lane] = ", emit_.name(i), ";"));
  }

  const ScheduledKernel& k_;
  const KernelBody& body_;
  StatementPrinter printer_;
  StatementEmitter emit_;
  TextWriter out_;
  std::string index_type_;
  std::vector<bool> kept_;
  std::vector<bool> exported_;
  std::vector<bool> defining_;
  std::vector<bool> same_;
  bool inactive_possible_ = false;
  std::string in_chunk_ = "0";
  std::string store_guard_;
};

}  // namespace

KernelSource EmitCudaKernel(const ScheduledKernel& kernel, const Target& target, bool fast_math) {
  KernelSource out;
  out.entry = kernel.name;
  out.target = target;
  out.fast_math = fast_math;
  out.text = kernel.kind == Kind::kTile ? CudaTileText(kernel) : CudaEmitter(kernel).Emit();
  return out;
}

}  // namespace fuseline::codegen
