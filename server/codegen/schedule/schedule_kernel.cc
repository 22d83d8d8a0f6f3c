// Tested by tests/unit/codegen/schedule_kernel_test.cc
#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status/status_macros.h"
#include "server/codegen/schedule/partial_sums.h"
#include "server/codegen/schedule/schedule_ordered.h"
#include "server/codegen/schedule/scheduled_kernel.h"
#include "server/codegen/schedule/split_reduction.h"
#include "server/fuser/cost_model.h"

namespace fuseline::codegen {
namespace {

constexpr int32_t kBlockThreads = 256;     // of pointwise and column kernels
constexpr int32_t kRowBlockThreads = 128;  // the least for row kernels: short rows share a block
constexpr int32_t kMaxThreads = 1024;      // of a block, by the hardware
constexpr int64_t kVectorBytes = 16;       // the widest access of a thread
// Elements that a thread of a row kernel takes: enough loads in flight (4 vectors of 16 bytes) without crowding the
// registers.
constexpr int64_t kElementsPerThread = 32;
// 32-bit registers that a persistent thread may spend on what it holds; with the rest it stays under 128 (512 threads)
// or 64 (1024).
constexpr int64_t kHeldWords = 64;
constexpr int64_t kHeldWordsFullBlock = 32;
constexpr int64_t kTasksWanted = 528;  // blocks of a split reduction: four for each of 132 multiprocessors
constexpr int32_t kUnroll = 2;
constexpr int64_t kThreadsToUnroll = 4 * 132 * 2048;  // four times what the machine holds at once
constexpr int32_t kCpuTile = 64;                      // columns that the CPU accumulates at once
constexpr int64_t kCpuPieces = 64;                    // pieces of a row split for CPU threads
constexpr int64_t kCpuGrainElements = 16384;          // fewer are not worth waking a thread
constexpr int64_t kIndexLimit =
    (int64_t{1} << 31) - (1 << 20);  // slack: the last vectors of a block may reach past the end

int32_t PowerOfTwoAtLeast(int64_t n) {
  int32_t p = 1;
  while (p < n && p < (1 << 30)) p *= 2;
  return p;
}

bool IsHeavy(const BodyInstr& i) {
  if (i.kind != BodyInstr::Kind::kOp) return false;
  lowering::LoopNode probe;
  probe.body.push_back(i.scalar);
  return fuser::BodyCost(probe) >= 16;
}

class Scheduler {
 public:
  Scheduler(bool cuda) : cuda_(cuda) {}

  ScheduledKernel Schedule(KernelBody body) {
    ScheduledKernel k;
    k.body = std::move(body);
    CollapseLoops(k.body);
    AssignPasses(k.body);
    k.partial_sums = CountPartialSums(k.body, cuda_);
    if (ScheduleTiles(k)) return k;
    k.partial_sums > 0 ? PinVectorLoop(k) : ChooseVectorLoop(k);
    AssignPasses(k.body);
    ChooseLanes(k);
    k.wide_index = NeedsWideIndex(k);
    if (cuda_) {
      MapToBlocks(k);
    } else {
      MapToWorkItems(k);
    }
    return k;
  }

  // Which loop to split, and into how many pieces of which extent.
  static void ChoosePieces(const KernelBody& collapsed, bool cuda, int32_t* var, int64_t* count, int64_t* extent) {
    *var = -1;
    for (int32_t v : collapsed.reduced_vars()) {
      if (*var < 0 || collapsed.extents[static_cast<size_t>(v)] > collapsed.extents[static_cast<size_t>(*var)])
        *var = v;
    }
    const bool pinned = collapsed.accumulation() != lowering::Accumulation::kFree;
    const int64_t n = collapsed.extents[static_cast<size_t>(*var)];
    const int64_t others = collapsed.reduced_count() / std::max<int64_t>(n, 1);
    const int64_t rows = std::max<int64_t>(collapsed.row_count(), 1);
    const int32_t best = BestVar(collapsed);
    const bool columns = pinned ? !collapsed.inner : best >= 0 && !collapsed.reduced[static_cast<size_t>(best)];
    const int64_t tasks = columns ? std::max<int64_t>(rows / 128, 1) : rows;
    const int64_t wanted = std::max<int64_t>(2, (cuda ? kTasksWanted : kCpuPieces) / tasks);
    // A piece is at least a thousand elements of work (for columns: 32 steps down), and a multiple of what a block
    // takes in one step.
    const int64_t least = std::max<int64_t>(1, (columns ? 32 : 4096) / std::max<int64_t>(others, 1));
    int64_t piece = std::max((n + wanted - 1) / wanted, least);
    const int64_t step = columns ? 8 : (piece >= 2048 ? 1024 : 16);
    piece = std::min((piece + step - 1) / step * step, n);
    *extent = piece;
    *count = (n + piece - 1) / piece;
  }

