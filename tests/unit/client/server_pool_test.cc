// A client of several servers, each of which answers what a test says: who is asked, in which order, and who after
// whom.
#include "client/cpp/server_pool.h"

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "client/cpp/client.h"
#include "common/ir/text_form.h"
#include "common/status/error.h"
#include "gmock/gmock.h"
#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"
#include "grpcpp/grpcpp.h"
#include "gtest/gtest.h"
#include "tests/testing/status_matchers.h"
#include "tests/unit/client/copy_response.h"

namespace fuseline::client {
namespace {

using ::fuseline::testing::StatusIs;
using ::testing::ElementsAre;
using ::testing::SizeIs;

// As a server sends it: with its reason.
grpc::Status Failure(absl::StatusCode code, ErrorReason reason, const std::string& message = "scripted") {
  google::rpc::ErrorInfo info;
  info.set_reason(std::string(ErrorReasonName(reason)));
  info.set_domain("fuseline");
  google::rpc::Status details;
  details.add_details()->PackFrom(info);
  return grpc::Status(static_cast<grpc::StatusCode>(code), message, details.SerializeAsString());
}

// One server. `fail` is asked first in every call but GetServerInfo.
class FakeServer : public v1::CompileService::Service,
                   public v1::ExecuteService::Service,
                   public v1::AdminService::Service {
 public:
  FakeServer() {
    grpc::ServerBuilder builder;
    int port = 0;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
    builder.RegisterService(static_cast<v1::CompileService::Service*>(this));
    builder.RegisterService(static_cast<v1::ExecuteService::Service*>(this));
    builder.RegisterService(static_cast<v1::AdminService::Service*>(this));
    server_ = builder.BuildAndStart();
    address_ = absl::StrCat("127.0.0.1:", port);
    AddTarget("cpu", true, true);
  }
  ~FakeServer() override { Stop(); }

  void Stop() {
    if (server_ == nullptr) return;
    server_->Shutdown(absl::ToChronoTime(absl::Now()));
    server_->Wait();
    server_ = nullptr;
  }
  const std::string& address() const { return address_; }
  // Before the first call.
  void AddTarget(const std::string& target, bool can_compile, bool can_execute, const std::string& reason = "") {
    absl::MutexLock lock(&mutex_);
    v1::TargetInfo* info = info_.add_targets();
    info->set_target(target);
    info->set_can_compile(can_compile);
    info->set_can_execute(can_execute);
    info->set_reason(reason);
    if (can_execute) info_.add_devices()->set_target(target);
  }
  void ClearTargets() {
    absl::MutexLock lock(&mutex_);
    info_.Clear();
  }
  void Fail(std::function<grpc::Status()> fail) {
    absl::MutexLock lock(&mutex_);
    fail_ = std::move(fail);
  }
  void Fail(const grpc::Status& status) {
    Fail([status] { return status; });
  }
  // Compile answers only once the call is cancelled, or after ten seconds.
  std::atomic<bool> hangs{false};
  std::atomic<bool> was_cancelled{false};
  std::atomic<bool> breaks_streams{false};  // after their first message

  // Methods called, GetServerInfo aside.
  std::vector<std::string> calls() const {
    absl::MutexLock lock(&mutex_);
    return calls_;
  }
  std::vector<std::string> affinities() const {
    absl::MutexLock lock(&mutex_);
    return affinities_;
  }
  int info_calls() const { return info_calls_; }

  grpc::Status GetServerInfo(grpc::ServerContext*, const v1::GetServerInfoRequest*,
                             v1::GetServerInfoResponse* response) override {
    ++info_calls_;
    absl::MutexLock lock(&mutex_);
    *response = info_;
    return grpc::Status::OK;
  }
  grpc::Status Compile(grpc::ServerContext* context, const v1::CompileRequest*,
                       v1::CompileResponse* response) override {
    const grpc::Status status = Note(context, "Compile");
    if (!status.ok()) return status;
    for (int i = 0; i < 1000 && hangs && !context->IsCancelled(); ++i) absl::SleepFor(absl::Milliseconds(10));
    if (context->IsCancelled()) was_cancelled = true;
    *response = CopyResponse();
    return grpc::Status::OK;
  }
  grpc::Status CompileStream(grpc::ServerContext* context, const v1::CompileRequest*,
                             grpc::ServerWriter<v1::CompileStreamResponse>* writer) override {
    const grpc::Status status = Note(context, "CompileStream");
    if (!status.ok()) return status;
    v1::CompileStreamResponse message;
    message.set_stage(v1::COMPILE_STAGE_COMPILING);
    writer->Write(message);
    if (breaks_streams) return Failure(absl::StatusCode::kUnavailable, ErrorReason::kDraining);
    *message.mutable_response() = CopyResponse();
    writer->Write(message);
    return grpc::Status::OK;
  }
  grpc::Status BatchCompile(grpc::ServerContext* context, const v1::BatchCompileRequest* request,
                            grpc::ServerWriter<v1::BatchCompileResponse>* writer) override {
    const grpc::Status status = Note(context, absl::StrCat("BatchCompile ", request->requests_size()));
    if (!status.ok()) return status;
    for (int i = 0; i < request->requests_size(); ++i) {
      v1::BatchCompileResponse answer;
      answer.set_index(i);
      *answer.mutable_response() = CopyResponse();
      writer->Write(answer);
      if (breaks_streams) return Failure(absl::StatusCode::kUnavailable, ErrorReason::kDraining);
    }
    return grpc::Status::OK;
  }
  grpc::Status Execute(grpc::ServerContext* context, const v1::ExecuteRequest* request,
                       v1::ExecuteResponse* response) override {
    const grpc::Status status = Note(context, "Execute");
    if (!status.ok()) return status;
    *response->mutable_summary() = CopyResponse().summary();
    v1::NamedTensor* output = response->add_outputs();
    output->set_name("out0");
    output->mutable_tensor()->set_dtype(v1::DATA_TYPE_F32);
    output->mutable_tensor()->add_shape(2);
    output->mutable_tensor()->set_data(std::string(8, '\0'));
    return grpc::Status::OK;
  }
  grpc::Status ListTensors(grpc::ServerContext* context, const v1::ListTensorsRequest*,
                           v1::ListTensorsResponse*) override {
    return Note(context, "ListTensors");
  }
  grpc::Status DeleteTensor(grpc::ServerContext* context, const v1::DeleteTensorRequest*,
                            v1::DeleteTensorResponse*) override {
    return Note(context, "DeleteTensor");
  }

 private:
  grpc::Status Note(grpc::ServerContext* context, const std::string& call) {
    std::function<grpc::Status()> fail;
    {
      absl::MutexLock lock(&mutex_);
      calls_.push_back(call);
      const auto it = context->client_metadata().find("x-fuseline-affinity");
      affinities_.emplace_back(
          it == context->client_metadata().end() ? "" : std::string(it->second.data(), it->second.size()));
      fail = fail_;
    }
    return fail ? fail() : grpc::Status::OK;
  }

  std::unique_ptr<grpc::Server> server_;
  std::string address_;
  std::atomic<int> info_calls_{0};
  mutable absl::Mutex mutex_;
  v1::GetServerInfoResponse info_ ABSL_GUARDED_BY(mutex_);
  std::function<grpc::Status()> fail_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::string> calls_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::string> affinities_ ABSL_GUARDED_BY(mutex_);
};

class ServerPoolTest : public ::testing::Test {
 protected:
  void StartServers(int count) {
    for (int i = 0; i < count; ++i) servers_.push_back(std::make_unique<FakeServer>());
  }
  std::string Addresses() const {
    return absl::StrJoin(servers_, ", ", [](std::string* out, const auto& s) { absl::StrAppend(out, s->address()); });
  }
  std::unique_ptr<Client> Connect(ClientOptions options = {}, const std::string& addresses = "") {
    options.initial_backoff = absl::Milliseconds(1);
    auto client = Client::Connect(addresses.empty() ? Addresses() : addresses, options);
    EXPECT_OK(client);
    return *std::move(client);
  }
  // Graph number `n`; `x` names its input.
  static CompileSpec Spec(int n = 0, const std::string& x = "x") {
    CompileSpec spec;
    auto graph = ParseGraphText(
        absl::StrCat("graph g(", x, ": f32[2]) {\n  %t = add(", x, ", ", n, ".0)\n  return y = %t\n}\n"));
    EXPECT_OK(graph);
    if (graph.ok()) spec.graph = std::make_shared<const Graph>(*std::move(graph));
    spec.target = Target::Cpu();
    return spec;
  }
  static std::vector<NamedTensor> Inputs() {
    Tensor tensor = Tensor::Allocate(DType::kF32, {2});
    tensor.SetDouble(0, 1);
    tensor.SetDouble(1, 2);
    return {{"x", tensor}};
  }
  // Calls of each server, and of all.
  std::vector<size_t> Counts() const {
    std::vector<size_t> counts;
    for (const auto& server : servers_) counts.push_back(server->calls().size());
    return counts;
  }
  size_t Total() const {
    size_t total = 0;
    for (const size_t count : Counts()) total += count;
    return total;
  }
  // The server that `spec` goes to first.
  FakeServer& HomeOf(const CompileSpec& spec) {
    const std::vector<size_t> before = Counts();
    EXPECT_OK(Connect()->Compile(spec));
    for (size_t i = 0; i < servers_.size(); ++i) {
      if (servers_[i]->calls().size() > before[i]) return *servers_[i];
    }
    return *servers_[0];
  }

