// fuseline warm through the real server: what it fills the cache with, and the lock files that it writes and checks.
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/e2e/server_process.h"
#include "tests/testing/program_runner.h"

namespace fuseline::testing {
namespace {

using ::testing::HasSubstr;
using Json = nlohmann::json;

constexpr char kCase[] = R"json({
 "name": "case",
 "source": "this test",
 "why": "A graph among the graphs.",
 "graph": "graph g(x: f32[2]) {\n  %t = abs(x)\n  return y = %t\n}",
 "inputs": {"x": {"dtype": "f32", "shape": [2], "data": [1, -2]}},
 "outputs": {"y": {"dtype": "f32", "shape": [2], "data": [1, 2]}},
 "tolerance": {"rtol": 0, "atol": 0}
})json";

class WarmTest : public ::testing::Test {
 protected:
  void SetUp() override {
    server_ =
        std::make_unique<ServerProcess>(folder_.path(), std::vector<std::string>{"--cache_dir", folder_.path("cache")});
    ASSERT_TRUE(server_->running()) << server_->log();
    std::filesystem::create_directories(folder_.path("graphs/deep"));
    folder_.Write("graphs/neg.fl", "graph g(x: f32[64]) {\n  %t = neg(x)\n  return y = %t\n}\n");
    folder_.Write("graphs/deep/rows.fl", "graph g(x: f32[rows, 8]) {\n  %t = exp(x)\n  return y = %t\n}\n");
    folder_.Write("graphs/case.json", kCase);
    folder_.Write("graphs/notes.txt", "no graph");
  }

  ProgramResult Warm(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), {FUSELINE_CLI, "--server", server_->address(), "warm"});
    return RunProgram(arguments);
  }
  Json WarmJson(std::vector<std::string> arguments) {
    arguments.push_back("--json");
    const ProgramResult result = Warm(arguments);
    Json json = Json::parse(result.out, nullptr, false);
    EXPECT_TRUE(json.is_object()) << result.out << result.err << server_->log();
    return json;
  }

  TemporaryFolder folder_;
  std::unique_ptr<ServerProcess> server_;
};

TEST_F(WarmTest, FoldersGraphsAreCompiledOnceAndHitAfterwards) {
  const std::vector<std::string> arguments = {folder_.path("graphs"), "--symbol", "rows=16"};
  const Json first = WarmJson(arguments);
  EXPECT_EQ(first["compiled"], 3) << first;
  EXPECT_EQ(first["failed"], 0);
  EXPECT_EQ(first["graphs"].size(), 3u);
  const Json second = WarmJson(arguments);
  EXPECT_EQ(second["hits"], 3) << second;
  EXPECT_EQ(second["compiled"], 0);
  const ProgramResult text = Warm(arguments);
  EXPECT_EQ(text.exit_code, 0);
  EXPECT_THAT(text.out, HasSubstr("neg.fl: target cpu, memory-hit"));
  EXPECT_THAT(text.out, HasSubstr("3 hits, 0 compiled, 0 joined, 0 failed\n"));
}

TEST_F(WarmTest, FailuresAreNamedAndTheRestIsDone) {
  folder_.Write("graphs/bad.fl", "graph g(x: f32[64]) {\n  %t = nosuchop(x)\n  return y = %t\n}\n");
  const std::string lock = folder_.path("out.lock");
  const ProgramResult result = Warm({folder_.path("graphs"), "--lock", lock});  // rows has no size
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.err, HasSubstr("bad.fl"));
  EXPECT_THAT(result.err, HasSubstr("nosuchop"));
  EXPECT_THAT(result.err, HasSubstr("rows"));
  EXPECT_THAT(result.out, HasSubstr("0 hits, 2 compiled, 0 joined, 2 failed\n"));
  EXPECT_FALSE(std::filesystem::exists(lock));
}

TEST_F(WarmTest, LockFileSaysWhatIsRunAndIsChecked) {
  const std::string lock = folder_.path("graphs/set.lock");
  const Json written = WarmJson({folder_.path("graphs"), "--symbol", "rows=16", "--lock", lock});
  EXPECT_EQ(written["failed"], 0) << written;
  const Json entries = Json::parse(folder_.Read("graphs/set.lock"), nullptr, false)["entries"];
  ASSERT_EQ(entries.size(), 3u) << entries;
  EXPECT_EQ(entries[1]["graph"], "deep/rows.fl");
  EXPECT_EQ(entries[1]["symbols"]["rows"], 16);
  // A build anew gives the same bytes.
  const Json anew = WarmJson({folder_.path("graphs"), "--symbol", "rows=16", "--no-cache"});
  for (const Json& again : anew["graphs"]) {
    bool found = false;
    for (const Json& entry : entries) found = found || entry["artifact_sha256"] == again["artifact_sha256"];
    EXPECT_TRUE(found) << again;
  }

  EXPECT_EQ(WarmJson({lock})["hits"], 3);
  // Without the graph's file, its key is asked for.
  std::filesystem::remove(folder_.path("graphs/neg.fl"));
  EXPECT_EQ(WarmJson({lock})["hits"], 3);
  folder_.Write("graphs/neg.fl", "graph g(x: f32[64]) {\n  %t = exp(x)\n  return y = %t\n}\n");
  const ProgramResult changed = Warm({lock});
  EXPECT_EQ(changed.exit_code, 1);
  EXPECT_THAT(changed.err, HasSubstr("the graph or the compiler has changed"));
  EXPECT_THAT(changed.out, HasSubstr("2 hits, 0 compiled, 0 joined, 1 failed\n"));
}

TEST_F(WarmTest, LockedArtifactThatDiffersIsRefused) {
  const std::string lock = folder_.path("graphs/set.lock");
  WarmJson({folder_.path("graphs/neg.fl"), "--lock", lock});
  std::string text = folder_.Read("graphs/set.lock");
  const size_t at = text.find("artifact_sha256\": \"") + 19;
  text[at] = text[at] == '0' ? '1' : '0';
  folder_.Write("graphs/set.lock", text);
  const ProgramResult result = Warm({lock});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.err, HasSubstr("the lock file has the artifact"));
}

}  // namespace
}  // namespace fuseline::testing