 private:
  // Whether the body is a contraction that goes by tiles.
  bool ScheduleTiles(ScheduledKernel& k) const {
    k.tile = PlanTiles(k.body, cuda_);
    if (!k.tile) return false;
    const TilePlan& t = *k.tile;
    k.kind = ScheduledKernel::Kind::kTile;
    k.phases = BuildPhases(k.body, std::vector<bool>(k.body.instrs.size(), false));
    k.vector_load.assign(k.body.instrs.size(), false);
    k.vector_store.assign(k.body.stores.size(), false);
    k.wide_index = NeedsWideIndex(k);
    k.description = absl::StrCat("tiles of ", t.tile_m, " x ", t.tile_n, " x ", t.tile_k);
    if (cuda_) {
      k.dims.block[0] = kTileThreads;
      k.dims.grid[0] = t.tile_count();
      absl::StrAppend(&k.description, ", ", t.thread_m, " x ", t.thread_n, " of a thread");
    } else {
      k.work_items = t.tile_count();
      const int64_t item = int64_t{t.tile_m} * t.tile_n / 16 * t.reduced;
      k.work_grain = std::max<int64_t>(1, kCpuGrainElements / std::max<int64_t>(item, 1));
    }
    return true;
  }

  // The loop along which most of the bytes that passes move are contiguous; -1 where none is.
  static int32_t BestVar(const KernelBody& body, bool rows_only = false) {
    std::vector<int64_t> score(body.extents.size(), 0);
    const bool reduces = !body.reductions.empty();
    for (const BodyInstr& i : body.instrs) {
      if (i.kind != BodyInstr::Kind::kLoad || (reduces && !i.full)) continue;  // what is read once a row hardly counts
      const BodyParam& p = body.params[static_cast<size_t>(i.param)];
      const int64_t weight = std::max<int64_t>(1, p.element_count) * DTypeSizeBytes(p.dtype);
      for (size_t v = 0; v < score.size(); ++v) {
        if (std::abs(i.offset.Coefficient(static_cast<int32_t>(v))) == 1) score[v] += weight;
      }
    }
    for (const BodyStore& s : body.stores) {
      if (reduces && !s.full) continue;
      const BodyParam& p = body.params[static_cast<size_t>(s.param)];
      for (size_t v = 0; v < score.size(); ++v) {
        if (s.offset.Coefficient(static_cast<int32_t>(v)) == 1) score[v] += p.element_count * DTypeSizeBytes(p.dtype);
      }
    }
    int32_t best = -1;
    for (size_t v = 0; v < score.size(); ++v) {
      if (body.bound && body.bound->start.Uses(static_cast<int32_t>(v))) continue;  // lanes must end together
      if (rows_only && body.reduced[v]) continue;
      // Later (inner) loops win ties.
      if (score[v] > 0 && (best < 0 || score[v] >= score[static_cast<size_t>(best)])) best = static_cast<int32_t>(v);
    }
    return best;
  }

