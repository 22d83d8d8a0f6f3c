#include "common/launch/host_memory.h"

#include "gtest/gtest.h"

namespace fuseline::launch {
namespace {

TEST(HostMemoryTest, AvailableIsPositiveAndWithinTheLimit) {
  EXPECT_GT(HostMemoryLimitBytes(), 0);
  EXPECT_GT(HostMemoryAvailableBytes(), 0);
  EXPECT_LE(HostMemoryAvailableBytes(), HostMemoryLimitBytes());
}

TEST(HostMemoryTest, MemInfoLinesAreRead) {
  const std::string text =
      "MemTotal:       24684092 kB\nMemAvailable:   22892484 kB\nOdd: none\nHuge: 99999999999999999 kB\n";
  EXPECT_EQ(MemInfoBytes(text, "MemTotal"), 24684092ll * 1024);
  EXPECT_EQ(MemInfoBytes(text, "MemAvailable"), 22892484ll * 1024);
  EXPECT_EQ(MemInfoBytes(text, "Mem"), -1);
  EXPECT_EQ(MemInfoBytes(text, "Odd"), -1);
  EXPECT_EQ(MemInfoBytes(text, "Huge"), -1);
  EXPECT_EQ(MemInfoBytes("", "MemTotal"), -1);
}

}  // namespace
}  // namespace fuseline::launch
