// The services through real gRPC on a loopback port, with a fake engine.
#include "server/service/server.h"

#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "fuseline/v1/admin_service.grpc.pb.h"
#include "fuseline/v1/compile_service.grpc.pb.h"
#include "fuseline/v1/execute_service.grpc.pb.h"
#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"
#include "tests/testing/status_matchers.h"
#include "tests/unit/service/fake_engine.h"
#include "tests/unit/service/raw_call.h"

namespace fuseline::service {
namespace {

using ::fuseline::testing::StatusIs;
constexpr char kText[] = "graph g(x: f32[4]) {\n  %t = neg(x)\n  return y = %t\n}\n";
constexpr char kHealthCheck[] = "/grpc.health.v1.Health/Check";
// HealthCheckResponse{status: SERVING} and {status: NOT_SERVING}.
constexpr char kServing[] = "\x08\x01";
constexpr char kNotServing[] = "\x08\x02";

template <typename T>
T Detail(const grpc::Status& status) {
  google::rpc::Status details;
  EXPECT_TRUE(details.ParseFromString(status.error_details()));
  T detail;
  bool found = false;
  for (const google::protobuf::Any& packed : details.details()) found = packed.UnpackTo(&detail) || found;
  EXPECT_TRUE(found) << details.ShortDebugString();
  return detail;
}

class ServerTest : public ::testing::Test {
 protected:
  void Start(ServerOptions options = {}) {
    options.listen = listen_;
    options.version = "1.2.3";
    options.log = [this](const CallRecord& record) {
      absl::MutexLock lock(&mutex_);
      records_.push_back(record);
    };
    absl::StatusOr<std::unique_ptr<Server>> server = Server::Start(engine_, options);
    ASSERT_OK(server);
    server_ = *std::move(server);
    grpc::ChannelArguments arguments;
    arguments.SetMaxReceiveMessageSize(-1);
    arguments.SetMaxSendMessageSize(-1);
    channel_ = grpc::CreateCustomChannel(server_->address(), grpc::InsecureChannelCredentials(), arguments);
    compile_ = v1::CompileService::NewStub(channel_);
    execute_ = v1::ExecuteService::NewStub(channel_);
    admin_ = v1::AdminService::NewStub(channel_);
  }

  grpc::Status Compile(v1::CompileResponse* response = nullptr, grpc::ClientContext* context = nullptr) {
    v1::CompileRequest request;
    request.mutable_spec()->set_graph_text(kText);
    v1::CompileResponse ignored;
    grpc::ClientContext own;
    return compile_->Compile(context != nullptr ? context : &own, request, response != nullptr ? response : &ignored);
  }

  std::string Health(const std::string& service = "") {
    const std::string request =
        service.empty() ? "" : std::string("\x0a") + static_cast<char>(service.size()) + service;
    std::string response;
    const grpc::Status status = CallRaw(channel_, kHealthCheck, request, response);
    return status.ok() ? response : status.error_message();
  }

  // The records, once there are `count` of them.
  std::vector<CallRecord> Records(size_t count) {
    absl::MutexLock lock(&mutex_);
    const auto enough = [&] { return records_.size() >= count; };
    mutex_.AwaitWithTimeout(absl::Condition(&enough), absl::Seconds(10));
    return records_;
  }

