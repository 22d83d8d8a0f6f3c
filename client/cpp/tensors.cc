// The client's calls about kept tensors. Tested by tests/unit/client/client_tensors_test.cc
#include <utility>

#include "client/cpp/client_impl.h"
#include "client/cpp/stream_call.h"
#include "common/tensor/stream/chunk_assembler.h"
#include "common/tensor/stream/chunk_buffers.h"

namespace fuseline::client {

absl::StatusOr<KeptTensor> Client::PutTensor(const Tensor& tensor, const KeepOptions& options) {
  v1::PutTensorRequest request;
  v1::PutTensorHeader* header = request.mutable_header();
  header->set_handle(options.handle);
  header->set_dtype(static_cast<v1::DataType>(tensor.dtype()));
  header->mutable_shape()->Add(tensor.shape().begin(), tensor.shape().end());
  if (options.lease != absl::ZeroDuration()) DurationToProto(options.lease, header->mutable_lease());
  v1::PutTensorResponse response;
  bool decoded = false;
  FUSELINE_RETURN_IF_ERROR(impl_->WithRetries(impl_->RouteOfTensors(), [&](PooledServer& server,
                                                                           grpc::ClientContext& context) {
    StreamCall call(server.channel(), context, "/fuseline.v1.ExecuteService/PutTensor");
    grpc::ByteBuffer message;
    if (call.Write(ToByteBuffer(request)) && call.WriteTensor("", tensor) && call.WritesDone() && call.Read(message)) {
      grpc::ProtoBufferReader reader(&message);
      decoded = response.ParseFromZeroCopyStream(&reader);
    }
    return call.Finish();
  }));
  if (!decoded || response.handle().empty()) return Internal("the server's answer to PutTensor can't be decoded");
  KeptTensor kept;
  kept.handle = response.handle();
  kept.dtype = tensor.dtype();
  kept.shape = tensor.shape();
  kept.size_bytes = response.size_bytes();
  kept.lease = DurationFromProto(response.lease());
  return kept;
}

absl::StatusOr<Tensor> Client::GetTensor(const std::string& handle) {
  v1::GetTensorRequest request;
  request.set_handle(handle);
  Tensor tensor;
  absl::Status received;
  // Reads the header and all chunks; what is wrong with them goes to `received`.
  const auto receive = [&](StreamCall& call) -> absl::Status {
    grpc::ByteBuffer buffer;
    if (!call.Read(buffer)) return absl::OkStatus();  // the call's status says why
    StreamMessage<v1::GetTensorResponse> message;
    FUSELINE_RETURN_IF_ERROR(ReadStreamMessage(buffer, message));
    if (message.is_chunk || !message.message.has_header()) return Internal("the server sent no header");
    FUSELINE_ASSIGN_OR_RETURN(tensor, AllocateFromProto(message.message.header(), impl_->pool()));
    ChunkAssembler assembler("tensor", {{handle, tensor}});
    while (!assembler.complete() && call.Read(buffer)) {
      FUSELINE_RETURN_IF_ERROR(ReadStreamMessage(buffer, message));
      if (!message.is_chunk) return Internal("the server sent two headers");
      FUSELINE_RETURN_IF_ERROR(assembler.Add(message.chunk));
    }
    return assembler.CheckComplete();
  };
  FUSELINE_RETURN_IF_ERROR(
      impl_->WithRetries(impl_->RouteOfTensors(), [&](PooledServer& server, grpc::ClientContext& context) {
        received = absl::OkStatus();
        StreamCall call(server.channel(), context, "/fuseline.v1.ExecuteService/GetTensor");
        if (call.Write(ToByteBuffer(request)) && call.WritesDone()) received = receive(call);
        return call.FinishReceived(received);
      }));
  if (!received.ok())
    return Internal(absl::StrCat("the server's answer makes no sense: ", std::string(received.message())));
  if (tensor.dtype() == DType::kInvalid) return Internal("the server sent no tensor");
  return tensor;
}

absl::Status Client::DeleteTensor(const std::string& handle) {
  v1::DeleteTensorRequest request;
  request.set_handle(handle);
  v1::DeleteTensorResponse response;
  return impl_->Call(&v1::ExecuteService::Stub::DeleteTensor, request, response, impl_->RouteOfTensors());
}

absl::StatusOr<KeptTensors> Client::ListTensors() {
  v1::ListTensorsResponse response;
  FUSELINE_RETURN_IF_ERROR(
      impl_->Call(&v1::ExecuteService::Stub::ListTensors, v1::ListTensorsRequest(), response, impl_->RouteOfTensors()));
  KeptTensors result;
  for (const v1::KeptTensor& proto : response.tensors()) {
    FUSELINE_ASSIGN_OR_RETURN(KeptTensor tensor, KeptTensorFromProto(proto));
    result.tensors.push_back(std::move(tensor));
  }
  result.size_bytes = response.size_bytes();
  result.quota_bytes = response.quota_bytes();
  return result;
}

}  // namespace fuseline::client
