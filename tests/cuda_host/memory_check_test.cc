#include "tests/cuda_host/memory_check.h"

#include <cstring>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/cuda_host/guarded_memory.h"

namespace fuseline::cuda_host {
namespace {

using ::testing::HasSubstr;

// A launch with an input of 64 bytes, an output of 64 bytes and a shared array of 32 bytes, all of 4-byte elements.
class MemoryCheckTest : public ::testing::Test {
 protected:
  MemoryCheckTest() { Launch(); }

  void Launch() {
    check_.BeginLaunch({&input_, &output_}, nullptr);
    check_.BeginBlock(0);
    check_.AddShared(&shared_);
  }
  static MemoryRegion Region(GuardedMemory& memory, const char* name, int64_t bytes, bool writable, bool initialized) {
    return MemoryRegion(name, *memory.Take(static_cast<size_t>(bytes)), bytes, 4, writable, initialized);
  }
  std::string Access(MemoryRegion& region, uint32_t thread, int64_t offset, bool write, int64_t bytes = 4) {
    const auto fault = check_.Check({thread, region.begin() + offset, bytes, write, nullptr});
    return fault.has_value() ? fault->text : "right";
  }
  std::string Read(MemoryRegion& region, uint32_t thread, int64_t offset, int64_t bytes = 4) {
    return Access(region, thread, offset, false, bytes);
  }
  std::string Write(MemoryRegion& region, uint32_t thread, int64_t offset, int64_t bytes = 4) {
    return Access(region, thread, offset, true, bytes);
  }

