// The preludes' Philox against the known answers that its authors publish with Random123 (kat_vectors).
#include "tests/unit/prelude/prelude_fixture.h"

namespace fuseline::codegen {
namespace {

using PhiloxPreludeTest = PreludeFixture;

TEST_F(PhiloxPreludeTest, PublishedAnswersAreMet) {
  const struct {
    uint64_t key, low, high;
    uint32_t want[4];
  } cases[] = {
      {0, 0, 0, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
      {~uint64_t{0}, ~uint64_t{0}, ~uint64_t{0}, {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
      {0x299f31d0a4093822, 0x85a308d3243f6a88, 0x0370734413198a2e, {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
  };
  std::vector<int64_t> key, low, high, want;
  std::vector<int32_t> word;
  for (const auto& c : cases) {
    for (int w = 0; w < 4; ++w) {
      key.push_back(static_cast<int64_t>(c.key));
      low.push_back(static_cast<int64_t>(c.low));
      high.push_back(static_cast<int64_t>(c.high));
      word.push_back(w);
      want.push_back(c.want[w]);
    }
  }
  EXPECT_EQ((Call<int64_t, int64_t, int64_t, int64_t, int32_t>("fl_philox_word", key, low, high, word)), want);
}

}  // namespace
}  // namespace fuseline::codegen
