#include "client/cpp/client.h"

#include <unistd.h>

#include <atomic>
#include <deque>
#include <functional>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "client/cpp/error_details.h"
#include "common/ir/text_form.h"
#include "common/status/error.h"
#include "fuseline/v1/admin_service.grpc.pb.h"
#include "fuseline/v1/compile_service.grpc.pb.h"
#include "fuseline/v1/execute_service.grpc.pb.h"
#include "gmock/gmock.h"
#include "grpcpp/grpcpp.h"
#include "gtest/gtest.h"
#include "tests/testing/status_matchers.h"

namespace fuseline::client {
namespace {

using ::fuseline::testing::StatusIs;

constexpr char kGraph[] = "graph g(x: f32[2], w: f32[2]) {\n  %t = mul(x, w)\n  return y = %t\n}\n";

std::string FakeFingerprint() { return std::string(32, '\x2a'); }

// Answers what each test's script says; remembers the requests.
class FakeExecute : public v1::ExecuteService::Service {
 public:
  using Handler = std::function<grpc::Status(const v1::ExecuteRequest&, v1::ExecuteResponse*)>;

  // Multiplies the inputs, whatever the graph.
  static grpc::Status Multiply(const v1::ExecuteRequest& request, v1::ExecuteResponse* response) {
    const float* x = reinterpret_cast<const float*>(request.inputs(0).tensor().data().data());
    const float* w = reinterpret_cast<const float*>(request.inputs(1).tensor().data().data());
    const float y[2] = {x[0] * w[0], x[1] * w[1]};
    v1::NamedTensor* output = response->add_outputs();
    output->set_name("out0");
    output->mutable_tensor()->set_dtype(v1::DATA_TYPE_F32);
    output->mutable_tensor()->add_shape(2);
    output->mutable_tensor()->set_data(y, sizeof(y));
    response->mutable_summary()->set_fingerprint(FakeFingerprint());
    response->mutable_summary()->set_outcome(v1::CACHE_OUTCOME_DISK_HIT);
    response->mutable_summary()->set_target("cpu");
    response->mutable_timings()->mutable_run_time()->set_nanos(5000);
    response->set_device(3);
    return grpc::Status::OK;
  }

  grpc::Status Execute(grpc::ServerContext*, const v1::ExecuteRequest* request,
                       v1::ExecuteResponse* response) override {
    absl::MutexLock lock(&mutex_);
    requests_.push_back(*request);
    if (script_.empty()) return Multiply(*request, response);
    const Handler handler = script_.front();
    script_.pop_front();
    return handler(*request, response);
  }

  grpc::Status Benchmark(grpc::ServerContext*, const v1::BenchmarkRequest* request,
                         v1::BenchmarkResponse* response) override {
    absl::MutexLock lock(&mutex_);
    benchmark_requests_.push_back(*request);
    response->mutable_summary()->set_fingerprint(FakeFingerprint());
    response->mutable_summary()->set_outcome(v1::CACHE_OUTCOME_MISS);
    response->mutable_summary()->set_target("cuda:sm_90");
    response->mutable_report()->add_kernels()->set_schedule("a schedule");
    response->add_iteration_micros(1.5);
    response->add_iteration_micros(2.5);
    response->set_copy_bytes_per_second(4e12);
    response->set_moved_bytes(77);
    response->set_device(3);
    response->set_device_name("a device");
    return grpc::Status::OK;
  }

  std::vector<v1::BenchmarkRequest> benchmark_requests() {
    absl::MutexLock lock(&mutex_);
    return benchmark_requests_;
  }
  void Expect(Handler handler) {
    absl::MutexLock lock(&mutex_);
    script_.push_back(std::move(handler));
  }
  void ExpectError(grpc::StatusCode code, const std::string& details = "") {
    Expect([=](const v1::ExecuteRequest&, v1::ExecuteResponse*) { return grpc::Status(code, "scripted", details); });
  }
  std::vector<v1::ExecuteRequest> requests() {
    absl::MutexLock lock(&mutex_);
    return requests_;
  }

