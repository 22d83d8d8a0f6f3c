// Tested by tests/unit/codegen/ordered_kernel_test.cc
#include "server/codegen/ordered_loops.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace fuseline::codegen {

using Kind = lowering::LoopNode::Kind;

std::string OrderedLoops::Var(int32_t v) const {
  return absl::StrCat(body_.reduced[static_cast<size_t>(v)] ? "r" : "d", v);
}

StatementPrinter::VarName OrderedLoops::Names() const {
  return [this](int32_t v) { return v == k_.vector_var ? absl::StrCat("(", Var(v), " + lane)") : Var(v); };
}

void OrderedLoops::Comment() {
  std::vector<std::string> loops;
  for (size_t i = 0; i < body_.extents.size(); ++i) {
    loops.push_back(absl::StrCat(Var(static_cast<int32_t>(i)), " < ", body_.extents[i]));
  }
  out_.Line(absl::StrCat("// ", k_.description, "; loops [", absl::StrJoin(loops, ", "), "]"));
}

void OrderedLoops::Decode(const std::string& position, const std::vector<int32_t>& vars) {
  int64_t stride = 1;
  std::vector<std::string> lines;
  for (size_t i = vars.size(); i-- > 0;) {
    const int64_t extent = body_.extents[static_cast<size_t>(vars[i])];
    std::string text = position;
    if (stride > 1) text = absl::StrCat(text, " / ", stride, "ll");
    if (i > 0) text = absl::StrCat(stride > 1 ? absl::StrCat("(", text, ")") : text, " % ", extent, "ll");
    lines.push_back(absl::StrCat("const long long ", Var(vars[i]), " = ", text, ";"));
    stride *= std::max<int64_t>(extent, 1);
  }
  for (size_t i = lines.size(); i-- > 0;) out_.Line(lines[i]);
}

std::string OrderedLoops::PointerType(const BodyParam& p) {
  if (IsHalf(p.dtype) || IsF8(p.dtype)) printer_.Function(StorageTypeName(p.dtype));
  return absl::StrCat(p.written ? "" : "const ", StorageTypeName(p.dtype), "*");
}

const char* OrderedLoops::Restrict(const BodyParam& p) const {
  return p.written && body_.ordered->kind == Kind::kSort ? "" : " __restrict__";
}

void OrderedLoops::Statements(bool full) {
  for (size_t i = 0; i < body_.instrs.size(); ++i) {
    const BodyInstr& instr = body_.instrs[i];
    const int32_t id = static_cast<int32_t>(i);
    if (instr.full != full || emit_.IsConstant(id)) continue;
    if (instr.kind == BodyInstr::Kind::kLoad) {
      out_.Line(emit_.DefineLoad(id, Names()));
    } else {
      out_.Line(emit_.Define(id, Names(), nullptr));
    }
  }
}

std::string OrderedLoops::Element() {
  return absl::StrCat(body_.params[static_cast<size_t>(store_.param)].name, "[", emit_.Offset(store_.offset, Names()),
                      "]");
}

// `lane`: "[lane]" where the accumulators are those of a tile.
void OrderedLoops::Combine(const std::string& lane) {
  const BodyOrdered& ordered = *body_.ordered;
  const DType storage = body_.params[static_cast<size_t>(store_.param)].dtype;
  const DType type = KeyDType();
  const std::string value = emit_.Use(store_.value, nullptr);
  if (ordered.kind == Kind::kScatter) {
    std::string stored = value;
    if (ordered.reduction != ReductionKind::kNone) {
      out_.Line(
          absl::StrCat("const ", ComputeTypeName(type), " held = ", printer_.FromStorage(storage, Element()), ";"));
      stored = printer_.Combine(ordered.reduction, type, "held", value);
    }
    out_.Line(absl::StrCat(Element(), " = ", printer_.ToStorage(storage, stored), ";"));
    return;
  }
  if (ordered.arg >= 0) {
    const std::string at = emit_.Use(ordered.arg, nullptr);
    out_.Line(absl::StrCat("if (", printer_.Better(ordered.reduction, type, "acc" + lane, "acc_at" + lane, value, at),
                           ") acc", lane, " = ", value, ", acc_at", lane, " = ", at, ";"));
    out_.Line(absl::StrCat(Element(), " = acc_at", lane, ";"));
    return;
  }
  out_.Line(absl::StrCat("acc", lane, " = ", printer_.Combine(ordered.reduction, type, "acc" + lane, value), ";"));
  out_.Line(absl::StrCat(Element(), " = ", printer_.ToStorage(storage, "acc" + lane), ";"));
}

void OrderedLoops::WalkAlong() {
  const BodyOrdered& ordered = *body_.ordered;
  const bool tiles = k_.vector_var >= 0;
  if (ordered.kind == Kind::kScan) {
    const std::string identity = printer_.Identity(ordered.reduction, KeyDType());
    const std::string array = tiles ? absl::StrCat("[", k_.lanes, "]") : "";
    const std::string lane = tiles ? "[lane]" : "";
    out_.Line(absl::StrCat(KeyType(), " acc", array, ";"));
    if (ordered.arg >= 0) out_.Line(absl::StrCat("long long acc_at", array, ";"));
    if (tiles) out_.Open("for (int lane = 0; lane < lanes; ++lane)");
    out_.Line(absl::StrCat("acc", lane, " = ", identity, ";"));
    if (ordered.arg >= 0) out_.Line(absl::StrCat("acc_at", lane, " = 9223372036854775807ll;"));
    if (tiles) out_.Close();
  }
  if (!tiles) Statements(false);
  const std::vector<int32_t> vars = body_.reduced_vars();
  for (int32_t v : vars) {
    out_.Open(absl::StrCat("for (long long ", Var(v), " = 0; ", Var(v), " < ", body_.extents[static_cast<size_t>(v)],
                           "; ++", Var(v), ")"));
  }
  if (tiles) {
    out_.Open("for (int lane = 0; lane < lanes; ++lane)");
    Statements(false);
  }
  Statements(true);
  Combine(tiles ? "[lane]" : "");
  if (tiles) out_.Close();
  for (size_t i = 0; i < vars.size(); ++i) out_.Close();
}

void OrderedLoops::RowStatements() { Statements(false); }

void OrderedLoops::ElementStatements(const std::string& place) {
  Decode(place, body_.reduced_vars());
  Statements(true);
}

void OrderedLoops::StoreValue(const std::string& place, const std::string& value) {
  const DType storage = body_.params[static_cast<size_t>(store_.param)].dtype;
  Decode(place, body_.reduced_vars());
  out_.Line(absl::StrCat(Element(), " = ", scans_positions() ? value : printer_.ToStorage(storage, value), ";"));
}

void OrderedLoops::FillKey(const std::string& place) {
  ElementStatements(place);
  out_.Line(absl::StrCat("key_of[", place, "] = ", value(), ";"));
  out_.Line(absl::StrCat("from[", place, "] = ", place, ";"));
}

std::string OrderedLoops::ComesBefore(const std::string& a, const std::string& at_a, const std::string& b,
                                      const std::string& at_b) {
  const std::string name =
      absl::StrCat(body_.ordered->descending ? "fl_better_max_" : "fl_below_", std::string(DTypeName(KeyDType())));
  return absl::StrCat(printer_.Function(name), "(", a, ", ", at_a, ", ", b, ", ", at_b, ")");
}

void OrderedLoops::StorePosition(const std::string& place, const std::string& position) {
  Decode(place, body_.reduced_vars());
  out_.Line(absl::StrCat(Element(), " = ", position, ";"));
}

}  // namespace fuseline::codegen
