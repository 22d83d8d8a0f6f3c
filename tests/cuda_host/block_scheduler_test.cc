#include "tests/cuda_host/block_scheduler.h"

#include <numeric>
#include <string>
#include <vector>

#include "common/status/str_cat.h"
#include "gtest/gtest.h"
#include "tests/testing/status_matchers.h"

namespace fuseline::cuda_host {
namespace {

using ::fuseline::testing::IsOk;
using ::fuseline::testing::StatusIs;

class BlockSchedulerTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto created = HostKernelCompiler::Create();
    if (!created.ok()) GTEST_SKIP() << created.status().message();
    compiler_ = *std::move(created);
  }

  // Runs `body` in k(int* out), `out` having an element for each thread of the grid.
  absl::Status Run(const std::string& body, int64_t blocks, int64_t threads, const ThreadOrder& order = {}) {
    const auto kernels = compiler_->Compile({{"k",
                                              StrCat("extern \"C\" __global__ void k(int* out) {\n  const int thread = "
                                                     "threadIdx.x;\n  const int at = blockIdx.x * ",
                                                     "blockDim.x + thread;\n", body, "\n}\n"),
                                              Target::Cuda(90), false}});
    if (!kernels.ok()) return kernels.status();
    out_.assign(static_cast<size_t>(blocks * threads), -1);
    MemoryRegion region("out", out_.data(), static_cast<int64_t>(out_.size() * sizeof(int)), sizeof(int), true, false);
    LaunchDims dims;
    dims.grid[0] = blocks;
    dims.block[0] = threads;
    return scheduler_.Launch(*(*kernels)[0], {out_.data()}, dims, order, {&region}, check_);
  }

  std::unique_ptr<HostKernelCompiler> compiler_;
  BlockScheduler scheduler_;
  MemoryCheck check_;
  std::vector<int> out_;
};

const ThreadOrder kOrders[] = {{ThreadOrder::Kind::kForward},
                               {ThreadOrder::Kind::kReverse},
                               {ThreadOrder::Kind::kRandom, 1},
                               {ThreadOrder::Kind::kRandom, 2}};

TEST_F(BlockSchedulerTest, EveryThreadOfTheGridRunsOnceInEveryOrder) {
  for (const ThreadOrder& order : kOrders) {
    ASSERT_THAT(Run("out[at] = at;", 5, 96, order), IsOk());
    std::vector<int> want(out_.size());
    std::iota(want.begin(), want.end(), 0);
    EXPECT_EQ(out_, want) << order.ToString();
  }
}

TEST_F(BlockSchedulerTest, BarriersPassValuesThroughSharedMemory) {
  for (const ThreadOrder& order : kOrders) {
    ASSERT_THAT(Run("  __shared__ int shared[256];\n"
                    "  int value = thread;\n"
                    "  for (int i = 0; i < 3; ++i) {\n"
                    "    shared[thread] = value;\n"
                    "    __syncthreads();\n"
                    "    value = shared[(thread + 1) % 256];\n"
                    "    __syncthreads();\n"
                    "  }\n"
                    "  out[at] = value;",
                    2, 256, order),
                IsOk());
    for (int i = 0; i < 512; ++i) ASSERT_EQ(out_[static_cast<size_t>(i)], (i + 3) % 256) << order.ToString();
  }
}

TEST_F(BlockSchedulerTest, ShufflesExchangeWithinAWarp) {
  struct Shuffle {
    const char* call;
    int (*want)(int lane);
  };
  const Shuffle shuffles[] = {
      {"__shfl_xor_sync(0xffffffffu, thread, 5)", [](int lane) { return lane ^ 5; }},
      {"__shfl_xor_sync(0xffffffffu, thread, 8, 8)", [](int lane) { return lane & ~8; }},
      {"__shfl_up_sync(0xffffffffu, thread, 3)", [](int lane) { return lane < 3 ? lane : lane - 3; }},
      {"__shfl_down_sync(0xffffffffu, thread, 3, 16)", [](int lane) { return lane % 16 < 13 ? lane + 3 : lane; }},
      {"__shfl_sync(0xffffffffu, thread, 2, 8)", [](int lane) { return lane / 8 * 8 + 2; }},
      {"(int)__shfl_xor_sync(0xffffffffu, (double)thread, 1)", [](int lane) { return lane ^ 1; }},
      {"(int)__shfl_xor_sync(0xffffffffu, (long long)thread << 40, 1) + (int)(__shfl_xor_sync(0xffffffffu, (long "
       "long)thread << 40, 1) >> 40)",
       [](int lane) { return lane ^ 1; }},
  };
  for (const Shuffle& shuffle : shuffles) {
    for (const ThreadOrder& order : kOrders) {
      ASSERT_THAT(Run(StrCat("  out[at] = ", shuffle.call, ";"), 1, 64, order), IsOk()) << shuffle.call;
      for (int i = 0; i < 64; ++i)
        ASSERT_EQ(out_[static_cast<size_t>(i)], i / 32 * 32 + shuffle.want(i % 32)) << shuffle.call << ", lane " << i;
    }
  }
}

