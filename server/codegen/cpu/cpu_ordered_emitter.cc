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

constexpr int64_t kInsertionRun = 16;  // short runs are sorted by moving elements to their places

// Elements low, low + 1, … of a run, by insertion.
void SortRuns(OrderedLoops& loops, const std::string& size) {
  TextWriter& out = loops.out();
  out.Open(absl::StrCat("for (long long low = 0; low < ", size, "; low += ", kInsertionRun, ")"));
  out.Line(absl::StrCat("const long long high = low + ", kInsertionRun, " < ", size, " ? low + ", kInsertionRun, " : ",
                        size, ";"));
  out.Open("for (long long next = low + 1; next < high; ++next)");
  out.Line(absl::StrCat("const ", loops.KeyType(), " key = key_of[next];"));
  out.Line("const long long at = from[next];");
  out.Line("long long place = next;");
  out.Open(absl::StrCat("while (place > low && ", loops.ComesBefore("key_of[place - 1]", "0", "key", "1"), ")"));
  out.Line("key_of[place] = key_of[place - 1];");
  out.Line("from[place] = from[place - 1];");
  out.Line("--place;");
  out.Close();
  out.Line("key_of[place] = key;");
  out.Line("from[place] = at;");
  out.Close();
  out.Close();
}

// A stable merge sort from below: pairs of runs are merged until one is left. Keys move with their positions.
void Sort(const ScheduledKernel& k, OrderedLoops& loops) {
  TextWriter& out = loops.out();
  const std::string size = absl::StrCat(loops.size(), "ll");
  const std::string type = loops.KeyType();
  out.Open("for (long long row = begin; row < end; ++row)");
  loops.Decode("row", k.body.row_vars());
  out.Line(absl::StrCat(type, "* key_of = (", type, "*)keys + row * ", size, ";"));
  out.Line(absl::StrCat(type, "* key_to = (", type, "*)spare_keys + row * ", size, ";"));
  out.Line(absl::StrCat("long long* from = order + row * ", size, ";"));
  out.Line(absl::StrCat("long long* to = spare_order + row * ", size, ";"));
  loops.RowStatements();
  out.Open(absl::StrCat("for (long long place = 0; place < ", size, "; ++place)"));
  loops.FillKey("place");
  out.Close();
  SortRuns(loops, size);
  out.Open(absl::StrCat("for (long long width = ", kInsertionRun, "; width < ", size, "; width *= 2)"));
  out.Open(absl::StrCat("for (long long low = 0; low < ", size, "; low += 2 * width)"));
  out.Line(absl::StrCat("const long long middle = low + width < ", size, " ? low + width : ", size, ";"));
  out.Line(absl::StrCat("const long long high = low + 2 * width < ", size, " ? low + 2 * width : ", size, ";"));
  out.Line("long long first = low, second = middle, place = low;");
  out.Open("for (; first < middle && second < high; ++place)");
  // Of equal keys the first run's come first.
  out.Line(
      absl::StrCat("const bool takes_second = ", loops.ComesBefore("key_of[first]", "0", "key_of[second]", "1"), ";"));
  out.Line("const long long taken = takes_second ? second : first;");
  out.Line("key_to[place] = key_of[taken];");
  out.Line("to[place] = from[taken];");
  out.Line("first += !takes_second;");
  out.Line("second += takes_second;");
  out.Close();
  out.Line("for (; first < middle; ++first, ++place) key_to[place] = key_of[first], to[place] = from[first];");
  out.Line("for (; second < high; ++second, ++place) key_to[place] = key_of[second], to[place] = from[second];");
  out.Close();
  out.Line(absl::StrCat(type, "* const merged_keys = key_to;"));
  out.Line("key_to = key_of;");
  out.Line("key_of = merged_keys;");
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
  loops.ReadUnconditionally();
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
