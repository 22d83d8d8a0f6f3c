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
constexpr int64_t kMaxThreads = 1024;         // of a block, by the hardware
constexpr int32_t kScanItems = 4;             // neighbouring elements of a thread that scans with its block
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

}  // namespace

ScheduledKernel ScheduleOrdered(KernelBody body, bool cuda, int32_t first_partial) {
  ScheduledKernel k;
  CollapseLoops(body);
  k.kind = ScheduledKernel::Kind::kOrdered;
  k.wide_index = true;
  const int64_t rows = body.row_count();
  const int64_t size = body.reduced_count();
  const std::vector<int32_t> row_vars = body.row_vars();
  if (body.ordered->kind == lowering::LoopNode::Kind::kSort) {
    const BodyInstr& key = body.instrs[static_cast<size_t>(body.stores[0].value)];
    body.params.push_back(Scratch("keys", first_partial, key.scalar.type, rows * size));
    body.params.push_back(Scratch("order", first_partial + 1, DType::kI64, rows * size));
    body.params.push_back(Scratch("spare", first_partial + 2, DType::kI64, rows * size));
    int64_t threads = 32;
    while (threads < kMaxThreads && threads * 2 < size) threads *= 2;
    k.dims.block[0] = threads;
    k.dims.grid[0] = rows;
    k.work_items = rows;
    k.work_grain = std::max<int64_t>(1, kCpuGrainElements / 16 / std::max<int64_t>(size, 1));
    k.description = cuda ? absl::StrCat("merge sort, a block of ", threads, " threads a row") : "merge sort";
    k.body = std::move(body);
    return k;
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
    return k;
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
  return k;
}

}  // namespace fuseline::codegen