  std::string listen_ = "127.0.0.1:0";
  FakeEngine engine_;
  absl::Mutex mutex_;
  std::vector<CallRecord> records_;
  std::unique_ptr<Server> server_;
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<v1::CompileService::Stub> compile_;
  std::unique_ptr<v1::ExecuteService::Stub> execute_;
  std::unique_ptr<v1::AdminService::Stub> admin_;
};

TEST_F(ServerTest, CompilesExecutesAndAnswersInfo) {
  Start();
  EXPECT_GT(server_->port(), 0);
  v1::CompileResponse compiled;
  const grpc::Status status = Compile(&compiled);
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(compiled.artifact().kernels_size(), 1);

  v1::ExecuteRequest request;
  request.mutable_spec()->set_fingerprint(compiled.summary().fingerprint());
  v1::Tensor* tensor = request.add_inputs()->mutable_tensor();
  tensor->set_dtype(v1::DATA_TYPE_F32);
  tensor->add_shape(4);
  tensor->set_data("0123456789abcdef");
  v1::ExecuteResponse executed;
  grpc::ClientContext execute_context;
  ASSERT_TRUE(execute_->Execute(&execute_context, request, &executed).ok());
  EXPECT_EQ(executed.outputs(0).tensor().data(), "0123456789abcdef");

  v1::GetServerInfoResponse info;
  grpc::ClientContext info_context;
  ASSERT_TRUE(admin_->GetServerInfo(&info_context, {}, &info).ok());
  EXPECT_EQ(info.version(), "1.2.3");
  v1::GetCacheStatsResponse stats;
  grpc::ClientContext stats_context;
  ASSERT_TRUE(admin_->GetCacheStats(&stats_context, {}, &stats).ok());
  EXPECT_EQ(stats.build_count(), 15);
}

TEST_F(ServerTest, ListensOnAUnixSocket) {
  listen_ = absl::StrCat("unix:", ::testing::TempDir(), "/fuseline_server_test.sock");
  Start();
  EXPECT_EQ(server_->port(), 0);
  EXPECT_EQ(server_->address(), listen_);
  EXPECT_TRUE(Compile().ok());
}

TEST_F(ServerTest, TakenPortAndBadOptionsAreErrors) {
  Start();
  ServerOptions options;
  options.listen = server_->address();
  EXPECT_THAT(Server::Start(engine_, options), StatusIs(absl::StatusCode::kUnavailable, "can't listen on"));
  options.listen = "127.0.0.1:0";
  options.max_message_bytes = 10;
  EXPECT_THAT(Server::Start(engine_, options), StatusIs(absl::StatusCode::kInvalidArgument, "max_message_bytes"));
}

TEST_F(ServerTest, RequestIdIsEchoedOrMadeUpAndLogged) {
  Start();
  grpc::ClientContext given;
  given.AddMetadata("x-request-id", "my-id.1");
  ASSERT_TRUE(Compile(nullptr, &given).ok());
  EXPECT_EQ(given.GetServerInitialMetadata().find("x-request-id")->second, "my-id.1");
  EXPECT_EQ(given.GetServerTrailingMetadata().find("x-request-id")->second, "my-id.1");
  grpc::ClientContext unsafe;
  unsafe.AddMetadata("x-request-id", "a b");
  ASSERT_TRUE(Compile(nullptr, &unsafe).ok());
  EXPECT_EQ(unsafe.GetServerTrailingMetadata().find("x-request-id")->second.size(), 32u);
  const std::vector<CallRecord> records = Records(2);
  ASSERT_EQ(records.size(), 2u);
  EXPECT_EQ(records[0].request_id, "my-id.1");
  EXPECT_EQ(records[0].method, "CompileService/Compile");
  EXPECT_EQ(records[0].code, "OK");
  EXPECT_GT(records[0].request_bytes, 0);
  EXPECT_GT(records[0].response_bytes, 0);
  EXPECT_GE(records[0].latency_micros, records[0].queue_micros);
  EXPECT_EQ(records[1].request_id.size(), 32u);
}

TEST_F(ServerTest, ErrorHasDetailsAndInternalErrorHasTheLoggedId) {
  engine_.error = Internal("the verifier failed");
  Start();
  grpc::ClientContext context;
  const grpc::Status status = Compile(nullptr, &context);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INTERNAL);
  EXPECT_EQ(Detail<google::rpc::ErrorInfo>(status).reason(), "INTERNAL_INVARIANT");
  const std::vector<CallRecord> records = Records(1);
  ASSERT_EQ(records.size(), 1u);
  EXPECT_EQ(Detail<google::rpc::RequestInfo>(status).request_id(), records[0].request_id);
  EXPECT_EQ(records[0].code, "INTERNAL");
  EXPECT_EQ(records[0].message, "the verifier failed");
}

TEST_F(ServerTest, LongErrorMessageStillArrives) {
  engine_.error = InvalidArgument(ErrorReason::kGraphSyntax, "%t", std::string(1 << 20, 'x'));
  Start();
  const grpc::Status status = Compile();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(Detail<google::rpc::BadRequest>(status).field_violations(0).field(), "%t");
}

TEST_F(ServerTest, ExceptionOfALibraryIsAnInternalError) {
  engine_.on_compile = []() -> absl::Status { throw std::runtime_error("oops"); };
  Start();
  const grpc::Status status = Compile();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INTERNAL);
  EXPECT_EQ(status.error_message(), "exception: oops");
}

