#include "server/codegen/schedule/tile_contraction.h"

#include <algorithm>
#include <cstdlib>

namespace fuseline::codegen {
namespace {

constexpr size_t kMaxVars = 64;      // bits of a mask
constexpr int64_t kLeastExtent = 4;  // of each of m, n and k
constexpr int64_t kLeastProducts = 2048;
constexpr int64_t kBlocksWanted = 128;  // about one for each multiprocessor
constexpr int64_t kItemsWanted = 16;    // of a CPU's threads

uint64_t Bit(int32_t var) { return uint64_t{1} << var; }

// The loop variables that each instruction depends on within its pass.
std::vector<uint64_t> VarsOf(const KernelBody& body) {
  std::vector<uint64_t> vars(body.instrs.size(), 0);
  for (size_t i = 0; i < vars.size(); ++i) {
    for (size_t v = 0; v < body.extents.size(); ++v) {
      if (IndexUses(body.instrs[i], static_cast<int32_t>(v))) vars[i] |= Bit(static_cast<int32_t>(v));
    }
    ForEachUse(body.instrs[i], [&](int32_t id) { vars[i] |= vars[static_cast<size_t>(id)]; });
  }
  return vars;
}

// The instructions that compute those marked, in order.
std::vector<int32_t> Closure(const KernelBody& body, std::vector<bool> needed) {
  std::vector<int32_t> out;
  for (size_t i = needed.size(); i-- > 0;) {
    if (!needed[i]) continue;
    out.push_back(static_cast<int32_t>(i));
    ForEachUse(body.instrs[i], [&](int32_t id) { needed[static_cast<size_t>(id)] = true; });
  }
  std::reverse(out.begin(), out.end());
  return out;
}

// Whether loads follow the last reduced variable more closely than the last variable of the factor.
bool ReducedInner(const KernelBody& body, const TileFactor& factor, int32_t reduced_var) {
  int64_t score = 0;
  for (int32_t i : factor.instrs) {
    const BodyInstr& instr = body.instrs[static_cast<size_t>(i)];
    if (instr.kind != BodyInstr::Kind::kLoad) continue;
    const int64_t along_reduced = std::abs(instr.offset.Coefficient(reduced_var));
    const int64_t along_own = factor.vars.empty() ? 0 : std::abs(instr.offset.Coefficient(factor.vars.back()));
    const int64_t weight = std::max<int64_t>(1, body.params[static_cast<size_t>(instr.param)].element_count);
    if (along_reduced == 1 && along_own != 1) score += weight;
    if (along_own == 1) score -= weight;
  }
  return score > 0;
}

bool StoresLieAlong(const KernelBody& body, const TileFactor& factor) {
  return !factor.vars.empty() && std::all_of(body.stores.begin(), body.stores.end(), [&](const BodyStore& s) {
    return s.offset.Coefficient(factor.vars.back()) == 1;
  });
}

// Tiles as large as leaves every multiprocessor one.
void ChooseCudaTiles(TilePlan& plan, int64_t element_bytes) {
  struct Config {
    int32_t tile, thread, k;
  };
  static constexpr Config kConfigs[] = {{128, 8, 16}, {64, 4, 16}, {32, 2, 32}};
  for (const Config& config : kConfigs) {
    plan.tile_m = plan.tile_n = config.tile;
    plan.thread_m = plan.thread_n = config.thread;
    plan.tile_k = config.k;
    if (element_bytes > 4 && config.tile > 64) continue;  // registers
    const bool wasteful = 2 * plan.a.extent <= config.tile || 2 * plan.b.extent <= config.tile;
    if (!wasteful && plan.tile_count() >= kBlocksWanted) return;
  }
}

// The factors of a tile stay in the second-level cache, with the steps of a micro-kernel's panel in the first.
void ChooseCpuTiles(TilePlan& plan, int64_t element_bytes) {
  plan.tile_m = 16 * kCpuPanelRows;
  plan.tile_n = static_cast<int32_t>(4 * kCpuPanelBytes / element_bytes);
  plan.tile_k = 128;
  while (plan.tile_count() < kItemsWanted && plan.tile_m > 4 * kCpuPanelRows) plan.tile_m /= 2;
  while (plan.tile_count() < kItemsWanted && plan.tile_n > kCpuPanelBytes / element_bytes) plan.tile_n /= 2;
}

}  // namespace

std::optional<TilePlan> PlanTiles(const KernelBody& body, bool cuda) {
  if (body.reductions.size() != 1 || body.bound || body.passes != 1 || body.extents.size() > kMaxVars)
    return std::nullopt;
  const BodyReduction& sum = body.reductions[0];
  const BodyInstr& product = body.instrs[static_cast<size_t>(sum.value)];
  if (sum.accumulation == lowering::Accumulation::kByShape) return std::nullopt;
  if (sum.kind != ReductionKind::kSum || product.kind != BodyInstr::Kind::kOp || product.scalar.op != ScalarOp::kMul)
    return std::nullopt;
  const bool full_store =
      std::any_of(body.stores.begin(), body.stores.end(), [](const BodyStore& s) { return s.full; });
  if (full_store || body.stores.empty()) return std::nullopt;

  TilePlan plan;
  plan.reduced_vars = body.reduced_vars();
  plan.reduced = body.reduced_count();
  if (plan.reduced_vars.empty() || plan.reduced < kLeastExtent) return std::nullopt;
  plan.a.value = product.scalar.args[0];
  plan.b.value = product.scalar.args[1];
  const std::vector<uint64_t> vars = VarsOf(body);
  const uint64_t used_a = vars[static_cast<size_t>(plan.a.value)];
  const uint64_t used_b = vars[static_cast<size_t>(plan.b.value)];
  for (int32_t v : body.row_vars()) {
    const bool in_a = (used_a & Bit(v)) != 0, in_b = (used_b & Bit(v)) != 0;
    if (in_a == in_b) {
      plan.batch_vars.push_back(v);
      plan.batch *= body.extents[static_cast<size_t>(v)];
    } else {
      TileFactor& factor = in_a ? plan.a : plan.b;
      factor.vars.push_back(v);
      factor.extent *= body.extents[static_cast<size_t>(v)];
    }
  }
  if (plan.a.extent < kLeastExtent || plan.b.extent < kLeastExtent) return std::nullopt;
  if (plan.a.extent * plan.b.extent < kLeastProducts / plan.reduced) return std::nullopt;
  if (StoresLieAlong(body, plan.a) && !StoresLieAlong(body, plan.b)) std::swap(plan.a, plan.b);
  for (TileFactor* factor : {&plan.a, &plan.b}) {
    std::vector<bool> needed(body.instrs.size(), false);
    needed[static_cast<size_t>(factor->value)] = true;
    factor->instrs = Closure(body, std::move(needed));
    factor->reduced_inner = ReducedInner(body, *factor, plan.reduced_vars.back());
  }
  std::vector<bool> needed(body.instrs.size(), false);
  for (const BodyStore& s : body.stores) {
    ForEachUse(s, [&](int32_t id) { needed[static_cast<size_t>(id)] = true; });
  }
  plan.row_instrs = Closure(body, std::move(needed));
  const int64_t bytes = DTypeSizeBytes(sum.type);
  cuda ? ChooseCudaTiles(plan, bytes) : ChooseCpuTiles(plan, bytes);
  return plan;
}

}  // namespace fuseline::codegen
