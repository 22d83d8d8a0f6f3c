#include "server/codegen/plan_memory.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <vector>

namespace fuseline::codegen {
namespace {

constexpr int64_t kAlignment = 256;  // what cuMemAlloc gives, and enough for any vector access

int64_t Align(int64_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

}  // namespace

void PlanMemory(LaunchPlan& plan) {
  const size_t n = plan.buffers.size();
  std::vector<int64_t> first(n, -1), last(n, -1);
  for (size_t s = 0; s < plan.steps.size(); ++s) {
    for (int32_t b : plan.steps[s].buffers) {
      if (first[static_cast<size_t>(b)] < 0) first[static_cast<size_t>(b)] = static_cast<int64_t>(s);
      last[static_cast<size_t>(b)] = static_cast<int64_t>(s);
    }
  }
  std::vector<std::vector<size_t>> starting(plan.steps.size()), ending(plan.steps.size());
  for (size_t b = 0; b < n; ++b) {
    if (plan.buffers[b].kind != PlanBuffer::Kind::kTemporary || first[b] < 0) continue;
    starting[static_cast<size_t>(first[b])].push_back(b);
    ending[static_cast<size_t>(last[b])].push_back(b);
  }
  std::map<int64_t, int64_t> live;  // offset -> size, sorted by offset
  plan.arena_bytes = 0;
  for (size_t s = 0; s < plan.steps.size(); ++s) {
    for (size_t b : starting[s]) {
      const int64_t size = Align(std::max<int64_t>(plan.buffers[b].size_bytes, 1));
      int64_t at = 0;
      for (const auto& [offset, bytes] : live) {
        if (offset - at >= size) break;
        at = offset + bytes;
      }
      plan.buffers[b].arena_offset_bytes = at;
      live.emplace(at, size);
      plan.arena_bytes = std::max(plan.arena_bytes, at + size);
    }
    for (size_t b : ending[s]) live.erase(plan.buffers[b].arena_offset_bytes);
  }
}

}  // namespace fuseline::codegen
