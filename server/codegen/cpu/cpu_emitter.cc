#include "server/codegen/cpu/cpu_emitter.h"

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "server/codegen/cpu/cpu_tile_emitter.h"
#include "server/codegen/lane_block.h"
#include "server/codegen/prelude.h"
#include "server/codegen/statement_printer.h"

namespace fuseline::codegen {
namespace {

using Kind = ScheduledKernel::Kind;
using InstrKind = BodyInstr::Kind;

class CpuEmitter {
 public:
  explicit CpuEmitter(const ScheduledKernel& kernel) : k_(kernel), body_(kernel.body), emit_(kernel, printer_) {
    emit_.ReadUnconditionally();
    exported_.assign(body_.instrs.size(), false);
    if (k_.kind == Kind::kColumn) FindExported();
  }

  std::string Emit() {
    Signature();
    switch (k_.kind) {
      case Kind::kPointwise:
        Pointwise();
        break;
      case Kind::kRow:
        Rows();
        break;
      case Kind::kOrdered:
        break;
      case Kind::kColumn:
        Columns();
        break;
      case Kind::kTile:
        break;  // CpuTileText
    }
    out_.Close();
    const std::string prelude = CpuPrelude().Render(printer_.needed());
    return absl::StrCat(prelude, absl::StrJoin(declared_reductions_, ""), "\n", out_.text());
  }

 private:
  void Signature() {
    for (const BodyParam& p : body_.params) {
      if (IsHalf(p.dtype) || IsF8(p.dtype)) printer_.Function(StorageTypeName(p.dtype));
    }
    out_.Line(absl::StrCat("// ", k_.description, "; loops ", LoopText()));
    out_.Open(absl::StrCat("extern \"C\" void ", k_.name, "(void* const* buffers, long long begin, long long end)"));
    for (size_t i = 0; i < body_.params.size(); ++i) {
      const BodyParam& p = body_.params[i];
      const std::string type = absl::StrCat(p.written ? "" : "const ", StorageTypeName(p.dtype), "*");
      out_.Line(absl::StrCat(type, " __restrict__ const ", p.name, " = (", type, ")buffers[", i, "];"));
    }
  }

  std::string LoopText() const {
    std::vector<std::string> loops;
    for (size_t i = 0; i < body_.extents.size(); ++i)
      loops.push_back(absl::StrCat(body_.reduced[i] ? "r" : "d", i, " < ", body_.extents[i]));
    return absl::StrCat("[", absl::StrJoin(loops, ", "), "]");
  }

  std::string Var(int32_t v) const { return absl::StrCat(body_.reduced[static_cast<size_t>(v)] ? "r" : "d", v); }
  StatementPrinter::VarName PlainVar() const {
    return [this](int32_t v) { return Var(v); };
  }
  StatementPrinter::VarName TileVar() const {
    return [this](int32_t v) { return v == k_.vector_var ? absl::StrCat("(", Var(v), " + lane)") : Var(v); };
  }
  int64_t Extent(int32_t v) const { return body_.extents[static_cast<size_t>(v)]; }

  void Decode(const std::string& position, const std::vector<int32_t>& vars) {
    int64_t stride = 1;
    std::vector<std::string> lines;
    for (size_t i = vars.size(); i-- > 0;) {
      std::string text = position;
      if (stride > 1) text = absl::StrCat(text, " / ", stride);
      if (i > 0) text = absl::StrCat(stride > 1 ? absl::StrCat("(", text, ")") : text, " % ", Extent(vars[i]));
      lines.push_back(absl::StrCat("const long long ", Var(vars[i]), " = ", text, ";"));
      stride *= std::max<int64_t>(Extent(vars[i]), 1);
    }
    for (size_t i = lines.size(); i-- > 0;) out_.Line(lines[i]);
  }

  bool DependsOn(int32_t id, int32_t var) {
    if (depends_.empty() || depends_var_ != var) {
      depends_var_ = var;
      depends_ = DependsOnLoop(body_, var);
    }
    return depends_[static_cast<size_t>(id)];
  }

  void Statement(int32_t i, const StatementPrinter::VarName& var, const StatementEmitter::Outside& outside) {
    const BodyInstr& instr = body_.instrs[static_cast<size_t>(i)];
    if (emit_.IsConstant(i) || instr.kind == InstrKind::kReduction) return;
    if (instr.kind == InstrKind::kLoad) {
      out_.Line(emit_.DefineLoad(i, var, outside));
    } else {
      out_.Line(emit_.Define(i, var, outside));
    }
    if (exported_[static_cast<size_t>(i)]) out_.Line(absl::StrCat(emit_.name(i), "_of[lane] = ", emit_.name(i), ";"));
  }

