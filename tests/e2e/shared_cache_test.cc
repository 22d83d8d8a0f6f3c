// Servers that share a cache in Redis, through the real programs: what one compiles the others have, equal graphs are
// compiled once by all of them together, and no request fails for want of Redis or of a server.
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "client/cpp/client.h"
#include "common/ir/text_form.h"
#include "tests/e2e/server_process.h"
#include "tests/testing/program_runner.h"
#include "tests/testing/redis_process.h"
#include "tests/testing/status_matchers.h"

namespace fuseline::testing {
namespace {

client::CompileSpec SpecOf(const std::string& text) {
  absl::StatusOr<Graph> graph = ParseGraphText(text);
  EXPECT_OK(graph);
  client::CompileSpec spec;
  if (graph.ok()) spec.graph = std::make_shared<const Graph>(*std::move(graph));
  spec.target = Target::Cpu();
  return spec;
}

client::CompileSpec Spec(int n) {
  return SpecOf(absl::StrCat("graph g(x: f32[8]) {\n  %y = add(x, ", n, ".0)\n  return y = %y\n}\n"));
}

// Of many kernels, so that it is seen while it is compiled.
client::CompileSpec LongSpec() {
  constexpr int kKernels = 16;
  std::string inputs, nodes, results;
  for (int i = 0; i < kKernels; ++i) {
    absl::StrAppend(&inputs, i > 0 ? ", x" : "x", i, ": f32[8, ", 65 + i, "]");
    absl::StrAppend(&nodes, "  %y", i, " = softmax(x", i, ") {dim = 1}\n");
    absl::StrAppend(&results, i > 0 ? ", %y" : "%y", i);
  }
  return SpecOf(absl::StrCat("graph g(", inputs, ") {\n", nodes, "  return ", results, "\n}\n"));
}

class SharedCacheTest : public ::testing::Test {
 protected:
  struct Server {
    TemporaryFolder folder;
    std::unique_ptr<ServerProcess> process;
    std::unique_ptr<client::Client> client;
  };

  void SetUp() override {
    if (!RedisProcess::IsInstalled()) GTEST_SKIP() << "no redis-server here";
    redis_ = std::make_unique<RedisProcess>();
    ASSERT_TRUE(redis_->running()) << redis_->log();
  }

  // A server with an empty disk. The time limits are for a loaded machine.
  std::unique_ptr<Server> Start(const std::vector<std::string>& flags = {}) {
    auto server = std::make_unique<Server>();
    std::vector<std::string> all = {
        "--cache_dir", server->folder.path("cache"),    "--no-cuda", "--log_level=warning", "--shared_cache",
        redis_->url(), "--shared_cache_timeout_ms=3000"};
    all.insert(all.end(), flags.begin(), flags.end());
    server->process = std::make_unique<ServerProcess>(server->folder.path(), all);
    EXPECT_TRUE(server->process->running()) << server->process->log();
    client::ClientOptions options;
    options.max_attempts = 1;
    options.remember_fingerprints = false;  // the graph goes with every call
    auto client = client::Client::Connect(server->process->address(), options);
    EXPECT_OK(client);
    server->client = *std::move(client);
    return server;
  }
  static std::string Outcome(Server& server, int n) {
    const auto result = server.client->Compile(Spec(n));
    return result.ok() ? result->summary.outcome : std::string(result.status().message());
  }
  static int64_t Builds(Server& server) {
    const auto stats = server.client->GetCacheStats();
    return stats.ok() ? stats->builds : -1000;
  }
  bool Eventually(const std::vector<std::string>& command, const std::string& answer) const {
    const absl::Time limit = absl::Now() + absl::Seconds(60);
    while (absl::Now() < limit) {
      if (redis_->Cli(command) == answer) return true;
      absl::SleepFor(absl::Milliseconds(5));
    }
    return false;
  }