TEST_F(ServerTest, CacheIsEvictedExportedAndImportedOverStreams) {
  engine_.export_tail = std::string((size_t{9} << 20) + 5, 'x');
  Start();
  ASSERT_TRUE(Compile().ok());
  {
    grpc::ClientContext context;
    const auto reader = admin_->ExportCache(&context, {});
    std::string file;
    v1::ExportCacheResponse response;
    while (reader->Read(&response)) {
      EXPECT_LE(response.chunk().size(), size_t{4} << 20);
      file += response.chunk();
    }
    EXPECT_TRUE(reader->Finish().ok());
    EXPECT_EQ(file.size(), 65 + engine_.export_tail.size());
  }
  {
    grpc::ClientContext context;
    v1::ImportCacheResponse response;
    const auto writer = admin_->ImportCache(&context, &response);
    for (const char* chunk : {"one", "", "two"}) {
      v1::ImportCacheRequest request;
      request.set_chunk(chunk);
      EXPECT_TRUE(writer->Write(request));
    }
    writer->WritesDone();
    EXPECT_TRUE(writer->Finish().ok());
    EXPECT_EQ(engine_.last_import(), "onetwo");
    EXPECT_EQ(response.imported_count(), 2);
    EXPECT_EQ(response.present_count(), 2);
    EXPECT_EQ(response.refused_count(), 1);
    EXPECT_EQ(response.first_refusal(), "it is not signed");
  }
  {
    grpc::ClientContext context;
    v1::EvictCacheRequest request;
    request.set_all(true);
    v1::EvictCacheResponse response;
    EXPECT_TRUE(admin_->EvictCache(&context, request, &response).ok());
    EXPECT_TRUE(engine_.last_evict().all);
    EXPECT_EQ(response.evicted_count(), 1);
    EXPECT_EQ(response.evicted_bytes(), 10);
  }
  EXPECT_EQ(Records(4).size(), 4u);
}

TEST_F(ServerTest, HitByFingerprintIsAnsweredWithoutAThreadByTheSameMessage) {
  Start();
  v1::CompileResponse compiled;
  ASSERT_TRUE(Compile(&compiled).ok());
  v1::CompileRequest request;
  request.mutable_spec()->set_fingerprint(compiled.summary().fingerprint());
  for (const bool omit_artifact : {true, false, false}) {
    request.set_omit_artifact(omit_artifact);
    v1::CompileResponse found;
    grpc::ClientContext context;
    ASSERT_TRUE(compile_->Compile(&context, request, &found).ok());
    EXPECT_EQ(found.summary().outcome(), v1::CACHE_OUTCOME_MEMORY_HIT);
    EXPECT_EQ(found.report().SerializeAsString(), compiled.report().SerializeAsString());
    EXPECT_EQ(found.has_artifact(), !omit_artifact);
    if (omit_artifact) continue;
    EXPECT_EQ(found.artifact().SerializeAsString(), compiled.artifact().SerializeAsString());
  }
  EXPECT_EQ(engine_.fast_finds, 3);
  const std::vector<CallRecord> records = Records(4);
  EXPECT_EQ(records[0].notes.outcome, "miss");
  EXPECT_EQ(records[0].notes.build_micros, 1'250'000);
  EXPECT_EQ(records[3].notes.outcome, "memory-hit");
  // One that is not in memory goes on to the engine, which does not know it either.
  request.mutable_spec()->set_fingerprint(std::string(32, 'x'));
  grpc::ClientContext context;
  EXPECT_EQ(compile_->Compile(&context, request, &compiled).error_code(), grpc::StatusCode::NOT_FOUND);
}

TEST_F(ServerTest, StreamTellsStagesAndBatchAnswersEach) {
  Start();
  v1::CompileRequest request;
  request.mutable_spec()->set_graph_text(kText);
  grpc::ClientContext stream_context;
  const auto stream = compile_->CompileStream(&stream_context, request);
  v1::CompileStreamResponse message;
  std::vector<int> stages;
  while (stream->Read(&message) && message.has_stage()) stages.push_back(message.stage());
  EXPECT_EQ(stages, (std::vector<int>{v1::COMPILE_STAGE_CACHE_CHECK, v1::COMPILE_STAGE_QUEUED,
                                      v1::COMPILE_STAGE_COMPILING, v1::COMPILE_STAGE_DONE}));
  EXPECT_EQ(message.response().artifact().kernels_size(), 1);
  EXPECT_FALSE(stream->Read(&message));
  EXPECT_TRUE(stream->Finish().ok());

  v1::BatchCompileRequest batch;
  *batch.add_requests() = request;
  batch.add_requests()->mutable_spec()->set_graph_text("nonsense");
  *batch.add_requests() = request;
  grpc::ClientContext batch_context;
  const auto reader = compile_->BatchCompile(&batch_context, batch);
  v1::BatchCompileResponse answer;
  std::vector<int> seen(3, 0);
  while (reader->Read(&answer)) {
    ++seen.at(static_cast<size_t>(answer.index()));
    EXPECT_EQ(answer.has_response(), answer.index() != 1);
  }
  EXPECT_TRUE(reader->Finish().ok());
  EXPECT_EQ(seen, (std::vector<int>{1, 1, 1}));
}

