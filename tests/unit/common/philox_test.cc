// Philox-4x32-10 against the known answers that its authors publish with Random123 (kat_vectors).
#include "common/ir/philox.h"

#include "gtest/gtest.h"

namespace fuseline {
namespace {

using Block = std::array<uint32_t, 4>;

TEST(PhiloxTest, PublishedAnswersAreMet) {
  const struct {
    Block counter;
    std::array<uint32_t, 2> key;
    Block want;
  } cases[] = {
      {{0, 0, 0, 0}, {0, 0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
      {{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff},
       {0xffffffff, 0xffffffff},
       {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
      {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
       {0xa4093822, 0x299f31d0},
       {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
  };
  for (const auto& c : cases) EXPECT_EQ(Philox4x32(c.counter, c.key), c.want);
}

TEST(PhiloxTest, BlockTakesLowerHalvesFirst) {
  EXPECT_EQ(PhiloxBlock(0x0000000200000001, 0x0000000400000003), Philox4x32({3, 4, 0, 0}, {1, 2}));
}

}  // namespace
}  // namespace fuseline