  void Store(int32_t s, const StatementPrinter::VarName& var, const StatementEmitter::Outside& outside) {
    const BodyStore& store = body_.stores[static_cast<size_t>(s)];
    const BodyParam& p = body_.params[static_cast<size_t>(store.param)];
    out_.Line(absl::StrCat(p.name, "[", emit_.Offset(store.offset, var, outside),
                           "] = ", printer_.ToStorage(p.dtype, emit_.Use(store.value, outside)), ";"));
  }

  void Pointwise() {
    const Phase& phase = k_.phases.phases[0];
    const std::vector<int32_t> vars = body_.row_vars();
    if (vars.empty()) {
      out_.Open("if (begin < end)");
      for (int32_t i : phase.instrs) Statement(i, PlainVar(), nullptr);
      for (int32_t s : phase.stores) Store(s, PlainVar(), nullptr);
      out_.Close();
      return;
    }
    const int32_t inner = vars.back();
    if (vars.size() == 1) {
      for (int32_t i : phase.instrs) {
        if (!DependsOn(i, inner)) Statement(i, PlainVar(), nullptr);
      }
      InnerLoop(phase, inner, "begin", "end");
      return;
    }
    // Whole or partial lines of the innermost loop.
    const int64_t extent = Extent(inner);
    out_.Open("for (long long e = begin; e < end;)");
    std::vector<int32_t> outer(vars.begin(), vars.end() - 1);
    out_.Line(absl::StrCat("const long long line = e / ", extent, ", first = e % ", extent, ";"));
    out_.Line(absl::StrCat("const long long last = first + (end - e < ", extent, " - first ? end - e : ", extent,
                           " - first);"));
    Decode("line", outer);
    for (int32_t i : phase.instrs) {
      if (!DependsOn(i, inner)) Statement(i, PlainVar(), nullptr);
    }
    InnerLoop(phase, inner, "first", "last");
    out_.Line("e += last - first;");
    out_.Close();
  }

  void InnerLoop(const Phase& phase, int32_t inner, const std::string& from, const std::string& to) {
    out_.Directive("#pragma GCC ivdep");
    out_.Open(
        absl::StrCat("for (long long ", Var(inner), " = ", from, "; ", Var(inner), " < ", to, "; ++", Var(inner), ")"));
    for (int32_t i : phase.instrs) {
      if (DependsOn(i, inner)) Statement(i, PlainVar(), nullptr);
    }
    for (int32_t s : phase.stores) Store(s, PlainVar(), nullptr);
    out_.Close();
  }

  void Rows() {
    out_.Open("for (long long row = begin; row < end; ++row)");
    Decode("row", body_.row_vars());
    for (const Phase& p : k_.phases.phases) {
      if (p.row) {
        for (int32_t i : p.instrs) Statement(i, PlainVar(), nullptr);
        for (int32_t s : p.stores) Store(s, PlainVar(), nullptr);
      } else {
        RowPass(p);
      }
    }
    out_.Close();
  }

  // The upper end of a reduced loop: its extent, or less in the last piece of a split row.
  std::string LoopEnd(int32_t v) {
    const int64_t extent = Extent(v);
    if (!body_.bound || body_.bound->var != v) return absl::StrCat(extent);
    const std::string end = absl::StrCat(Var(v), "_end");
    out_.Line(absl::StrCat("const long long ", Var(v), "_left = ", body_.bound->limit, " - ",
                           Parenthesised(emit_.Offset(body_.bound->start, PlainVar())), ";"));
    out_.Line(absl::StrCat("const long long ", end, " = ", Var(v), "_left < ", extent, " ? ", Var(v),
                           "_left : ", extent, ";"));
    return end;
  }
  static std::string Parenthesised(const std::string& text) {
    return text.find(' ') == std::string::npos ? text : absl::StrCat("(", text, ")");
  }

