#include "server/codegen/cuda/cuda_ordered_emitter.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "server/codegen/ordered_loops.h"
#include "server/codegen/prelude.h"

namespace fuseline::codegen {
namespace {

void Signature(const ScheduledKernel& k, OrderedLoops& loops) {
  std::vector<std::string> args;
  for (const BodyParam& p : k.body.params)
    args.push_back(absl::StrCat(loops.PointerType(p), loops.Restrict(p), " ", p.name));
  loops.printer().Function("FL_KERNEL");
  loops.Comment();
  loops.out().Open(absl::StrCat("FL_KERNEL(", k.dims.block[0], ") ", k.name, "(", absl::StrJoin(args, ", "), ")"));
}

// Where element `from[place]` of a run goes when the pairs of runs of 2^level elements are merged: its place in its own
// run plus the number of elements of the other one that come before it, which a binary search finds.
void MergePlace(OrderedLoops& loops, const std::string& type, const std::string& size, const std::string& key_of) {
  TextWriter& out = loops.out();
  const auto limited = [&](const std::string& name, const char* reach) {
    out.Line(absl::StrCat("const ", type, " ", name, " = low + ((", type, ")", reach, " << level) < ", size,
                          " ? low + ((", type, ")", reach, " << level) : ", size, ";"));
  };
  out.Line(absl::StrCat("const ", type, " low = place >> (level + 1) << (level + 1);"));
  limited("middle", "1");
  limited("high", "2");
  out.Line(absl::StrCat("const ", type, " at = from[place];"));
  out.Line(absl::StrCat("const ", loops.KeyType(), " key = ", key_of, "[at];"));
  out.Line("const bool is_first = place < middle;");
  out.Line(absl::StrCat("const ", type, " other = is_first ? middle : low;"));
  out.Line(absl::StrCat(type, " begin = other, end = is_first ? high : middle;"));
  out.Open("while (begin < end)");
  out.Line(absl::StrCat("const ", type, " probe = (begin + end) / 2;"));
  out.Line(absl::StrCat("const ", type, " probe_at = from[probe];"));
  out.Line(
      absl::StrCat("const bool before = ", loops.ComesBefore("key", "at", key_of + "[probe_at]", "probe_at"), ";"));
  out.Line("begin = before ? probe + 1 : begin;");
  out.Line("end = before ? end : probe;");
  out.Close();
  out.Line("to[low + (place - (is_first ? low : middle)) + (begin - other)] = at;");
}

// A row, or a tile of one, in shared memory: runs of 1, 2, 4, … elements are merged until one is left.
void SortTile(const ScheduledKernel& k, OrderedLoops& loops) {
  TextWriter& out = loops.out();
  StatementPrinter& printer = loops.printer();
  const bool whole = k.sort_step == ScheduledKernel::SortStep::kWhole;
  const int64_t tiles = (loops.size() + k.sort_tile - 1) / k.sort_tile;
  const std::string barrier = absl::StrCat(printer.Function("fl_barrier"), "();");
  const std::string shared = printer.Function("FL_SHARED");
  const std::string thread = absl::StrCat(printer.Function("fl_thread"), "()");
  const std::string count = tiles == 1 ? absl::StrCat(k.sort_tile) : "count";
  const std::string each =
      absl::StrCat("for (int place = ", thread, "; place < ", count, "; place += ", k.dims.block[0], ")");
  const std::string block = absl::StrCat("(long long)", printer.Function("fl_block"), "()");
  out.Line(absl::StrCat(shared, " ", loops.KeyType(), " tile_key[", k.sort_tile, "];"));
  out.Line(absl::StrCat(shared, " int tile_from[", k.sort_tile, "];"));
  out.Line(absl::StrCat(shared, " int tile_to[", k.sort_tile, "];"));
  out.Line(absl::StrCat("const long long row = ", block, " / ", tiles, ";"));
  out.Line(absl::StrCat("const long long tile_begin = ", block, " % ", tiles, " * ", k.sort_tile, ";"));
  if (tiles > 1) {
    out.Line(absl::StrCat("const int count = ", loops.size(), "ll - tile_begin < ", k.sort_tile, " ? (int)(",
                          loops.size(), "ll - tile_begin) : ", k.sort_tile, ";"));
  }
  loops.Decode("row", k.body.row_vars());
  loops.RowStatements();
  out.Open(each);
  loops.ElementStatements("(tile_begin + place)");
  out.Line(absl::StrCat("tile_key[place] = ", loops.value(), ";"));
  if (!whole) {
    out.Line(absl::StrCat("((", loops.KeyType(), "*)keys)[row * ", loops.size(),
                          "ll + tile_begin + place] = ", loops.value(), ";"));
  }
  out.Line("tile_from[place] = place;");
  out.Close();
  out.Line(barrier);
  out.Open("");
  out.Line("int* from = tile_from;");
  out.Line("int* merged = tile_to;");
  out.Open(absl::StrCat("for (int level = 0; 1 << level < ", count, "; ++level)"));
  out.Line("int* const to = merged;");
  out.Open(each);
  MergePlace(loops, "int", count, "tile_key");
  out.Close();
  out.Line(barrier);
  out.Line("merged = from;");
  out.Line("from = to;");
  out.Close();
  out.Open(each);
  if (whole) {
    loops.StorePosition("(tile_begin + place)", "tile_begin + from[place]");
  } else {
    out.Line(absl::StrCat("to[row * ", loops.size(), "ll + tile_begin + place] = tile_begin + from[place];"));
  }
  out.Close();
  out.Close();
  if (whole) return;
  int level = 0;
  while (int64_t{1} << level < k.sort_tile) ++level;
  out.Line(absl::StrCat("if (", block, " == 0 && ", thread, " == 0) level_out[0] = ", level, ";"));
}

// A thread has element `place` of row `row`.
void ElementThreads(const ScheduledKernel& k, OrderedLoops& loops) {
  TextWriter& out = loops.out();
  out.Line(absl::StrCat("const long long e = (long long)", loops.printer().Function("fl_block"), "() * ",
                        k.dims.block[0], " + ", loops.printer().Function("fl_thread"), "();"));
  if (k.sort_step == ScheduledKernel::SortStep::kMerge) {
    out.Line("const long long level = level_in[0];");
    out.Line("if (e == 0) level_out[0] = level + 1;");
  }
  out.Line(absl::StrCat("if (e >= ", k.body.row_count() * loops.size(), "ll) return;"));
  out.Line(absl::StrCat("const long long row = e / ", loops.size(), "ll, place = e % ", loops.size(), "ll;"));
}

// One pass over rows that are sorted in runs of 2^level elements. Passes are launches of one kernel, of which each
// leaves the next one's level.
void MergeRuns(const ScheduledKernel& k, OrderedLoops& loops) {
  TextWriter& out = loops.out();
  ElementThreads(k, loops);
  const std::string start = absl::StrCat(" + row * ", loops.size(), "ll;");
  out.Line(absl::StrCat("const ", loops.KeyType(), "* const key_of = (const ", loops.KeyType(), "*)keys", start));
  out.Line(absl::StrCat("const long long* const row_from = from", start));
  out.Line(absl::StrCat("long long* const row_to = to", start));
  out.Open("");
  out.Line("const long long* const from = row_from;");
  out.Line("long long* const to = row_to;");
  MergePlace(loops, "long long", absl::StrCat(loops.size(), "ll"), "key_of");
  out.Close();
}

void StorePositions(const ScheduledKernel& k, OrderedLoops& loops) {
  ElementThreads(k, loops);
  loops.Decode("row", k.body.row_vars());
  loops.StorePosition("place", "from[e]");
}

void Sort(const ScheduledKernel& k, OrderedLoops& loops) {
  switch (k.sort_step) {
    case ScheduledKernel::SortStep::kWhole:
    case ScheduledKernel::SortStep::kTiles:
      return SortTile(k, loops);
    case ScheduledKernel::SortStep::kMerge:
      return MergeRuns(k, loops);
    case ScheduledKernel::SortStep::kStore:
      return StorePositions(k, loops);
  }
}

// The block takes the row piece by piece. A thread combines neighbouring elements, the block the threads' totals.
void BlockScan(const ScheduledKernel& k, OrderedLoops& loops) {
  TextWriter& out = loops.out();
  StatementPrinter& printer = loops.printer();
  const DType dtype = loops.value_dtype();
  const ReductionKind kind = k.body.ordered->reduction;
  const std::string type = loops.KeyType();
  const bool positions = loops.scans_positions();
  const int64_t threads = k.dims.block[0];
  const std::string thread = absl::StrCat(printer.Function("fl_thread"), "()");
  const std::string size = absl::StrCat(loops.size(), "ll");
  const std::string last = "9223372036854775807ll";
  const auto for_items = [&] {
    out.Directive("#pragma unroll");
    out.Open(absl::StrCat("for (int item = 0; item < ", k.unroll, "; ++item)"));
    out.Line(absl::StrCat("const long long place = base + ", thread, " * ", k.unroll, " + item;"));
  };
  out.Line(absl::StrCat("const long long row = ", printer.Function("fl_block"), "();"));
  loops.Decode("row", k.body.row_vars());
  loops.RowStatements();
  out.Line(absl::StrCat(type, " carry = ", loops.Identity(), ";"));
  if (positions) out.Line(absl::StrCat("long long carry_at = ", last, ";"));
  out.Open(absl::StrCat("for (long long base = 0; base < ", size, "; base += ", threads * k.unroll, ")"));
  out.Line(absl::StrCat(type, " upto[", k.unroll, "], total = ", loops.Identity(), ";"));
  if (positions) out.Line(absl::StrCat("long long upto_at[", k.unroll, "], total_at = ", last, ";"));
  for_items();
  out.Open(absl::StrCat("if (place < ", size, ")"));
  loops.ElementStatements("place");
  if (positions) {
    out.Line(absl::StrCat("if (", printer.Better(kind, dtype, "total", "total_at", loops.value(), loops.position()),
                          ") total = ", loops.value(), ", total_at = ", loops.position(), ";"));
  } else {
    out.Line(absl::StrCat("total = ", printer.Combine(kind, dtype, "total", loops.value()), ";"));
  }
  out.Close();
  out.Line(positions ? "upto[item] = total, upto_at[item] = total_at;" : "upto[item] = total;");
  out.Close();
  const std::string suffix = absl::StrCat("_", std::string(DTypeName(dtype)));
  if (positions) {
    out.Line(absl::StrCat(printer.Function("fl_block_prefix_argmax" + suffix), "<", threads,
                          ">(total, total_at, carry, carry_at);"));
  } else {
    const char* name = kind == ReductionKind::kProd ? "fl_block_prefix_prod" : "fl_block_prefix_sum";
    out.Line(
        absl::StrCat("const ", type, " before = ", printer.Function(name + suffix), "<", threads, ">(total, carry);"));
  }
  for_items();
  out.Open(absl::StrCat("if (place < ", size, ")"));
  if (positions) {
    const std::string here = printer.Better(kind, dtype, "total", "total_at", "upto[item]", "upto_at[item]");
    loops.StoreValue("place", absl::StrCat(here, " ? upto_at[item] : total_at"));
  } else {
    loops.StoreValue("place", printer.Combine(kind, dtype, "before", "upto[item]"));
  }
  out.Close();
  out.Close();
  out.Close();
}

void WalkAlong(const ScheduledKernel& k, OrderedLoops& loops) {
  const std::string thread = absl::StrCat(loops.printer().Function("fl_thread"), "()");
  const std::string block = absl::StrCat("(long long)", loops.printer().Function("fl_block"), "()");
  loops.out().Line(absl::StrCat("const long long row = ", block, " * ", k.dims.block[0], " + ", thread, ";"));
  loops.out().Line(absl::StrCat("if (row >= ", k.body.row_count(), "ll) return;"));
  loops.Decode("row", k.body.row_vars());
  loops.WalkAlong();
}

}  // namespace

KernelSource EmitCudaOrderedKernel(const ScheduledKernel& k, const Target& target, bool fast_math) {
  OrderedLoops loops(k);
  Signature(k, loops);
  if (k.body.ordered->kind == lowering::LoopNode::Kind::kSort) {
    Sort(k, loops);
  } else if (k.threads_per_row > 1) {
    BlockScan(k, loops);
  } else {
    WalkAlong(k, loops);
  }
  loops.out().Close();
  KernelSource out;
  out.entry = k.name;
  out.target = target;
  out.fast_math = fast_math;
  out.text = absl::StrCat(CudaPrelude().Render(loops.printer().needed()), "\n", loops.out().text());
  return out;
}

}  // namespace fuseline::codegen