TEST_F(ServerTest, CancelledStreamStopsWaitingForItsBuild) {
  engine_.block_compile = true;
  Start();
  v1::CompileRequest request;
  request.mutable_spec()->set_graph_text(kText);
  grpc::ClientContext context;
  const auto stream = compile_->CompileStream(&context, request);
  v1::CompileStreamResponse message;
  EXPECT_TRUE(stream->Read(&message));
  EXPECT_TRUE(stream->Read(&message));
  EXPECT_EQ(message.stage(), v1::COMPILE_STAGE_QUEUED);
  context.TryCancel();
  EXPECT_EQ(stream->Finish().error_code(), grpc::StatusCode::CANCELLED);
  EXPECT_EQ(Records(1).at(0).code, "CANCELLED");
  engine_.block_compile = false;
}

TEST_F(ServerTest, HealthAndReflectionAreServed) {
  Start();
  EXPECT_EQ(Health(), kServing);
  EXPECT_EQ(Health("fuseline.v1.CompileService"), kServing);
  EXPECT_EQ(Health("no.such.Service"), "service name unknown");
  std::string services;
  // ServerReflectionRequest{list_services: "*"}.
  const grpc::Status status =
      CallRaw(channel_, "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo", "\x3a\x01*", services);
  ASSERT_TRUE(status.ok()) << status.error_message();
  for (const char* name : {"fuseline.v1.CompileService", "fuseline.v1.ExecuteService", "fuseline.v1.AdminService",
                           "grpc.health.v1.Health"}) {
    EXPECT_TRUE(absl::StrContains(services, name)) << name;
  }
}

TEST_F(ServerTest, MessageOverTheLimitIsRefusedAndLargeOnesPass) {
  ServerOptions options;
  options.max_message_bytes = 8 << 20;
  Start(options);
  v1::ExecuteRequest request;
  request.mutable_spec()->set_graph_text("graph g(x: u8[6000000]) {\n  return y = x\n}\n");
  v1::Tensor* tensor = request.add_inputs()->mutable_tensor();
  tensor->set_dtype(v1::DATA_TYPE_U8);
  tensor->add_shape(6'000'000);
  tensor->set_data(std::string(6'000'000, 'x'));
  v1::ExecuteResponse response;
  grpc::ClientContext fits;
  ASSERT_TRUE(execute_->Execute(&fits, request, &response).ok());
  EXPECT_EQ(response.outputs(0).tensor().data().size(), 6'000'000u);
  tensor->set_data(std::string(9 << 20, 'x'));
  grpc::ClientContext too_large;
  EXPECT_EQ(execute_->Execute(&too_large, request, &response).error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
}

// A Compile that blocks until it is released, on a thread of its own.
class BlockedCompile {
 public:
  explicit BlockedCompile(FakeEngine& engine) {
    engine.on_compile = [this] {
      ++running;
      release.WaitForNotification();
      return absl::OkStatus();
    };
  }
  void WaitUntilRunning(int count) {
    while (running < count) absl::SleepFor(absl::Milliseconds(1));
  }
  std::atomic<int> running{0};
  absl::Notification release;
};

TEST_F(ServerTest, FullQueueRefusesWorkButNotCheapCalls) {
  BlockedCompile blocked(engine_);
  ServerOptions options;
  options.compile_workers = 1;
  options.max_compile_queue = 1;
  Start(options);
  std::thread first([&] { EXPECT_TRUE(Compile().ok()); });
  blocked.WaitUntilRunning(1);
  // Of two more, one waits and one is refused, whichever comes first.
  std::atomic<int> refused{0};
  std::vector<std::thread> more;
  for (int i = 0; i < 2; ++i) {
    more.emplace_back([&] {
      const grpc::Status status = Compile();
      if (status.ok()) return;
      EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
      EXPECT_EQ(Detail<google::rpc::ErrorInfo>(status).reason(), "QUEUE_FULL");
      EXPECT_EQ(Detail<google::rpc::RetryInfo>(status).retry_delay().nanos(), 500'000'000);
      ++refused;
    });
  }
  while (refused == 0) absl::SleepFor(absl::Milliseconds(1));
  v1::GetServerInfoResponse info;
  grpc::ClientContext context;
  EXPECT_TRUE(admin_->GetServerInfo(&context, {}, &info).ok());
  EXPECT_EQ(Health(), kServing);
  blocked.release.Notify();
  first.join();
  for (std::thread& thread : more) thread.join();
  EXPECT_EQ(refused, 1);
}

TEST_F(ServerTest, CallWhoseDeadlinePassedInTheQueueDoesNoWork) {
  BlockedCompile blocked(engine_);
  ServerOptions options;
  options.compile_workers = 1;
  Start(options);
  std::thread first([&] { EXPECT_TRUE(Compile().ok()); });
  blocked.WaitUntilRunning(1);
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::milliseconds(50));
  EXPECT_EQ(Compile(nullptr, &context).error_code(), grpc::StatusCode::DEADLINE_EXCEEDED);
  absl::SleepFor(absl::Milliseconds(100));  // the server's clock for the call started later
  blocked.release.Notify();
  first.join();
  EXPECT_EQ(Records(2).size(), 2u);
  EXPECT_EQ(blocked.running, 1);
}

