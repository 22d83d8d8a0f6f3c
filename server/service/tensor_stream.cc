#include "server/service/tensor_stream.h"

#include <utility>

namespace fuseline::service {

absl::Status SendTensor(const std::string& name, const Tensor& tensor, BufferWriter& writer) {
  ChunkSplitter splitter(name, tensor);
  grpc::ByteBuffer chunk;
  while (splitter.Next(&chunk)) FUSELINE_RETURN_IF_ERROR(writer.Write(std::move(chunk)));
  return absl::OkStatus();
}

}  // namespace fuseline::service