  void ChooseVectorLoop(ScheduledKernel& k) {
    const std::vector<int32_t> rows = k.body.row_vars();
    const std::vector<int32_t> reduced = k.body.reduced_vars();
    const bool pointwise = k.body.reductions.empty() && reduced.empty();
    if (pointwise) {
      k.kind = ScheduledKernel::Kind::kPointwise;
      k.vector_var = rows.empty() ? -1 : rows.back();  // results are dense, so their last loop is contiguous
      return;
    }
    int32_t best = BestVar(k.body);
    if (best < 0) best = reduced.empty() ? -1 : reduced.back();
    if (best >= 0 && !k.body.reduced[static_cast<size_t>(best)] && reduced.empty()) best = -1;
    k.kind = best >= 0 && !k.body.reduced[static_cast<size_t>(best)] ? ScheduledKernel::Kind::kColumn
                                                                     : ScheduledKernel::Kind::kRow;
    if (best >= 0) {
      std::vector<int32_t> order;
      for (const std::vector<int32_t>& vars : {rows, reduced}) {
        for (int32_t v : vars) {
          if (v != best) order.push_back(v);
        }
        if (std::find(vars.begin(), vars.end(), best) != vars.end()) order.push_back(best);
      }
      ReorderLoops(k.body, order);
      best = static_cast<int32_t>(std::find(order.begin(), order.end(), best) - order.begin());
    }
    k.vector_var = best;
  }

  // The loops keep their order where the reduction's order is pinned. With more than one partial sum, which loop the
  // lanes run along is given; else all lanes of a column, or the one thread of a row, go the same way.
  void PinVectorLoop(ScheduledKernel& k) {
    const std::vector<int32_t> rows = k.body.row_vars();
    const std::vector<int32_t> reduced = k.body.reduced_vars();
    k.kind = ScheduledKernel::Kind::kRow;
    k.vector_var = reduced.empty() ? -1 : reduced.back();
    const bool columns = k.partial_sums == 1 ? IsRowVar(k.body, BestVar(k.body)) : !k.body.inner;
    if (!columns || reduced.empty() || rows.empty()) return;
    k.kind = ScheduledKernel::Kind::kColumn;
    int32_t along = BestVar(k.body, /*rows_only=*/true);
    if (along < 0) along = rows.back();
    std::vector<int32_t> order;
    for (int32_t v : rows) {
      if (v != along) order.push_back(v);
    }
    order.push_back(along);
    order.insert(order.end(), reduced.begin(), reduced.end());
    ReorderLoops(k.body, order);
    k.vector_var = static_cast<int32_t>(rows.size()) - 1;
  }
  static bool IsRowVar(const KernelBody& body, int32_t var) {
    return var >= 0 && !body.reduced[static_cast<size_t>(var)];
  }

  // One access can serve `lanes` neighbours along the vector loop.
  bool Vectorises(const ScheduledKernel& k, const IndexExpr& offset, int64_t lanes) const {
    bool positions_differ = false;
    if (offset.HasValues()) {
      offset.VisitValues([&](int32_t id) { positions_differ |= varies_[static_cast<size_t>(id)]; });
    }
    if (positions_differ) return false;
    if (k.vector_var < 0 || offset.Coefficient(k.vector_var) != 1 || offset.UsesNonlinearly(k.vector_var)) return false;
    if (offset.constant() % lanes != 0) return false;
    for (const IndexExpr::Term& t : offset.terms()) {
      if (t.kind == IndexExpr::Term::Kind::kVar && t.var == k.vector_var) continue;
      if (t.coefficient % lanes != 0) return false;
    }
    return true;
  }

