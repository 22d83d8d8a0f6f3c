// Export files, signatures and eviction through the real programs: what one server compiled serves another, is baked
// into an image, and is believed only where it is signed.
#include <signal.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/e2e/server_process.h"
#include "tests/testing/program_runner.h"

namespace fuseline::testing {
namespace {

using ::testing::HasSubstr;
using Json = nlohmann::json;

std::string GraphOf(const std::string& op, int size) {
  return absl::StrCat("graph g(x: f32[", size, "]) {\n  %t = ", op, "(x)\n  return y = %t\n}\n");
}

class CacheFileTest : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_.Write("neg.fl", GraphOf("neg", 64));
    folder_.Write("exp.fl", GraphOf("exp", 64));
    folder_.Write("long.fl", GraphOf("neg", 128));
  }

  // A server with a folder of its own, and a disk cache in it.
  std::unique_ptr<ServerProcess> Start(const std::string& name, std::vector<std::string> flags) {
    flags.insert(flags.begin(), {"--cache_dir", folder_.path(name + "/cache")});
    return StartWith(name, flags);
  }
  std::unique_ptr<ServerProcess> StartWith(const std::string& name, const std::vector<std::string>& flags) {
    std::filesystem::create_directories(folder_.path(name));
    auto server = std::make_unique<ServerProcess>(folder_.path(name), flags);
    EXPECT_TRUE(server->running()) << server->log();
    return server;
  }
  std::string KeyFile(const std::string& name, char digit) {
    folder_.Write(name, absl::StrCat("k ", std::string(64, digit), "\n"));
    std::filesystem::permissions(folder_.path(name), std::filesystem::perms::owner_read);
    return folder_.path(name);
  }
  static ProgramResult Ask(const ServerProcess& server, std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), {FUSELINE_CLI, "--server", server.address()});
    return RunProgram(arguments);
  }
  static Json AskJson(const ServerProcess& server, std::vector<std::string> arguments) {
    arguments.push_back("--json");
    const ProgramResult result = Ask(server, arguments);
    Json json = Json::parse(result.out, nullptr, false);
    EXPECT_TRUE(json.is_object()) << result.out << result.err << server.log();
    return json;
  }
  std::string Outcome(const ServerProcess& server, const std::string& graph) {
    return AskJson(server, {"compile", folder_.path(graph)}).value("outcome", "");
  }
  static Json Level(const ServerProcess& server, const std::string& name) {
    const Json stats = AskJson(server, {"cache", "stats"});
    for (const Json& level : stats["levels"]) {
      if (level["level"] == name) return level;
    }
    ADD_FAILURE() << "no level " << name;
    return Json::object();
  }
  // A file with both graphs, from a server that is started with `flags`.
  std::string ExportedFile(const std::vector<std::string>& flags = {}) {
    const auto server = Start("exporter", flags);
    EXPECT_EQ(Outcome(*server, "neg.fl"), "miss");
    EXPECT_EQ(Outcome(*server, "exp.fl"), "miss");
    const ProgramResult result = Ask(*server, {"cache", "export", folder_.path("export")});
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return folder_.path("export");
  }

  TemporaryFolder folder_;
};

TEST_F(CacheFileTest, WhatOneServerCompiledAnotherOneServes) {
  const std::string file = ExportedFile();
  const auto server = Start("importer", {"--accept_unsigned_imports"});
  const Json imported = AskJson(*server, {"cache", "import", file});
  EXPECT_EQ(imported["imported"], 2);
  EXPECT_EQ(imported["refused"], 0);
  EXPECT_EQ(AskJson(*server, {"cache", "import", file})["present"], 2);
  EXPECT_EQ(Outcome(*server, "neg.fl"), "memory-hit");
  EXPECT_EQ(Outcome(*server, "exp.fl"), "memory-hit");
  EXPECT_EQ(AskJson(*server, {"cache", "stats"})["builds"], 0);
  // Equal caches make equal files.
  EXPECT_EQ(Ask(*server, {"cache", "export", folder_.path("again")}).exit_code, 0);
  std::ifstream first(file, std::ios::binary);
  std::ifstream second(folder_.path("again"), std::ios::binary);
  EXPECT_EQ(std::string(std::istreambuf_iterator<char>(first), {}),
            std::string(std::istreambuf_iterator<char>(second), {}));
}

// What is imported is run, so that it would be a way to run code of one's own.
TEST_F(CacheFileTest, ServerWithoutKeysTakesNoImports) {
  const std::string file = ExportedFile();
  const auto server = Start("importer", {});
  const ProgramResult result = Ask(*server, {"cache", "import", file});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.err, HasSubstr("FAILED_PRECONDITION"));
  EXPECT_THAT(result.err, HasSubstr("--cache_key_file"));
  EXPECT_EQ(Outcome(*server, "neg.fl"), "miss");
}

