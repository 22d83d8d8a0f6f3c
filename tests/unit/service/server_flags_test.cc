#include "server/service/server_flags.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace fuseline::service {
namespace {

FlagsOutcome Parse(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), "fuseline-server");
  std::vector<const char*> argv;
  for (const std::string& argument : arguments) argv.push_back(argument.c_str());
  return ParseServerFlags(static_cast<int>(argv.size()), argv.data(), "1.2.3");
}

std::string WriteFile(const std::string& name, const std::string& text) {
  const std::string path = absl::StrCat(::testing::TempDir(), "/", name);
  std::ofstream(path) << text;
  return path;
}

TEST(ServerFlagsTest, NoFlagsGiveTheDocumentedDefaults) {
  setenv("XDG_CACHE_HOME", "/some/cache", 1);
  const FlagsOutcome outcome = Parse({});
  ASSERT_TRUE(outcome.flags.has_value()) << outcome.output;
  const ServerFlags& flags = *outcome.flags;
  EXPECT_EQ(flags.server.listen, "127.0.0.1:50061");
  EXPECT_EQ(flags.server.max_message_bytes, 512 << 20);
  EXPECT_EQ(flags.server.max_compile_queue, 1024);
  EXPECT_EQ(flags.server.max_execute_queue, 1024);
  EXPECT_EQ(flags.engine.max_builds_waiting, 1024);
  EXPECT_EQ(flags.server.max_inflight_bytes, 4ll << 30);
  EXPECT_EQ(flags.server.stream_idle, absl::Seconds(60));
  EXPECT_EQ(flags.server.metrics_listen, "");
  EXPECT_EQ(flags.access_log, "");
  EXPECT_EQ(flags.server.version, "1.2.3");
  EXPECT_EQ(flags.engine.cache_dir, "/some/cache/fuseline");
  EXPECT_EQ(flags.engine.cache_memory_bytes, 256ll << 20);
  EXPECT_EQ(flags.engine.cache_disk_bytes, 16ll << 30);
  EXPECT_EQ(flags.engine.executor.cpu_devices, 1);
  EXPECT_TRUE(flags.engine.executor.use_cuda);
  EXPECT_TRUE(flags.compiler_workers);
  EXPECT_TRUE(flags.device_workers);
  EXPECT_EQ(flags.engine.compiler_workers.time_limit, absl::Seconds(60));
  EXPECT_EQ(flags.engine.compiler_workers.memory_limit_bytes, 4ll << 30);
  EXPECT_EQ(flags.engine.tensors.capacity_bytes, executor::TensorStoreOptions().capacity_bytes);
  EXPECT_EQ(flags.engine.tensors.owner_quota_bytes, executor::TensorStoreOptions().owner_quota_bytes);
  EXPECT_EQ(flags.engine.tensors.default_lease, executor::TensorStoreOptions().default_lease);
  EXPECT_EQ(flags.engine.tensors.max_lease, executor::TensorStoreOptions().max_lease);
  EXPECT_EQ(flags.engine.limits.max_nodes, GraphLimits().max_nodes);
  EXPECT_EQ(flags.engine.limits.max_constant_bytes, GraphLimits().max_constant_bytes);
  EXPECT_EQ(flags.log_level, LogLevel::kInfo);
  EXPECT_EQ(flags.log_format, LogFormat::kText);
  EXPECT_EQ(flags.drain_time, absl::Seconds(30));
}