  void RowPass(const Phase& phase) {
    if (k_.partial_sums > 1) {
      PinnedRowPass(phase);
    } else {
      FreeRowPass(phase);
    }
    for (int32_t r : phase.reductions) {
      for (size_t i = 0; i < body_.instrs.size(); ++i) {
        const BodyInstr& instr = body_.instrs[i];
        if (instr.kind != InstrKind::kReduction || instr.reduction != r) continue;
        const bool index = body_.reductions[static_cast<size_t>(r)].returns_index() && instr.scalar.index == 0;
        out_.Line(absl::StrCat("const ", emit_.TypeOf(static_cast<int32_t>(i)), " ",
                               emit_.name(static_cast<int32_t>(i)), " = acc", r, index ? "_at" : "", ";"));
      }
    }
  }

  void DeclareAccumulator(int32_t r) {
    const BodyReduction& red = body_.reductions[static_cast<size_t>(r)];
    out_.Line(absl::StrCat(ComputeTypeName(red.type), " acc", r, " = ", printer_.Identity(red.kind, red.type), ";"));
    if (red.returns_index()) out_.Line(absl::StrCat("long long acc", r, "_at = 9223372036854775807ll;"));
  }

  // The compiler chooses in which order to combine, unless one partial sum is asked for.
  void FreeRowPass(const Phase& phase) {
    bool simd = true;
    std::string clauses;
    for (int32_t r : phase.reductions) {
      const BodyReduction& red = body_.reductions[static_cast<size_t>(r)];
      DeclareAccumulator(r);
      if (red.returns_index() || IsPinned(red)) {
        simd = false;  // the position goes with the value: no reduction that the compiler knows
      } else {
        absl::StrAppend(&clauses, " reduction(", SimdReduction(red), " : acc", r, ")");
      }
    }
    const std::vector<int32_t> vars = body_.reduced_vars();
    std::vector<std::string> ends;
    for (int32_t v : vars) ends.push_back(LoopEnd(v));
    if (vars.empty()) out_.Open("");
    for (size_t i = 0; i < vars.size(); ++i) {
      const std::string v = Var(vars[i]);
      if (i + 1 == vars.size()) {
        for (int32_t id : phase.instrs) {
          if (!DependsOn(id, vars[i])) Statement(id, PlainVar(), nullptr);
        }
        if (simd) out_.Directive(absl::StrCat("#pragma omp simd", clauses));
      }
      out_.Open(absl::StrCat("for (long long ", v, " = 0; ", v, " < ", ends[i], "; ++", v, ")"));
    }
    for (int32_t id : phase.instrs) {
      if (vars.empty() || DependsOn(id, vars.back())) Statement(id, PlainVar(), nullptr);
    }
    AccumulateAndStore(phase, PlainVar(), "");
    for (size_t i = 0; i < std::max<size_t>(vars.size(), 1); ++i) out_.Close();
  }

  static bool IsPinned(const BodyReduction& r) { return r.accumulation != lowering::Accumulation::kFree; }

  // `part`: "[lane]" for pinned reductions that have several partial sums.
  void AccumulateAndStore(const Phase& phase, const StatementPrinter::VarName& var, const std::string& part) {
    for (int32_t r : phase.reductions) {
      const bool parts = !part.empty() && IsPinned(body_.reductions[static_cast<size_t>(r)]);
      out_.Line(emit_.Accumulate(r, absl::StrCat("acc", r, parts ? "_of" + part : ""), absl::StrCat("acc", r, "_at"),
                                 nullptr));
    }
    for (int32_t s : phase.stores) Store(s, var, nullptr);
  }

