// Messages of tensor streams as gRPC's byte buffers. Chunks borrow the tensor's memory on the way out and are read in
// place on the way in: protobuf's bytes fields would copy them twice.
// Pipeline: Tensor -> ChunkSplitter -> ByteBuffer -> gRPC; gRPC -> ByteBuffer -> ReadStreamMessage -> message, or
// ChunkView -> ChunkAssembler. Ownership: a buffer keeps the tensor's storage alive until gRPC has sent it.
// Thread-safety: thread-compatible. Tested by tests/unit/tensor_stream/chunk_buffers_test.cc
#pragma once

#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/proto_buffer_reader.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "common/status/error.h"
#include "common/tensor/stream/chunk_format.h"
#include "common/tensor/tensor.h"

namespace fuseline {

// The chunks of a tensor, in order.
class ChunkSplitter {
 public:
  // The tensor must not change until all buffers are sent.
  ChunkSplitter(std::string name, const Tensor& tensor);
  // False: there are no more, and `buffer` is left alone.
  bool Next(grpc::ByteBuffer* buffer);

 private:
  const std::string name_;
  const std::shared_ptr<const Tensor> tensor_;
  int64_t offset_bytes_ = 0;
};

// A received message: a chunk, read in place, or anything else, parsed.
template <typename Message>
struct StreamMessage {
  bool is_chunk = false;
  ChunkView chunk;                  // borrows from one of the two below
  Message message;                  // where it is not a chunk, or one in an unusual form
  std::vector<grpc::Slice> slices;  // what `chunk` borrows
};

// False: no chunk in the plain form.
bool ReadChunkInPlace(const grpc::ByteBuffer& buffer, std::vector<grpc::Slice>& slices, ChunkView& chunk);

// `Message` has a oneof of header and chunk. Errors: INVALID_ARGUMENT (kTensorMismatch) where it can't be decoded.
template <typename Message>
absl::Status ReadStreamMessage(grpc::ByteBuffer& buffer, StreamMessage<Message>& out) {
  out.is_chunk = ReadChunkInPlace(buffer, out.slices, out.chunk);
  if (out.is_chunk) return absl::OkStatus();
  grpc::ProtoBufferReader reader(&buffer);
  if (!reader.status().ok() || !out.message.ParseFromZeroCopyStream(&reader))
    return InvalidArgument(ErrorReason::kTensorMismatch, "", "a message of the stream can't be decoded");
  if (out.message.has_chunk()) {
    out.is_chunk = true;
    const auto& chunk = out.message.chunk();
    out.chunk = {chunk.name(), chunk.offset_bytes(), {chunk.data()}, static_cast<int64_t>(chunk.data().size())};
  }
  return absl::OkStatus();
}

// For the other messages of a stream.
template <typename Message>
grpc::ByteBuffer ToByteBuffer(const Message& message) {
  grpc::Slice slice(message.SerializeAsString());
  return grpc::ByteBuffer(&slice, 1);
}

}  // namespace fuseline