  std::vector<std::unique_ptr<FakeServer>> servers_;
};

TEST(RendezvousTest, KeysSpreadEvenlyAndOnlyThoseOfALostServerMove) {
  constexpr uint64_t kKeys = 30'000;
  const std::vector<uint64_t> servers = {StableHash("10.0.0.1:50061"), StableHash("10.0.0.2:50061"),
                                         StableHash("10.0.0.3:50061")};
  const auto best = [&](uint64_t key, size_t count) {
    size_t first = 0;
    for (size_t i = 1; i < count; ++i) {
      if (RendezvousScore(key, servers[i]) > RendezvousScore(key, servers[first])) first = i;
    }
    return first;
  };
  std::map<size_t, int> shares;
  for (uint64_t key = 0; key < kKeys; ++key) {  // neighbouring keys, the worst ones
    const size_t of_three = best(key, 3);
    ++shares[of_three];
    ASSERT_TRUE(of_three == 2 || best(key, 2) == of_three) << key;
  }
  for (const auto& [server, share] : shares) EXPECT_NEAR(share, 10'000, 500) << server;
}

TEST(RendezvousTest, HashesAreThoseOfThePythonClient) {
  // The same numbers stand in tests/python/test_servers.py.
  EXPECT_EQ(StableHash("10.0.0.1:50061"), 0xc173d58bc0cfc7a7u);
  EXPECT_EQ(RendezvousScore(12345, 0xc173d58bc0cfc7a7u), 0x61b2dcf443ec2159u);
}

TEST_F(ServerPoolTest, EqualGraphsOfAllClientsMeetOnOneServer) {
  StartServers(3);
  std::set<size_t> used;
  for (int n = 0; n < 20; ++n) {
    const std::vector<size_t> before = Counts();
    ASSERT_OK(Connect()->Compile(Spec(n)));
    // Another client with its addresses in another order, and the graph spelled otherwise.
    ASSERT_OK(
        Connect({}, absl::StrCat(servers_[2]->address(), ",", servers_[0]->address(), ",", servers_[1]->address()))
            ->Compile(Spec(n, "other")));
    ASSERT_OK(Connect()->Execute(Spec(n), Inputs()));
    const std::vector<size_t> after = Counts();
    for (size_t i = 0; i < servers_.size(); ++i) {
      if (after[i] == before[i]) continue;
      EXPECT_EQ(after[i] - before[i], 3u) << "graph " << n;
      used.insert(i);
    }
  }
  EXPECT_GT(used.size(), 1u);
}

TEST_F(ServerPoolTest, AffinityHeaderIsOfTheGraphAndNotOfItsSpelling) {
  StartServers(1);
  const auto client = Connect();
  ASSERT_OK(client->Compile(Spec(1)));
  ASSERT_OK(client->Execute(Spec(1), Inputs()));
  ASSERT_OK(client->Compile(Spec(1, "other")));
  ASSERT_OK(client->Compile(Spec(2)));
  CompileSpec eager = Spec(1);
  eager.options.numerics = Numerics::kEager;
  ASSERT_OK(client->Compile(eager));
  const std::vector<std::string> affinities = servers_[0]->affinities();
  ASSERT_EQ(affinities.size(), 5u);
  EXPECT_THAT(affinities[0], SizeIs(16));
  EXPECT_EQ(affinities[1], affinities[0]);
  EXPECT_EQ(affinities[2], affinities[0]);
  EXPECT_NE(affinities[3], affinities[0]);
  EXPECT_NE(affinities[4], affinities[0]);
  EXPECT_EQ(servers_[0]->info_calls(), 0) << "one server is asked nothing about itself";
}

TEST_F(ServerPoolTest, RoundRobinGoesToEachInTurn) {
  StartServers(3);
  const auto client = Connect({.balance = Balance::kRoundRobin});
  for (int i = 0; i < 6; ++i) ASSERT_OK(client->Compile(Spec()));
  EXPECT_THAT(Counts(), ElementsAre(2, 2, 2));
}

TEST_F(ServerPoolTest, DrainingServerIsLeftAtOnceAndAvoidedForAWhile) {
  StartServers(3);
  FakeServer& home = HomeOf(Spec());
  home.Fail(Failure(absl::StatusCode::kUnavailable, ErrorReason::kDraining));
  const size_t before = home.calls().size();
  const auto client = Connect({.max_attempts = 1});
  for (int i = 0; i < 4; ++i) EXPECT_OK(client->Compile(Spec()));
  EXPECT_EQ(home.calls().size(), before + 1);
}

TEST_F(ServerPoolTest, CallsThatNoServerAnsweredAreMadeAgain) {
  StartServers(1);
  const auto client = Connect();
  // Of gRPC, for a server that shuts down; of a proxy whose server broke off. The server itself gives a reason.
  for (const grpc::Status& lost : {grpc::Status(grpc::StatusCode::CANCELLED, "CANCELLED"),
                                   grpc::Status(grpc::StatusCode::INTERNAL, "Received RST_STREAM with error code 2")}) {
    auto count = std::make_shared<std::atomic<int>>(0);
    servers_[0]->Fail([=] { return (*count)++ == 0 ? lost : grpc::Status::OK; });
    EXPECT_OK(client->Compile(Spec()));
    EXPECT_EQ(*count, 2);
  }
  servers_[0]->Fail(Failure(absl::StatusCode::kCancelled, ErrorReason::kCancelled, "it was told so"));
  const size_t before = Total();
  EXPECT_THAT(client->Compile(Spec()), StatusIs(absl::StatusCode::kCancelled, "told"));
  EXPECT_EQ(Total(), before + 1);
}

TEST_F(ServerPoolTest, DeadServerCostsNoCall) {
  StartServers(2);
  HomeOf(Spec()).Stop();
  EXPECT_OK(Connect({.max_attempts = 1})->Compile(Spec()));
}

TEST_F(ServerPoolTest, ServerThatIsBackIsAskedAgain) {
  StartServers(2);
  FakeServer& home = HomeOf(Spec());
  home.Fail(Failure(absl::StatusCode::kUnavailable, ErrorReason::kDraining));
  const auto client = Connect();
  ASSERT_OK(client->Compile(Spec()));
  home.Fail(nullptr);
  const size_t before = home.calls().size();
  absl::SleepFor(absl::Milliseconds(1100));  // the first time it is avoided for a second
  ASSERT_OK(client->Compile(Spec()));
  EXPECT_EQ(home.calls().size(), before + 1);
}

TEST_F(ServerPoolTest, AttemptsAskEveryServerAndThenEnd) {
  StartServers(2);
  for (const auto& server : servers_)
    server->Fail(Failure(absl::StatusCode::kUnavailable, ErrorReason::kDraining, "all go"));
  EXPECT_THAT(Connect({.max_attempts = 3})->Compile(Spec()), StatusIs(absl::StatusCode::kUnavailable, "all go"));
  EXPECT_THAT(Counts(), ElementsAre(3, 3));
}

TEST_F(ServerPoolTest, FullQueueSendsToAnotherServerAndIsNotHeldAgainstIt) {
  StartServers(2);
  FakeServer& home = HomeOf(Spec());
  home.Fail(Failure(absl::StatusCode::kResourceExhausted, ErrorReason::kQueueFull, "full"));
  const size_t before = home.calls().size();
  const auto client = Connect();
  EXPECT_OK(client->Compile(Spec()));
  EXPECT_OK(client->Compile(Spec()));
  EXPECT_EQ(home.calls().size(), before + 2);
  for (const auto& server : servers_)
    server->Fail(Failure(absl::StatusCode::kResourceExhausted, ErrorReason::kQueueFull, "full"));
  EXPECT_THAT(client->Compile(Spec()), StatusIs(absl::StatusCode::kResourceExhausted, "full"));
}

TEST_F(ServerPoolTest, WhatIsWrongWithTheRequestIsAskedOfOneServerOnly) {
  StartServers(2);
  for (const auto& server : servers_)
    server->Fail(Failure(absl::StatusCode::kInvalidArgument, ErrorReason::kGraphStructure, "wrong"));
  EXPECT_THAT(Connect()->Compile(Spec()), StatusIs(absl::StatusCode::kInvalidArgument, "wrong"));
  EXPECT_EQ(Total(), 1u);
}

TEST_F(ServerPoolTest, StreamThatBreaksGoesOnElsewhere) {
  StartServers(2);
  HomeOf(Spec()).breaks_streams = true;
  int stages = 0;
  ASSERT_OK(Connect({.max_attempts = 1})->Compile(Spec(), false, [&](CompileStage) { ++stages; }));
  EXPECT_EQ(stages, 2);
}

TEST_F(ServerPoolTest, RunsGoToServersThatHaveTheDeviceAndCompilationsToAny) {
  StartServers(3);
  for (const auto& server : servers_) server->ClearTargets();
  servers_[0]->AddTarget("cuda:sm_80", true, false, "no driver");  // NVRTC compiles for all architectures
  servers_[1]->AddTarget("cuda:sm_90", true, true);
  servers_[2]->AddTarget("cuda:sm_90", false, false, "no NVRTC");
  const auto client = Connect();
  for (int n = 0; n < 40; ++n) {
    CompileSpec spec = Spec(n);
    spec.target = Target::Cuda(90);
    ASSERT_OK(client->Execute(spec, Inputs()));
    ASSERT_OK(client->Compile(spec));
  }
  EXPECT_THAT(servers_[0]->calls(), ::testing::Each("Compile"));
  EXPECT_THAT(servers_[0]->calls(), ::testing::Not(::testing::IsEmpty()));
  EXPECT_THAT(servers_[1]->calls(), ::testing::Contains("Execute").Times(40));
  EXPECT_THAT(servers_[2]->calls(), ::testing::IsEmpty());
  EXPECT_EQ(servers_[1]->info_calls(), 1) << "what a server can do is remembered";
}

TEST_F(ServerPoolTest, TargetThatNoServerHasIsRefusedWithTheReasonOfEach) {
  StartServers(2);
  servers_[0]->AddTarget("cuda:sm_90", true, false, "no driver here");
  CompileSpec spec = Spec();
  spec.target = Target::Cuda(90);
  const absl::Status status = Connect()->Execute(spec, Inputs()).status();
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kFailedPrecondition, "none of the 2 servers can run 'cuda:sm_90'"));
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kFailedPrecondition,
                               absl::StrCat(servers_[0]->address(), ": no driver here")));
  EXPECT_EQ(GetErrorReason(status), ErrorReason::kTargetNotAvailable);
  EXPECT_EQ(Total(), 0u);
}

