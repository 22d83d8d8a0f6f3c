// Tested by tests/unit/codegen/ordered_kernel_test.cc
#include "server/codegen/schedule/schedule_ordered.h"

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

namespace fuseline::codegen {
namespace {

constexpr int32_t kCpuTile = 64;              // rows that a CPU thread walks along together
constexpr int64_t kCpuGrainElements = 16384;  // fewer are not worth waking a thread
constexpr int64_t kBlockThreads = 128;        // of scans and scatters: small, since rows are few and long
constexpr int64_t kSortTile = 2048;           // elements that a block sorts in shared memory
constexpr int64_t kMaxSortThreads = 512;
constexpr int64_t kMoveThreads = 256;
constexpr int32_t kScanItems = 4;  // neighbouring elements of a thread that scans with its block
constexpr int64_t kMaxScanThreads = 512;
constexpr int64_t kRowsToFill = 8192;  // with fewer, threads of their own leave most of the machine idle

BodyParam Scratch(const char* name, int32_t partial, DType dtype, int64_t element_count) {
  BodyParam p;
  p.name = name;
  p.tensor = kPartialParam;
  p.partial = partial;
  p.dtype = dtype;
  p.element_count = element_count;
  p.written = true;
  return p;
}

DType KeyDType(const KernelBody& body) { return body.instrs[static_cast<size_t>(body.stores[0].value)].scalar.type; }

// A kernel of the same loops that only moves positions: from its parameters to `to`, at `offset`.
KernelBody Moving(const KernelBody& body, std::vector<BodyParam> params, int32_t to, IndexExpr offset) {
  KernelBody out;
  out.extents = body.extents;
  out.reduced = body.reduced;
  out.ordered = body.ordered;
  out.params = std::move(params);
  BodyInstr key;  // stands for the keys' dtype
  key.scalar.op = ScalarOp::kConst;
  key.scalar.type = KeyDType(body);
  out.instrs.push_back(std::move(key));
  BodyStore store;
  store.param = to;
  store.offset = std::move(offset);
  store.value = 0;
  out.stores.push_back(std::move(store));
  return out;
}

std::vector<ScheduledKernel> ScheduleCudaSort(KernelBody body, int32_t first_partial) {
  using SortStep = ScheduledKernel::SortStep;
  const int64_t rows = body.row_count();
  const int64_t size = body.reduced_count();
  std::vector<ScheduledKernel> out;
  const auto add = [&](SortStep step, KernelBody of, int64_t threads, int64_t blocks, std::string description) {
    ScheduledKernel k;
    k.kind = ScheduledKernel::Kind::kOrdered;
    k.wide_index = true;
    k.sort_step = step;
    k.sort_tile = std::min(size, kSortTile);
    k.dims.block[0] = threads;
    k.dims.grid[0] = blocks;
    k.description = std::move(description);
    k.body = std::move(of);
    out.push_back(std::move(k));
  };
  int64_t threads = 32;
  while (threads < kMaxSortThreads && threads * 2 < size) threads *= 2;
  if (size <= kSortTile) {
    add(SortStep::kWhole, std::move(body), threads, rows,
        absl::StrCat("merge sort, a block of ", threads, " threads a row"));
    return out;
  }
  const int64_t count = rows * size;
  const BodyParam keys = Scratch("keys", first_partial, KeyDType(body), count);
  const auto order = [&](const char* name, int64_t pass) {
    return Scratch(name, first_partial + 1 + static_cast<int32_t>(pass % 2), DType::kI64, count);
  };
  const auto level = [&](const char* name, int64_t pass) {
    return Scratch(name, first_partial + 3 + static_cast<int32_t>(pass % 2), DType::kI64, 1);
  };
  const IndexExpr place = lowering::Flatten(lowering::IdentityIndex(body.extents), body.extents);
  KernelBody tiles = body;
  BodyStore& keys_store = tiles.stores[0];
  const BodyParam result = tiles.params[static_cast<size_t>(keys_store.param)];
  tiles.params[static_cast<size_t>(keys_store.param)] = keys;
  keys_store.offset = place;
  tiles.params.push_back(order("to", 0));
  tiles.params.push_back(level("level_out", 0));
  const int64_t tile_count = (size + kSortTile - 1) / kSortTile;
  add(SortStep::kTiles, std::move(tiles), threads, rows * tile_count,
      absl::StrCat("merge sort of tiles of ", kSortTile, ", a block each"));
  const int64_t blocks = (count + kMoveThreads - 1) / kMoveThreads;
  int64_t pass = 0;
  for (int64_t run = kSortTile; run < size; run *= 2, ++pass) {
    add(SortStep::kMerge,
        Moving(
            body,
            {keys, order("from", pass), order("to", pass + 1), level("level_in", pass), level("level_out", pass + 1)},
            2, place),
        kMoveThreads, blocks, "merge of pairs of runs, a thread an element");
  }
  add(SortStep::kStore, Moving(body, {order("from", pass), result}, 1, body.stores[0].offset), kMoveThreads, blocks,
      "positions to their places");
  return out;
}

}  // namespace

std::vector<ScheduledKernel> ScheduleOrdered(KernelBody body, bool cuda, int32_t first_partial) {
  ScheduledKernel k;
  CollapseLoops(body);
  k.kind = ScheduledKernel::Kind::kOrdered;
  k.wide_index = true;
  const int64_t rows = body.row_count();
  const int64_t size = body.reduced_count();
  const std::vector<int32_t> row_vars = body.row_vars();
  if (body.ordered->kind == lowering::LoopNode::Kind::kSort) {
    if (cuda) return ScheduleCudaSort(std::move(body), first_partial);
    const DType key = KeyDType(body);
    body.params.push_back(Scratch("keys", first_partial, key, rows * size));
    body.params.push_back(Scratch("order", first_partial + 1, DType::kI64, rows * size));
    body.params.push_back(Scratch("spare_keys", first_partial + 2, key, rows * size));
    body.params.push_back(Scratch("spare_order", first_partial + 3, DType::kI64, rows * size));
    k.work_items = rows;
    k.work_grain = std::max<int64_t>(1, kCpuGrainElements / 16 / std::max<int64_t>(size, 1));
    k.description = "merge sort";
    k.body = std::move(body);
    return {std::move(k)};
  }
  const bool side_by_side = !row_vars.empty() && body.stores[0].offset.Coefficient(row_vars.back()) == 1 &&
                            !body.stores[0].offset.UsesNonlinearly(row_vars.back());
  const bool is_scan = body.ordered->kind == lowering::LoopNode::Kind::kScan;
  // A thread a row reads a row's elements one by one: slow where they are all that lies side by side.
  if (cuda && is_scan && size >= 64 && (!side_by_side || (rows < kRowsToFill && size >= 1024))) {
    int64_t threads = 32;
    while (threads < kMaxScanThreads && threads * kScanItems < size) threads *= 2;
    k.threads_per_row = static_cast<int32_t>(threads);
    k.unroll = kScanItems;
    k.dims.block[0] = threads;
    k.dims.grid[0] = rows;
    k.description = absl::StrCat("scan, a block of ", threads, " threads a row");
    k.body = std::move(body);
    return {std::move(k)};
  }
  // Where neighbouring rows lie side by side the CPU walks along a tile of them; a GPU's threads do so anyway.
  const bool tiles = !cuda && side_by_side;
  if (tiles) {
    k.vector_var = row_vars.back();
    k.lanes = kCpuTile;
  }
  const int64_t extent = tiles ? body.extents[static_cast<size_t>(k.vector_var)] : 1;
  k.work_items = rows / std::max<int64_t>(extent, 1) * ((extent + k.lanes - 1) / k.lanes);
  k.work_grain = std::max<int64_t>(1, kCpuGrainElements / (std::max<int64_t>(size, 1) * k.lanes));
  k.dims.block[0] = kBlockThreads;
  k.dims.grid[0] = (rows + kBlockThreads - 1) / kBlockThreads;
  const char* what = is_scan ? "scan" : "scatter";
  k.description = tiles ? absl::StrCat(what, " in order, tiles of ", k.lanes, " rows")
                        : absl::StrCat(what, " in order, a thread a row");
  k.body = std::move(body);
  return {std::move(k)};
}

}  // namespace fuseline::codegen
