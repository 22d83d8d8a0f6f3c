#include "common/launch/block_pool.h"

#include <string.h>

#include <thread>
#include <vector>

#include "common/status/error.h"
#include "gtest/gtest.h"
#include "tests/testing/status_matchers.h"

namespace fuseline::launch {
namespace {

using ::fuseline::testing::IsOk;
using ::fuseline::testing::StatusIs;

TEST(BlockPoolTest, BlocksOfEverySizeAreAlignedAndWritable) {
  const auto pool = BlockPool::Create(1 << 30);
  for (const int64_t size :
       {0ll, 1ll, 4095ll, 4096ll, 5000ll, 40'000ll, 1ll << 20, (2ll << 20) - 1, (2ll << 20) + 1, 20ll << 20}) {
    const auto block = pool->Allocate(size);
    ASSERT_THAT(block, IsOk()) << size;
    ASSERT_NE(block->get(), nullptr);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(block->get()) % 256, 0u) << size;
    memset(block->get(), 7, static_cast<size_t>(size));
  }
}

TEST(BlockPoolTest, FreedBlockIsGivenOutAgain) {
  const auto pool = BlockPool::Create(64 << 20);
  auto block = pool->Allocate(3 << 20);
  ASSERT_THAT(block, IsOk());
  void* const address = block->get();
  block->reset();
  EXPECT_GE(pool->idle_bytes(), 3 << 20);
  const auto next = pool->Allocate(3 << 20);
  ASSERT_THAT(next, IsOk());
  EXPECT_EQ(next->get(), address);
  EXPECT_EQ(pool->idle_bytes(), 0);
}

TEST(BlockPoolTest, IdleBlocksStayWithinTheBound) {
  const auto pool = BlockPool::Create(10 << 20);
  std::vector<std::shared_ptr<void>> blocks;
  for (const int64_t size : {2, 4, 6, 8, 20}) {
    auto block = pool->Allocate(size << 20);
    ASSERT_THAT(block, IsOk());
    blocks.push_back(*std::move(block));
  }
  blocks.clear();
  EXPECT_LE(pool->idle_bytes(), 10 << 20);
  EXPECT_GT(pool->idle_bytes(), 0);
}

TEST(BlockPoolTest, BlockOutlivesItsPool) {
  auto pool = BlockPool::Create(1 << 20);
  const auto block = pool->Allocate(100);
  ASSERT_THAT(block, IsOk());
  pool.reset();
  memset(block->get(), 1, 100);
  EXPECT_EQ(*static_cast<const char*>(block->get()), 1);
}

TEST(BlockPoolTest, AbsurdSizesAreRefused) {
  const auto pool = BlockPool::Create(1 << 20);
  EXPECT_THAT(pool->Allocate(-1), StatusIs(absl::StatusCode::kResourceExhausted, "-1"));
  EXPECT_THAT(pool->Allocate(int64_t{1} << 60), StatusIs(absl::StatusCode::kResourceExhausted, "bytes"));
}

TEST(BlockPoolTest, MoreThanTheSystemHasIsRefusedBeforeItIsTouched) {
  const auto pool = BlockPool::Create(1 << 20);
  const auto block = pool->Allocate(int64_t{1} << 45);
  EXPECT_THAT(block, StatusIs(absl::StatusCode::kResourceExhausted, "available"));
  EXPECT_EQ(GetErrorReason(block.status()), ErrorReason::kDeviceMemory);
  EXPECT_EQ(pool->used_bytes(), 0);
}

TEST(BlockPoolTest, BlocksInUseStayWithinTheBound) {
  const auto pool = BlockPool::Create(1 << 20, 10 << 10);
  auto first = pool->Allocate(8 << 10);
  ASSERT_THAT(first, IsOk());
  EXPECT_EQ(pool->used_bytes(), 8 << 10);
  EXPECT_THAT(pool->Allocate(4 << 10), StatusIs(absl::StatusCode::kResourceExhausted, "8192 of 10240 are in use"));
  first->reset();
  EXPECT_EQ(pool->used_bytes(), 0);
  EXPECT_THAT(pool->Allocate(8 << 10), IsOk());
}

TEST(BlockPoolTest, ThreadsNeverShareABlock) {
  const auto pool = BlockPool::Create(1 << 20);
  std::vector<std::thread> threads;
  std::atomic<int> clashes{0};
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 500; ++i) {
        const auto block = pool->Allocate(5000);
        if (!block.ok()) continue;
        char* bytes = static_cast<char*>(block->get());
        memset(bytes, t, 5000);
        for (int j = 0; j < 5000; j += 499) clashes += bytes[j] != t;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(clashes, 0);
}

}  // namespace
}  // namespace fuseline::launch
