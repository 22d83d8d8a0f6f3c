// What an operator sees of the real server: progress, batches, metrics and the access log.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "tests/e2e/server_process.h"
#include "tests/testing/http_get.h"
#include "tests/testing/program_runner.h"

namespace fuseline::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class OperationsTest : public ::testing::Test {
 protected:
  void StartServer(const std::vector<std::string>& flags) {
    std::vector<std::string> all = {"--cache_dir", folder_.path("cache"), "--no-cuda"};
    all.insert(all.end(), flags.begin(), flags.end());
    server_ = std::make_unique<ServerProcess>(folder_.path(), all);
  }
  ProgramResult Fuseline(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), {FUSELINE_CLI, "--server", server_->address()});
    return RunProgram(arguments);
  }
  // Of the line in which the server says that it serves.
  int MetricsPort() const {
    const std::string log = server_->log();
    const size_t at = log.find("metrics_port=");
    return at == std::string::npos ? 0 : std::atoi(log.c_str() + at + std::string("metrics_port=").size());
  }
  static std::string Example(const std::string& name) { return FUSELINE_SOURCE_DIR "/deploy/examples/" + name + ".fl"; }

  TemporaryFolder folder_;
  std::unique_ptr<ServerProcess> server_;
};

TEST_F(OperationsTest, CompilingTellsItsStagesAndManyGraphsAtOnce) {
  StartServer({});
  ASSERT_TRUE(server_->running()) << server_->log();
  const ProgramResult miss = Fuseline({"compile", Example("pointwise_example"), "--progress"});
  ASSERT_EQ(miss.exit_code, 0) << miss.err;
  EXPECT_EQ(miss.err, "asking the cache\nwaiting for a compiler\ncompiling\ndone\n");
  const ProgramResult hit = Fuseline({"compile", Example("pointwise_example"), "--progress"});
  EXPECT_EQ(hit.err, "asking the cache\ndone\n");
  EXPECT_THAT(hit.out, HasSubstr("memory-hit"));
  const ProgramResult quiet = Fuseline({"compile", Example("pointwise_example")});
  EXPECT_EQ(quiet.err, "");
  const ProgramResult many = Fuseline({"compile", Example("pointwise_example"), Example("reduction_example")});
  ASSERT_EQ(many.exit_code, 0) << many.err;
  EXPECT_THAT(many.out, HasSubstr("pointwise_example.fl: target cpu, memory-hit"));
  EXPECT_THAT(many.out, HasSubstr("reduction_example.fl: target cpu, miss"));
}

TEST_F(OperationsTest, MetricsCountWhatWasDone) {
  StartServer({"--metrics_listen", "127.0.0.1:0"});
  if (!server_->running() && server_->log().find("has no HTTP server") != std::string::npos) GTEST_SKIP();
  ASSERT_TRUE(server_->running()) << server_->log();
  ASSERT_EQ(Fuseline({"compile", Example("pointwise_example")}).exit_code, 0);
  ASSERT_EQ(Fuseline({"run", Example("pointwise_example"), "--random", "1"}).exit_code, 0);
  ASSERT_GT(MetricsPort(), 0) << server_->log();
  const std::string text = HttpGet(MetricsPort(), "/metrics");
  EXPECT_THAT(text, HasSubstr("fuseline_builds_total 1"));
  EXPECT_THAT(text, HasSubstr("fuseline_serving 1"));
  EXPECT_THAT(text, HasSubstr("fuseline_cache_available{level=\"rocksdb\"} 1"));
  EXPECT_THAT(text,
              HasSubstr("fuseline_calls_total{method=\"ExecuteService/ExecuteStream\",code=\"OK\",reason=\"\"} 1"));
  EXPECT_THAT(text, HasSubstr("fuseline_device_executions_total{device=\"0\",target=\"cpu\"} 1"));
  EXPECT_THAT(text, HasSubstr("fuseline_run_seconds_count 1"));
}

TEST_F(OperationsTest, AccessLogIsOpenedAnewAtHangup) {
  StartServer({"--access_log", folder_.path("access.log")});
  ASSERT_TRUE(server_->running()) << server_->log();
  ASSERT_EQ(Fuseline({"devices"}).exit_code, 0);
  EXPECT_THAT(folder_.Read("access.log"), HasSubstr("method=AdminService/GetServerInfo"));
  EXPECT_THAT(server_->log(), Not(HasSubstr("method=AdminService/GetServerInfo")));
  ASSERT_EQ(std::rename(folder_.path("access.log").c_str(), folder_.path("access.log.1").c_str()), 0);
  ASSERT_EQ(kill(server_->pid(), SIGHUP), 0);
  const absl::Time limit = absl::Now() + absl::Seconds(20);
  while (access(folder_.path("access.log").c_str(), F_OK) != 0 && absl::Now() < limit)
    absl::SleepFor(absl::Milliseconds(5));
  ASSERT_EQ(Fuseline({"cache", "stats"}).exit_code, 0);
  EXPECT_THAT(folder_.Read("access.log"), HasSubstr("method=AdminService/GetCacheStats"));
  EXPECT_THAT(folder_.Read("access.log.1"), Not(HasSubstr("GetCacheStats")));
  EXPECT_EQ(server_->Stop(), 0);
}

}  // namespace
}  // namespace fuseline::testing