TEST(ServerFlagsTest, EveryFlagArrives) {
  const FlagsOutcome outcome = Parse({"--listen",
                                      "unix:/tmp/x",
                                      "--tls_cert_file=/t/c",
                                      "--tls_key_file=/t/k",
                                      "--tls_client_ca_file=/t/a",
                                      "--cache_dir=/c",
                                      "--cache_memory_mb=1",
                                      "--cache_disk_mb=2",
                                      "--compile_threads=3",
                                      "--host_compiler=clang++",
                                      "--nvrtc_path=/a",
                                      "--nvrtc_path=/b",
                                      "--no-compiler_workers",
                                      "--compile_seconds=13",
                                      "--compile_memory_mb=300",
                                      "--cpu_devices=4",
                                      "--cpu_threads=5",
                                      "--no-cuda",
                                      "--tensor_store_mb=14",
                                      "--tensor_quota_mb=15",
                                      "--max_tensors=16",
                                      "--tensor_lease_seconds=17",
                                      "--tensor_max_lease_seconds=18",
                                      "--max_nodes=6",
                                      "--max_rank=7",
                                      "--max_elements=8",
                                      "--max_constant_mb=9",
                                      "--max_message_mb=10",
                                      "--max_queue=11",
                                      "--max_execute_queue=13",
                                      "--max_streams=14",
                                      "--stream_idle_seconds=15",
                                      "--max_inflight_mb=16",
                                      "--max_calls_per_connection=17",
                                      "--metrics_listen=127.0.0.1:0",
                                      "--access_log=/a/log",
                                      "--drain_seconds=12",
                                      "--log_level=error",
                                      "--log_format=json",
                                      "--port_file=/p"});
  ASSERT_TRUE(outcome.flags.has_value()) << outcome.output;
  const ServerFlags& flags = *outcome.flags;
  EXPECT_EQ(flags.server.listen, "unix:/tmp/x");
  EXPECT_EQ(flags.server.tls.cert, "/t/c");
  EXPECT_EQ(flags.server.tls.key, "/t/k");
  EXPECT_EQ(flags.server.tls.client_ca, "/t/a");
  EXPECT_EQ(flags.engine.cache_dir, "/c");
  EXPECT_EQ(flags.engine.cache_memory_bytes, 1 << 20);
  EXPECT_EQ(flags.engine.cache_disk_bytes, 2 << 20);
  EXPECT_EQ(flags.engine.compile_threads, 3);
  EXPECT_EQ(flags.engine.host_compiler, "clang++");
  EXPECT_EQ(flags.engine.nvrtc_search_paths, (std::vector<std::string>{"/a", "/b"}));
  EXPECT_FALSE(flags.compiler_workers);
  EXPECT_EQ(flags.engine.compiler_workers.time_limit, absl::Seconds(13));
  EXPECT_EQ(flags.engine.compiler_workers.memory_limit_bytes, 300 << 20);
  EXPECT_EQ(flags.engine.executor.cpu_devices, 4);
  EXPECT_EQ(flags.engine.executor.cpu_threads, 5);
  EXPECT_FALSE(flags.engine.executor.use_cuda);
  EXPECT_EQ(flags.engine.tensors.capacity_bytes, 14 << 20);
  EXPECT_EQ(flags.engine.tensors.owner_quota_bytes, 15 << 20);
  EXPECT_EQ(flags.engine.tensors.max_tensors, 16);
  EXPECT_EQ(flags.engine.tensors.default_lease, absl::Seconds(17));
  EXPECT_EQ(flags.engine.tensors.max_lease, absl::Seconds(18));
  EXPECT_EQ(flags.engine.limits.max_nodes, 6);
  EXPECT_EQ(flags.engine.limits.max_rank, 7);
  EXPECT_EQ(flags.engine.limits.max_elements, 8);
  EXPECT_EQ(flags.engine.limits.max_constant_bytes, 9 << 20);
  EXPECT_EQ(flags.server.max_message_bytes, 10 << 20);
  EXPECT_EQ(flags.server.max_compile_queue, 11);
  EXPECT_EQ(flags.engine.max_builds_waiting, 11);
  EXPECT_EQ(flags.server.max_execute_queue, 13);
  EXPECT_EQ(flags.engine.executor.max_queue, 13);
  EXPECT_EQ(flags.server.max_streams, 14);
  EXPECT_EQ(flags.server.stream_idle, absl::Seconds(15));
  EXPECT_EQ(flags.server.max_inflight_bytes, 16 << 20);
  EXPECT_EQ(flags.server.max_calls_per_connection, 17);
  EXPECT_EQ(flags.server.metrics_listen, "127.0.0.1:0");
  EXPECT_EQ(flags.access_log, "/a/log");
  EXPECT_EQ(flags.drain_time, absl::Seconds(12));
  EXPECT_EQ(flags.log_level, LogLevel::kError);
  EXPECT_EQ(flags.log_format, LogFormat::kJson);
  EXPECT_EQ(flags.port_file, "/p");
}

TEST(ServerFlagsTest, NothingAfterTheEqualsSignIsAnEmptyValue) {
  const FlagsOutcome outcome = Parse({"--cache_dir=", "--no-cuda", "--cpu_devices=2"});
  ASSERT_TRUE(outcome.flags.has_value()) << outcome.output;
  EXPECT_EQ(outcome.flags->engine.cache_dir, "");
  EXPECT_FALSE(outcome.flags->engine.executor.use_cuda);
  EXPECT_EQ(outcome.flags->engine.executor.cpu_devices, 2);
}

TEST(ServerFlagsTest, ServerThatOnlyCompilesHasNoDevices) {
  const FlagsOutcome outcome = Parse({"--no-execute", "--cpu_devices=2", "--cuda"});
  ASSERT_TRUE(outcome.flags.has_value()) << outcome.output;
  EXPECT_EQ(outcome.flags->engine.executor.cpu_devices, 0);
  EXPECT_FALSE(outcome.flags->engine.executor.use_cuda);
}

