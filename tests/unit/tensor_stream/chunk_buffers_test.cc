#include "common/tensor/stream/chunk_buffers.h"

#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/tensor/stream/chunk_assembler.h"
#include "fuseline/v1/execute_service.pb.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/status_matchers.h"

namespace fuseline {
namespace {

using ::fuseline::testing::StatusIs;

std::string Data(const ChunkView& chunk) {
  std::string data;
  for (const std::string_view piece : chunk.pieces) data.append(piece);
  return data;
}

Tensor Counting(int64_t size) {
  Tensor tensor = Tensor::Allocate(DType::kU8, {size});
  for (int64_t i = 0; i < size; ++i) static_cast<uint8_t*>(tensor.data())[i] = static_cast<uint8_t>(i * 7 / 3);
  return tensor;
}

grpc::ByteBuffer Buffer(const std::string& bytes) {
  grpc::Slice slice(bytes);
  return grpc::ByteBuffer(&slice, 1);
}

TEST(ChunkBuffersTest, SplitTensorComesTogetherAgain) {
  for (const int64_t size : {int64_t{0}, int64_t{1}, kChunkBytes, kChunkBytes + 1, 3 * kChunkBytes - 5}) {
    const Tensor sent = Counting(size);
    Tensor received = Tensor::Allocate(DType::kU8, {size});
    ChunkSplitter splitter("x", sent);
    ChunkAssembler assembler("input", {{"x", received}});
    grpc::ByteBuffer buffer;
    while (splitter.Next(&buffer)) {
      StreamMessage<v1::ExecuteStreamRequest> message;
      ASSERT_OK(ReadStreamMessage(buffer, message));
      ASSERT_TRUE(message.is_chunk);
      ASSERT_OK(assembler.Add(message.chunk));
    }
    EXPECT_OK(assembler.CheckComplete());
    EXPECT_EQ(received.bytes(), sent.bytes());
  }
}

TEST(ChunkBuffersTest, BufferBorrowsTheTensorsStorageAndKeepsItAlive) {
  auto storage = std::make_shared<std::string>("storage");
  Tensor tensor = Tensor::Borrow(DType::kU8, {7}, storage->data(), storage);
  grpc::ByteBuffer buffer;
  {
    ChunkSplitter splitter("x", tensor);
    ASSERT_TRUE(splitter.Next(&buffer));
  }
  tensor = Tensor();
  EXPECT_EQ(storage.use_count(), 2);
  std::vector<grpc::Slice> slices;
  ASSERT_TRUE(buffer.Dump(&slices).ok());
  EXPECT_EQ(static_cast<const void*>(slices.back().begin()), storage->data());
  slices.clear();
  buffer.Clear();
  EXPECT_EQ(storage.use_count(), 1);
}

TEST(ChunkBuffersTest, HeaderIsParsed) {
  v1::PutTensorRequest header;
  header.mutable_header()->set_handle("h");
  grpc::ByteBuffer buffer = ToByteBuffer(header);
  StreamMessage<v1::PutTensorRequest> message;
  ASSERT_OK(ReadStreamMessage(buffer, message));
  EXPECT_FALSE(message.is_chunk);
  EXPECT_EQ(message.message.header().handle(), "h");
}

TEST(ChunkBuffersTest, UnusualFormOfAChunkIsParsed) {
  grpc::ByteBuffer buffer = Buffer(std::string("\x12\x06\x1a\x01q\x1a\x01r", 8));  // data twice: the last one counts
  StreamMessage<v1::PutTensorRequest> message;
  ASSERT_OK(ReadStreamMessage(buffer, message));
  ASSERT_TRUE(message.is_chunk);
  EXPECT_EQ(Data(message.chunk), "r");
  EXPECT_EQ(message.chunk.size_bytes, 1);
}

TEST(ChunkBuffersTest, GarbageIsAnError) {
  grpc::ByteBuffer buffer = Buffer("\x12\x09garbage");
  StreamMessage<v1::PutTensorRequest> message;
  EXPECT_THAT(ReadStreamMessage(buffer, message), StatusIs(absl::StatusCode::kInvalidArgument, "can't be decoded"));
}

}  // namespace
}  // namespace fuseline