TEST_F(ServerPoolTest, ServerThatLostItsDeviceSendsTheRunElsewhere) {
  StartServers(2);
  FakeServer& home = HomeOf(Spec());
  home.Fail(Failure(absl::StatusCode::kFailedPrecondition, ErrorReason::kTargetNotAvailable, "it is gone"));
  EXPECT_OK(Connect()->Execute(Spec(), Inputs()));
}

TEST_F(ServerPoolTest, KeptTensorsAndRunsThatUseThemStayOnTheOwnersServer) {
  StartServers(3);
  std::set<size_t> used;
  for (int number = 0; number < 20; ++number) {
    const std::string owner = absl::StrCat("owner ", number);
    const std::vector<size_t> before = Counts();
    for (int again = 0; again < 2; ++again) {
      const auto client = Connect({.owner = owner});
      ASSERT_OK(client->ListTensors());
      ASSERT_OK(client->DeleteTensor("h"));
      ASSERT_OK(client->Execute(Spec(again), {{"x", Tensor(), "h"}}));
    }
    const std::vector<size_t> after = Counts();
    for (size_t i = 0; i < 3; ++i) {
      if (after[i] == before[i]) continue;
      EXPECT_EQ(after[i] - before[i], 6u) << owner;
      used.insert(i);
      const std::vector<std::string> affinities = servers_[i]->affinities();
      EXPECT_EQ(std::set<std::string>(affinities.end() - 6, affinities.end()).size(), 1u) << "for a balancer";
    }
  }
  EXPECT_GT(used.size(), 1u);
}

