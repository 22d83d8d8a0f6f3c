// The real server and the real command line over loopback: the main job, end to end.
#include <thread>

#include "client/cpp/client.h"
#include "common/ir/text_form.h"
#include "common/status/error.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/e2e/server_process.h"
#include "tests/testing/program_runner.h"
#include "tests/testing/status_matchers.h"

namespace fuseline::testing {
namespace {

using ::testing::HasSubstr;
using Json = nlohmann::json;

class ServerAndCliTest : public ::testing::Test {
 protected:
  void SetUp() override { StartServer(); }

  void StartServer() {
    server_ =
        std::make_unique<ServerProcess>(folder_.path(), std::vector<std::string>{"--cache_dir", folder_.path("cache")});
    ASSERT_TRUE(server_->running()) << server_->log();
  }
  ProgramResult Fuseline(std::vector<std::string> arguments, const std::string& input = "") {
    arguments.insert(arguments.begin(), {FUSELINE_CLI, "--server", server_->address()});
    return RunProgram(arguments, input);
  }
  Json FuselineJson(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), "--json");
    const ProgramResult result = Fuseline(arguments);
    Json json = Json::parse(result.out, nullptr, false);
    EXPECT_TRUE(json.is_structured()) << result.out << result.err << server_->log();
    return json;
  }
  static std::string Example(const std::string& name) { return FUSELINE_SOURCE_DIR "/deploy/examples/" + name + ".fl"; }

  TemporaryFolder folder_;
  std::unique_ptr<ServerProcess> server_;
};

TEST_F(ServerAndCliTest, BothExamplesFuseRunAndVerify) {
  const ProgramResult pointwise = Fuseline({"explain", Example("pointwise_example")});
  ASSERT_EQ(pointwise.exit_code, 0) << pointwise.err << server_->log();
  EXPECT_THAT(pointwise.out, HasSubstr("3 kernels -> 1, 8 tensor transfers -> 4, 2 intermediates removed"));
  const ProgramResult reduction = Fuseline({"explain", Example("reduction_example")});
  ASSERT_EQ(reduction.exit_code, 0) << reduction.err << server_->log();
  EXPECT_THAT(reduction.out, HasSubstr("3 kernels -> 1"));
  for (const char* example : {"pointwise_example", "reduction_example"}) {
    const Json json = FuselineJson({"run", Example(example), "--random", "1", "--verify"});
    EXPECT_EQ(json["verify"]["passed"], true) << json;
    EXPECT_LT(json["verify"]["outputs"][0]["max_abs_error"], 1e-3);
    EXPECT_GT(json["verify"]["outputs"][0]["elements"], 1000);
  }
  const ProgramResult source = Fuseline({"compile", Example("pointwise_example"), "--emit", "source"});
  EXPECT_THAT(source.out, HasSubstr("fuseline_pointwise_mul_add_sigmoid_0"));
}

TEST_F(ServerAndCliTest, SecondCallHitsMemoryAndCallAfterRestartHitsDisk) {
  for (const char* example : {"pointwise_example", "reduction_example"}) {
    EXPECT_EQ(FuselineJson({"compile", Example(example)})["outcome"], "miss");
    EXPECT_EQ(FuselineJson({"compile", Example(example)})["outcome"], "memory-hit");
  }
  EXPECT_EQ(server_->Stop(), 0) << server_->log();
  StartServer();
  for (const char* example : {"pointwise_example", "reduction_example"}) {
    EXPECT_EQ(FuselineJson({"run", Example(example), "--random", "1", "--verify"})["outcome"], "disk-hit");
    EXPECT_EQ(FuselineJson({"compile", Example(example)})["outcome"], "memory-hit");
  }
  EXPECT_EQ(FuselineJson({"cache", "stats"})["builds"], 0);
}

TEST_F(ServerAndCliTest, HealthIsTheExitCode) {
  const ProgramResult serving = Fuseline({"health"});
  EXPECT_EQ(serving.exit_code, 0) << serving.err;
  EXPECT_EQ(serving.out, "SERVING\n");
  EXPECT_EQ(FuselineJson({"health", "--service", "fuseline.v1.ExecuteService"})["status"], "SERVING");
  const std::string address = server_->address();
  EXPECT_EQ(server_->Stop(), 0) << server_->log();
  const ProgramResult stopped = RunProgram({FUSELINE_CLI, "--server", address, "health"});
  EXPECT_EQ(stopped.exit_code, 1);
  EXPECT_THAT(stopped.err, HasSubstr("UNAVAILABLE"));
}