  // As partial_sums.h says: chunks of as many elements as there are partial sums, a lane for each.
  void PinnedRowPass(const Phase& phase) {
    const int64_t count = k_.partial_sums;
    for (int32_t r : phase.reductions) {
      const BodyReduction& red = body_.reductions[static_cast<size_t>(r)];
      if (!IsPinned(red)) {
        DeclareAccumulator(r);
        continue;
      }
      out_.Line(absl::StrCat("alignas(64) ", ComputeTypeName(red.type), " acc", r, "_of[", count, "];"));
      out_.Line(absl::StrCat("for (int i = 0; i < ", count, "; ++i) acc", r,
                             "_of[i] = ", printer_.Identity(red.kind, red.type), ";"));
    }
    const std::vector<int32_t> vars = body_.reduced_vars();
    const int32_t inner = vars.back();
    if (vars.size() == 1 || Extent(inner) % count == 0) {
      std::vector<std::string> ends;
      for (int32_t v : vars) ends.push_back(LoopEnd(v));
      for (size_t i = 0; i + 1 < vars.size(); ++i) {
        const std::string v = Var(vars[i]);
        out_.Open(absl::StrCat("for (long long ", v, " = 0; ", v, " < ", ends[i], "; ++", v, ")"));
      }
      for (int32_t id : phase.instrs) {
        if (!DependsOn(id, inner)) Statement(id, PlainVar(), nullptr);
      }
      OpenChunks(Var(inner), ends.back(), Extent(inner) % count == 0 && !body_.bound);
      for (int32_t id : phase.instrs) {
        if (DependsOn(id, inner)) Statement(id, TileVar(), nullptr);
      }
      AccumulateAndStore(phase, TileVar(), "[lane]");
      for (size_t i = 0; i + 1 < vars.size(); ++i) out_.Close();
    } else {
      OpenChunks("r", absl::StrCat(body_.reduced_count()), body_.reduced_count() % count == 0);
      out_.Line("const long long at = r + lane;");
      Decode("at", vars);
      for (int32_t id : phase.instrs) Statement(id, PlainVar(), nullptr);
      AccumulateAndStore(phase, PlainVar(), "[lane]");
    }
    out_.Close();
    out_.Close();
    for (int32_t r : phase.reductions) {
      const BodyReduction& red = body_.reductions[static_cast<size_t>(r)];
      if (IsPinned(red)) CombinePartialSums(r, red);
    }
  }

  void OpenChunks(const std::string& position, const std::string& end, bool whole) {
    const int64_t count = k_.partial_sums;
    out_.Open(
        absl::StrCat("for (long long ", position, " = 0; ", position, " < ", end, "; ", position, " += ", count, ")"));
    if (!whole) {
      out_.Line(absl::StrCat("const int lanes = ", end, " - ", position, " < ", count, " ? (int)(", end, " - ",
                             position, ") : ", count, ";"));
    }
    out_.Directive("#pragma GCC ivdep");
    out_.Open(absl::StrCat("for (int lane = 0; lane < ", whole ? absl::StrCat(count) : "lanes", "; ++lane)"));
  }

  void CombinePartialSums(int32_t r, const BodyReduction& red) {
    const std::string of = absl::StrCat("acc", r, "_of");
    const std::string next = absl::StrCat("acc", r, "_next");
    out_.Open(absl::StrCat("for (int half = ", k_.partial_sums / 2, "; half > 0; half /= 2)"));
    out_.Line(absl::StrCat(ComputeTypeName(red.type), " ", next, "[", k_.partial_sums / 2, "];"));
    out_.Line(absl::StrCat("for (int i = 0; i < half; ++i) ", next,
                           "[i] = ", printer_.Combine(red.kind, red.type, of + "[2 * i]", of + "[2 * i + 1]"), ";"));
    out_.Line(absl::StrCat("for (int i = 0; i < half; ++i) ", of, "[i] = ", next, "[i];"));
    out_.Close();
    out_.Line(absl::StrCat("const ", ComputeTypeName(red.type), " acc", r, " = ", of, "[0];"));
  }

  // The name by which OpenMP combines partial accumulators; declared where it is not an operator.
  std::string SimdReduction(const BodyReduction& r) {
    if (r.kind == ReductionKind::kSum && IsFloat(r.type)) return "+";
    if (r.kind == ReductionKind::kProd && IsFloat(r.type)) return "*";
    const char* kind = "all";
    switch (r.kind) {
      case ReductionKind::kSum:
        kind = "sum";
        break;
      case ReductionKind::kProd:
        kind = "prod";
        break;
      case ReductionKind::kAmax:
        kind = "amax";
        break;
      case ReductionKind::kAmin:
        kind = "amin";
        break;
      case ReductionKind::kAny:
        kind = "any";
        break;
      default:
        break;
    }
    const std::string name = absl::StrCat("fl_simd_", kind, "_", std::string(DTypeName(r.type)));
    declared_reductions_.insert(absl::StrCat("#pragma omp declare reduction(", name, " : ", ComputeTypeName(r.type),
                                             " : omp_out = ", printer_.Combine(r.kind, r.type, "omp_out", "omp_in"),
                                             ") initializer(omp_priv = ", printer_.Identity(r.kind, r.type), ")\n"));
    return name;
  }

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

