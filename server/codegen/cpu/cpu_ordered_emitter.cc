#include "server/codegen/cpu/cpu_ordered_emitter.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "server/codegen/ordered_loops.h"
#include "server/codegen/prelude.h"

namespace fuseline::codegen {
namespace {

void Signature(const ScheduledKernel& k, OrderedLoops& loops) {
  loops.Comment();
  loops.out().Open(
      absl::StrCat("extern \"C\" void ", k.name, "(void* const* buffers, long long begin, long long end)"));
  for (size_t i = 0; i < k.body.params.size(); ++i) {
    const std::string type = loops.PointerType(k.body.params[i]);
    loops.out().Line(absl::StrCat(type, loops.Restrict(k.body.params[i]), " const ", k.body.params[i].name, " = (",
                                  type, ")buffers[", i, "];"));
  }
}

void Tiles(const ScheduledKernel& k, OrderedLoops& loops) {
  TextWriter& out = loops.out();
  const int64_t extent = k.body.extents[static_cast<size_t>(k.vector_var)];
  const int64_t tiles = (extent + k.lanes - 1) / k.lanes;
  std::vector<int32_t> outer = k.body.row_vars();
  outer.pop_back();  // the loop of the lanes is the last
  out.Open("for (long long item = begin; item < end; ++item)");
  if (!outer.empty()) {
    out.Line(absl::StrCat("const long long line = item / ", tiles, ";"));
    loops.Decode("line", outer);
  }
  const std::string v = loops.Var(k.vector_var);
  out.Line(absl::StrCat("const long long ", v, " = item % ", tiles, " * ", k.lanes, ";"));
  out.Line(absl::StrCat("const int lanes = ", extent, " - ", v, " < ", k.lanes, " ? (int)(", extent, " - ", v,
                        ") : ", k.lanes, ";"));
  loops.WalkAlong();
  out.Close();
}

// A stable merge sort from below: runs of 1, 2, 4, … are merged until one is left.
void Sort(const ScheduledKernel& k, OrderedLoops& loops) {
  TextWriter& out = loops.out();
  const std::string size = absl::StrCat(loops.size(), "ll");
  out.Open("for (long long row = begin; row < end; ++row)");
  loops.Decode("row", k.body.row_vars());
  out.Line(absl::StrCat(loops.KeyType(), "* const key_of = (", loops.KeyType(), "*)keys + row * ", size, ";"));
  out.Line(absl::StrCat("long long* from = order + row * ", size, ";"));
  out.Line(absl::StrCat("long long* to = spare + row * ", size, ";"));
  loops.RowStatements();
  out.Open(absl::StrCat("for (long long place = 0; place < ", size, "; ++place)"));
  loops.FillKey("place");
  out.Close();
  out.Open(absl::StrCat("for (long long width = 1; width < ", size, "; width *= 2)"));
  out.Open(absl::StrCat("for (long long low = 0; low < ", size, "; low += 2 * width)"));
  out.Line(absl::StrCat("const long long middle = low + width < ", size, " ? low + width : ", size, ";"));
  out.Line(absl::StrCat("const long long high = low + 2 * width < ", size, " ? low + 2 * width : ", size, ";"));
  out.Line("long long first = low, second = middle;");
  out.Open("for (long long place = low; place < high; ++place)");
  const std::string before =
      loops.ComesBefore("key_of[from[first]]", "from[first]", "key_of[from[second]]", "from[second]");
  out.Line(absl::StrCat("const bool takes_second = first >= middle || (second < high && ", before, ");"));
  out.Line("to[place] = takes_second ? from[second++] : from[first++];");
  out.Close();
  out.Close();
  out.Line("long long* const merged = to;");
  out.Line("to = from;");
  out.Line("from = merged;");
  out.Close();
  out.Open(absl::StrCat("for (long long place = 0; place < ", size, "; ++place)"));
  loops.StorePosition("place", "from[place]");
  out.Close();
  out.Close();
}

}  // namespace

KernelSource EmitCpuOrderedKernel(const ScheduledKernel& k, const Target& target, bool fast_math) {
  OrderedLoops loops(k);
  Signature(k, loops);
  if (k.body.ordered->kind == lowering::LoopNode::Kind::kSort) {
    Sort(k, loops);
  } else if (k.vector_var >= 0) {
    Tiles(k, loops);
  } else {
    loops.out().Open("for (long long row = begin; row < end; ++row)");
    loops.Decode("row", k.body.row_vars());
    loops.WalkAlong();
    loops.out().Close();
  }
  loops.out().Close();
  KernelSource out;
  out.entry = k.name;
  out.target = target;
  out.fast_math = fast_math;
  out.text = absl::StrCat(CpuPrelude().Render(loops.printer().needed()), "\n", loops.out().text());
  return out;
}

}  // namespace fuseline::codegen
