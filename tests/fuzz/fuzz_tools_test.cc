// The fuzzers' own tools: a simulator that finds nothing, or a mutator that changes nothing, would pass for good news.
#include "tests/fuzz/plan_simulator.h"

#include <gtest/gtest.h>

#include <functional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "fuseline/v1/artifact.pb.h"
#include "tests/fuzz/message_input.h"
#include "tests/testing/status_matchers.h"

namespace fuseline::fuzz {
namespace {

using ::fuseline::testing::StatusIs;

// t = f(x), u = t, y = g(u).
Artifact MakeArtifact() {
  Artifact artifact;
  artifact.kernels.resize(2);
  LaunchPlan& plan = artifact.plan;
  plan.inputs.push_back({"x", DType::kF32, {4}, {1}, 16});
  plan.outputs.push_back({"y", DType::kF32, {4}, {1}, 16});
  plan.buffers = {{PlanBuffer::Kind::kInput, 0, 16, 0},
                  {PlanBuffer::Kind::kTemporary, 0, 16, 0},
                  {PlanBuffer::Kind::kTemporary, 0, 16, 256},
                  {PlanBuffer::Kind::kOutput, 0, 16, 0}};
  plan.arena_bytes = 512;
  plan.steps.resize(3);
  plan.steps[0].buffers = {0, 1};
  plan.steps[1].kind = PlanStep::Kind::kCopy;
  plan.steps[1].buffers = {1, 2};
  plan.steps[2].kernel = 1;
  plan.steps[2].buffers = {2, 3};
  return artifact;
}

TEST(PlanSimulatorTest, SoundPlanPasses) { EXPECT_OK(SimulatePlan(MakeArtifact())); }

TEST(PlanSimulatorTest, EveryKindOfDamageIsFound) {
  struct Case {
    const char* name;
    std::function<void(LaunchPlan&)> damage;
    const char* message;
  };
  const Case cases[] = {
      {"temporaries in one place", [](LaunchPlan& p) { p.buffers[2].arena_offset_bytes = 0; }, "overwritten"},
      {"outside the arena", [](LaunchPlan& p) { p.arena_bytes = 271; }, "buffer 2 reaches out"},
      {"larger than the input", [](LaunchPlan& p) { p.buffers[0].size_bytes = 17; }, "buffer 0 reaches out"},
      {"no such input", [](LaunchPlan& p) { p.buffers[0].index = 9; }, "stands for nothing"},
      {"no such kernel", [](LaunchPlan& p) { p.steps[0].kernel = 2; }, "no kernel 2"},
      {"no such buffer", [](LaunchPlan& p) { p.steps[0].buffers[0] = 4; }, "no buffer 4"},
      {"copy of what is not there", [](LaunchPlan& p) { std::swap(p.steps[0], p.steps[1]); }, "never written"},
      {"copy into the input",
       [](LaunchPlan& p) {
         p.steps[1].buffers = {1, 0};
       },
       "only read"},
      {"output left out", [](LaunchPlan& p) { p.steps.pop_back(); }, "output 0 is not written"},
      {"half of the output", [](LaunchPlan& p) { p.buffers[3].size_bytes = 8; }, "output 0 is not written"},
  };
  for (const Case& c : cases) {
    Artifact artifact = MakeArtifact();
    c.damage(artifact.plan);
    EXPECT_THAT(SimulatePlan(artifact), StatusIs(absl::StatusCode::kInternal, c.message)) << c.name;
  }
}

// Stands for the fuzzing engine's: appends a byte.
size_t AppendByte(uint8_t* data, size_t size, size_t max_size) {
  if (size < max_size) data[size++] = 'z';
  return size;
}

TEST(MessageInputTest, MutationsStayMessagesAndReachEveryField) {
  v1::LaunchPlan plan;
  plan.add_inputs()->set_name("x");
  plan.add_steps()->add_buffers(3);
  plan.add_buffers()->set_size_bytes(16);
  const std::string start = PrintMessage(plan);
  std::set<std::string> seen;
  int parsed = 0;
  constexpr int kRuns = 2000;
  for (int seed = 0; seed < kRuns; ++seed) {
    std::vector<uint8_t> bytes(start.begin(), start.end());
    bytes.resize(4096);
    const size_t size = MutateMessage(plan, {"word"}, AppendByte, bytes.data(), start.size(), bytes.size(), seed);
    const std::string text(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(size));
    seen.insert(text);
    v1::LaunchPlan message;
    if (ParseMessage(text, &message)) ++parsed;
  }
  EXPECT_GT(parsed, kRuns * 95 / 100);  // now and then bytes are changed instead
  EXPECT_GT(seen.size(), 300u);
  std::string all;
  for (const std::string& text : seen) all += text;
  for (const char* field : {"inputs", "outputs", "constants", "buffers", "steps", "arena_bytes", "\"word\"", "shape",
                            "dtype", "kind", "grid", "work_item_count"}) {
    EXPECT_NE(all.find(field), std::string::npos) << field;
  }
}

TEST(MessageInputTest, CrossingTakesAPartFromTheOther) {
  v1::LaunchPlan first;
  first.add_inputs()->set_name("first");
  v1::LaunchPlan second;
  second.add_inputs()->set_name("second");
  std::vector<uint8_t> out(4096);
  std::set<std::string> seen;
  for (int seed = 0; seed < 200; ++seed) {
    const size_t size = CrossMessages(first, PrintMessage(first), PrintMessage(second), out.data(), out.size(), seed);
    seen.insert(std::string(out.begin(), out.begin() + static_cast<std::ptrdiff_t>(size)));
  }
  v1::LaunchPlan want;
  want.add_inputs()->set_name("second");
  EXPECT_EQ(seen.count(PrintMessage(want)), 1u);
}

}  // namespace
}  // namespace fuseline::fuzz
