// Streaming calls through real gRPC on a loopback port, with handlers of the tests' own.
#include "server/service/message_stream.h"

#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "fuseline/v1/execute_service.grpc.pb.h"
#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"
#include "server/service/call_runner.h"

namespace fuseline::service {
namespace {

using Put = v1::PutTensorRequest;
using Got = v1::GetTensorResponse;
using StreamRequest = v1::ExecuteStreamRequest;
using StreamResponse = v1::ExecuteStreamResponse;

std::string Reason(const grpc::Status& status) {
  google::rpc::Status details;
  details.ParseFromString(status.error_details());
  google::rpc::ErrorInfo info;
  for (const google::protobuf::Any& packed : details.details()) packed.UnpackTo(&info);
  return info.reason();
}

// The four kinds of calls, of a service that has them all.
class StreamService final : public v1::ExecuteService::CallbackService {
 public:
  CallRunner* runner = nullptr;
  CallRunner::Handler<v1::DeleteTensorRequest, v1::DeleteTensorResponse> unary;
  CallRunner::FastHandler<v1::DeleteTensorRequest, v1::DeleteTensorResponse> fast;
  CallRunner::ServerStreamHandler<v1::GetTensorRequest, Got> server_stream;
  CallRunner::ClientStreamHandler<Put, v1::PutTensorResponse> client_stream;
  CallRunner::BidiHandler<StreamRequest, StreamResponse> bidi;

  grpc::ServerUnaryReactor* DeleteTensor(grpc::CallbackServerContext* context, const v1::DeleteTensorRequest* request,
                                         v1::DeleteTensorResponse* response) override {
    return runner->Run<v1::DeleteTensorRequest, v1::DeleteTensorResponse>(context, "Test/Unary", Lane::kExecute,
                                                                          request, response, unary, fast);
  }
  grpc::ServerWriteReactor<Got>* GetTensor(grpc::CallbackServerContext* context,
                                           const v1::GetTensorRequest* request) override {
    return runner->RunServerStream<v1::GetTensorRequest, Got>(context, "Test/ServerStream", Lane::kStream, request,
                                                              server_stream);
  }
  grpc::ServerReadReactor<Put>* PutTensor(grpc::CallbackServerContext* context,
                                          v1::PutTensorResponse* response) override {
    return runner->RunClientStream<Put, v1::PutTensorResponse>(context, "Test/ClientStream", Lane::kStream, response,
                                                               client_stream);
  }
  grpc::ServerBidiReactor<StreamRequest, StreamResponse>* ExecuteStream(grpc::CallbackServerContext* context) override {
    return runner->RunBidi<StreamRequest, StreamResponse>(context, "Test/Bidi", Lane::kStream, bidi);
  }
};

class MessageStreamTest : public ::testing::Test {
 protected:
  void Start(CallRunnerOptions options = {}) {
    options.log = [this](const CallRecord& record) {
      absl::MutexLock lock(&mutex_);
      records_.push_back(record);
    };
    runner_ = std::make_unique<CallRunner>(options);
    service_.runner = runner_.get();
    int port = 0;
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
    builder.RegisterService(&service_);
    server_ = builder.BuildAndStart();
    ASSERT_NE(server_, nullptr);
    channel_ = grpc::CreateChannel(absl::StrCat("127.0.0.1:", port), grpc::InsecureChannelCredentials());
    stub_ = v1::ExecuteService::NewStub(channel_);
  }
  void TearDown() override {
    if (server_ != nullptr) server_->Shutdown(std::chrono::system_clock::now() + std::chrono::seconds(2));
    server_ = nullptr;
  }

  CallRecord OnlyRecord() {
    absl::MutexLock lock(&mutex_);
    const auto one = [&] { return records_.size() == 1; };
    EXPECT_TRUE(mutex_.AwaitWithTimeout(absl::Condition(&one), absl::Seconds(20)));
    return records_.empty() ? CallRecord() : records_[0];
  }

