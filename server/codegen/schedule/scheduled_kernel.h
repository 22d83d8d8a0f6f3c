// A kernel body with its loops mapped to the machine: what both emitters print.
// Pipeline: KernelBody -> ScheduleKernel -> ScheduledKernel -> cuda_emitter, cpu_emitter.
// Loops of the body: row variables first, reduced ones after; the vector variable is the last of its kind.
// Units: elements, threads, bytes. Ownership: values.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/artifact/launch_plan.h"
#include "server/codegen/kernel_body.h"
#include "server/codegen/schedule/phases.h"
#include "server/codegen/schedule/tile_contraction.h"

namespace fuseline::codegen {

struct ScheduledKernel {
  enum class Kind : uint8_t {
    kPointwise,  // a thread (CUDA) or loop iteration (CPU) for each `lanes` neighbouring elements
    kRow,        // lanes along the reduced extent: several threads share a row and combine
    kColumn,     // lanes along the rows (the contiguous dim is kept): a thread walks down its columns
    kOrdered,    // a scan, scatter or sort (body.ordered): schedule_ordered.h; has no phases
    kTile,       // a sum of products in tiles of the result: `tile`
  } kind = Kind::kPointwise;
  std::string name;         // fuseline_<kind>_<ops>_<n>
  std::string description;  // "persistent row, 256 threads, 8 lanes"
  KernelBody body;
  PhasePlan phases;
  std::optional<TilePlan> tile;    // kTile
  int32_t vector_var = -1;         // lanes run along it; -1: a single element
  int32_t lanes = 1;               // elements of one vector; the CPU's column tile width (of kOrdered: tile of rows)
  std::vector<bool> vector_load;   // by instruction: one access serves all lanes
  std::vector<bool> vector_store;  // by store
  bool wide_index = false;         // 64-bit offsets
  int32_t partial_sums = 0;        // where the order of combining is pinned: partial_sums.h
  // CUDA only.
  bool persistent = false;      // kRow: each thread holds its part of the row
  int32_t threads_per_row = 1;  // kRow: a power of two; kColumn: threads along the reduced extent
  int32_t rows_per_block = 1;   // kRow: rows; kColumn: vectors of columns
  int32_t chunks = 1;           // kRow, persistent: vectors a thread holds
  int32_t unroll = 1;           // kPointwise: vectors of a thread, equally far apart along the outermost loop
  LaunchDims dims;
  // Sorts on CUDA: the whole of a row in one block; or of longer rows a tile a block, then, pass by pass, pairs of runs
  // into one, and at last the positions to their places.
  enum class SortStep : uint8_t { kWhole, kTiles, kMerge, kStore } sort_step = SortStep::kWhole;
  int64_t sort_tile = 0;  // elements that a block sorts
  // CPU only.
  int64_t work_items = 0;
  int64_t work_grain = 1;
};

// Schedules one group's body. A split reduction gives two kernels, the second combining partial results of the first;
// its partial buffers are the parameters with tensor == -1, numbered by `partial` from `first_partial`. Errors:
// INTERNAL.
absl::StatusOr<std::vector<ScheduledKernel>> ScheduleKernel(KernelBody body, bool split, bool cuda,
                                                            int32_t first_partial);

}  // namespace fuseline::codegen