  void Columns() {
    const int64_t extent = Extent(k_.vector_var);
    const int64_t tiles = (extent + k_.lanes - 1) / k_.lanes;
    out_.Open("for (long long item = begin; item < end; ++item)");
    std::vector<int32_t> outer = body_.row_vars();
    outer.pop_back();  // the vector loop is the last
    if (!outer.empty()) {
      out_.Line(absl::StrCat("const long long line = item / ", tiles, ";"));
      Decode("line", outer);
    }
    const std::string v = Var(k_.vector_var);
    out_.Line(absl::StrCat("const long long ", v, " = item % ", tiles, " * ", k_.lanes, ";"));
    out_.Line(absl::StrCat("const int lanes = ", extent, " - ", v, " < ", k_.lanes, " ? (int)(", extent, " - ", v,
                           ") : ", k_.lanes, ";"));
    for (const Phase& p : k_.phases.phases) p.row ? ColumnRowPhase(p) : ColumnPass(p);
    out_.Close();
  }

  StatementEmitter::Outside ColumnOutside(const Phase& phase) {
    std::vector<bool> defining(body_.instrs.size(), false);
    for (int32_t i : phase.instrs) defining[static_cast<size_t>(i)] = true;
    return [this, defining = std::move(defining)](int32_t id) -> std::string {
      const BodyInstr& instr = body_.instrs[static_cast<size_t>(id)];
      if (instr.kind == InstrKind::kReduction) {
        const BodyReduction& r = body_.reductions[static_cast<size_t>(instr.reduction)];
        return absl::StrCat("acc", instr.reduction, r.returns_index() && instr.scalar.index == 0 ? "_at" : "",
                            "[lane]");
      }
      if (!instr.full && exported_[static_cast<size_t>(id)] && !defining[static_cast<size_t>(id)])
        return absl::StrCat(emit_.name(id), "_of[lane]");
      return "";
    };
  }

  void LaneLoop(const Phase& phase) {
    const StatementEmitter::Outside outside = ColumnOutside(phase);
    out_.Directive("#pragma GCC ivdep");
    out_.Open("for (int lane = 0; lane < lanes; ++lane)");
    for (int32_t i : phase.instrs) Statement(i, TileVar(), outside);
    for (int32_t r : phase.reductions) {
      out_.Line(emit_.Accumulate(r, absl::StrCat("acc", r, "[lane]"), absl::StrCat("acc", r, "_at[lane]"), outside));
    }
    for (int32_t s : phase.stores) Store(s, TileVar(), outside);
    out_.Close();
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
    LaneLoop(phase);
  }

  void ColumnPass(const Phase& phase) {
    for (int32_t r : phase.reductions) {
      const BodyReduction& red = body_.reductions[static_cast<size_t>(r)];
      out_.Line(absl::StrCat(ComputeTypeName(red.type), " acc", r, "[", k_.lanes, "];"));
      if (red.returns_index()) out_.Line(absl::StrCat("long long acc", r, "_at[", k_.lanes, "];"));
      out_.Line(absl::StrCat("for (int lane = 0; lane < ", k_.lanes, "; ++lane) acc", r,
                             "[lane] = ", printer_.Identity(red.kind, red.type),
                             red.returns_index() ? absl::StrCat(", acc", r, "_at[lane] = 9223372036854775807ll") : "",
                             ";"));
    }
    const std::vector<int32_t> vars = body_.reduced_vars();
    std::vector<std::string> ends;
    for (int32_t v : vars) ends.push_back(LoopEnd(v));
    for (size_t i = 0; i < vars.size(); ++i) {
      out_.Open(absl::StrCat("for (long long ", Var(vars[i]), " = 0; ", Var(vars[i]), " < ", ends[i], "; ++",
                             Var(vars[i]), ")"));
    }
    LaneLoop(phase);
    for (size_t i = 0; i < vars.size(); ++i) out_.Close();
  }

  const ScheduledKernel& k_;
  const KernelBody& body_;
  StatementPrinter printer_;
  StatementEmitter emit_;
  TextWriter out_;
  std::vector<bool> exported_;
  std::vector<bool> depends_;
  int32_t depends_var_ = -2;
  std::set<std::string> declared_reductions_;
};

}  // namespace

KernelSource EmitCpuKernel(const ScheduledKernel& kernel, const Target& target, bool fast_math) {
  KernelSource out;
  out.entry = kernel.name;
  out.target = target;
  out.fast_math = fast_math;
  out.text = kernel.kind == Kind::kTile ? CpuTileText(kernel) : CpuEmitter(kernel).Emit();
  return out;
}

}  // namespace fuseline::codegen