  grpc::Status CallUnary(const std::string& handle = "h", const std::string& owner = "") {
    grpc::ClientContext context;
    if (!owner.empty()) context.AddMetadata(kOwnerKey, owner);
    v1::DeleteTensorRequest request;
    request.set_handle(handle);
    v1::DeleteTensorResponse response;
    return stub_->DeleteTensor(&context, request, &response);
  }

  StreamService service_;
  absl::Mutex mutex_;
  std::vector<CallRecord> records_;
  std::unique_ptr<CallRunner> runner_;
  std::unique_ptr<grpc::Server> server_;
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<v1::ExecuteService::Stub> stub_;
};

Got Chunk(int64_t offset, size_t size_bytes) {
  Got message;
  message.mutable_chunk()->set_offset_bytes(offset);
  message.mutable_chunk()->set_data(std::string(size_bytes, 'x'));
  return message;
}

TEST_F(MessageStreamTest, ServerStreamArrivesInOrderAndIsLogged) {
  service_.server_stream = [](const auto& request, MessageWriter<Got>& writer, const CallContext& context) {
    EXPECT_EQ(context.owner, "me");
    for (int i = 0; i < 200; ++i) {
      if (absl::Status status = writer.Write(Chunk(i, 10'000)); !status.ok()) return status;
    }
    return absl::OkStatus();
  };
  Start();
  grpc::ClientContext context;
  context.AddMetadata(kOwnerKey, "me");
  const auto reader = stub_->GetTensor(&context, {});
  Got message;
  int64_t count = 0;
  while (reader->Read(&message)) EXPECT_EQ(message.chunk().offset_bytes(), count++);
  EXPECT_EQ(count, 200);
  EXPECT_TRUE(reader->Finish().ok());
  const CallRecord record = OnlyRecord();
  EXPECT_EQ(record.method, "Test/ServerStream");
  EXPECT_EQ(record.code, "OK");
  EXPECT_EQ(record.owner, "me");
  EXPECT_GT(record.response_bytes, 200 * 10'000);
  EXPECT_LT(record.response_bytes, 200 * 10'100);
}

TEST_F(MessageStreamTest, ErrorAfterMessagesArrivesAfterThem) {
  service_.server_stream = [](const auto&, MessageWriter<Got>& writer, const CallContext&) -> absl::Status {
    if (absl::Status status = writer.Write(Chunk(1, 1)); !status.ok()) return status;
    return MakeError(absl::StatusCode::kNotFound, ErrorReason::kHandleUnknown, "w", "no tensor 'w'");
  };
  Start();
  grpc::ClientContext context;
  const auto reader = stub_->GetTensor(&context, {});
  Got message;
  EXPECT_TRUE(reader->Read(&message));
  EXPECT_FALSE(reader->Read(&message));
  const grpc::Status status = reader->Finish();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::NOT_FOUND);
  EXPECT_EQ(Reason(status), "HANDLE_UNKNOWN");
}

TEST_F(MessageStreamTest, ClientStreamIsReadToItsEnd) {
  service_.client_stream = [](MessageReader<Put>& reader, const CallContext&) -> absl::StatusOr<v1::PutTensorResponse> {
    v1::PutTensorResponse response;
    Put message;
    while (true) {
      absl::StatusOr<bool> read = reader.Read(message);
      if (!read.ok()) return read.status();
      if (!*read) break;
      EXPECT_EQ(message.chunk().offset_bytes(), response.size_bytes());
      response.set_size_bytes(response.size_bytes() + static_cast<int64_t>(message.chunk().data().size()));
    }
    EXPECT_FALSE(*reader.Read(message));  // and stays there
    return response;
  };
  Start();
  grpc::ClientContext context;
  v1::PutTensorResponse response;
  const auto writer = stub_->PutTensor(&context, &response);
  Put message;
  for (int i = 0; i < 100; ++i) {
    message.mutable_chunk()->set_offset_bytes(i * 100'000);
    message.mutable_chunk()->set_data(std::string(100'000, 'x'));
    ASSERT_TRUE(writer->Write(message));
  }
  writer->WritesDone();
  ASSERT_TRUE(writer->Finish().ok());
  EXPECT_EQ(response.size_bytes(), 10'000'000);
  EXPECT_GT(OnlyRecord().request_bytes, 10'000'000);
  EXPECT_EQ(runner_->stats().inflight_bytes, 0);
}

TEST_F(MessageStreamTest, BidiStreamTalksBothWays) {
  service_.bidi = [](MessageReader<StreamRequest>& reader, MessageWriter<StreamResponse>& writer, const CallContext&) {
    StreamRequest request;
    while (true) {
      absl::StatusOr<bool> read = reader.Read(request);
      if (!read.ok()) return read.status();
      if (!*read) return absl::OkStatus();
      StreamResponse response;
      *response.mutable_chunk() = request.chunk();
      if (absl::Status status = writer.Write(std::move(response)); !status.ok()) return status;
    }
  };
  Start();
  grpc::ClientContext context;
  const auto stream = stub_->ExecuteStream(&context);
  for (int i = 0; i < 20; ++i) {
    StreamRequest request;
    request.mutable_chunk()->set_offset_bytes(i);
    ASSERT_TRUE(stream->Write(request));
    StreamResponse response;
    ASSERT_TRUE(stream->Read(&response));
    EXPECT_EQ(response.chunk().offset_bytes(), i);
  }
  stream->WritesDone();
  EXPECT_TRUE(stream->Finish().ok());
}

TEST_F(MessageStreamTest, HandlerMayAnswerBeforeTheClientHasSentAll) {
  service_.client_stream = [](MessageReader<Put>& reader, const CallContext&) -> absl::StatusOr<v1::PutTensorResponse> {
    Put message;
    if (absl::StatusOr<bool> read = reader.Read(message); !read.ok()) return read.status();
    return InvalidArgument(ErrorReason::kTensorMismatch, "chunk", "chunk is wrong");
  };
  Start();
  grpc::ClientContext context;
  v1::PutTensorResponse response;
  const auto writer = stub_->PutTensor(&context, &response);
  Put message;
  message.mutable_chunk()->set_data(std::string(1 << 20, 'x'));
  while (writer->Write(message)) {
  }
  const grpc::Status status = writer->Finish();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(Reason(status), "TENSOR_MISMATCH");
}

TEST_F(MessageStreamTest, CancelledClientFreesAHandlerThatReads) {
  absl::Notification reading;
  std::atomic<bool> read_ended{false};
  service_.client_stream = [&](MessageReader<Put>& reader,
                               const CallContext&) -> absl::StatusOr<v1::PutTensorResponse> {
    Put message;
    EXPECT_TRUE(*reader.Read(message));
    reading.Notify();
    const absl::StatusOr<bool> read = reader.Read(message);
    read_ended = true;
    return read.ok() ? Internal("the stream ended") : read.status();
  };
  Start();
  grpc::ClientContext context;
  v1::PutTensorResponse response;
  const auto writer = stub_->PutTensor(&context, &response);
  ASSERT_TRUE(writer->Write({}));
  reading.WaitForNotification();
  context.TryCancel();
  EXPECT_EQ(writer->Finish().error_code(), grpc::StatusCode::CANCELLED);
  EXPECT_EQ(OnlyRecord().code, "CANCELLED");
  EXPECT_TRUE(read_ended);
}

TEST_F(MessageStreamTest, ClientThatSendsNothingIsTimedOut) {
  service_.client_stream = [](MessageReader<Put>& reader, const CallContext&) -> absl::StatusOr<v1::PutTensorResponse> {
    Put message;
    absl::StatusOr<bool> read = reader.Read(message);
    return read.ok() ? Internal("read a message") : read.status();
  };
  CallRunnerOptions options;
  options.stream_idle = absl::Milliseconds(50);
  Start(options);
  grpc::ClientContext context;
  v1::PutTensorResponse response;
  const auto writer = stub_->PutTensor(&context, &response);
  const grpc::Status status = writer->Finish();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::DEADLINE_EXCEEDED);
  EXPECT_EQ(status.error_message(), "the client sent nothing for 50ms");
}

TEST_F(MessageStreamTest, ClientThatTakesNothingIsTimedOutAndFreesTheThread) {
  service_.server_stream = [](const auto&, MessageWriter<Got>& writer, const CallContext&) {
    absl::Status status;
    while (status.ok()) status = writer.Write(Chunk(0, 1 << 20));
    return status;
  };
  CallRunnerOptions options;
  options.stream_idle = absl::Milliseconds(100);
  options.max_streams = 1;
  Start(options);
  grpc::ClientContext context;
  const auto reader = stub_->GetTensor(&context, {});
  const CallRecord record = OnlyRecord();
  EXPECT_EQ(record.code, "DEADLINE_EXCEEDED");
  EXPECT_EQ(record.message, "the client took nothing for 100ms");
  while (runner_->stats().stream.running > 0) absl::SleepFor(absl::Milliseconds(1));
  context.TryCancel();
  Got message;
  while (reader->Read(&message)) {
  }
  EXPECT_FALSE(reader->Finish().ok());
}

TEST_F(MessageStreamTest, DeadlineEndsAStreamThatWaits) {
  service_.bidi = [](MessageReader<StreamRequest>& reader, MessageWriter<StreamResponse>&, const CallContext&) {
    StreamRequest request;
    absl::StatusOr<bool> read = reader.Read(request);
    return read.ok() ? Internal("read a message") : read.status();
  };
  Start();
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::milliseconds(50));
  const auto stream = stub_->ExecuteStream(&context);
  EXPECT_EQ(stream->Finish().error_code(), grpc::StatusCode::DEADLINE_EXCEEDED);
  const std::string code = OnlyRecord().code;
  EXPECT_TRUE(code == "DEADLINE_EXCEEDED" || code == "CANCELLED") << code;
}

TEST_F(MessageStreamTest, StreamsOverTheirNumberAreRefusedAtOnce) {
  absl::Notification release;
  absl::Notification running;
  service_.server_stream = [&](const auto&, MessageWriter<Got>&, const CallContext&) {
    running.Notify();
    release.WaitForNotification();
    return absl::OkStatus();
  };
  service_.unary = [](const auto&, const CallContext&) { return v1::DeleteTensorResponse(); };
  CallRunnerOptions options;
  options.max_streams = 1;
  Start(options);
  grpc::ClientContext first_context;
  const auto first = stub_->GetTensor(&first_context, {});
  running.WaitForNotification();
  grpc::ClientContext context;
  const grpc::Status refused = stub_->GetTensor(&context, {})->Finish();
  EXPECT_EQ(refused.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_EQ(Reason(refused), "QUEUE_FULL");
  EXPECT_TRUE(CallUnary().ok());  // others do not wait for streams
  release.Notify();
  Got message;
  EXPECT_FALSE(first->Read(&message));
  EXPECT_TRUE(first->Finish().ok());
}

TEST_F(MessageStreamTest, DrainWaitsForStreamsAndRefusesMore) {
  absl::Notification release;
  absl::Notification running;
  service_.server_stream = [&](const auto&, MessageWriter<Got>& writer, const CallContext&) {
    running.Notify();
    release.WaitForNotification();
    return writer.Write(Chunk(0, 1));
  };
  Start();
  grpc::ClientContext first_context;
  const auto first = stub_->GetTensor(&first_context, {});
  running.WaitForNotification();
  runner_->StartDraining();
  EXPECT_FALSE(runner_->WaitUntilIdle(absl::Now() + absl::Milliseconds(20)));
  grpc::ClientContext context;
  const grpc::Status refused = stub_->GetTensor(&context, {})->Finish();
  EXPECT_EQ(Reason(refused), "DRAINING");
  release.Notify();
  Got message;
  EXPECT_TRUE(first->Read(&message));
  EXPECT_FALSE(first->Read(&message));
  EXPECT_TRUE(first->Finish().ok());
  EXPECT_TRUE(runner_->WaitUntilIdle(absl::Now() + absl::Seconds(10)));
}

TEST_F(MessageStreamTest, RequestBytesOverTheBoundAreRefused) {
  absl::Notification release;
  absl::Notification running;
  service_.unary = [&](const auto& request, const CallContext&) {
    if (request->handle() == "first") {
      running.Notify();
      release.WaitForNotification();
    }
    return v1::DeleteTensorResponse();
  };
  service_.client_stream = [](MessageReader<Put>& reader, const CallContext&) -> absl::StatusOr<v1::PutTensorResponse> {
    Put message;
    absl::StatusOr<bool> read = reader.Read(message);
    if (!read.ok()) return read.status();
    return v1::PutTensorResponse();
  };
  CallRunnerOptions options;
  options.max_inflight_bytes = 1000;
  Start(options);
  std::thread first([&] { EXPECT_TRUE(CallUnary("first").ok()); });
  running.WaitForNotification();
  EXPECT_TRUE(CallUnary(std::string(900, 'x')).ok());
  const grpc::Status refused = CallUnary(std::string(1000, 'x'));
  EXPECT_EQ(refused.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_EQ(Reason(refused), "QUEUE_FULL");
  {
    grpc::ClientContext context;
    v1::PutTensorResponse response;
    const auto writer = stub_->PutTensor(&context, &response);
    Put message;
    message.mutable_chunk()->set_data(std::string(2000, 'x'));
    writer->Write(message);
    writer->WritesDone();
    EXPECT_EQ(Reason(writer->Finish()), "QUEUE_FULL");
  }
  release.Notify();
  first.join();
  // Nothing else is held: one that is over the bound on its own is served.
  while (runner_->stats().inflight_bytes > 0) absl::SleepFor(absl::Milliseconds(1));
  EXPECT_TRUE(CallUnary(std::string(5000, 'x')).ok());
}

TEST_F(MessageStreamTest, OwnerArrivesAndABadOneIsRefused) {
  absl::Mutex mutex;
  std::string last = "unset";
  const auto owner = [&] {
    absl::MutexLock lock(&mutex);
    return last;
  };
  service_.unary = [&](const auto&, const CallContext& context) {
    absl::MutexLock lock(&mutex);
    last = context.owner;
    return v1::DeleteTensorResponse();
  };
  Start();
  EXPECT_TRUE(CallUnary().ok());
  EXPECT_EQ(owner(), "");
  EXPECT_TRUE(CallUnary("h", "team a/job-1").ok());
  EXPECT_EQ(owner(), "team a/job-1");
  const grpc::Status refused = CallUnary("h", std::string(129, 'x'));
  EXPECT_EQ(refused.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_TRUE(absl::StrContains(refused.error_message(), "fuseline-owner"));
}

TEST_F(MessageStreamTest, FastHandlerAnswersWithoutAThreadAndOthersGoOn) {
  std::atomic<int> slow{0};
  service_.fast = [](const v1::DeleteTensorRequest& request, const CallContext&, v1::DeleteTensorResponse&) {
    return request.handle() == "known";
  };
  service_.unary = [&](const auto&, const CallContext&) {
    ++slow;
    return v1::DeleteTensorResponse();
  };
  Start();
  EXPECT_TRUE(CallUnary("known").ok());
  EXPECT_EQ(slow, 0);
  EXPECT_TRUE(CallUnary("other").ok());
  EXPECT_EQ(slow, 1);
}

}  // namespace
}  // namespace fuseline::service