TEST_F(BlockSchedulerTest, LanesOutsideTheMaskNeedNotCome) {
  ASSERT_THAT(
      Run("  int value = -5;\n  if (thread % 32 < 8) value = __shfl_xor_sync(0xffu, thread, 1);\n  out[at] = value;", 1,
          64),
      IsOk());
  EXPECT_EQ(out_[1], 0);
  EXPECT_EQ(out_[33], 32);
  EXPECT_EQ(out_[8], -5);
}

TEST_F(BlockSchedulerTest, ErrorsNameThreadAndLine) {
  struct Case {
    const char* body;
    std::vector<std::string> message;
  };
  const Case cases[] = {
      {"  if (thread == 40) return;\n  __syncthreads();", {"thread 40 has exited", "line 5: `__syncthreads();`"}},
      {"  if (thread < 32) {\n    __syncthreads();\n  } else {\n    __syncthreads();\n  }",
       {"line 5: `__syncthreads();`", "line 7: `__syncthreads();`"}},
      {"  __shfl_xor_sync(0xffffff7fu, thread, 0);", {"lane 7 is not in the mask 0xffffff7f"}},
      {"  __shfl_xor_sync(0xffffffffu, thread, 33);", {"operand is 33"}},
      {"  __shfl_sync(0xffffffffu, thread, 1, 12);", {"width 12"}},
      {"  if (thread % 2 == 0) __shfl_xor_sync(0x55555555u, thread, 1);",
       {"reads lane 1, which its mask 0x55555555 leaves out"}},
      {"  if (thread == 3) return;\n  __shfl_xor_sync(0xffffffffu, thread, 1);",
       {"names lane 3, thread 3, which has exited"}},
      {"  if (thread < 16) {\n    __shfl_xor_sync(0xffffffffu, thread, 1);\n  } else {\n    "
       "__shfl_xor_sync(0xffffffffu, thread, 1);\n  }",
       {"names lane 16, thread 16, which is in a shuffle"}},
      {"  if (thread < 16) {\n    __shfl_xor_sync(0xffffffffu, thread, 1);\n  } else {\n    __syncthreads();\n  }",
       {"do not come to the same barrier", "shuffle at line 5", "barrier at line 7"}},
      {"  out[at] = out[at ^ 1];", {"nothing has been written there"}},
      {"  int local[4];\n  for (int i = 0; i < 4; ++i) local[i] = i;\n  out[at] = local[thread];",
       {"thread 4", "index 4 is out of range for 'int [4]'"}},
  };
  for (const Case& c : cases) {
    const absl::Status status = Run(c.body, 2, 64);
    for (const std::string& part : c.message)
      EXPECT_THAT(status, StatusIs(absl::StatusCode::kInternal, part)) << c.body;
    // What was left in the middle does not disturb the next launch.
    ASSERT_THAT(Run("  __syncthreads();\n  out[at] = at;", 2, 64), IsOk()) << c.body;
  }
}

TEST_F(BlockSchedulerTest, AMaskMayNotNameLanesThatDoNotExist) {
  EXPECT_THAT(Run("  out[at] = __shfl_xor_sync(0xffffffffu, thread, 1);", 1, 48),
              StatusIs(absl::StatusCode::kInternal, "names lane 16, which does not exist"));
}

TEST_F(BlockSchedulerTest, LaunchesThatCudaRefusesAreRefused) {
  EXPECT_THAT(Run("out[at] = 0;", 1, 1025), StatusIs(absl::StatusCode::kInternal, "blocks of 1025 threads"));
  EXPECT_THAT(Run("out[at] = 0;", 0, 32), StatusIs(absl::StatusCode::kInternal, "a grid of 0 blocks"));
}

}  // namespace
}  // namespace fuseline::cuda_host