TEST_F(ServerAndCliTest, BenchMeasuresOnTheServerAndPrintsWhatLocalPrints) {
  const std::vector<std::string> arguments = {
      "--json",   "bench", Example("pointwise_example"), Example("reduction_example"), "--iterations", "4",
      "--warmup", "1"};
  std::vector<std::string> local_arguments = arguments;
  local_arguments.insert(local_arguments.begin(), {FUSELINE_CLI, "--local"});
  const Json local = Json::parse(RunProgram(local_arguments, "").out, nullptr, false);
  const ProgramResult remote_result = Fuseline(arguments);
  ASSERT_EQ(remote_result.exit_code, 0) << remote_result.err << server_->log();
  const Json remote = Json::parse(remote_result.out, nullptr, false);
  ASSERT_EQ(remote.size(), 2u) << remote;
  ASSERT_EQ(local.size(), 2u) << local;
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(remote[i]["iterations_us"].size(), 4u);
    EXPECT_GT(remote[i]["median_us"], 0);
    EXPECT_GT(remote[i]["copy_bytes_per_second"], 0);
    for (const char* same :
         {"graph", "fingerprint", "target", "outcome", "kernels", "bytes_moved", "schedules", "device", "device_name"})
      EXPECT_EQ(remote[i][same], local[i][same]) << same;
    for (const auto& [key, value] : local[i].items()) EXPECT_TRUE(remote[i].contains(key)) << key;
  }
  EXPECT_THAT(server_->log(), HasSubstr("ExecuteService/Benchmark"));
  const ProgramResult text = Fuseline({"bench", Example("pointwise_example"), "--iterations", "4"});
  EXPECT_EQ(text.exit_code, 0) << text.err;
  EXPECT_THAT(text.out, HasSubstr("pointwise_example                  1"));
}

TEST_F(ServerAndCliTest, ExplainUsesTheGraphsOwnNames) {
  const Json json = FuselineJson({"explain", Example("pointwise_example")});
  EXPECT_EQ(json["report"]["kernels"][0]["ops"], (Json{"mul %t0", "add %t1", "sigmoid %t2"}));
  const auto client = client::Client::Connect(server_->address());
  ASSERT_OK(client);
  const auto graph = ParseGraphText("graph g(x: f32[4]) {\n  %mine = neg(x)\n  return y = %mine\n}\n");
  ASSERT_OK(graph);
  const client::CompileSpec spec = {.graph = std::make_shared<const Graph>(*graph), .target = Target::Cpu()};
  for (const bool graph_sent : {true, false}) {
    const auto explained = (*client)->Explain(spec);
    ASSERT_OK(explained);
    EXPECT_EQ(explained->summary.graph_sent, graph_sent);
    EXPECT_EQ(explained->report.kernels.at(0).ops, (std::vector<std::string>{"neg %mine"}));
  }
}

TEST_F(ServerAndCliTest, UnchangedGraphCostsAFingerprint) {
  const Json json = FuselineJson({"run", Example("pointwise_example"), "--random", "1", "--repeat", "2"});
  EXPECT_EQ(json["outcome"], "miss");
  EXPECT_EQ(json["last_outcome"], "memory-hit");
}

TEST_F(ServerAndCliTest, ErrorsKeepReasonAndNode) {
  const ProgramResult result =
      Fuseline({"compile", "-"}, "graph g(x: f32[3], w: f32[4]) {\n  %t = mul(x, w)\n  return %t\n}\n");
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.err, HasSubstr("INVALID_ARGUMENT (GRAPH_TYPE_MISMATCH)"));
  EXPECT_THAT(result.err, HasSubstr("'%t'"));
}