TEST_F(ServerPoolTest, TensorsOfAServerThatIsDownAreNotLookedForElsewhere) {
  StartServers(3);
  for (const auto& server : servers_)
    server->Fail(Failure(absl::StatusCode::kUnavailable, ErrorReason::kDraining, "later"));
  EXPECT_THAT(Connect({.max_attempts = 2})->ListTensors(), StatusIs(absl::StatusCode::kUnavailable, "later"));
  EXPECT_EQ(Total(), 2u);
  EXPECT_THAT(Counts(), ::testing::Contains(2u));
}

TEST_F(ServerPoolTest, TensorsAreKeptWhereThereIsAGpu) {
  StartServers(3);
  servers_[1]->AddTarget("cuda:sm_90", true, true);
  for (const char* owner : {"ann", "bob", "carol", "dave"}) ASSERT_OK(Connect({.owner = owner})->ListTensors());
  EXPECT_THAT(Counts(), ElementsAre(0, 4, 0));
}

TEST_F(ServerPoolTest, FingerprintWithoutItsGraphIsAskedOfAll) {
  StartServers(3);
  const auto not_found = Failure(absl::StatusCode::kNotFound, ErrorReason::kFingerprintUnknown, "unknown");
  CompileSpec spec;
  spec.fingerprint = Fingerprint{};
  FakeServer& home = HomeOf(spec);
  home.Fail(not_found);
  const size_t before = Total();
  const auto client = Connect();
  EXPECT_OK(client->Compile(spec));
  EXPECT_EQ(Total(), before + 2);
  for (const auto& server : servers_) server->Fail(not_found);
  EXPECT_THAT(client->Compile(spec), StatusIs(absl::StatusCode::kNotFound, "unknown"));
  EXPECT_EQ(Total(), before + 5);
}

