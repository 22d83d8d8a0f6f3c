// The wire form of a stream's message with a TensorChunk, made and read without copying the chunk's data.
// Pipeline: name, offset, data -> ChunkHead + data -> gRPC -> ReadChunk -> ChunkView. All messages of fuseline.v1 that
// carry chunks (PutTensorRequest, GetTensorResponse, ExecuteStreamRequest, ExecuteStreamResponse) have them as field 2.
// Units: bytes. Thread-safety: pure functions. Tested by tests/unit/tensor_stream/chunk_format_test.cc
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace fuseline {

// The contract's bound, and what we send: larger chunks are not faster, smaller ones are slower. A little less than 1
// MiB, since that is the smallest bound that a server can have for messages.
inline constexpr int64_t kMaxChunkBytes = 4 << 20;
inline constexpr int64_t kChunkBytes = (1 << 20) - 4096;

// A received chunk. The pieces of its data, in order, belong to the message.
struct ChunkView {
  std::string name;
  int64_t offset_bytes = 0;
  std::vector<std::string_view> pieces;
  int64_t size_bytes = 0;  // of all pieces
};

// The bytes of the message before the data, which ends it.
std::string ChunkHead(std::string_view name, int64_t offset_bytes, int64_t size_bytes);

// Reads a message that is given in pieces. False: it is no chunk, malformed, or has a form that no usual encoder makes;
// then protobuf's parser has to look at it.
bool ReadChunk(const std::vector<std::string_view>& message, ChunkView& chunk);

}  // namespace fuseline
