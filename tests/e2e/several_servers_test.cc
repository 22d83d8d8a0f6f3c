// A client of two real servers: one is killed under load, one only compiles.
#include <unistd.h>

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "client/cpp/client.h"
#include "common/ir/text_form.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/e2e/server_process.h"
#include "tests/testing/program_runner.h"
#include "tests/testing/status_matchers.h"

namespace fuseline::testing {
namespace {

using ::testing::HasSubstr;

client::CompileSpec Spec(int n) {
  absl::StatusOr<Graph> graph =
      ParseGraphText(absl::StrCat("graph g(x: f32[8]) {\n  %t = add(x, ", n, ".0)\n  return y = %t\n}\n"));
  EXPECT_OK(graph);
  client::CompileSpec spec;
  if (graph.ok()) spec.graph = std::make_shared<const Graph>(*std::move(graph));
  spec.target = Target::Cpu();
  return spec;
}

// What graph `n` makes of ones.
absl::Status RunAndCheck(client::Client& client, int n) {
  Tensor x = Tensor::Allocate(DType::kF32, {8});
  for (int i = 0; i < 8; ++i) x.SetDouble(i, 1);
  const absl::StatusOr<client::ExecuteResult> result = client.Execute(Spec(n), {{"x", x}});
  if (!result.ok()) return result.status();
  const double y = result->outputs.at(0).tensor.GetDouble(7);
  return y == 1 + n ? absl::OkStatus() : absl::InternalError(absl::StrCat("graph ", n, " gave ", y));
}

class SeveralServersTest : public ::testing::Test {
 protected:
  std::unique_ptr<ServerProcess> StartServer(const std::vector<std::string>& flags = {}) {
    folders_.push_back(std::make_unique<TemporaryFolder>());
    std::vector<std::string> all = {"--cache_dir", "", "--no-cuda", "--log_level=warning"};
    all.insert(all.end(), flags.begin(), flags.end());
    auto server = std::make_unique<ServerProcess>(folders_.back()->path(), all);
    EXPECT_TRUE(server->running()) << server->log();
    return server;
  }
  static std::unique_ptr<client::Client> Connect(const std::string& addresses) {
    auto client = client::Client::Connect(addresses);
    EXPECT_OK(client);
    return *std::move(client);
  }
  // Whether the machine can compile for the CPU at all.
  static bool CanCompile(client::Client& client) {
    const auto info = client.GetServerInfo();
    EXPECT_OK(info);
    return info.ok() && info->targets.at(0).can_compile;
  }

  std::vector<std::unique_ptr<TemporaryFolder>> folders_;
};

TEST_F(SeveralServersTest, KilledServerCostsNoRequest) {
  const auto first = StartServer();
  const auto second = StartServer();
  const auto client = Connect(absl::StrCat(first->address(), ",", second->address()));
  if (!CanCompile(*client)) GTEST_SKIP();
  constexpr int kThreads = 4;
  constexpr int kGraphs = 6;
  std::atomic<int> done{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (int n = 0; n < kGraphs; ++n) {
        EXPECT_OK(RunAndCheck(*client, t * kGraphs + n));
        ++done;
      }
    });
  }
  // In mid-compile: calls are on their way all the time.
  while (done < kThreads) absl::SleepFor(absl::Milliseconds(1));
  first->Kill();
  EXPECT_LT(done, kThreads * kGraphs) << "it was killed too late to matter";
  for (std::thread& thread : threads) thread.join();
  const auto states = client->GetServerStates();
  ASSERT_OK(states);
  EXPECT_FALSE(states->at(0).info.ok());
  EXPECT_OK(states->at(1).info);
}

TEST_F(SeveralServersTest, ServerThatOnlyCompilesStandsBesideOneThatRuns) {
  const auto compiles = StartServer({"--no-execute"});
  const auto runs = StartServer();
  const auto client = Connect(absl::StrCat(compiles->address(), ",", runs->address()));
  if (!CanCompile(*client)) GTEST_SKIP();
  for (int n = 0; n < 6; ++n) ASSERT_OK(RunAndCheck(*client, n));
  for (int n = 10; n < 16; ++n) ASSERT_OK(client->Compile(Spec(n)));
  const auto alone = Connect(compiles->address());
  const auto stats = alone->GetCacheStats();
  ASSERT_OK(stats);
  EXPECT_GT(stats->builds, 0);
  EXPECT_LE(stats->builds, 6);
  EXPECT_OK(alone->Compile(Spec(1)));
  EXPECT_THAT(RunAndCheck(*alone, 1), StatusIs(absl::StatusCode::kFailedPrecondition, "cpu"));
}

TEST_F(SeveralServersTest, CommandLineTakesSeveralAddresses) {
  const auto first = StartServer({"--no-execute"});
  const auto second = StartServer();
  const std::string addresses = absl::StrCat(first->address(), ",", second->address());
  if (!CanCompile(*Connect(addresses))) GTEST_SKIP();
  const std::string graph = FUSELINE_SOURCE_DIR "/deploy/examples/pointwise_example.fl";
  for (const char* balance : {"affinity", "round_robin"}) {
    const ProgramResult run = RunProgram({FUSELINE_CLI, "--server", addresses, "--balance", balance, "--hedge-ms",
                                          "5000", "run", graph, "--random", "1"});
    EXPECT_EQ(run.exit_code, 0) << run.err;
  }
  // Processes of their own find each other's tensors.
  TemporaryFolder folder;
  const auto fuseline = [&](std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), {FUSELINE_CLI, "--server", addresses, "--owner", "ann"});
    return RunProgram(arguments);
  };
  ASSERT_OK(Connect(addresses)->GetServerInfo());
  client::ClientOptions options;
  options.owner = "ann";
  auto owner = client::Client::Connect(addresses, options);
  ASSERT_OK(owner);
  Tensor tensor = Tensor::Allocate(DType::kF32, {8});
  ASSERT_OK((*owner)->PutTensor(tensor, {.handle = "weights"}));
  const ProgramResult list = fuseline({"tensors", "list"});
  EXPECT_EQ(list.exit_code, 0) << list.err;
  EXPECT_THAT(list.out, HasSubstr("weights"));
}

}  // namespace
}  // namespace fuseline::testing