  void ChooseLanes(ScheduledKernel& k) {
    const KernelBody& b = k.body;
    varies_ = DependsOnLoop(b, k.vector_var);
    k.vector_load.assign(b.instrs.size(), false);
    k.vector_store.assign(b.stores.size(), false);
    if (k.vector_var < 0) return;
    const int64_t extent = b.extents[static_cast<size_t>(k.vector_var)];
    if (!cuda_) {
      if (k.kind == ScheduledKernel::Kind::kColumn) k.lanes = kCpuTile;
      return;
    }
    // The narrowest contiguous access takes 16 bytes (at most 16 lanes), as long as the extent is a multiple.
    int64_t narrowest = 0;
    int64_t widest = 1;
    const auto consider = [&](const IndexExpr& offset, DType dtype) {
      if (!Vectorises(k, offset, 1)) return;
      const int64_t size = DTypeSizeBytes(dtype);
      narrowest = narrowest == 0 ? size : std::min(narrowest, size);
      widest = std::max(widest, size);
    };
    for (const BodyInstr& i : b.instrs) {
      if (i.kind == BodyInstr::Kind::kLoad) consider(i.offset, b.params[static_cast<size_t>(i.param)].dtype);
    }
    for (const BodyStore& s : b.stores) consider(s.offset, b.params[static_cast<size_t>(s.param)].dtype);
    if (narrowest == 0) return;
    int64_t lanes = kVectorBytes / narrowest;
    lanes = std::min(lanes, std::max<int64_t>(1, 2 * kVectorBytes / widest));  // at most two accesses a tensor
    while (lanes > 1 && extent % lanes != 0) lanes /= 2;
    // Lanes of a row have partial sums of their own.
    if (k.partial_sums > 0 && k.kind == ScheduledKernel::Kind::kRow) lanes = std::min<int64_t>(lanes, k.partial_sums);
    // The pieces of a split row end at multiples of the piece, and at the limit.
    if (b.bound && b.bound->var == k.vector_var) {
      while (lanes > 1 && (b.bound->limit % lanes != 0)) lanes /= 2;
    }
    k.lanes = static_cast<int32_t>(lanes);
    // A guard of a concat or a pad may hold for whole vectors only.
    if (k.kind != ScheduledKernel::Kind::kColumn) varies_ = DiffersBetweenLanes(b, k.vector_var, lanes);
    for (size_t i = 0; i < b.instrs.size(); ++i) {
      if (b.instrs[i].kind == BodyInstr::Kind::kLoad)
        k.vector_load[i] = lanes > 1 && Vectorises(k, b.instrs[i].offset, lanes) && !GuardVaries(b.instrs[i]);
    }
    for (size_t s = 0; s < b.stores.size(); ++s)
      k.vector_store[s] = lanes > 1 && Vectorises(k, b.stores[s].offset, lanes);
  }

  bool GuardVaries(const BodyInstr& load) const {
    const int32_t guard = load.scalar.args[0];
    return guard >= 0 && varies_[static_cast<size_t>(guard)];
  }

  // What a thread reads of tensors that are about as large as the result, for one vector of it.
  static int64_t StreamedBytes(const ScheduledKernel& k) {
    int64_t bytes = 0;
    for (const BodyInstr& i : k.body.instrs) {
      if (i.kind != BodyInstr::Kind::kLoad) continue;
      const BodyParam& p = k.body.params[static_cast<size_t>(i.param)];
      if (p.element_count * 2 >= k.body.row_count()) bytes += int64_t{k.lanes} * DTypeSizeBytes(p.dtype);
    }
    return bytes;
  }

  static bool NeedsWideIndex(const ScheduledKernel& k) {
    int64_t high = k.body.row_count() * std::max<int64_t>(k.body.reduced_count(), 1);
    // Tiles number rows and reduced elements apart, a few past the end.
    if (k.tile) high = std::max({k.tile->tile_count(), k.body.row_count(), k.body.reduced_count()}) + (1 << 16);
    for (const BodyInstr& i : k.body.instrs) {
      high = std::max(high, Magnitude(i.offset, k.body.extents));
      for (const lowering::IndexBound& b : i.bounds)
        high = std::max({high, Magnitude(b.value, k.body.extents), std::abs(b.low), std::abs(b.high)});
    }
    for (const BodyStore& s : k.body.stores) high = std::max(high, Magnitude(s.offset, k.body.extents));
    if (k.body.bound) high = std::max(high, Magnitude(k.body.bound->start, k.body.extents));
    return high >= kIndexLimit;
  }

  // The largest absolute value that computing the expression can come by, numerators and partial sums included.
  // Recursion: as deep as divisions are nested, which kMaxIndexNodes bounds.
  static int64_t Magnitude(const IndexExpr& e, absl::Span<const int64_t> extents) {
    int64_t sum = std::abs(e.constant());
    int64_t inner = 0;
    for (const IndexExpr::Term& t : e.terms()) {
      int64_t high = 0;
      if (t.kind == IndexExpr::Term::Kind::kVar) {
        high = extents[static_cast<size_t>(t.var)] - 1;
      } else if (t.kind == IndexExpr::Term::Kind::kValue) {
        high = t.divisor - 1;
      } else {
        inner = std::max({inner, Magnitude(*t.operand, extents), t.divisor});
        high = t.kind == IndexExpr::Term::Kind::kMod ? t.divisor - 1
                                                     : lowering::RangeOf(*t.operand, extents).high / t.divisor;
      }
      sum += std::abs(t.coefficient) * std::max<int64_t>(high, 1);
    }
    return std::max(sum, inner);
  }

