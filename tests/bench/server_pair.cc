#include "tests/bench/server_pair.h"

#include <grpcpp/grpcpp.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <iostream>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/status/error.h"
#include "common/status/status_macros.h"
#include "fuseline/v1/execute_service.grpc.pb.h"
#include "server/engine/engine.h"
#include "server/service/server.h"

namespace fuseline::bench {
namespace {

using Buffer = grpc::ByteBuffer;

// A message of `size` bytes from the one block that all share.
Buffer Bytes(int64_t size) {
  static const std::vector<char>& block = *new std::vector<char>(kPlainChunkBytes, 'x');
  const grpc::Slice slice(block.data(), static_cast<size_t>(size), grpc::Slice::STATIC_SLICE);
  return Buffer(&slice, 1);
}

class TakeAll final : public grpc::ServerReadReactor<Buffer> {
 public:
  TakeAll() { StartRead(&message_); }

 private:
  void OnReadDone(bool ok) override {
    if (ok) {
      StartRead(&message_);
    } else {
      Finish(grpc::Status::OK);
    }
  }
  void OnDone() override { delete this; }

  Buffer message_;
};

class SendBytes final : public grpc::ServerWriteReactor<Buffer> {
 public:
  explicit SendBytes(int64_t size) : left_(size) { OnWriteDone(true); }

 private:
  void OnWriteDone(bool ok) override {
    if (!ok || left_ == 0) return Finish(grpc::Status::OK);
    const int64_t size = std::min(left_, kPlainChunkBytes);
    left_ -= size;
    message_ = Bytes(size);
    StartWrite(&message_);
  }
  void OnDone() override { delete this; }

  int64_t left_;
  Buffer message_;
};

class TakeAndSend final : public grpc::ServerBidiReactor<Buffer, Buffer> {
 public:
  TakeAndSend() { StartRead(&message_); }

 private:
  void OnReadDone(bool ok) override {
    if (ok) {
      bytes_ += static_cast<int64_t>(message_.Length());
      StartRead(&message_);
    } else {
      OnWriteDone(true);
    }
  }
  void OnWriteDone(bool ok) override {
    if (!ok || bytes_ == 0) return Finish(grpc::Status::OK);
    const int64_t size = std::min(bytes_, kPlainChunkBytes);
    bytes_ -= size;
    message_ = Bytes(size);
    StartWrite(&message_);
  }
  void OnDone() override { delete this; }

  int64_t bytes_ = 0;
  Buffer message_;
};

using PlainServiceBase = v1::ExecuteService::WithRawCallbackMethod_ExecuteStream<
    v1::ExecuteService::WithRawCallbackMethod_PutTensor<v1::ExecuteService::WithRawCallbackMethod_GetTensor<
        v1::ExecuteService::WithCallbackMethod_DeleteTensor<v1::ExecuteService::Service>>>>;

class PlainService final : public PlainServiceBase {
  grpc::ServerUnaryReactor* DeleteTensor(grpc::CallbackServerContext* context, const v1::DeleteTensorRequest*,
                                         v1::DeleteTensorResponse*) override {
    grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    reactor->Finish(grpc::Status::OK);
    return reactor;
  }
  grpc::ServerReadReactor<Buffer>* PutTensor(grpc::CallbackServerContext*, Buffer* response) override {
    *response = Bytes(0);
    return new TakeAll;  // deletes itself, as those below
  }
  grpc::ServerWriteReactor<Buffer>* GetTensor(grpc::CallbackServerContext*, const Buffer* request) override {
    v1::GetTensorRequest message;
    Buffer buffer(*request);
    grpc::ProtoBufferReader reader(&buffer);
    int64_t size = 0;
    if (!message.ParseFromZeroCopyStream(&reader) || !absl::SimpleAtoi(message.handle(), &size)) size = 0;
    return new SendBytes(size);
  }
  grpc::ServerBidiReactor<Buffer, Buffer>* ExecuteStream(grpc::CallbackServerContext*) override {
    return new TakeAndSend;
  }
};

struct Ports {
  int fuseline = 0;
  int plain = 0;
};

// The child's main. Ends when `stop` is closed.
absl::Status Serve(int ports, int stop) {
  EngineOptions engine_options;
  engine_options.executor.use_cuda = false;
  FUSELINE_ASSIGN_OR_RETURN(const std::unique_ptr<Engine> engine, Engine::Create(engine_options));
  service::ServerOptions server_options;
  server_options.listen = "127.0.0.1:0";
  FUSELINE_ASSIGN_OR_RETURN(const std::unique_ptr<service::Server> server,
                            service::Server::Start(*engine, server_options));
  PlainService plain;
  grpc::ServerBuilder builder;
  Ports sent{server->port(), 0};
  builder.SetMaxReceiveMessageSize(-1);
  builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &sent.plain);
  builder.RegisterService(&plain);
  const std::unique_ptr<grpc::Server> plain_server = builder.BuildAndStart();
  if (plain_server == nullptr) return Internal("can't listen");
  if (write(ports, &sent, sizeof(sent)) != sizeof(sent)) return Internal("the caller is gone");
  char byte = 0;
  while (read(stop, &byte, 1) > 0) continue;
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<ServerPair>> ServerPair::Start() {
  int ports[2];
  int stop[2];
  if (pipe(ports) != 0 || pipe(stop) != 0) return Internal("can't make a pipe");
  const pid_t process = fork();
  if (process < 0) return Internal("can't fork");
  if (process == 0) {
    close(ports[0]);
    close(stop[1]);
    const absl::Status status = Serve(ports[1], stop[0]);
    if (!status.ok()) std::cerr << status << std::endl;
    _exit(status.ok() ? 0 : 1);
  }
  close(ports[1]);
  close(stop[0]);
  Ports received;
  const bool started = read(ports[0], &received, sizeof(received)) == sizeof(received);
  close(ports[0]);
  std::unique_ptr<ServerPair> pair(new ServerPair(process, stop[1], received.fuseline, received.plain));
  if (!started) return Internal("the servers did not start");
  return pair;
}

ServerPair::ServerPair(pid_t process, int stop_pipe, int fuseline_port, int plain_port)
    : process_(process),
      stop_pipe_(stop_pipe),
      fuseline_address_(absl::StrCat("127.0.0.1:", fuseline_port)),
      plain_address_(absl::StrCat("127.0.0.1:", plain_port)) {}

ServerPair::~ServerPair() {
  close(stop_pipe_);
  waitpid(process_, nullptr, 0);
}

}  // namespace fuseline::bench