TEST_F(ServerTest, CancellationReachesTheEngine) {
  absl::Notification started;
  std::atomic<bool> stopped{false};
  engine_.on_execute = [&](const executor::ExecuteOptions& options) {
    started.Notify();
    absl::Status status;
    const absl::Time limit = absl::Now() + absl::Seconds(10);
    while (status.ok() && absl::Now() < limit) {
      absl::SleepFor(absl::Milliseconds(1));
      status = options.cancelled();
    }
    stopped = true;
    return status;
  };
  Start();
  grpc::ClientContext context;
  std::thread canceller([&] {
    started.WaitForNotification();
    context.TryCancel();
  });
  v1::ExecuteRequest request;
  request.mutable_spec()->set_graph_text("graph g(x: f32[]) {\n  return y = x\n}\n");
  v1::Tensor* tensor = request.add_inputs()->mutable_tensor();
  tensor->set_dtype(v1::DATA_TYPE_F32);
  tensor->set_data("1234");
  v1::ExecuteResponse response;
  EXPECT_EQ(execute_->Execute(&context, request, &response).error_code(), grpc::StatusCode::CANCELLED);
  canceller.join();
  EXPECT_EQ(Records(1).at(0).code, "CANCELLED");
  EXPECT_TRUE(stopped);
}

TEST_F(ServerTest, DrainFinishesWorkAndRefusesMore) {
  BlockedCompile blocked(engine_);
  Start();
  std::thread running([&] { EXPECT_TRUE(Compile().ok()); });
  blocked.WaitUntilRunning(1);
  bool done = false;
  std::thread drain([&] { done = server_->Drain(absl::Seconds(30)); });
  while (Health() != kNotServing) absl::SleepFor(absl::Milliseconds(1));
  grpc::Status refused = Compile();
  EXPECT_EQ(refused.error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_EQ(Detail<google::rpc::ErrorInfo>(refused).reason(), "DRAINING");
  EXPECT_EQ(Detail<google::rpc::RetryInfo>(refused).retry_delay().seconds(), 1);
  v1::GetServerInfoResponse info;
  grpc::ClientContext context;
  ASSERT_TRUE(admin_->GetServerInfo(&context, {}, &info).ok());
  EXPECT_EQ(info.state(), v1::SERVER_STATE_DRAINING);
  blocked.release.Notify();
  running.join();
  drain.join();
  EXPECT_TRUE(done);
  EXPECT_TRUE(server_->Drain(absl::ZeroDuration()));  // nothing left to do
}

TEST_F(ServerTest, DrainPastItsDeadlineCancelsWhatRuns) {
  absl::Notification started;
  engine_.on_execute = [&](const executor::ExecuteOptions& options) {
    started.Notify();
    absl::Status status;
    while (status.ok()) {
      absl::SleepFor(absl::Milliseconds(1));
      status = options.cancelled();
    }
    return status;
  };
  Start();
  grpc::Status status;
  std::thread running([&] {
    v1::ExecuteRequest request;
    request.mutable_spec()->set_graph_text("graph g(x: f32[]) {\n  return y = x\n}\n");
    v1::Tensor* tensor = request.add_inputs()->mutable_tensor();
    tensor->set_dtype(v1::DATA_TYPE_F32);
    tensor->set_data("1234");
    v1::ExecuteResponse response;
    grpc::ClientContext context;
    status = execute_->Execute(&context, request, &response);
  });
  started.WaitForNotification();
  EXPECT_FALSE(server_->Drain(absl::Milliseconds(20)));
  running.join();
  EXPECT_FALSE(status.ok());
}

}  // namespace
}  // namespace fuseline::service
