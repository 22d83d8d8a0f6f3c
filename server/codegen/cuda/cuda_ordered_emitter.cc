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
  for (const BodyParam& p : k.body.params) args.push_back(absl::StrCat(loops.PointerType(p), " ", p.name));
  loops.printer().Function("FL_KERNEL");
  loops.Comment();
  loops.out().Open(absl::StrCat("FL_KERNEL(", k.dims.block[0], ") ", k.name, "(", absl::StrJoin(args, ", "), ")"));
}

// A merge sort from below: in each pass the runs are merged in pairs. An element's place among both is its place in its
// own run plus the number of elements of the other one that come before it, which a binary search finds.
void Sort(const ScheduledKernel& k, OrderedLoops& loops) {
  TextWriter& out = loops.out();
  const std::string size = absl::StrCat(loops.size(), "ll");
  const std::string barrier = absl::StrCat(loops.printer().Function("fl_barrier"), "();");
  const std::string each = absl::StrCat("for (long long place = ", loops.printer().Function("fl_thread"),
                                        "(); place < ", size, "; place += ", k.dims.block[0], ")");
  out.Line(absl::StrCat("const long long row = ", loops.printer().Function("fl_block"), "();"));
  loops.Decode("row", k.body.row_vars());
  out.Line(absl::StrCat(loops.KeyType(), "* const key_of = (", loops.KeyType(), "*)keys + row * ", size, ";"));
  out.Line(absl::StrCat("long long* from = order + row * ", size, ";"));
  out.Line(absl::StrCat("long long* to = spare + row * ", size, ";"));
  loops.RowStatements();
  out.Open(each);
  loops.FillKey("place");
  out.Close();
  out.Line(barrier);
  out.Open(absl::StrCat("for (int level = 0; (1ll << level) < ", size, "; ++level)"));
  out.Open(each);
  out.Line("const long long low = place >> (level + 1) << (level + 1);");
  out.Line(
      absl::StrCat("const long long middle = low + (1ll << level) < ", size, " ? low + (1ll << level) : ", size, ";"));
  out.Line(
      absl::StrCat("const long long high = low + (2ll << level) < ", size, " ? low + (2ll << level) : ", size, ";"));
  out.Line("const long long at = from[place];");
  out.Line(absl::StrCat("const ", loops.KeyType(), " key = key_of[at];"));
  out.Line("const bool is_first = place < middle;");
  out.Line("const long long other = is_first ? middle : low;");
  out.Line("long long begin = other, end = is_first ? high : middle;");
  out.Open("while (begin < end)");
  out.Line("const long long probe = (begin + end) / 2;");
  out.Line("const long long probe_at = from[probe];");
  out.Open(absl::StrCat("if (", loops.ComesBefore("key", "at", "key_of[probe_at]", "probe_at"), ")"));
  out.Line("begin = probe + 1;");
  out.Close(" else {");
  out.Line("  end = probe;");
  out.Line("}");
  out.Close();
  out.Line("to[low + (place - (is_first ? low : middle)) + (begin - other)] = at;");
  out.Close();
  out.Line(barrier);
  out.Line("long long* const merged = to;");
  out.Line("to = from;");
  out.Line("from = merged;");
  out.Close();
  out.Open(each);
  loops.StorePosition("place", "from[place]");
  out.Close();
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
