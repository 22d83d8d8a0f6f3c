// The tensors of a streaming call: chunks in, chunks out.
// Pipeline: MessageReader -> ReceiveChunks -> tensors; tensor -> SendTensor -> MessageWriter.
// Errors: INVALID_ARGUMENT for chunks that do not fit; what the stream says. Thread-safety: pure but for the stream.
// Blocking: until the client has sent or taken everything. Tested by tests/unit/service/tensor_service_test.cc
#pragma once

#include <grpcpp/support/byte_buffer.h>

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/status/status_macros.h"
#include "common/tensor/stream/chunk_assembler.h"
#include "common/tensor/stream/chunk_buffers.h"
#include "common/tensor/tensor.h"
#include "server/service/message_stream.h"

namespace fuseline::service {

using BufferReader = MessageReader<grpc::ByteBuffer>;
using BufferWriter = MessageWriter<grpc::ByteBuffer>;

// The first message of a stream. `Message` has a oneof of header and chunk.
template <typename Message>
absl::StatusOr<Message> ReceiveHeader(BufferReader& reader) {
  grpc::ByteBuffer buffer;
  FUSELINE_ASSIGN_OR_RETURN(const bool read, reader.Read(buffer));
  StreamMessage<Message> message;
  if (read) FUSELINE_RETURN_IF_ERROR(ReadStreamMessage(buffer, message));
  if (message.is_chunk || !message.message.has_header())
    return InvalidArgument(ErrorReason::kTensorMismatch, "header", "the stream's first message has no header");
  return std::move(message.message);
}

// All further messages of a stream.
template <typename Message>
absl::Status ReceiveChunks(BufferReader& reader, ChunkAssembler& assembler) {
  grpc::ByteBuffer buffer;
  StreamMessage<Message> message;
  for (;;) {
    FUSELINE_ASSIGN_OR_RETURN(const bool read, reader.Read(buffer));
    if (!read) return assembler.CheckComplete();
    FUSELINE_RETURN_IF_ERROR(ReadStreamMessage(buffer, message));
    if (!message.is_chunk) {
      return InvalidArgument(ErrorReason::kTensorMismatch, "chunk",
                             "a message of the stream, after the first one, has no chunk");
    }
    FUSELINE_RETURN_IF_ERROR(assembler.Add(message.chunk));
  }
}

// `name` is the chunks'; empty where the stream has one tensor.
absl::Status SendTensor(const std::string& name, const Tensor& tensor, BufferWriter& writer);

}  // namespace fuseline::service