  std::unique_ptr<RedisProcess> redis_;
};

TEST_F(SharedCacheTest, ServerWithAnEmptyDiskHasWhatAnotherCompiled) {
  const auto one = Start();
  EXPECT_EQ(Outcome(*one, 1), "miss");
  EXPECT_EQ(one->process->Stop(), 0) << "it writes what waits to be written before it ends";
  const auto other = Start();
  EXPECT_EQ(Outcome(*other, 1), "shared-hit");
  EXPECT_EQ(Outcome(*other, 1), "memory-hit");
  EXPECT_EQ(Builds(*other), 0);
  EXPECT_EQ(other->process->Stop(), 0);
  // The hit has filled the disk.
  redis_->Kill();
  ServerProcess again(other->folder.path(), {"--cache_dir", other->folder.path("cache"), "--no-cuda"});
  ASSERT_TRUE(again.running()) << again.log();
  auto client = client::Client::Connect(again.address());
  ASSERT_OK(client);
  const auto result = (*client)->Compile(Spec(1));
  ASSERT_OK(result);
  EXPECT_EQ(result->summary.outcome, "disk-hit");
}

TEST_F(SharedCacheTest, GraphsAskedOfAllServersAtOnceAreCompiledOnceEach) {
  constexpr int kServers = 3;
  constexpr int kGraphs = 10;
  std::vector<std::unique_ptr<Server>> servers;
  for (int s = 0; s < kServers; ++s) servers.push_back(Start({"--compile_threads=2"}));
  std::vector<std::thread> threads;
  for (int s = 0; s < kServers; ++s) {
    for (int n = 0; n < kGraphs; ++n) {
      // One thread a request: all graphs are asked of all servers at the same time.
      threads.emplace_back([&servers, s, n] { EXPECT_OK(servers[static_cast<size_t>(s)]->client->Compile(Spec(n))); });
    }
  }
  for (std::thread& thread : threads) thread.join();
  int64_t builds = 0;
  for (const auto& server : servers) builds += Builds(*server);
  EXPECT_EQ(builds, kGraphs);
  EXPECT_TRUE(Eventually({"EVAL", "return #redis.call('KEYS','fuseline:1::l:*')", "0"}, "0")) << "leases are left";
}

TEST_F(SharedCacheTest, ServerThatDiesWhileItCompilesIsReplaced) {
  auto one = Start({"--shared_cache_lease_seconds=1"});
  const auto other = Start({"--shared_cache_lease_seconds=1"});
  std::thread asker([&] { one->client->Compile(LongSpec()).status().IgnoreError(); });
  const bool has_lease = Eventually({"EVAL", "return #redis.call('KEYS','fuseline:1::l:*')", "0"}, "1");
  one->process->Kill();
  asker.join();
  ASSERT_TRUE(has_lease);
  const auto result = other->client->Compile(LongSpec());
  ASSERT_OK(result);
  const std::string& outcome = result->summary.outcome;
  // Where it was just done in time.
  const bool was_published = outcome == "shared-hit";
  EXPECT_TRUE(outcome == "miss" || was_published) << outcome;
  EXPECT_EQ(Builds(*other), was_published ? 0 : 1);
}

TEST_F(SharedCacheTest, OutageOfRedisCostsNoRequest) {
  const auto one = Start();
  EXPECT_EQ(Outcome(*one, 1), "miss");
  redis_->Kill();
  EXPECT_EQ(Outcome(*one, 2), "miss");
  EXPECT_EQ(Outcome(*one, 1), "memory-hit");
  EXPECT_NE(one->process->log().find("serving without the shared cache"), std::string::npos) << one->process->log();
  const auto late = Start();
  EXPECT_EQ(Outcome(*late, 1), "miss");
  redis_->Start();
  // What was compiled meanwhile is there once Redis is.
  EXPECT_TRUE(Eventually({"EVAL", "return #redis.call('KEYS','fuseline:1::i:*')", "0"}, "2"));
  const auto other = Start();
  EXPECT_EQ(Outcome(*other, 2), "shared-hit");
}

TEST_F(SharedCacheTest, WrongAddressEndsTheServerWithAReason) {
  const TemporaryFolder folder;
  const ProgramResult result = RunProgram({FUSELINE_SERVER_PROGRAM, "--shared_cache", "http://cache"});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_NE(result.err.find("shared_cache 'http://cache': the scheme is unknown"), std::string::npos) << result.err;
}

}  // namespace
}  // namespace fuseline::testing