TEST_F(CacheFileTest, WorkOnACacheThatIsNotThereFails) {
  const std::string file = ExportedFile();
  const auto run = [](std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), FUSELINE_CLI);
    return RunProgram(arguments);
  };
  EXPECT_THAT(run({"--local", "cache", "import", file}).err, HasSubstr("--cache-dir"));
  EXPECT_THAT(run({"--server", "127.0.0.1:1,127.0.0.1:2", "cache", "evict", "--all"}).err, HasSubstr("several"));
  // The server has the folder.
  const auto server = Start("exporter", {});
  const ProgramResult taken = run({"--local", "--cache-dir", folder_.path("exporter/cache"), "cache", "export", file});
  EXPECT_EQ(taken.exit_code, 1);
  EXPECT_THAT(taken.err, HasSubstr("can't be used"));
  EXPECT_GT(std::filesystem::file_size(file), 1000u);  // the file is as it was
  EXPECT_THAT(Ask(*server, {"cache", "export", "/dev/null"}).err, HasSubstr("no regular file"));
  EXPECT_TRUE(std::filesystem::is_character_file("/dev/null"));
}

TEST_F(CacheFileTest, WhatALostKeySignedIsForgotten) {
  const std::string keys = KeyFile("keys", '1');
  const auto server = Start("server", {"--cache_key_file", keys});
  EXPECT_EQ(Outcome(*server, "neg.fl"), "miss");
  kill(server->pid(), SIGHUP);  // the same keys
  EXPECT_EQ(Outcome(*server, "neg.fl"), "memory-hit");
  std::filesystem::remove(keys);
  KeyFile("keys", '2');
  kill(server->pid(), SIGHUP);
  const absl::Time limit = absl::Now() + absl::Seconds(20);
  std::string outcome;
  while ((outcome = Outcome(*server, "neg.fl")) == "memory-hit" && absl::Now() < limit) {
    absl::SleepFor(absl::Milliseconds(20));
  }
  EXPECT_EQ(outcome, "miss");
}

TEST_F(CacheFileTest, BakedFileServesHitsFromTheStartWithoutADiskCache) {
  // As in building an image: without a server.
  const auto local = [&](std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), {FUSELINE_CLI, "--local", "--cache-dir", folder_.path("bake")});
    return RunProgram(arguments);
  };
  const ProgramResult warmed = local({"cache", "warm", folder_.path("neg.fl"), "--lock", folder_.path("job.lock")});
  EXPECT_EQ(warmed.exit_code, 0) << warmed.err;
  EXPECT_EQ(local({"warm", folder_.path("exp.fl")}).exit_code, 0);
  const ProgramResult exported = local({"cache", "export", folder_.path("seed"), "--lock", folder_.path("job.lock")});
  EXPECT_EQ(exported.exit_code, 0) << exported.err;
  const auto server = StartWith("baked", {"--cache_dir=", "--cache_seed", folder_.path("seed")});
  EXPECT_EQ(Outcome(*server, "neg.fl"), "disk-hit");
  EXPECT_EQ(Outcome(*server, "neg.fl"), "memory-hit");
  EXPECT_EQ(Outcome(*server, "exp.fl"), "miss");  // not in the lock file
  EXPECT_EQ(Level(*server, "seed")["entries"], 1);
  EXPECT_EQ(Level(*server, "seed")["hits"], 1);
  // The other way: into the folder of a disk cache.
  const ProgramResult imported = RunProgram(
      {FUSELINE_CLI, "--local", "--cache-dir", folder_.path("filled/cache"), "cache", "import", folder_.path("seed")});
  EXPECT_EQ(imported.exit_code, 0) << imported.err;
  EXPECT_EQ(Outcome(*Start("filled", {}), "neg.fl"), "disk-hit");
}

TEST_F(CacheFileTest, DamagedFileIsRefusedAndSaysWhereItEnds) {
  const std::string file = ExportedFile();
  const auto size = std::filesystem::file_size(file);
  std::filesystem::resize_file(file, size - 100);
  const auto server = Start("importer", {"--cache_seed", file, "--accept_unsigned_imports"});
  EXPECT_THAT(server->log(), HasSubstr("is cut off at byte"));
  const ProgramResult result = Ask(*server, {"cache", "import", file});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.err, HasSubstr("is cut off at byte"));
  EXPECT_EQ(Ask(*server, {"cache", "import", folder_.path("neg.fl")}).exit_code, 1);
  EXPECT_EQ(Ask(*server, {"cache", "import", folder_.path("none")}).exit_code, 1);
  EXPECT_NE(Outcome(*server, "exp.fl"), "");  // the server goes on
}