 private:
  absl::Mutex mutex_;
  std::deque<Handler> script_ ABSL_GUARDED_BY(mutex_);
  std::vector<v1::ExecuteRequest> requests_ ABSL_GUARDED_BY(mutex_);
  std::vector<v1::BenchmarkRequest> benchmark_requests_ ABSL_GUARDED_BY(mutex_);
};

class FakeAdmin : public v1::AdminService::Service {
 public:
  grpc::Status GetServerInfo(grpc::ServerContext*, const v1::GetServerInfoRequest*,
                             v1::GetServerInfoResponse* response) override {
    response->set_version("1.2.3");
    v1::TargetInfo* target = response->add_targets();
    target->set_target("cuda:sm_90");
    target->set_can_compile(true);
    target->set_reason("no driver");
    v1::DeviceInfo* device = response->add_devices();
    device->set_name("a device");
    device->set_target("cpu");
    device->set_memory_bytes(77);
    response->set_state(v1::SERVER_STATE_DRAINING);
    response->mutable_limits()->set_max_message_bytes(1234);
    return grpc::Status::OK;
  }
  grpc::Status GetCacheStats(grpc::ServerContext*, const v1::GetCacheStatsRequest*,
                             v1::GetCacheStatsResponse* response) override {
    v1::CacheLevelStats* level = response->add_levels();
    level->set_level("memory");
    level->set_hit_count(5);
    response->set_build_count(2);
    return grpc::Status::OK;
  }
};

class ClientTest : public ::testing::Test {
 protected:
  void SetUp() override { Start("127.0.0.1:0"); }

  void Start(const std::string& listen) {
    grpc::ServerBuilder builder;
    int port = 0;
    builder.AddListeningPort(listen, grpc::InsecureServerCredentials(), &port);
    builder.RegisterService(&execute_);
    builder.RegisterService(&admin_);
    server_ = builder.BuildAndStart();
    ASSERT_NE(server_, nullptr);
    address_ = port > 1 ? absl::StrCat("127.0.0.1:", port) : listen;
  }
  void TearDown() override {
    server_->Shutdown();
    server_->Wait();
  }

  std::unique_ptr<Client> Connect(ClientOptions options = {}) {
    options.initial_backoff = absl::Milliseconds(1);
    auto client = Client::Connect(address_, options);
    EXPECT_OK(client);
    return *std::move(client);
  }
  static CompileSpec Spec(const std::string& text = kGraph) {
    auto graph = ParseGraphText(text);
    EXPECT_OK(graph);
    return {.graph = std::make_shared<const Graph>(*std::move(graph))};
  }
  static Tensor Pair(float a, float b) {
    Tensor tensor = Tensor::Allocate(DType::kF32, {2});
    tensor.SetDouble(0, a);
    tensor.SetDouble(1, b);
    return tensor;
  }
  static std::vector<NamedTensor> Inputs() { return {{"w", Pair(10, 20)}, {"x", Pair(1, 2)}}; }

