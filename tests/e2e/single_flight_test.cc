// However many ask at once for one new graph, it is compiled once: through the real server, over gRPC.
#include <atomic>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "client/cpp/client.h"
#include "common/ir/text_form.h"
#include "gtest/gtest.h"
#include "tests/e2e/server_process.h"
#include "tests/testing/program_runner.h"
#include "tests/testing/status_matchers.h"

namespace fuseline::testing {
namespace {

constexpr int kThreads = 64;

// Graph number `n`, as client number `client` spells it.
client::CompileSpec Spec(int n, int client) {
  const std::string x = absl::StrCat("x", client);
  const std::string y = absl::StrCat("%y", client);
  absl::StatusOr<Graph> graph =
      ParseGraphText(absl::StrCat("graph g", client, "(", x, ": f32[8]) {\n  ", y, " = add(", x, ", ", n,
                                  ".0)\n  return out", client, " = ", y, "\n}\n"));
  EXPECT_OK(graph);
  client::CompileSpec spec;
  if (graph.ok()) spec.graph = std::make_shared<const Graph>(*std::move(graph));
  spec.target = Target::Cpu();
  return spec;
}

class SingleFlightTest : public ::testing::Test {
 protected:
  void SetUp() override {
    server_ = std::make_unique<ServerProcess>(
        folder_.path(), std::vector<std::string>{"--cache_dir", "", "--no-cuda", "--log_level=warning"});
    ASSERT_TRUE(server_->running()) << server_->log();
    client::ClientOptions options;
    options.max_attempts = 1;
    options.remember_fingerprints = false;  // the graph goes with every call
    auto client = client::Client::Connect(server_->address(), options);
    ASSERT_OK(client);
    client_ = *std::move(client);
    const auto info = client_->GetServerInfo();
    ASSERT_OK(info);
    for (const client::TargetInfo& target : info->targets) {
      if (target.target == "cpu" && !target.can_compile) GTEST_SKIP() << target.reason;
    }
  }

  // Every one of the threads asks for each of the graphs, all for the same one at about the same time.
  void AskAtOnce(int graphs) {
    std::vector<client::CompileSpec> specs;
    for (int n = 0; n < graphs; ++n) {
      for (int t = 0; t < kThreads; ++t) specs.push_back(Spec(n, t));
    }
    struct Answers {
      std::map<std::string, int> outcomes;
      std::map<std::string, int> images;  // what the client was given
    };
    std::vector<std::vector<std::pair<std::string, std::string>>> answers(kThreads);
    absl::Notification go;
    std::vector<std::thread> threads;
    for (int t = 0; t < kThreads; ++t) {
      threads.emplace_back([&, t] {
        go.WaitForNotification();
        for (int n = 0; n < graphs; ++n) {
          const auto result = client_->Compile(specs[static_cast<size_t>(n * kThreads + t)]);
          EXPECT_OK(result) << "graph " << n << ", client " << t;
          if (!result.ok()) continue;
          answers[static_cast<size_t>(t)].emplace_back(
              result->summary.outcome,
              absl::StrCat(result->summary.fingerprint.ToHex(), result->artifact->kernels.at(0).bytes));
        }
      });
    }
    go.Notify();
    for (std::thread& thread : threads) thread.join();
    for (int n = 0; n < graphs; ++n) {
      Answers got;
      for (const auto& answer : answers) {
        ASSERT_EQ(static_cast<int>(answer.size()), graphs);
        ++got.outcomes[answer[static_cast<size_t>(n)].first];
        ++got.images[answer[static_cast<size_t>(n)].second];
      }
      EXPECT_EQ(got.outcomes["miss"], 1) << "graph " << n;
      EXPECT_EQ(got.outcomes["joined"] + got.outcomes["memory-hit"], kThreads - 1) << "graph " << n;
      EXPECT_EQ(got.images.size(), 1u) << "graph " << n << ": clients were given different artifacts";
    }
    const auto stats = client_->GetCacheStats();
    ASSERT_OK(stats);
    EXPECT_EQ(stats->builds, graphs);
    RecordProperty("joins", static_cast<int>(stats->joins));
    EXPECT_GT(stats->joins, 0);
  }

  TemporaryFolder folder_;
  std::unique_ptr<ServerProcess> server_;
  std::unique_ptr<client::Client> client_;
};

TEST_F(SingleFlightTest, OneNewGraphIsBuiltOnce) { AskAtOnce(1); }
TEST_F(SingleFlightTest, FiftyNewGraphsAreBuiltOnceEach) { AskAtOnce(50); }

}  // namespace
}  // namespace fuseline::testing
