// Temporaries share the arena where their lives do not overlap, and only there.
#include "server/codegen/plan_memory.h"

#include <algorithm>
#include <random>
#include <vector>

#include "gtest/gtest.h"

namespace fuseline::codegen {
namespace {

int32_t AddBuffer(LaunchPlan& plan, PlanBuffer::Kind kind, int64_t size) {
  PlanBuffer b;
  b.kind = kind;
  b.size_bytes = size;
  plan.buffers.push_back(b);
  return static_cast<int32_t>(plan.buffers.size() - 1);
}
int32_t AddTemporary(LaunchPlan& plan, int64_t size) { return AddBuffer(plan, PlanBuffer::Kind::kTemporary, size); }

void AddStep(LaunchPlan& plan, std::vector<int32_t> buffers) {
  PlanStep s;
  s.buffers = std::move(buffers);
  plan.steps.push_back(std::move(s));
}

// First and last step of each temporary, and that no two live ones share a byte.
void ExpectNoOverlap(const LaunchPlan& plan) {
  struct Life {
    int64_t first = -1, last = -1;
  };
  std::vector<Life> lives(plan.buffers.size());
  for (size_t s = 0; s < plan.steps.size(); ++s) {
    for (int32_t b : plan.steps[s].buffers) {
      Life& life = lives[static_cast<size_t>(b)];
      if (life.first < 0) life.first = static_cast<int64_t>(s);
      life.last = static_cast<int64_t>(s);
    }
  }
  for (size_t a = 0; a < plan.buffers.size(); ++a) {
    const PlanBuffer& x = plan.buffers[a];
    if (x.kind != PlanBuffer::Kind::kTemporary || lives[a].first < 0) continue;
    EXPECT_EQ(x.arena_offset_bytes % 256, 0);
    EXPECT_GE(x.arena_offset_bytes, 0);
    EXPECT_LE(x.arena_offset_bytes + x.size_bytes, plan.arena_bytes);
    for (size_t b = a + 1; b < plan.buffers.size(); ++b) {
      const PlanBuffer& y = plan.buffers[b];
      if (y.kind != PlanBuffer::Kind::kTemporary || lives[b].first < 0) continue;
      const bool live_together = lives[a].first <= lives[b].last && lives[b].first <= lives[a].last;
      const bool apart = x.arena_offset_bytes + x.size_bytes <= y.arena_offset_bytes ||
                         y.arena_offset_bytes + y.size_bytes <= x.arena_offset_bytes;
      EXPECT_TRUE(!live_together || apart) << "buffers " << a << " and " << b;
    }
  }
}

TEST(PlanMemoryTest, ChainsReuseTwoPlaces) {
  LaunchPlan plan;
  std::vector<int32_t> t;
  for (int i = 0; i < 10; ++i) t.push_back(AddTemporary(plan, 1000));
  for (size_t i = 0; i + 1 < t.size(); ++i) AddStep(plan, {t[i], t[i + 1]});
  PlanMemory(plan);
  ExpectNoOverlap(plan);
  EXPECT_EQ(plan.arena_bytes, 2 * 1024);
}

TEST(PlanMemoryTest, ValuesNeededToTheEndKeepTheirPlace) {
  LaunchPlan plan;
  const int32_t kept = AddTemporary(plan, 512);
  const int32_t a = AddTemporary(plan, 512), b = AddTemporary(plan, 512);
  AddStep(plan, {kept});
  AddStep(plan, {a});
  AddStep(plan, {b});
  AddStep(plan, {kept});
  PlanMemory(plan);
  ExpectNoOverlap(plan);
  EXPECT_EQ(plan.arena_bytes, 1024);
  EXPECT_EQ(plan.buffers[static_cast<size_t>(a)].arena_offset_bytes,
            plan.buffers[static_cast<size_t>(b)].arena_offset_bytes);
}

TEST(PlanMemoryTest, OnlyTemporariesTakeSpace) {
  LaunchPlan plan;
  const int32_t in = AddBuffer(plan, PlanBuffer::Kind::kInput, 1 << 20);
  const int32_t out = AddBuffer(plan, PlanBuffer::Kind::kOutput, 1 << 20);
  const int32_t constant = AddBuffer(plan, PlanBuffer::Kind::kConstant, 1 << 20);
  AddStep(plan, {in, constant, out});
  PlanMemory(plan);
  EXPECT_EQ(plan.arena_bytes, 0);
}

TEST(PlanMemoryTest, EmptyPlansAndEmptyBuffers) {
  LaunchPlan none;
  PlanMemory(none);
  EXPECT_EQ(none.arena_bytes, 0);
  LaunchPlan plan;
  const int32_t a = AddTemporary(plan, 0), b = AddTemporary(plan, 0);
  AddTemporary(plan, 4096);  // no step uses it
  AddStep(plan, {a, b});
  PlanMemory(plan);
  EXPECT_NE(plan.buffers[static_cast<size_t>(a)].arena_offset_bytes,
            plan.buffers[static_cast<size_t>(b)].arena_offset_bytes);
  EXPECT_EQ(plan.arena_bytes, 512);
}

TEST(PlanMemoryTest, GapsAreFilledFirst) {
  LaunchPlan plan;
  const int32_t a = AddTemporary(plan, 1024), b = AddTemporary(plan, 1024), c = AddTemporary(plan, 512),
                d = AddTemporary(plan, 1024);
  AddStep(plan, {a, b});
  AddStep(plan, {b, c});  // a's place is free
  AddStep(plan, {b, c, d});
  PlanMemory(plan);
  ExpectNoOverlap(plan);
  EXPECT_EQ(plan.buffers[static_cast<size_t>(c)].arena_offset_bytes,
            plan.buffers[static_cast<size_t>(a)].arena_offset_bytes);
  EXPECT_EQ(plan.arena_bytes, 3 * 1024);  // d does not fit beside c
}

TEST(PlanMemoryTest, LiveTemporariesNeverOverlapInRandomPlans) {
  for (uint32_t seed = 0; seed < 200; ++seed) {
    std::mt19937 random(seed);
    LaunchPlan plan;
    const int buffers = 2 + static_cast<int>(random() % 40);
    for (int i = 0; i < buffers; ++i) {
      AddBuffer(plan, random() % 8 == 0 ? PlanBuffer::Kind::kOutput : PlanBuffer::Kind::kTemporary,
                static_cast<int64_t>(random() % 5000));
    }
    // Mostly neighbours, so that lives are short.
    for (int s = 0; s < buffers + 10; ++s) {
      std::vector<int32_t> used;
      for (int k = 0; k < 3; ++k) used.push_back(std::clamp(s + static_cast<int>(random() % 7) - 3, 0, buffers - 1));
      AddStep(plan, used);
    }
    PlanMemory(plan);
    SCOPED_TRACE(seed);
    ExpectNoOverlap(plan);
    int64_t total = 0;
    for (const PlanBuffer& b : plan.buffers) total += b.kind == PlanBuffer::Kind::kTemporary ? b.size_bytes + 256 : 0;
    EXPECT_LE(plan.arena_bytes, total);
  }
}

}  // namespace
}  // namespace fuseline::codegen
