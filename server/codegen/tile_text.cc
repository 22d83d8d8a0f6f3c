#include "server/codegen/tile_text.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace fuseline::codegen {

std::string TileText::Var(int32_t v) const {
  return absl::StrCat(body_.reduced[static_cast<size_t>(v)] ? "r" : "d", v);
}

std::string TileText::Loops() const {
  std::vector<std::string> loops;
  for (size_t v = 0; v < body_.extents.size(); ++v) {
    loops.push_back(absl::StrCat(Var(static_cast<int32_t>(v)), " < ", body_.extents[v]));
  }
  return absl::StrCat("loops [", absl::StrJoin(loops, ", "), "]");
}

void TileText::Decode(const std::string& position, const std::vector<int32_t>& vars) {
  int64_t stride = 1;
  std::vector<std::string> lines;
  for (size_t i = vars.size(); i-- > 0;) {
    const int64_t extent = body_.extents[static_cast<size_t>(vars[i])];
    std::string text = position;
    if (stride > 1) text = absl::StrCat(text, " / ", stride);
    if (i > 0) text = absl::StrCat(stride > 1 ? absl::StrCat("(", text, ")") : text, " % ", extent);
    lines.push_back(absl::StrCat("const ", index_type_, " ", Var(vars[i]), " = ", text, ";"));
    stride *= std::max<int64_t>(extent, 1);
  }
  for (size_t i = lines.size(); i-- > 0;) out_.Line(lines[i]);
}

void TileText::Statement(int32_t instr) {
  const BodyInstr& i = body_.instrs[static_cast<size_t>(instr)];
  if (emit_.IsConstant(instr) || i.kind == BodyInstr::Kind::kReduction) return;
  const auto var = [this](int32_t v) { return Var(v); };
  if (i.kind == BodyInstr::Kind::kLoad) {
    out_.Line(emit_.DefineLoad(instr, var));
  } else {
    out_.Line(emit_.Define(instr, var, nullptr));
  }
}

std::string TileText::Factor(const TileFactor& factor) {
  for (int32_t i : factor.instrs) Statement(i);
  return emit_.Use(factor.value, nullptr);
}

void TileText::Element(const std::string& sum) {
  for (int32_t i : kernel_.tile->row_instrs) {
    if (body_.instrs[static_cast<size_t>(i)].kind == BodyInstr::Kind::kReduction) {
      out_.Line(absl::StrCat("const ", emit_.TypeOf(i), " ", emit_.name(i), " = ", sum, ";"));
    } else {
      Statement(i);
    }
  }
  const auto var = [this](int32_t v) { return Var(v); };
  for (const BodyStore& store : body_.stores) {
    const BodyParam& p = body_.params[static_cast<size_t>(store.param)];
    out_.Line(absl::StrCat(p.name, "[", emit_.Offset(store.offset, var),
                           "] = ", printer_.ToStorage(p.dtype, emit_.Use(store.value, nullptr)), ";"));
  }
}

}  // namespace fuseline::codegen