  GuardedMemory memory_;
  MemoryRegion input_ = Region(memory_, "input", 64, false, true);
  MemoryRegion output_ = Region(memory_, "output", 64, true, false);
  MemoryRegion shared_ = Region(memory_, "shared", 32, true, false);
  MemoryCheck check_;
};

TEST_F(MemoryCheckTest, AccessesInsideAreRight) {
  for (int64_t at = 0; at < 64; at += 4) {
    EXPECT_EQ(Read(input_, 0, at), "right");
    EXPECT_EQ(Write(output_, static_cast<uint32_t>(at), at), "right");
  }
  EXPECT_EQ(Read(input_, 3, 48, 16), "right");
  EXPECT_EQ(Read(output_, 4, 4), "right");
}

TEST_F(MemoryCheckTest, AccessesOutsideAreFound) {
  EXPECT_THAT(Read(input_, 0, 64), HasSubstr("reads 4 bytes, 0 bytes past the end of input (64 bytes)"));
  EXPECT_THAT(Read(input_, 0, -4), HasSubstr("reads 4 bytes, 4 bytes before input"));
  EXPECT_THAT(Write(output_, 0, 4000), HasSubstr("writes 4 bytes, 3936 bytes past the end of output"));
  EXPECT_THAT(Read(input_, 0, 56, 16), HasSubstr("across its end"));
  EXPECT_THAT(Write(shared_, 0, 32), HasSubstr("past the end of shared"));
}

TEST_F(MemoryCheckTest, MisalignedAccessesAreFound) {
  EXPECT_THAT(Read(input_, 0, 2), HasSubstr("not aligned to 4 bytes"));
  EXPECT_THAT(Read(input_, 0, 4, 8), HasSubstr("not aligned to 8 bytes"));
  EXPECT_THAT(Read(input_, 0, 8, 16), HasSubstr("not aligned to 16 bytes"));
}

TEST_F(MemoryCheckTest, WritesToInputsAreFound) {
  EXPECT_THAT(Write(input_, 0, 0), HasSubstr("which is not to be written"));
}

TEST_F(MemoryCheckTest, ReadsOfWhatNobodyWroteAreFound) {
  EXPECT_THAT(Read(output_, 0, 8), HasSubstr("nothing has been written there"));
  EXPECT_THAT(Read(shared_, 0, 8), HasSubstr("nothing has been written there"));
  EXPECT_EQ(Write(shared_, 0, 8), "right");
  EXPECT_EQ(Read(shared_, 0, 8), "right");
  // A block does not see what the one before it left.
  check_.BeginBlock(1);
  EXPECT_THAT(Read(shared_, 0, 8), HasSubstr("nothing has been written there"));
}

TEST_F(MemoryCheckTest, ThreadsOfABlockRaceUnlessABarrierStandsBetween) {
  for (MemoryRegion* region : {&output_, &shared_}) {
    EXPECT_EQ(Write(*region, 1, 0), "right");
    EXPECT_EQ(Write(*region, 1, 0), "right");
    EXPECT_THAT(Write(*region, 2, 0), HasSubstr("a race: thread 1 writes element 0 as well, with no barrier between"));
    EXPECT_THAT(Read(*region, 2, 0), HasSubstr("a race: thread 1 writes"));
    EXPECT_EQ(Write(*region, 2, 4), "right");
    check_.PassBarrier();
    EXPECT_EQ(Read(*region, 2, 0), "right");
    EXPECT_EQ(Read(*region, 3, 0), "right");
    EXPECT_THAT(Write(*region, 3, 0), HasSubstr("a race: another thread reads element 0"));
    EXPECT_THAT(Write(*region, 4, 0), HasSubstr("a race: thread 3 reads element 0"));
    check_.PassBarrier();
    EXPECT_EQ(Write(*region, 4, 0), "right");
  }
}

TEST_F(MemoryCheckTest, BlocksRaceWhateverBarriersTheyPass) {
  EXPECT_EQ(Write(output_, 1, 0), "right");
  EXPECT_EQ(Write(output_, 1, 4), "right");
  EXPECT_EQ(Read(output_, 1, 4), "right");
  check_.BeginBlock(7);
  check_.PassBarrier();
  EXPECT_THAT(Read(output_, 1, 0), HasSubstr("a race: block 0, thread 1 writes element 0 as well, in the same launch"));
  EXPECT_THAT(Write(output_, 1, 4), HasSubstr("a race: block 0, thread 1"));
  EXPECT_EQ(Write(shared_, 1, 0), "right");
}

TEST_F(MemoryCheckTest, AWriteAfterTwoBlocksHaveReadIsARaceWithBoth) {
  EXPECT_EQ(Write(output_, 1, 0), "right");
  Launch();
  EXPECT_EQ(Read(output_, 1, 0), "right");
  check_.BeginBlock(1);
  EXPECT_EQ(Read(output_, 1, 0), "right");
  check_.PassBarrier();
  // The block's own read is ordered before; the other block's isn't.
  EXPECT_THAT(Write(output_, 1, 0), HasSubstr("a race"));
}

TEST_F(MemoryCheckTest, LaunchesAreOrdered) {
  EXPECT_EQ(Write(output_, 1, 0), "right");
  Launch();
  EXPECT_EQ(Read(output_, 2, 0), "right");
  Launch();
  EXPECT_EQ(Write(output_, 3, 0), "right");
}

TEST_F(MemoryCheckTest, FirstUnwrittenByteOfAnOutput) {
  EXPECT_EQ(check_.FirstUnwritten(output_), 0);
  for (int64_t at = 0; at < 48; at += 16) Write(output_, 0, at, 16);
  EXPECT_EQ(check_.FirstUnwritten(output_), 48);
  Write(output_, 0, 48, 16);
  EXPECT_EQ(check_.FirstUnwritten(output_), -1);
}

TEST(GuardedMemoryTest, BlocksAreApartAndNoMoreAlignedThanPromised) {
  GuardedMemory memory;
  std::vector<char*> blocks;
  for (int i = 0; i < 3; ++i) blocks.push_back(static_cast<char*>(*memory.Take(100'000)));
  for (char* block : blocks) {
    std::memset(block, 1, 100'000);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(block) % 32, 16u);
    for (char* other : blocks) {
      if (other != block) {
        EXPECT_GE(std::abs(other - block), 200'000);
      }
    }
  }
  memory.Reset();
  EXPECT_EQ(*memory.Take(100'000), blocks[0]);
  EXPECT_FALSE(memory.Take(size_t{1} << 40).ok());
}

}  // namespace
}  // namespace fuseline::cuda_host