  void MapToBlocks(ScheduledKernel& k) {
    const int64_t rows = k.body.row_count();
    const int64_t reduced = k.body.reduced_count();
    switch (k.kind) {
      case ScheduledKernel::Kind::kPointwise: {
        const int64_t threads = (rows + k.lanes - 1) / k.lanes;
        // One vector a thread keeps too few bytes in flight where only one tensor of full size is read. The vectors lie
        // along the outermost loop, so that what is the same for all of its steps (a bias) is loaded once for them.
        const int64_t outermost = k.body.extents.empty() ? 1 : k.body.extents[0];
        const bool divides = outermost % kUnroll == 0 && (k.vector_var != 0 || outermost / kUnroll % k.lanes == 0);
        if (StreamedBytes(k) <= kVectorBytes && threads >= kThreadsToUnroll && divides) k.unroll = kUnroll;
        k.dims.block[0] = kBlockThreads;
        k.dims.grid[0] = (threads + kBlockThreads * k.unroll - 1) / (kBlockThreads * k.unroll);
        k.phases = BuildPhases(k.body, std::vector<bool>(k.body.instrs.size(), false));
        k.description =
            absl::StrCat("pointwise, ", k.lanes, " lanes", k.unroll > 1 ? absl::StrCat(" x ", k.unroll) : "");
        break;
      }
      case ScheduledKernel::Kind::kOrdered:
        break;
      case ScheduledKernel::Kind::kColumn: {
        const int64_t vectors = rows / k.lanes;
        k.rows_per_block = std::min<int32_t>(32, PowerOfTwoAtLeast(vectors));
        k.threads_per_row = k.partial_sums > 0
                                ? k.partial_sums
                                : std::min<int32_t>(kBlockThreads / k.rows_per_block, PowerOfTwoAtLeast(reduced));
        k.dims.block[0] = k.rows_per_block * k.threads_per_row;
        k.dims.grid[0] = (vectors + k.rows_per_block - 1) / k.rows_per_block;
        k.phases = BuildPhases(k.body, std::vector<bool>(k.body.instrs.size(), false));
        k.description = absl::StrCat("column, ", k.rows_per_block * k.lanes, " columns x ", k.threads_per_row,
                                     " threads, ", k.lanes, " lanes");
        break;
      }
      case ScheduledKernel::Kind::kRow:
        MapRow(k, rows, reduced);
        break;
      case ScheduledKernel::Kind::kTile:
        break;  // ScheduleTiles
    }
  }