  FakeExecute execute_;
  FakeAdmin admin_;
  std::unique_ptr<grpc::Server> server_;
  std::string address_;
};

TEST_F(ClientTest, BenchmarkSendsNoTensorsAndThenOnlyTheFingerprint) {
  const auto client = Connect();
  const auto result = client->Benchmark(Spec(), {.seed = -4, .warmup_count = 5, .iteration_count = 6});
  ASSERT_OK(result);
  EXPECT_EQ(result->micros, (std::vector<double>{1.5, 2.5}));
  EXPECT_EQ(result->copy_bytes_per_second, 4e12);
  EXPECT_EQ(result->moved_bytes, 77);
  EXPECT_EQ(result->device, 3);
  EXPECT_EQ(result->device_name, "a device");
  EXPECT_EQ(result->summary.outcome, "miss");
  EXPECT_TRUE(result->summary.graph_sent);
  ASSERT_EQ(result->report.kernels.size(), 1u);
  EXPECT_EQ(result->report.kernels[0].schedule, "a schedule");
  const auto again = client->Benchmark(Spec());
  ASSERT_OK(again);
  EXPECT_FALSE(again->summary.graph_sent);
  const std::vector<v1::BenchmarkRequest> requests = execute_.benchmark_requests();
  ASSERT_EQ(requests.size(), 2u);
  EXPECT_EQ(requests[0].seed(), -4);
  EXPECT_EQ(requests[0].warmup_count(), 5);
  EXPECT_EQ(requests[0].iteration_count(), 6);
  EXPECT_TRUE(requests[0].spec().has_graph());
  EXPECT_EQ(requests[1].spec().fingerprint(), FakeFingerprint());
  EXPECT_EQ(requests[1].iteration_count(), 20);
}

TEST_F(ClientTest, ExecuteSendsInputsInTheGraphsOrderAndNamesTheOutputs) {
  const auto result = Connect()->Execute(Spec(), Inputs());
  ASSERT_OK(result);
  const v1::ExecuteRequest request = execute_.requests()[0];
  EXPECT_EQ(request.spec().graph().nodes(0).op(), "mul");
  EXPECT_EQ(request.inputs(0).tensor().data(), Pair(1, 2).bytes());
  ASSERT_EQ(result->outputs.size(), 1u);
  EXPECT_EQ(result->outputs[0].name, "y");
  EXPECT_EQ(result->outputs[0].tensor.GetDouble(0), 10);
  EXPECT_EQ(result->outputs[0].tensor.GetDouble(1), 40);
  EXPECT_EQ(result->summary.outcome, "disk-hit");
  EXPECT_TRUE(result->summary.is_hit());
  EXPECT_TRUE(result->summary.graph_sent);
  EXPECT_EQ(result->run_time, absl::Microseconds(5));
  EXPECT_EQ(result->device, 3);
}

TEST_F(ClientTest, OptionsTargetAndSymbolsTravel) {
  CompileSpec spec = Spec("graph g(x: f32[n], w: f32[n]) {\n  %t = mul(x, w)\n  return y = %t\n}\n");
  spec.symbols = {{"n", 2}};
  spec.target = Target::Cuda(90);
  spec.options = {.numerics = Numerics::kEager, .fast_math = true, .allow_tf32 = true, .fuse = false};
  spec.bypass_cache = true;
  ASSERT_OK(Connect()->Execute(spec, Inputs()));
  const v1::CompileSpec sent = execute_.requests()[0].spec();
  EXPECT_EQ(sent.target(), "cuda:sm_90");
  EXPECT_EQ(sent.symbol_sizes().at("n"), 2);
  EXPECT_EQ(sent.options().numerics(), v1::NUMERICS_EAGER);
  EXPECT_TRUE(sent.options().fast_math());
  EXPECT_TRUE(sent.options().allow_tf32());
  EXPECT_TRUE(sent.options().disable_fusion());
  EXPECT_TRUE(sent.bypass_cache());
}

TEST_F(ClientTest, UnchangedGraphIsAskedForByFingerprint) {
  const auto client = Connect();
  ASSERT_OK(client->Execute(Spec(), Inputs()));
  const auto again = client->Execute(Spec(), Inputs());  // another Graph object, the same graph
  ASSERT_OK(again);
  EXPECT_FALSE(again->summary.graph_sent);
  EXPECT_EQ(again->outputs[0].name, "y");
  ASSERT_EQ(execute_.requests().size(), 2u);
  EXPECT_EQ(execute_.requests()[1].spec().fingerprint(), FakeFingerprint());
}

TEST_F(ClientTest, OtherOptionsOrShapesAreNotTheSameRequest) {
  const auto client = Connect();
  const CompileSpec spec = Spec("graph g(x: f32[n], w: f32[n]) {\n  %t = mul(x, w)\n  return y = %t\n}\n");
  ASSERT_OK(client->Execute(spec, Inputs()));
  CompileSpec eager = spec;
  eager.options.numerics = Numerics::kEager;
  ASSERT_OK(client->Execute(eager, Inputs()));
  Tensor longer = Tensor::Allocate(DType::kF32, {3});
  for (int i = 0; i < 3; ++i) longer.SetDouble(i, 1);
  ASSERT_OK(client->Execute(spec, {{"x", longer}, {"w", longer}}));
  for (const v1::ExecuteRequest& request : execute_.requests()) EXPECT_TRUE(request.spec().has_graph());
}

TEST_F(ClientTest, UnknownFingerprintFallsBackToTheGraph) {
  const auto client = Connect();
  ASSERT_OK(client->Execute(Spec(), Inputs()));
  execute_.ExpectError(grpc::StatusCode::NOT_FOUND);
  const auto again = client->Execute(Spec(), Inputs());
  ASSERT_OK(again);
  EXPECT_TRUE(again->summary.graph_sent);
  ASSERT_EQ(execute_.requests().size(), 3u);
  EXPECT_TRUE(execute_.requests()[1].spec().has_fingerprint());
  EXPECT_TRUE(execute_.requests()[2].spec().has_graph());
}

TEST_F(ClientTest, GivenFingerprintIsAskedForFirst) {
  CompileSpec spec = Spec();
  spec.fingerprint = Fingerprint{};
  ASSERT_OK(Connect()->Execute(spec, Inputs()));
  EXPECT_EQ(execute_.requests()[0].spec().fingerprint(), std::string(32, '\0'));
}

TEST_F(ClientTest, FingerprintAloneKeepsTheServersNames) {
  const auto result = Connect()->Execute({.fingerprint = Fingerprint{}}, {{"in0", Pair(1, 2)}, {"in1", Pair(3, 4)}});
  ASSERT_OK(result);
  EXPECT_EQ(execute_.requests()[0].inputs(1).name(), "in1");
  EXPECT_EQ(result->outputs[0].name, "out0");
}

TEST_F(ClientTest, RememberingOffSendsTheGraphEveryTime) {
  const auto client = Connect({.remember_fingerprints = false});
  ASSERT_OK(client->Execute(Spec(), Inputs()));
  ASSERT_OK(client->Execute(Spec(), Inputs()));
  EXPECT_TRUE(execute_.requests()[1].spec().has_graph());
}

TEST_F(ClientTest, InputsAreCheckedBeforeAnythingIsSent) {
  const auto client = Connect();
  EXPECT_THAT(client->Execute(Spec(), {{"x", Pair(1, 2)}}),
              StatusIs(absl::StatusCode::kInvalidArgument, "input 'w' has no tensor"));
  EXPECT_THAT(client->Execute(Spec(), {{"x", Pair(1, 2)}, {"w", Pair(1, 2)}, {"z", Pair(1, 2)}}),
              StatusIs(absl::StatusCode::kInvalidArgument, "input 'z' is not an input"));
  EXPECT_THAT(client->Execute(Spec(), {{"x", Pair(1, 2)}, {"x", Pair(1, 2)}}),
              StatusIs(absl::StatusCode::kInvalidArgument, "given twice"));
  EXPECT_THAT(client->Execute(Spec(), {{"", Pair(1, 2)}}),
              StatusIs(absl::StatusCode::kInvalidArgument, "2 inputs, 1 tensors"));
  EXPECT_THAT(client->Execute({}, {}),
              StatusIs(absl::StatusCode::kInvalidArgument, "neither a graph nor a fingerprint"));
  EXPECT_TRUE(execute_.requests().empty());
}

TEST_F(ClientTest, UnavailableIsRetriedUntilItWorks) {
  execute_.ExpectError(grpc::StatusCode::UNAVAILABLE);
  execute_.ExpectError(grpc::StatusCode::UNAVAILABLE);
  ASSERT_OK(Connect()->Execute(Spec(), Inputs()));
  EXPECT_EQ(execute_.requests().size(), 3u);
}

TEST_F(ClientTest, AttemptsEnd) {
  for (int i = 0; i < 5; ++i) execute_.ExpectError(grpc::StatusCode::UNAVAILABLE);
  EXPECT_THAT(Connect({.max_attempts = 2})->Execute(Spec(), Inputs()),
              StatusIs(absl::StatusCode::kUnavailable, "scripted"));
  EXPECT_EQ(execute_.requests().size(), 2u);
}

TEST_F(ClientTest, OtherCodesAreNotRetried) {
  for (const auto code :
       {grpc::StatusCode::INVALID_ARGUMENT, grpc::StatusCode::RESOURCE_EXHAUSTED, grpc::StatusCode::INTERNAL,
        grpc::StatusCode::UNIMPLEMENTED, grpc::StatusCode::FAILED_PRECONDITION, grpc::StatusCode::NOT_FOUND}) {
    const size_t before = execute_.requests().size();
    execute_.ExpectError(code);
    EXPECT_THAT(Connect()->Execute(Spec(), Inputs()), StatusIs(static_cast<absl::StatusCode>(code), "scripted"));
    EXPECT_EQ(execute_.requests().size(), before + 1);
  }
}

TEST_F(ClientTest, ServersRetryDelayIsTheLeastWait) {
  // RetryInfo with 300 ms: Status{3: Any{1: url, 2: RetryInfo{1: Duration{2: 300'000'000}}}}.
  const std::string duration("\x10\x80\xc6\x86\x8f\x01", 6);
  const std::string info = std::string("\x0a\x06", 2) + duration;
  const std::string url = "type.googleapis.com/google.rpc.RetryInfo";
  const std::string any =
      std::string("\x0a") + static_cast<char>(url.size()) + url + "\x12" + static_cast<char>(info.size()) + info;
  execute_.ExpectError(grpc::StatusCode::UNAVAILABLE, std::string("\x1a") + static_cast<char>(any.size()) + any);
  const absl::Time start = absl::Now();
  ASSERT_OK(Connect()->Execute(Spec(), Inputs()));
  EXPECT_GE(absl::Now() - start, absl::Milliseconds(300));
}

TEST_F(ClientTest, DeadlineEndsACall) {
  execute_.Expect([](const v1::ExecuteRequest& request, v1::ExecuteResponse* response) {
    absl::SleepFor(absl::Milliseconds(500));
    return FakeExecute::Multiply(request, response);
  });
  EXPECT_THAT(Connect({.deadline = absl::Milliseconds(50)})->Execute(Spec(), Inputs()),
              StatusIs(absl::StatusCode::kDeadlineExceeded, ""));
}

TEST_F(ClientTest, NoServerIsUnavailable) {
  const auto client = Client::Connect("127.0.0.1:1", {.max_attempts = 1});
  ASSERT_OK(client);
  EXPECT_THAT((*client)->GetServerInfo(), StatusIs(absl::StatusCode::kUnavailable, ""));
}

TEST_F(ClientTest, AnswersThatMakeNoSenseAreInternal) {
  const auto client = Connect({.remember_fingerprints = false});
  const auto change = [&](const std::function<void(v1::ExecuteResponse*)>& edit) {
    execute_.Expect([edit](const v1::ExecuteRequest& request, v1::ExecuteResponse* response) {
      const grpc::Status status = FakeExecute::Multiply(request, response);
      edit(response);
      return status;
    });
    return client->Execute(Spec(), Inputs()).status();
  };
  EXPECT_THAT(change([](v1::ExecuteResponse* r) { r->mutable_outputs(0)->mutable_tensor()->set_data("abc"); }),
              StatusIs(absl::StatusCode::kInternal, "3 bytes where its shape has 8"));
  EXPECT_THAT(change([](v1::ExecuteResponse* r) { r->mutable_outputs(0)->mutable_tensor()->set_shape(0, -2); }),
              StatusIs(absl::StatusCode::kInternal, "negative size"));
  EXPECT_THAT(change([](v1::ExecuteResponse* r) {
                for (int i = 0; i < 9; ++i) r->mutable_outputs(0)->mutable_tensor()->add_shape(1 << 30);
              }),
              StatusIs(absl::StatusCode::kInternal, "impossible shape"));
  EXPECT_THAT(change([](v1::ExecuteResponse* r) {
                r->mutable_outputs(0)->mutable_tensor()->set_dtype(static_cast<v1::DataType>(99));
              }),
              StatusIs(absl::StatusCode::kInternal, "unknown dtype"));
  EXPECT_THAT(change([](v1::ExecuteResponse* r) { r->mutable_summary()->set_fingerprint("short"); }),
              StatusIs(absl::StatusCode::kInternal, "not 32 bytes"));
  EXPECT_THAT(change([](v1::ExecuteResponse* r) { r->clear_outputs(); }),
              StatusIs(absl::StatusCode::kInternal, "0 outputs of 1"));
}

TEST_F(ClientTest, RequestOverTheMessageBoundIsRefusedHere) {
  EXPECT_THAT(Connect({.max_message_bytes = 50})->Execute(Spec(), Inputs()),
              StatusIs(absl::StatusCode::kResourceExhausted, "limit of 50"));
  EXPECT_TRUE(execute_.requests().empty());
}

TEST_F(ClientTest, BadOptionsAreRefused) {
  EXPECT_THAT(Client::Connect("", {}).status(), StatusIs(absl::StatusCode::kInvalidArgument, "address"));
  EXPECT_THAT(Client::Connect("x:1", {.max_attempts = 0}).status(),
              StatusIs(absl::StatusCode::kInvalidArgument, "max_attempts"));
  EXPECT_THAT(Client::Connect("x:1", {.max_message_bytes = int64_t{1} << 31}).status(),
              StatusIs(absl::StatusCode::kInvalidArgument, "max_message_bytes"));
}

TEST_F(ClientTest, ServerInfoAndCacheStatsAreDecoded) {
  const auto client = Connect();
  const auto info = client->GetServerInfo();
  ASSERT_OK(info);
  EXPECT_EQ(info->version, "1.2.3");
  EXPECT_TRUE(info->draining);
  EXPECT_EQ(info->targets[0].reason, "no driver");
  EXPECT_TRUE(info->targets[0].can_compile);
  EXPECT_FALSE(info->targets[0].can_execute);
  EXPECT_EQ(info->devices[0].memory_bytes, 77);
  EXPECT_EQ(info->max_message_bytes, 1234);
  const auto stats = client->GetCacheStats();
  ASSERT_OK(stats);
  EXPECT_EQ(stats->levels[0].hits, 5);
  EXPECT_EQ(stats->builds, 2);
}

class ClientUnixSocketTest : public ClientTest {
 protected:
  void SetUp() override { Start(absl::StrCat("unix:", ::testing::TempDir(), "fuseline_client_test_", getpid())); }
};

TEST_F(ClientUnixSocketTest, ExecutesOverAUnixSocket) { ASSERT_OK(Connect()->Execute(Spec(), Inputs())); }

}  // namespace
}  // namespace fuseline::client
