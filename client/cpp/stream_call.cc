#include "client/cpp/stream_call.h"

#include "common/tensor/stream/chunk_buffers.h"

namespace fuseline::client {

StreamCall::StreamCall(const std::shared_ptr<grpc::Channel>& channel, grpc::ClientContext& context,
                       const std::string& method)
    : context_(context), stub_(channel), call_(stub_.PrepareCall(&context, method, &queue_)) {
  call_->StartCall(this);
  ok_ = Wait();
}

StreamCall::~StreamCall() {
  if (!finished_) {
    context_.TryCancel();
    Finish();
  }
  queue_.Shutdown();
  void* tag = nullptr;
  bool ok = false;
  while (queue_.Next(&tag, &ok)) continue;
}

bool StreamCall::Wait() {
  // One step at a time is begun, so the next event is its.
  void* tag = nullptr;
  bool ok = false;
  return queue_.Next(&tag, &ok) && ok;
}

bool StreamCall::Write(const grpc::ByteBuffer& message) {
  if (!ok_) return false;
  call_->Write(message, this);
  return ok_ = Wait();
}

bool StreamCall::WriteTensor(const std::string& name, const Tensor& tensor) {
  ChunkSplitter splitter(name, tensor);
  grpc::ByteBuffer chunk;
  while (splitter.Next(&chunk)) {
    if (!Write(chunk)) return false;
  }
  return ok_;
}

bool StreamCall::WritesDone() {
  if (!ok_) return false;
  call_->WritesDone(this);
  return ok_ = Wait();
}

bool StreamCall::Read(grpc::ByteBuffer& message) {
  if (!ok_) return false;
  message.Clear();
  call_->Read(&message, this);
  return ok_ = Wait();
}

grpc::Status StreamCall::FinishReceived(const absl::Status& received) {
  const bool cancels = !received.ok() && !ended();
  if (cancels) context_.TryCancel();
  const grpc::Status status = Finish();
  return cancels ? grpc::Status::OK : status;
}

grpc::Status StreamCall::Finish() {
  grpc::Status status;
  call_->Finish(&status, this);
  Wait();
  finished_ = true;
  return status;
}

}  // namespace fuseline::client