  void MapRow(ScheduledKernel& k, int64_t rows, int64_t reduced) {
    const std::vector<int32_t> count = CountPasses(k.body);
    std::vector<bool> may_keep(k.body.instrs.size(), false);
    for (size_t i = 0; i < may_keep.size(); ++i) {
      may_keep[i] = count[i] > 1 && (k.vector_load[i] || IsHeavy(k.body.instrs[i]));
    }
    PhasePlan kept = BuildPhases(k.body, may_keep);
    int64_t bytes = 0;  // held for each element
    for (int32_t i : kept.kept) {
      const BodyInstr& instr = k.body.instrs[static_cast<size_t>(i)];
      bytes += instr.kind == BodyInstr::Kind::kLoad
                   ? DTypeSizeBytes(k.body.params[static_cast<size_t>(instr.param)].dtype)
                   : std::max(4, DTypeSizeBytes(instr.scalar.type));
    }
    const int64_t vectors = (reduced + k.lanes - 1) / k.lanes;
    const int64_t per_thread = std::max<int64_t>(1, kElementsPerThread / k.lanes);
    // A warp a row where the row has that many vectors, so that neighbouring threads read whole lines; more for long
    // rows.
    int32_t threads =
        std::max(PowerOfTwoAtLeast((vectors + per_thread - 1) / per_thread), std::min(32, PowerOfTwoAtLeast(vectors)));
    threads = std::min(threads, kMaxThreads);
    const bool pinned = k.partial_sums > 0;
    if (pinned) threads = std::max(1, k.partial_sums / k.lanes);
    int64_t chunks = (vectors + threads - 1) / threads;
    int64_t words = chunks * k.lanes * bytes / 4;
    while (!pinned && threads < 512 && words > kHeldWords) {
      threads *= 2;
      chunks = (vectors + threads - 1) / threads;
      words = chunks * k.lanes * bytes / 4;
    }
    const bool fits = words <= (threads > 512 ? kHeldWordsFullBlock : kHeldWords) && chunks <= 2 * per_thread;
    k.persistent = fits;
    k.threads_per_row = fits ? threads : std::min<int32_t>(threads, 512);
    k.chunks = static_cast<int32_t>(fits ? chunks : 0);
    k.rows_per_block = std::max(1, kRowBlockThreads / k.threads_per_row);
    k.phases = fits ? std::move(kept) : BuildPhases(k.body, std::vector<bool>(k.body.instrs.size(), false));
    k.dims.block[0] = k.threads_per_row * k.rows_per_block;
    k.dims.grid[0] = (rows + k.rows_per_block - 1) / k.rows_per_block;
    k.description =
        absl::StrCat(fits ? "persistent row, " : "looped row, ", k.threads_per_row, " threads, ", k.lanes, " lanes");
  }

  void MapToWorkItems(ScheduledKernel& k) {
    k.phases = BuildPhases(k.body, std::vector<bool>(k.body.instrs.size(), false));
    const int64_t rows = k.body.row_count();
    const int64_t reduced = std::max<int64_t>(k.body.reduced_count(), 1);
    int64_t item = 1;  // elements of one work item
    switch (k.kind) {
      case ScheduledKernel::Kind::kPointwise:
        k.work_items = rows;
        k.description = "pointwise, vectorised loop";
        break;
      case ScheduledKernel::Kind::kRow:
        k.work_items = rows;
        item = reduced;
        k.description = "row, vectorised loop over the reduced extent";
        break;
      case ScheduledKernel::Kind::kOrdered:
        break;
      case ScheduledKernel::Kind::kColumn: {
        const int64_t extent = k.body.extents[static_cast<size_t>(k.vector_var)];
        k.work_items = rows / std::max<int64_t>(extent, 1) * ((extent + k.lanes - 1) / k.lanes);
        item = reduced * k.lanes;
        k.description = absl::StrCat("column, tiles of ", k.lanes, " columns");
        break;
      }
      case ScheduledKernel::Kind::kTile:
        break;  // ScheduleTiles
    }
    k.work_grain = std::max<int64_t>(1, kCpuGrainElements / item);
  }

  bool cuda_;
  std::vector<bool> varies_;  // instructions that differ along the vector loop
};

}  // namespace

absl::StatusOr<std::vector<ScheduledKernel>> ScheduleKernel(KernelBody body, bool split, bool cuda,
                                                            int32_t first_partial) {
  Scheduler scheduler(cuda);
  std::vector<ScheduledKernel> out;
  if (body.ordered) return ScheduleOrdered(std::move(body), cuda, first_partial);
  CollapseLoops(body);
  if (split && body.reduced_count() > 1) {
    int32_t var;
    int64_t count, extent;
    if (body.accumulation() != lowering::Accumulation::kFree) FlattenReducedLoops(body);
    Scheduler::ChoosePieces(body, cuda, &var, &count, &extent);
    if (count > 1) {
      FUSELINE_ASSIGN_OR_RETURN(SplitBodies bodies, SplitReduction(body, var, count, extent, first_partial));
      out.push_back(scheduler.Schedule(std::move(bodies.pieces)));
      out.back().description = absl::StrCat("split into ", count, " pieces: ", out.back().description);
      out.push_back(scheduler.Schedule(std::move(bodies.combine)));
      out.back().description = absl::StrCat("combine ", count, " pieces: ", out.back().description);
      return out;
    }
  }
  out.push_back(scheduler.Schedule(std::move(body)));
  return out;
}

}  // namespace fuseline::codegen