TEST_F(CacheFileTest, WithKeysOnlyWhatIsSignedWithThemIsServed) {
  const std::string signed_file = ExportedFile({"--cache_key_file", KeyFile("keys", '1')});
  const auto same = Start("same", {"--cache_key_file", folder_.path("keys"), "--cache_seed", signed_file});
  EXPECT_EQ(Outcome(*same, "neg.fl"), "disk-hit");
  const auto other = Start("other", {"--cache_key_file", KeyFile("other_keys", '2'), "--cache_seed", signed_file});
  EXPECT_EQ(Outcome(*other, "neg.fl"), "miss");
  EXPECT_EQ(Level(*other, "seed")["unsigned"], 1);
  const Json refused = AskJson(*other, {"cache", "import", signed_file});
  EXPECT_EQ(refused["refused"], 2);
  EXPECT_THAT(refused.value("first_refusal", ""), HasSubstr("its signature is wrong"));
}

TEST_F(CacheFileTest, DiskCacheOfAnotherKeyIsCompiledAgainAndNeverRun) {
  { EXPECT_EQ(Outcome(*Start("server", {"--cache_key_file", KeyFile("keys", '1')}), "neg.fl"), "miss"); }
  { EXPECT_EQ(Outcome(*Start("server", {"--cache_key_file", folder_.path("keys")}), "neg.fl"), "disk-hit"); }
  const auto server = Start("server", {"--cache_key_file", KeyFile("other_keys", '2')});
  EXPECT_EQ(Outcome(*server, "neg.fl"), "miss");
  EXPECT_EQ(Level(*server, "rocksdb")["corrupt"], 1);
  EXPECT_EQ(Level(*server, "rocksdb")["unsigned"], 1);
  EXPECT_EQ(Outcome(*server, "neg.fl"), "memory-hit");
}

TEST_F(CacheFileTest, KeysRotateWithoutARestart) {
  const auto server = Start("server", {"--cache_key_file", KeyFile("keys", '1')});
  std::filesystem::remove(folder_.path("keys"));
  const auto told = [&](const std::string& words) {
    kill(server->pid(), SIGHUP);
    for (int i = 0; i < 500 && server->log().find(words) == std::string::npos; ++i)
      absl::SleepFor(absl::Milliseconds(10));
    return server->log();
  };
  EXPECT_THAT(told("cache-keys-kept"), HasSubstr("cache-keys-kept"));
  EXPECT_EQ(Outcome(*server, "neg.fl"), "miss");  // signed with the first key
  KeyFile("keys", '2');
  EXPECT_THAT(told("cache-keys-read"), HasSubstr("cache-keys-read"));
  EXPECT_EQ(Outcome(*server, "exp.fl"), "miss");  // and this with the second
  server->Stop();
  const auto again = Start("server", {"--cache_key_file", folder_.path("keys")});
  EXPECT_EQ(Outcome(*again, "exp.fl"), "disk-hit");
  EXPECT_EQ(Outcome(*again, "neg.fl"), "miss");
}

TEST_F(CacheFileTest, KeyFileThatOthersMayReadKeepsTheServerFromStarting) {
  KeyFile("keys", '1');
  std::filesystem::permissions(folder_.path("keys"), std::filesystem::perms::others_read,
                               std::filesystem::perm_options::add);
  const ProgramResult result = RunProgram(
      {FUSELINE_SERVER_PROGRAM, "--listen", "127.0.0.1:0", "--cache_dir=", "--cache_key_file", folder_.path("keys")});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.err, HasSubstr("may be read or changed by others"));
}

TEST_F(CacheFileTest, AnotherNamespaceSeesNothing) {
  { EXPECT_EQ(Outcome(*Start("server", {"--cache_namespace", "a"}), "neg.fl"), "miss"); }
  { EXPECT_EQ(Outcome(*Start("server", {"--cache_namespace", "b"}), "neg.fl"), "miss"); }
  const auto server = Start("server", {"--cache_namespace", "a"});
  EXPECT_EQ(Outcome(*server, "neg.fl"), "disk-hit");
  EXPECT_EQ(Level(*server, "rocksdb")["corrupt"], 0);
}

TEST_F(CacheFileTest, EvictedEntriesAreCompiledAgain) {
  const auto server = Start("server", {});
  EXPECT_EQ(Outcome(*server, "exp.fl"), "miss");
  const std::string fingerprint = AskJson(*server, {"compile", folder_.path("neg.fl")}).value("fingerprint", "");
  EXPECT_EQ(AskJson(*server, {"cache", "evict", fingerprint})["evicted"], 1);
  EXPECT_EQ(Outcome(*server, "neg.fl"), "miss");
  EXPECT_EQ(Outcome(*server, "exp.fl"), "memory-hit");
  EXPECT_EQ(AskJson(*server, {"cache", "evict", "--unused-for", "1h"})["evicted"], 0);
  EXPECT_EQ(AskJson(*server, {"cache", "evict", "--all"})["evicted"], 2);
  EXPECT_EQ(Outcome(*server, "exp.fl"), "miss");
  EXPECT_EQ(Ask(*server, {"cache", "evict"}).exit_code, 1);
  EXPECT_EQ(Ask(*server, {"cache", "evict", "--unused-for", "never"}).exit_code, 1);
}

