// One streaming call as a sequence of blocking steps on byte buffers, so that chunks are sent from, and received into,
// the tensors' own memory. Pipeline: Client's methods -> StreamCall -> gRPC.
// Thread-safety: thread-compatible. Blocking: every step, until it is done or the call's deadline has passed.
// Tested by tests/unit/client/client_tensors_test.cc
#pragma once

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "common/tensor/tensor.h"
#include "grpcpp/generic/generic_stub.h"
#include "grpcpp/grpcpp.h"

namespace fuseline::client {

class StreamCall {
 public:
  // `method`: "/package.Service/Method". Channel and context outlive it.
  StreamCall(const std::shared_ptr<grpc::Channel>& channel, grpc::ClientContext& context, const std::string& method);
  // Cancels what is not finished.
  ~StreamCall();
  StreamCall(const StreamCall&) = delete;
  StreamCall& operator=(const StreamCall&) = delete;

  // False: the call has failed, and Finish says why.
  bool Write(const grpc::ByteBuffer& message);
  // The chunks of a tensor.
  bool WriteTensor(const std::string& name, const Tensor& tensor);
  bool WritesDone();
  // False: no further message comes.
  bool Read(grpc::ByteBuffer& message);
  // Whether the server has ended the call, or it has failed: Read or Write has answered false.
  bool ended() const { return !ok_; }
  // Finish of a call whose messages turned out wrong (`received`): cancels what would still come. OK where it
  // cancelled, since the call's status then says nothing.
  grpc::Status FinishReceived(const absl::Status& received);
  // The call's status; `message` of the server to read first, if any.
  grpc::Status Finish();

 private:
  // Waits for the step that was begun last.
  bool Wait();

  grpc::ClientContext& context_;
  grpc::GenericStub stub_;
  grpc::CompletionQueue queue_;
  std::unique_ptr<grpc::GenericClientAsyncReaderWriter> call_;
  bool ok_ = false;
  bool finished_ = false;
};

}  // namespace fuseline::client
