// What the server has answered survives whatever ends it or befalls its disk: the real server, killed and starved.
#include <sys/mount.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "client/cpp/client.h"
#include "common/artifact/codec/artifact_codec.h"
#include "common/ir/text_form.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/e2e/server_process.h"
#include "tests/testing/program_runner.h"
#include "tests/testing/random_source.h"
#include "tests/testing/status_matchers.h"

namespace fuseline::testing {
namespace {

using ::testing::HasSubstr;

int FromEnvironment(const char* name, int otherwise) {
  const char* value = std::getenv(name);
  return value != nullptr ? std::max(1, std::atoi(value)) : otherwise;
}

// A small graph; each `n` needs a kernel of its own.
client::CompileSpec Spec(int n, const Target& target) {
  absl::StatusOr<Graph> graph =
      ParseGraphText(absl::StrCat("graph g(x: f32[4]) {\n  %y = add(x, ", n, ".0)\n  return y = %y\n}\n"));
  EXPECT_OK(graph);
  client::CompileSpec spec;
  if (graph.ok()) spec.graph = std::make_shared<const Graph>(*std::move(graph));
  spec.target = target;
  return spec;
}

class DurabilityTest : public ::testing::Test {
 protected:
  void StartServer() {
    server_ = std::make_unique<ServerProcess>(
        folder_.path(),
        std::vector<std::string>{"--cache_dir", folder_.path("cache"), "--no-cuda", "--log_level", "warning"});
    ASSERT_TRUE(server_->running()) << server_->log();
    client_ = Connect();
    ASSERT_NE(client_, nullptr);
  }
  std::unique_ptr<client::Client> Connect() const {
    client::ClientOptions options;
    options.max_attempts = 1;  // a server that was killed does not come back
    options.remember_fingerprints = false;
    auto client = client::Client::Connect(server_->address(), options);
    EXPECT_OK(client);
    return client.ok() ? *std::move(client) : nullptr;
  }
  // NVRTC compiles faster, where there is one.
  Target FastestTarget() const {
    const auto info = client_->GetServerInfo();
    EXPECT_OK(info);
    if (!info.ok()) return Target::Cpu();
    for (const client::TargetInfo& target : info->targets) {
      if (target.can_compile && target.target == Target::Cuda(90).ToString()) return Target::Cuda(90);
    }
    return Target::Cpu();
  }
  client::CacheLevelStats Disk() const {
    const auto stats = client_->GetCacheStats();
    EXPECT_OK(stats);
    return stats.ok() && stats->levels.size() >= 2 ? stats->levels[1] : client::CacheLevelStats{};
  }
  std::string Outcome(int n) const {
    const auto result = client_->Compile(Spec(n, Target::Cpu()));
    EXPECT_OK(result);
    return result.ok() ? result->summary.outcome : "";
  }

