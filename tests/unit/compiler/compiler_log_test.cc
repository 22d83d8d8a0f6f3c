#include "server/compiler/compiler_log.h"

#include <string>

#include "gtest/gtest.h"

namespace fuseline::compiler {
namespace {

constexpr char kLog[] =
    "ptxas info    : 0 bytes gmem\n"
    "ptxas info    : Compiling entry function 'other' for 'sm_90'\n"
    "ptxas info    : Function properties for other\n"
    "ptxas         .     8 bytes stack frame, 9 bytes spill stores, 10 bytes spill loads\n"
    "ptxas info    : Used 255 registers, used 0 barriers\n"
    "ptxas info    : Compiling entry function 'kernel_0' for 'sm_90'\n"
    "ptxas info    : Function properties for kernel_0\n"
    "ptxas         .     1200 bytes stack frame, 4 bytes spill stores, 12 bytes spill loads\n"
    "ptxas info    : Used 32 registers, used 1 barriers, 1200 bytes cumulative stack size, 4096 bytes smem\n"
    "ptxas info    : Compile time = 32.822 ms\n";

TEST(ParsePtxasLogTest, FiguresOfTheEntryAreRead) {
  const KernelResources resources = ParsePtxasLog(kLog, "kernel_0");
  EXPECT_EQ(resources.registers, 32);
  EXPECT_EQ(resources.static_shared_bytes, 4096);
  EXPECT_EQ(resources.stack_bytes, 1200);
  EXPECT_EQ(resources.spill_store_bytes, 4);
  EXPECT_EQ(resources.spill_load_bytes, 12);
}

TEST(ParsePtxasLogTest, AbsentEntryAndEmptyLogGiveZeros) {
  EXPECT_EQ(ParsePtxasLog(kLog, "kernel").registers, 0);
  EXPECT_EQ(ParsePtxasLog("", "kernel_0").registers, 0);
}

TEST(FirstLogLinesTest, PtxasInformationIsLeftOutAndTheRestIsCut) {
  EXPECT_EQ(FirstLogLines("k.cu(1): error: bad\n\nptxas info    : x\n1 error\n"), "k.cu(1): error: bad\n1 error");
  EXPECT_EQ(FirstLogLines(""), "no log");
  std::string many;
  for (int i = 0; i < 1000; ++i) many += "line\n";
  EXPECT_EQ(FirstLogLines(many).size(), 20 * 5 - 1u);
  EXPECT_LT(FirstLogLines(std::string(100000, 'x')).size(), 4100u);
}

}  // namespace
}  // namespace fuseline::compiler