TEST(ServerFlagsTest, ConfigFileHasTheSameNamesAndTheCommandLineWins) {
  const std::string path =
      WriteFile("fuseline.toml",
                "# a comment\nlisten = \"0.0.0.0:1\"\nmax_queue = 5\ncuda = false\nnvrtc_path = [\"/a\", \"/b\"]\n"
                "cache_dir = \"\"\nlog_format = \"json\"\n");
  const FlagsOutcome outcome = Parse({absl::StrCat("--config=", path), "--max_queue=6"});
  ASSERT_TRUE(outcome.flags.has_value()) << outcome.output;
  EXPECT_EQ(outcome.flags->server.listen, "0.0.0.0:1");
  EXPECT_EQ(outcome.flags->server.max_compile_queue, 6);
  EXPECT_FALSE(outcome.flags->engine.executor.use_cuda);
  EXPECT_EQ(outcome.flags->engine.nvrtc_search_paths, (std::vector<std::string>{"/a", "/b"}));
  EXPECT_EQ(outcome.flags->engine.cache_dir, "");
  EXPECT_EQ(outcome.flags->log_format, LogFormat::kJson);
}

TEST(ServerFlagsTest, WrongFlagsAndFilesExitWithTwoAndSayWhy) {
  const std::string unknown = WriteFile("unknown.toml", "no_such_flag = 1\n");
  const std::string bad = WriteFile("bad.toml", "max_queue = many\n");
  const std::vector<std::pair<std::vector<std::string>, std::string>> cases = {
      {{"--no_such_flag"}, "no_such_flag"},
      {{"stray"}, "stray"},
      {{"--max_queue=many"}, "max_queue"},
      {{"--max_queue=-1"}, "max_queue"},
      {{"--max_message_mb=2048"}, "max_message_mb"},
      {{"--max_nodes=0"}, "max_nodes"},
      {{"--log_level=loud"}, "log_level"},
      {{"--listen"}, "listen"},
      {{"--config=/no/such/file"}, "/no/such/file"},
      {{absl::StrCat("--config=", unknown)}, "no_such_flag"},
      {{absl::StrCat("--config=", bad)}, "max_queue"},
  };
  for (const auto& [arguments, text] : cases) {
    const FlagsOutcome outcome = Parse(arguments);
    EXPECT_FALSE(outcome.flags.has_value()) << arguments[0];
    EXPECT_EQ(outcome.exit_code, 2) << arguments[0];
    EXPECT_TRUE(absl::StrContains(outcome.output, text)) << arguments[0] << ": " << outcome.output;
  }
}

TEST(ServerFlagsTest, HelpAndVersionExitWithZero) {
  const FlagsOutcome version = Parse({"--version"});
  EXPECT_EQ(version.exit_code, 0);
  EXPECT_EQ(version.output, "fuseline-server 1.2.3\n");
  const FlagsOutcome help = Parse({"--help"});
  EXPECT_EQ(help.exit_code, 0);
  EXPECT_TRUE(absl::StrContains(help.output, "--drain_seconds"));
  EXPECT_TRUE(absl::StrContains(help.output, "seconds"));
}

TEST(ServerFlagsTest, CacheDirComesFromTheEnvironment) {
  setenv("HOME", "/home/x", 1);
  setenv("XDG_CACHE_HOME", "relative", 1);
  EXPECT_EQ(DefaultCacheDir(), "/home/x/.cache/fuseline");
  unsetenv("XDG_CACHE_HOME");
  EXPECT_EQ(DefaultCacheDir(), "/home/x/.cache/fuseline");
  unsetenv("HOME");
  EXPECT_EQ(DefaultCacheDir(), "");
}

// The words that look like flags.
std::set<std::string> FlagsIn(const std::string& text) {
  std::set<std::string> flags;
  for (size_t i = text.find("--"); i != std::string::npos; i = text.find("--", i)) {
    size_t end = i + 2;
    while (end < text.size() && ((text[end] >= 'a' && text[end] <= 'z') || text[end] == '_' || text[end] == '-')) ++end;
    if (end > i + 3 && text[i + 2] != '-') flags.insert(text.substr(i, end - i));
    i = end;
  }
  return flags;
}

TEST(ServerFlagsTest, DocumentationListsExactlyTheFlagsOfHelp) {
  std::ifstream file(absl::StrCat(FUSELINE_SOURCE_DIR, "/docs/config.md"));
  std::stringstream text;
  text << file.rdbuf();
  EXPECT_EQ(FlagsIn(text.str()), FlagsIn(Parse({"--help"}).output));
}

}  // namespace
}  // namespace fuseline::service