TEST_F(ServerPoolTest, SlowServerIsHedgedAndTheLoserCancelled) {
  StartServers(2);
  FakeServer& home = HomeOf(Spec());
  home.hangs = true;
  const absl::Time start = absl::Now();
  ASSERT_OK(Connect({.hedge_delay = absl::Milliseconds(30)})->Compile(Spec()));
  EXPECT_LT(absl::Now() - start, absl::Seconds(5));
  EXPECT_GE(absl::Now() - start, absl::Milliseconds(30));
  for (int i = 0; i < 500 && !home.was_cancelled; ++i) absl::SleepFor(absl::Milliseconds(10));
  EXPECT_TRUE(home.was_cancelled);
}

TEST_F(ServerPoolTest, FastServerIsNotHedged) {
  StartServers(2);
  const auto client = Connect({.hedge_delay = absl::Seconds(20)});
  for (int n = 0; n < 10; ++n) ASSERT_OK(client->Compile(Spec(n)));
  EXPECT_EQ(Total(), 10u);
}

TEST_F(ServerPoolTest, HedgeOutlivesTheServerThatFails) {
  StartServers(2);
  FakeServer& home = HomeOf(Spec());
  home.Fail([] {
    absl::SleepFor(absl::Milliseconds(100));
    return Failure(absl::StatusCode::kUnavailable, ErrorReason::kDraining);
  });
  ASSERT_OK(Connect({.max_attempts = 1, .hedge_delay = absl::Milliseconds(10)})->Compile(Spec()));
}