  TemporaryFolder folder_;
  std::unique_ptr<ServerProcess> server_;
  std::unique_ptr<client::Client> client_;
};

TEST_F(DurabilityTest, EveryAcknowledgedArtifactSurvivesKillsInTheMidstOfCompiling) {
  const int kills = FromEnvironment("FUSELINE_DURABILITY_KILLS", 3);
  const int compiles = FromEnvironment("FUSELINE_DURABILITY_COMPILES", 60);
  constexpr int kClients = 4;
  RandomSource random(1);
  std::map<int, std::string> acknowledged;  // what the client was given, by graph
  int64_t cut_off = 0;                      // compilations under way at a kill
  int64_t hits = 0;
  ASSERT_NO_FATAL_FAILURE(StartServer());
  const Target target = FastestTarget();
  const absl::Time start = absl::Now();
  for (int kill = 1; kill <= kills; ++kill) {
    // Up to this many are answered before the kill; the last ones after the last kill.
    const size_t until = acknowledged.size() + random.Between(1, std::max(1, 2 * compiles / (kills + 1) - 1));
    absl::Mutex mutex;
    std::atomic<int> next{0};
    std::atomic<bool> is_killed{false};
    std::vector<std::thread> threads;
    for (int t = 0; t < kClients; ++t) {
      threads.emplace_back([&] {
        const std::unique_ptr<client::Client> client = Connect();
        while (!is_killed) {
          int n = next++;
          if (n >= compiles) return;
          {
            absl::MutexLock lock(&mutex);
            if (acknowledged.count(n) != 0) continue;
          }
          const auto result = client->Compile(Spec(n, target));
          absl::MutexLock lock(&mutex);
          if (result.ok()) {
            acknowledged[n] = SerializeArtifact(*result->artifact);
          } else {
            ++cut_off;
            EXPECT_TRUE(is_killed) << result.status();
          }
        }
      });
    }
    while (true) {
      absl::SleepFor(absl::Milliseconds(2));
      absl::MutexLock lock(&mutex);
      if (acknowledged.size() >= std::min(until, static_cast<size_t>(compiles))) break;
    }
    is_killed = true;
    server_->Kill();
    for (std::thread& thread : threads) thread.join();
    ASSERT_NO_FATAL_FAILURE(StartServer());
    for (const auto& [n, artifact] : acknowledged) {
      const auto found = client_->Compile(Spec(n, target));
      ASSERT_OK(found);
      ASSERT_EQ(found->summary.outcome, "disk-hit") << "graph " << n << " after kill " << kill;
      ASSERT_EQ(SerializeArtifact(*found->artifact), artifact) << "graph " << n << " after kill " << kill;
      ++hits;
    }
    const auto stats = client_->GetCacheStats();
    ASSERT_OK(stats);
    EXPECT_EQ(stats->builds, 0);
    for (const client::CacheLevelStats& level : stats->levels) {
      EXPECT_EQ(level.corrupt, 0) << level.level;
      EXPECT_EQ(level.errors, 0) << level.level;
    }
  }
  for (int n = 0; n < compiles; ++n) {
    if (acknowledged.count(n) != 0) continue;
    EXPECT_OK(client_->Compile(Spec(n, target)));
  }
  EXPECT_EQ(Disk().entries, compiles);
  EXPECT_THAT(server_->log(), ::testing::Not(HasSubstr("moved the database")));
  std::cout << target.ToString() << ": " << compiles << " compiles, " << kills << " kills, " << cut_off
            << " compilations cut off, " << acknowledged.size() << " artifacts acknowledged before the last kill, "
            << hits << " disk hits after restarts, " << absl::FormatDuration(absl::Now() - start) << "\n";
}

TEST_F(DurabilityTest, DamagedDatabaseIsBegunAnew) {
  ASSERT_NO_FATAL_FAILURE(StartServer());
  EXPECT_EQ(Outcome(1), "miss");
  server_->Kill();
  for (const auto& entry : std::filesystem::directory_iterator(folder_.path("cache"))) {
    if (entry.path().filename().string().rfind("MANIFEST", 0) == 0)
      std::ofstream(entry.path(), std::ios::trunc) << "not a manifest";
  }
  ASSERT_NO_FATAL_FAILURE(StartServer());
  EXPECT_THAT(server_->log(), HasSubstr("moved the database"));
  EXPECT_EQ(Outcome(1), "miss");
  server_->Kill();
  ASSERT_NO_FATAL_FAILURE(StartServer());
  EXPECT_EQ(Outcome(1), "disk-hit");
}

TEST_F(DurabilityTest, FullDiskIsServedWithoutAndUsedAgainOnceThereIsRoom) {
  const std::string cache = folder_.path("cache");
  std::filesystem::create_directory(cache);
  if (mount("tmpfs", cache.c_str(), "tmpfs", 0, "size=4m") != 0) GTEST_SKIP() << "may not mount a small file system";
  {
    ASSERT_NO_FATAL_FAILURE(StartServer());
    EXPECT_EQ(Outcome(1), "miss");
    // Fill what is left.
    const std::string ballast = cache + "/ballast";
    std::ofstream(ballast) << std::string(8 << 20, 'b');
    int n = 2;
    // The database has some room of its own yet.
    while (server_->log().find("without the disk cache") == std::string::npos && n < 200)
      EXPECT_EQ(Outcome(n++), "miss");
    EXPECT_THAT(server_->log(), HasSubstr("without the disk cache"));
    EXPECT_EQ(Outcome(1), "memory-hit");
    EXPECT_EQ(Outcome(n), "miss");
    EXPECT_EQ(Outcome(n), "memory-hit");
    std::filesystem::remove(ballast);
    const absl::Time limit = absl::Now() + absl::Seconds(60);
    while (server_->log().find("with the disk cache again") == std::string::npos && absl::Now() < limit)
      absl::SleepFor(absl::Milliseconds(50));
    EXPECT_EQ(Outcome(n + 1), "miss");
    server_->Kill();
    ASSERT_NO_FATAL_FAILURE(StartServer());
    EXPECT_EQ(Outcome(1), "disk-hit");
    EXPECT_EQ(Outcome(n + 1), "disk-hit");
    EXPECT_EQ(Disk().corrupt, 0);
    server_->Kill();
  }
  umount2(cache.c_str(), MNT_DETACH);
}

}  // namespace
}  // namespace fuseline::testing
