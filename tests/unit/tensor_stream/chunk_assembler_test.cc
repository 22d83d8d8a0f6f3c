#include "common/tensor/stream/chunk_assembler.h"

#include <cstring>
#include <string>

#include "common/status/error.h"
#include "common/tensor/stream/pooled_tensor.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/status_matchers.h"

namespace fuseline {
namespace {

using ::fuseline::testing::StatusIs;
constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;

Tensor Bytes(int64_t size, DType dtype = DType::kU8) {
  Tensor tensor = Tensor::Allocate(dtype, {size});
  std::memset(tensor.data(), 0x55, static_cast<size_t>(size));
  return tensor;
}

ChunkView Chunk(const std::string& name, int64_t offset_bytes, std::string_view data) {
  // In two pieces, as it may come from the network.
  return {name,
          offset_bytes,
          {data.substr(0, data.size() / 2), data.substr(data.size() / 2)},
          static_cast<int64_t>(data.size())};
}

TEST(ChunkAssemblerTest, ChunksFillTensorsInPlaceInAnyOrderOfTensors) {
  Tensor a = Bytes(5);
  Tensor b = Bytes(3);
  ChunkAssembler assembler("input", {{"a", a}, {"empty", Bytes(0)}, {"b", b}});
  EXPECT_FALSE(assembler.complete());
  ASSERT_OK(assembler.Add(Chunk("b", 0, "xyz")));
  ASSERT_OK(assembler.Add(Chunk("a", 0, "abc")));
  EXPECT_THAT(assembler.CheckComplete(), StatusIs(kInvalid, "input 'a': the stream ends at offset 3 of 5 bytes"));
  ASSERT_OK(assembler.Add(Chunk("a", 3, "de")));
  EXPECT_TRUE(assembler.complete());
  EXPECT_OK(assembler.CheckComplete());
  EXPECT_EQ(a.bytes(), "abcde");
  EXPECT_EQ(b.bytes(), "xyz");
}

TEST(ChunkAssemblerTest, UnnamedTensorsAreFilledByTheirPlace) {
  Tensor a = Bytes(2);
  Tensor b = Bytes(2);
  ChunkAssembler assembler("input", {{"", a}, {"", Bytes(0)}, {"", b}});
  ASSERT_OK(assembler.Add(Chunk("", 0, "ab")));
  EXPECT_THAT(assembler.Add(Chunk("", 1, "d")), StatusIs(kInvalid, "input 2: the chunk at offset 1 should start at 0"));
  ASSERT_OK(assembler.Add(Chunk("", 0, "cd")));
  EXPECT_EQ(a.bytes(), "ab");
  EXPECT_EQ(b.bytes(), "cd");
}

TEST(ChunkAssemblerTest, SingleTensorsChunksNeedNoName) {
  Tensor a = Bytes(2);
  ChunkAssembler assembler("input", {{"a", a}});
  ASSERT_OK(assembler.Add(Chunk("", 0, "a")));
  ASSERT_OK(assembler.Add(Chunk("a", 1, "b")));
  EXPECT_EQ(a.bytes(), "ab");
}

TEST(ChunkAssemblerTest, NothingDeclaredIsCompleteAtOnce) {
  EXPECT_TRUE(ChunkAssembler("input", {}).complete());
  EXPECT_TRUE(ChunkAssembler("input", {{"a", Bytes(0)}}).complete());
}

TEST(ChunkAssemblerTest, EveryViolationNamesTensorAndOffset) {
  struct Case {
    ChunkView chunk;
    std::string subject;
    std::string message;
  };
  const std::string large(static_cast<size_t>(kMaxChunkBytes) + 1, 'q');
  const Case cases[] = {
      {Chunk("a", 3, "d"), "a", "input 'a': the chunk at offset 3 should start at 2"},
      {Chunk("a", 0, "d"), "a", "input 'a': the chunk at offset 0 should start at 2"},
      {Chunk("a", -1, "d"), "a", "input 'a': the chunk at offset -1 should start at 2"},
      {Chunk("a", 2, "cdef"), "a", "input 'a': the chunk at offset 2 has 4 bytes where only 3 are missing"},
      {Chunk("a", 2, ""), "a", "input 'a': the chunk at offset 2 has no data"},
      {Chunk("a", 2, large), "a", "input 'a': the chunk at offset 2 has 4194305 bytes, more than 4194304"},
      {Chunk("b", 0, "d"), "a", "input 'a': a chunk at offset 2 was expected, not one of input 'b'"},
      {Chunk("c", 7, "d"), "c", "a chunk at offset 7 is of input 'c', which the header did not announce"},
      {Chunk("", 2, "d"), "", "a chunk at offset 2 is of input '', which the header did not announce"},
  };
  for (const Case& c : cases) {
    ChunkAssembler assembler("input", {{"a", Bytes(5)}, {"b", Bytes(2)}});
    ASSERT_OK(assembler.Add(Chunk("a", 0, "ab")));
    const absl::Status status = assembler.Add(c.chunk);
    EXPECT_THAT(status, StatusIs(kInvalid, c.message));
    EXPECT_EQ(GetErrorSubject(status), c.subject);
    EXPECT_EQ(GetErrorReason(status), ErrorReason::kTensorMismatch);
  }
}

TEST(ChunkAssemblerTest, ChunkAfterTheEndIsRefused) {
  ChunkAssembler unnamed("input", {{"", Bytes(1)}});
  ASSERT_OK(unnamed.Add(Chunk("", 0, "a")));
  EXPECT_THAT(unnamed.Add(Chunk("", 1, "b")), StatusIs(kInvalid, "a chunk at offset 1 comes after everything"));
  ChunkAssembler named("input", {{"a", Bytes(1)}, {"b", Bytes(1)}});
  ASSERT_OK(named.Add(Chunk("a", 0, "a")));
  EXPECT_THAT(named.Add(Chunk("a", 1, "b")), StatusIs(kInvalid, "where only 0 are missing"));
}

TEST(ChunkAssemblerTest, PooledTensorsReuseMemoryOnceAllCopiesAreGone) {
  const std::shared_ptr<launch::BlockPool> pool = launch::BlockPool::Create(8 << 20);
  const void* first = nullptr;
  {
    const auto tensor = AllocatePooled(*pool, DType::kF32, {300'000});
    ASSERT_OK(tensor);
    EXPECT_EQ(tensor->size_bytes(), 1'200'000);
    const Tensor copy = *tensor;
    first = copy.data();
    EXPECT_NE(AllocatePooled(*pool, DType::kF32, {300'000})->data(), first);
  }
  EXPECT_EQ(pool->used_bytes(), 0);
  EXPECT_GE(pool->idle_bytes(), 2 * 1'200'000);
  EXPECT_OK(AllocatePooled(*pool, DType::kF32, {300'000}));
  const auto small = AllocatePooled(*pool, DType::kF32, {0});
  ASSERT_OK(small);
  EXPECT_EQ(small->element_count(), 0);
}

TEST(ChunkAssemblerTest, BoolThatIsNeitherZeroNorOneIsRefused) {
  ChunkAssembler assembler("input", {{"m", Bytes(4, DType::kBool)}});
  ASSERT_OK(assembler.Add(Chunk("m", 0, std::string_view("\0\1", 2))));
  EXPECT_THAT(assembler.Add(Chunk("m", 2, std::string_view("\1\2", 2))),
              StatusIs(kInvalid, "input 'm': the chunk at offset 2 has a bool that is neither 0 nor 1"));
}

}  // namespace
}  // namespace fuseline