TEST_F(CacheFileTest, MissIsExplainedByTheNearestEntry) {
  const auto server = Start("server", {});
  const Json none = AskJson(*server, {"explain", folder_.path("neg.fl"), "--why-miss"})["miss"];
  EXPECT_FALSE(none["is_there"]);
  EXPECT_FALSE(none.contains("nearest"));
  EXPECT_EQ(Outcome(*server, "exp.fl"), "miss");
  const Json miss = AskJson(*server, {"explain", folder_.path("long.fl"), "--why-miss"})["miss"];
  EXPECT_FALSE(miss["is_there"]);
  ASSERT_EQ(miss["differences"].size(), 1u) << miss;
  EXPECT_EQ(miss["differences"][0]["field"], "graph.inputs");
  EXPECT_EQ(miss["differences"][0]["here"], "f32[128]");
  EXPECT_EQ(miss["differences"][0]["there"], "f32[64]");
  const ProgramResult text = Ask(*server, {"explain", folder_.path("long.fl"), "--why-miss", "--no-fuse"});
  EXPECT_THAT(text.out, HasSubstr("options.fuse"));
}

TEST_F(CacheFileTest, KernelThatTheCompilerRejectsIsNotCompiledAgainForAWhile) {
  const auto compiler = [&](const std::string& name, const std::string& body) {
    folder_.Write(name, "#!/bin/sh\n[ \"$1\" = --version ] && echo 'g++ 12' && exit 0\n" + body);
    std::filesystem::permissions(folder_.path(name), std::filesystem::perms::owner_all);
    return folder_.path(name);
  };
  const std::string rejects = compiler("rejects", "echo 'kernel.cc:1:1: error: it is no good' >&2\nexit 1\n");
  const std::string crashes =
      compiler("crashes", "echo 'g++: fatal error: Killed signal terminated program' >&2\nexit 1\n");
  const auto server = Start("rejected", {"--host_compiler", rejects});
  for (int known = 0; known < 2; ++known) {
    const ProgramResult result = Ask(*server, {"compile", folder_.path("neg.fl")});
    EXPECT_EQ(result.exit_code, 1);
    EXPECT_THAT(result.err, HasSubstr("it is no good"));
    EXPECT_EQ(AskJson(*server, {"cache", "stats"})["known_errors"], known);
  }
  const auto other = Start("crashed", {"--host_compiler", crashes});
  for (int i = 0; i < 2; ++i) EXPECT_EQ(Ask(*other, {"compile", folder_.path("neg.fl")}).exit_code, 1);
  EXPECT_EQ(AskJson(*other, {"cache", "stats"})["known_errors"], 0);
}

TEST_F(CacheFileTest, JobThatPinsALockFileGetsItsArtifactsAlone) {
  const auto server = Start("server", {});
  const std::string lock = folder_.path("job.lock");
  EXPECT_EQ(Ask(*server, {"warm", folder_.path("neg.fl"), "--lock", lock}).exit_code, 0);
  const auto run = [&](const std::string& graph) {
    return Ask(*server, {"run", folder_.path(graph), "--random", "1", "--lock", lock});
  };
  EXPECT_EQ(run("neg.fl").exit_code, 0);
  EXPECT_EQ(Ask(*server, {"compile", folder_.path("neg.fl"), "--lock", lock}).exit_code, 0);
  const ProgramResult unlocked = run("exp.fl");
  EXPECT_EQ(unlocked.exit_code, 1);
  EXPECT_THAT(unlocked.err, HasSubstr("the lock file has no graph with the key"));
  EXPECT_EQ(unlocked.out, "");
  // As where the artifact is not what it was.
  std::string text = folder_.Read("job.lock");
  const size_t digest = text.find("artifact_sha256") + 19;
  text[digest] = text[digest] == '0' ? '1' : '0';
  folder_.Write("job.lock", text);
  for (const ProgramResult& changed :
       {run("neg.fl"), Ask(*server, {"compile", folder_.path("neg.fl"), "--lock", lock}),
        RunProgram({FUSELINE_CLI, "--local", "compile", folder_.path("neg.fl"), "--lock", lock})}) {
    EXPECT_EQ(changed.exit_code, 1);
    EXPECT_THAT(changed.err, HasSubstr("the lock file has the artifact"));
  }
}

}  // namespace
}  // namespace fuseline::testing