TEST_F(ServerPoolTest, BatchIsSplitByServerAndGoesOnWhereOneBreaks) {
  StartServers(3);
  servers_[1]->breaks_streams = true;
  std::vector<CompileSpec> specs;
  for (int n = 0; n < 60; ++n) specs.push_back(Spec(n));
  std::vector<int> seen(specs.size(), 0);
  ASSERT_OK(Connect()->CompileBatch(specs, [&](size_t i, absl::StatusOr<CompileResult> result) {
    EXPECT_OK(result);
    ++seen[i];
  }));
  EXPECT_EQ(seen, std::vector<int>(specs.size(), 1));
  for (const auto& server : servers_) EXPECT_THAT(server->calls(), ::testing::Not(::testing::IsEmpty()));
  EXPECT_EQ(Total(), 4u);
}

TEST_F(ServerPoolTest, StatesTellWhoAnswers) {
  StartServers(2);
  servers_[1]->Stop();
  const auto states = Connect({.deadline = absl::Seconds(5)})->GetServerStates();
  ASSERT_OK(states);
  ASSERT_THAT(*states, SizeIs(2));
  EXPECT_EQ((*states)[0].address, servers_[0]->address());
  EXPECT_OK((*states)[0].info);
  EXPECT_THAT((*states)[1].info.status(), StatusIs(absl::StatusCode::kUnavailable, ""));
}

TEST_F(ServerPoolTest, NameStandsForItsAddresses) {
  StartServers(1);
  const std::string port = servers_[0]->address().substr(servers_[0]->address().rfind(':'));
  const auto client = Connect({}, absl::StrCat("dns:///localhost", port));
  EXPECT_OK(client->Compile(Spec()));  // where it has an IPv6 address too, nobody listens there
  EXPECT_THAT(Connect({.max_attempts = 1}, "dns:///no-such-name.invalid:1")->Compile(Spec()),
              StatusIs(absl::StatusCode::kUnavailable, "no-such-name.invalid"));
}

TEST_F(ServerPoolTest, MalformedAddressesAreRefused) {
  for (const char* addresses : {"", "a:1,,b:2", "a:1, ", "dns:///name", "dns:///:1", "dns:///name:"})
    EXPECT_THAT(Client::Connect(addresses).status(), StatusIs(absl::StatusCode::kInvalidArgument, "address"));
  EXPECT_THAT(Client::Connect("a:1,b:2", {.hedge_delay = absl::ZeroDuration()}).status(),
              StatusIs(absl::StatusCode::kInvalidArgument, "hedge_delay"));
}

}  // namespace
}  // namespace fuseline::client
