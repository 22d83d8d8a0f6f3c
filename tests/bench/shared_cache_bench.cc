// A new server with an empty disk beside a Redis that has everything: how long the first known graph takes, and how
// many of them a client gets in a second.
//   shared_cache_bench [--graphs 1000] [--threads 8] [--target cpu]
#include <CLI/CLI.hpp>
#include <algorithm>
#include <atomic>
#include <cstdio>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "client/cpp/client.h"
#include "common/ir/text_form.h"
#include "tests/e2e/server_process.h"
#include "tests/testing/program_runner.h"
#include "tests/testing/redis_process.h"

namespace fuseline::testing {
namespace {

struct Settings {
  int graphs = 1000;
  int threads = 8;
  std::string target = "cpu";
};

// A softmax with a residual, different for each `n`.
client::CompileSpec Spec(int n, const std::string& target) {
  absl::StatusOr<Graph> graph =
      ParseGraphText(absl::StrCat("graph g(x: f32[64, ", 256 + n, "], r: f32[64, ", 256 + n, "]) {\n  %h = add(x, r)\n",
                                  "  %s = softmax(%h) {dim = -1}\n  %y = mul(%s, ", n, ".5)\n  return y = %y\n}\n"));
  client::CompileSpec spec;
  if (!graph.ok()) {
    std::fprintf(stderr, "%s\n", graph.status().ToString().c_str());
    std::exit(1);
  }
  spec.graph = std::make_shared<const Graph>(*std::move(graph));
  spec.target = *ParseTarget(target);
  return spec;
}

std::unique_ptr<client::Client> Connect(const ServerProcess& server) {
  client::ClientOptions options;
  options.max_attempts = 1;
  options.remember_fingerprints = false;  // the graph goes with every call
  auto client = client::Client::Connect(server.address(), options);
  return client.ok() ? *std::move(client) : nullptr;
}

// All graphs, by `threads` threads that ask one after the other.
bool AskAll(client::Client& client, const std::vector<client::CompileSpec>& specs, int threads, const char* what) {
  std::vector<double> millis(specs.size());
  std::vector<double> wall(specs.size());
  std::vector<std::string> outcomes(specs.size());
  std::atomic<size_t> next{0};
  std::atomic<bool> failed{false};
  const absl::Time start = absl::Now();
  std::vector<std::thread> askers;
  for (int t = 0; t < threads; ++t) {
    askers.emplace_back([&] {
      for (size_t i = next++; i < specs.size(); i = next++) {
        const absl::Time asked = absl::Now();
        const auto result = client.Compile(specs[i]);
        wall[i] = absl::ToDoubleMilliseconds(absl::Now() - asked);
        if (!result.ok()) {
          failed = true;
          std::fprintf(stderr, "%s\n", result.status().ToString().c_str());
          continue;
        }
        millis[i] = absl::ToDoubleMilliseconds(result->summary.elapsed);
        outcomes[i] = result->summary.outcome;
      }
    });
  }
  for (std::thread& asker : askers) asker.join();
  const double seconds = absl::ToDoubleSeconds(absl::Now() - start);
  std::map<std::string, int> counts;
  for (const std::string& outcome : outcomes) ++counts[outcome];
  std::sort(millis.begin(), millis.end());
  std::sort(wall.begin(), wall.end());
  const auto at = [&](const std::vector<double>& sorted, double part) {
    return sorted[static_cast<size_t>(part * static_cast<double>(sorted.size() - 1))];
  };
  std::printf(
      "%-12s %zu graphs, %d threads: %.2f s, %.0f/s; in the server p50 %.2f ms, p99 %.2f ms; client p50 %.2f ms;", what,
      specs.size(), threads, seconds, static_cast<double>(specs.size()) / seconds, at(millis, 0.5), at(millis, 0.99),
      at(wall, 0.5));
  for (const auto& [outcome, count] : counts) std::printf(" %d %s", count, outcome.c_str());
  std::printf("\n");
  return !failed;
}

int Run(const Settings& settings) {
  if (!RedisProcess::IsInstalled()) {
    std::fprintf(stderr, "no redis-server here\n");
    return 1;
  }
  std::vector<client::CompileSpec> specs;
  for (int n = 0; n < settings.graphs; ++n) specs.push_back(Spec(n, settings.target));
  const RedisProcess redis;
  const auto start = [&](const TemporaryFolder& folder) {
    return std::make_unique<ServerProcess>(
        folder.path(), std::vector<std::string>{"--cache_dir", folder.path("cache"), "--log_level=warning",
                                                "--shared_cache", redis.url()});
  };
  {
    const TemporaryFolder folder;
    const auto server = start(folder);
    if (!server->running() || !AskAll(*Connect(*server), specs, 4, "compiled")) {
      std::fprintf(stderr, "%s\n", server->log().c_str());
      return 1;
    }
    server->Stop();
  }
  std::printf("in Redis: %s keys, %s\n", redis.Cli({"DBSIZE"}).c_str(),
              redis.Cli({"INFO", "memory"}).substr(0, 60).c_str());
  const TemporaryFolder folder;
  const auto server = start(folder);
  const auto client = Connect(*server);
  // The connection is made, and nothing else.
  if (!client->GetServerInfo().ok()) return 1;
  for (size_t i = 0; i < std::min<size_t>(3, specs.size()); ++i) {
    const absl::Time asked = absl::Now();
    const auto result = client->Compile(specs[i]);
    if (!result.ok()) return 1;
    std::printf("request %zu of a new server: %s, %.3f ms in the server, %.3f ms for the client\n", i + 1,
                result->summary.outcome.c_str(), absl::ToDoubleMilliseconds(result->summary.elapsed),
                absl::ToDoubleMilliseconds(absl::Now() - asked));
  }
  const std::vector<client::CompileSpec> rest(specs.begin() + std::min<int>(3, settings.graphs), specs.end());
  if (rest.empty() || !AskAll(*client, rest, settings.threads, "from Redis")) return 1;
  if (!AskAll(*client, rest, settings.threads, "from memory")) return 1;
  return server->Stop();
}

}  // namespace
}  // namespace fuseline::testing

int main(int argc, char** argv) {
  fuseline::testing::Settings settings;
  CLI::App app("What a shared cache gives to a new server.");
  app.add_option("--graphs", settings.graphs)->check(CLI::Range(1, 100'000));
  app.add_option("--threads", settings.threads)->check(CLI::Range(1, 256));
  app.add_option("--target", settings.target);
  CLI11_PARSE(app, argc, argv);
  return fuseline::testing::Run(settings);
}