// The artifact knows the node by its canonical name, and a second graph shares it.
TEST_F(ServerAndCliTest, IndexOutOfRangeIsToldInEachClientsNames) {
  const auto client = client::Client::Connect(server_->address());
  ASSERT_OK(client);
  Tensor x = Tensor::Allocate(DType::kF32, {3});
  Tensor i = Tensor::Allocate(DType::kI64, {2});
  const auto set = [&](int64_t index) {
    for (int64_t k = 0; k < 3; ++k) x.SetDouble(k, static_cast<double>(k));
    i.SetInt(0, 0);
    i.SetInt(1, index);
  };
  for (const std::string name : {"%look", "%v0", "%find"}) {
    const auto graph = ParseGraphText("graph g(x: f32[3], i: i64[2]) {\n  %d = mul(x, 2.0)\n  " + name +
                                      " = index_select(%d, i) {dim = 0}\n  return y = " + name + "\n}\n");
    ASSERT_OK(graph);
    const client::CompileSpec spec = {.graph = std::make_shared<const Graph>(*graph), .target = Target::Cpu()};
    for (int call = 0; call < 2; ++call) {  // the second by the fingerprint
      set(12);
      const auto failed = (*client)->Execute(spec, {{"x", x}, {"i", i}});
      EXPECT_THAT(failed, StatusIs(absl::StatusCode::kInvalidArgument,
                                   "node '" + name + "': index 12 is out of range for size 3"));
      EXPECT_EQ(GetErrorReason(failed.status()), ErrorReason::kIndexOutOfRange);
      EXPECT_EQ(GetErrorSubject(failed.status()), name);
      set(-1);
      const auto good = (*client)->Execute(spec, {{"x", x}, {"i", i}});
      ASSERT_OK(good);
      EXPECT_EQ(good->outputs[0].tensor.GetDouble(1), 4);
    }
  }
  const ProgramResult verified =
      Fuseline({"verify", FUSELINE_SOURCE_DIR "/tests/cases/indexing/index_error_scatter.json", "--target", "cpu"});
  EXPECT_EQ(verified.exit_code, 0) << verified.out << verified.err;
}

TEST_F(ServerAndCliTest, ManyClientsShareOneBuild) {
  constexpr int kClients = 6;
  const auto graph = ParseGraphText("graph g(x: f32[64]) {\n  %t = mul(x, 3.0)\n  %s = tanh(%t)\n  return y = %s\n}\n");
  ASSERT_OK(graph);
  const auto shared = std::make_shared<const Graph>(*graph);
  std::vector<absl::Status> statuses(kClients);
  std::vector<std::thread> threads;
  for (int i = 0; i < kClients; ++i) {
    threads.emplace_back([&, i] {
      const auto client = client::Client::Connect(server_->address());
      if (!client.ok()) {
        statuses[static_cast<size_t>(i)] = client.status();
        return;
      }
      Tensor x = Tensor::Allocate(DType::kF32, {64});
      for (int64_t k = 0; k < 64; ++k) x.SetDouble(k, 0);
      const auto result = (*client)->Execute({.graph = shared, .target = Target::Cpu()}, {{"x", x}});
      statuses[static_cast<size_t>(i)] = result.status();
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const absl::Status& status : statuses) EXPECT_OK(status);
  EXPECT_EQ(FuselineJson({"cache", "stats"})["builds"], 1);
}

TEST_F(ServerAndCliTest, FingerprintFallsBackToTheGraphAfterAnEmptyRestart) {
  const auto client = client::Client::Connect(server_->address());
  ASSERT_OK(client);
  const auto graph = ParseGraphText("graph g(x: f32[4]) {\n  %t = neg(x)\n  return y = %t\n}\n");
  ASSERT_OK(graph);
  client::CompileSpec spec = {.graph = std::make_shared<const Graph>(*graph), .target = Target::Cpu()};
  const auto first = (*client)->Compile(spec);
  ASSERT_OK(first);
  EXPECT_TRUE(first->summary.graph_sent);
  const auto second = (*client)->Compile(spec);
  ASSERT_OK(second);
  EXPECT_FALSE(second->summary.graph_sent);
  EXPECT_EQ(second->summary.fingerprint, first->summary.fingerprint);
  spec.fingerprint = Fingerprint{};  // a fingerprint that no server has
  const auto fallen_back = (*client)->Compile(spec);
  ASSERT_OK(fallen_back);
  EXPECT_TRUE(fallen_back->summary.graph_sent);
  EXPECT_EQ(fallen_back->summary.fingerprint, first->summary.fingerprint);
  const auto unknown = (*client)->Compile({.fingerprint = Fingerprint{}});
  EXPECT_THAT(unknown, StatusIs(absl::StatusCode::kNotFound, ""));
  EXPECT_EQ(GetErrorReason(unknown.status()), ErrorReason::kFingerprintUnknown);
}

}  // namespace
}  // namespace fuseline::testing
