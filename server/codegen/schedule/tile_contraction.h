// Recognises a kernel body that is one sum of products of two values, and maps it to tiles: a block (CUDA) or work item
// (CPU) computes tile_m x tile_n elements of the result, holding the factors' values of tile_k steps at a time.
// Whatever the factors are made of (views, guards, casts, arithmetic) is computed as the tiles are filled: implicit
// GEMM. Pipeline: KernelBody (loops collapsed, passes assigned) -> PlanTiles -> TilePlan -> cuda_tile_emitter,
// cpu_tile_emitter. Units: elements. Ownership: values. Thread-safety: pure functions. Tested by
// tests/unit/codegen/tile_contraction_test.cc
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "server/codegen/kernel_body.h"

namespace fuseline::codegen {

// One factor of the products.
struct TileFactor {
  int32_t value = -1;           // instruction
  std::vector<int32_t> vars;    // row variables that it alone uses, in order
  int64_t extent = 1;           // of those together
  std::vector<int32_t> instrs;  // that compute it, in order
  bool reduced_inner = false;   // neighbours along the last reduced variable lie closer in memory
};

struct TilePlan {
  TileFactor a;                     // rows (m) of the result's tiles
  TileFactor b;                     // columns (n): what is stored lies along them, where it can be had
  std::vector<int32_t> batch_vars;  // row variables that both or neither use
  int64_t batch = 1;
  std::vector<int32_t> reduced_vars;
  int64_t reduced = 1;
  std::vector<int32_t> row_instrs;  // what the stores need once the sum is known, in order
  int32_t tile_m = 0, tile_n = 0, tile_k = 0;
  int32_t thread_m = 1, thread_n = 1;  // CUDA: elements of a thread
  int64_t tiles_m() const { return (a.extent + tile_m - 1) / tile_m; }
  int64_t tiles_n() const { return (b.extent + tile_n - 1) / tile_n; }
  int64_t tile_count() const { return batch * tiles_m() * tiles_n(); }
};

// The CPU's micro-kernel (fl_tile_multiply) takes this many rows, and columns of this many bytes.
inline constexpr int32_t kCpuPanelRows = 6;
inline constexpr int32_t kCpuPanelBytes = 128;
// CUDA: threads of a block, and neighbouring elements that a thread reads from shared memory at once, at most.
inline constexpr int32_t kTileThreads = 256;
inline constexpr int32_t kTileChunk = 4;

// Nothing where the body is something else, or too small to gain.
std::optional<TilePlan> PlanTiles(const KernelBody& body, bool cuda);

}  // namespace fuseline::codegen
