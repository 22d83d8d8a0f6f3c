// The command line with --local: an engine in the process, on the CPU target.
#include <cmath>

#include "common/tensor/npy.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/testing/program_runner.h"
#include "tests/testing/status_matchers.h"

namespace fuseline::testing {
namespace {

using ::testing::HasSubstr;
using Json = nlohmann::json;

constexpr char kGraph[] =
    "graph g(x: f32[n], w: f32[n]) {\n  %t = mul(x, w)\n  %s = add(%t, 1.0)\n  return y = %s\n}\n";
const std::string kPointwise = FUSELINE_SOURCE_DIR "/deploy/examples/pointwise_example.fl";
const std::string kReduction = FUSELINE_SOURCE_DIR "/deploy/examples/reduction_example.fl";

ProgramResult Fuseline(std::vector<std::string> arguments, const std::string& input = "") {
  arguments.insert(arguments.begin(), {FUSELINE_CLI, "--local"});
  return RunProgram(arguments, input);
}

Json ParseJson(const ProgramResult& result) {
  Json json = Json::parse(result.out, nullptr, false);
  EXPECT_FALSE(json.is_discarded()) << result.out << result.err;
  return json;
}

TEST(CliEngineTest, RunReadsAndWritesNpyFiles) {
  const TemporaryFolder folder;
  Tensor x = Tensor::Allocate(DType::kF32, {3});
  Tensor w = Tensor::Allocate(DType::kF32, {3});
  for (int64_t i = 0; i < 3; ++i) {
    x.SetDouble(i, static_cast<double>(i));
    w.SetDouble(i, 2);
  }
  ASSERT_OK(WriteNpyFile(folder.path("x.npy"), x));
  ASSERT_OK(WriteNpyFile(folder.path("w.npy"), w));
  const ProgramResult result =
      Fuseline({"run", folder.Write("g.fl", kGraph), "--input", "x=" + folder.path("x.npy"), "--input",
                "w=" + folder.path("w.npy"), "--output", "y=" + folder.path("y.npy")});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("y: f32[3] = 1, 3, 5"));
  const auto y = ReadNpyFile(folder.path("y.npy"));
  ASSERT_OK(y);
  EXPECT_EQ(y->GetDouble(2), 5);
}

TEST(CliEngineTest, RunTakesInputsWithoutAFileFromAFolder) {
  const TemporaryFolder folder;
  Tensor tensor = Tensor::Allocate(DType::kF32, {2});
  for (const auto& [name, value] : {std::pair("x", 3.0), std::pair("w", 5.0), std::pair("other", 7.0)}) {
    for (int64_t i = 0; i < 2; ++i) tensor.SetDouble(i, value);
    ASSERT_OK(WriteNpyFile(folder.path(std::string(name) + ".npy"), tensor));
  }
  const std::string directory = folder.path("");
  const ProgramResult both = Fuseline({"run", "-", "--inputs-dir", directory}, kGraph);
  EXPECT_EQ(both.exit_code, 0) << both.err;
  EXPECT_THAT(both.out, HasSubstr("y: f32[2] = 16, 16"));
  const ProgramResult named =
      Fuseline({"run", "-", "--inputs-dir", directory, "--input", "w=" + folder.path("other.npy")}, kGraph);
  EXPECT_EQ(named.exit_code, 0) << named.err;
  EXPECT_THAT(named.out, HasSubstr("y: f32[2] = 22, 22"));
}

TEST(CliEngineTest, RunTakesSymbolsAndRandomInputs) {
  const ProgramResult result =
      Fuseline({"--json", "run", "-", "--symbol", "n=64", "--random", "7", "--repeat", "3"}, kGraph);
  ASSERT_EQ(result.exit_code, 0) << result.err << result.out;
  const Json json = ParseJson(result);
  EXPECT_EQ(json["outcome"], "miss");
  EXPECT_EQ(json["last_outcome"], "memory-hit");
  EXPECT_EQ(json["runs"], 3);
  EXPECT_EQ(json["target"], "cpu");
  EXPECT_EQ(json["outputs"][0]["name"], "y");
  EXPECT_EQ(json["outputs"][0]["shape"], Json::array({64}));
  EXPECT_EQ(json["outputs"][0]["first_values"].size(), 8u);
}

TEST(CliEngineTest, RunNamesWhatIsMissing) {
  const ProgramResult tensor = Fuseline({"run", "-", "--symbol", "n=4"}, kGraph);
  EXPECT_EQ(tensor.exit_code, 1);
  EXPECT_THAT(tensor.err, HasSubstr("input 'x' has no tensor: give --input x=FILE.npy or --random SEED"));
  const ProgramResult symbol = Fuseline({"run", "-", "--random", "1"}, kGraph);
  EXPECT_EQ(symbol.exit_code, 1);
  EXPECT_THAT(symbol.err, HasSubstr("give --symbol n=SIZE"));
  const ProgramResult output =
      Fuseline({"run", "-", "--random", "1", "--symbol", "n=4", "--output", "z=/tmp/z.npy"}, kGraph);
  EXPECT_EQ(output.exit_code, 1);
  EXPECT_THAT(output.err, HasSubstr("'z' is not an output"));
}

TEST(CliEngineTest, TypeErrorNamesTheNode) {
  const ProgramResult result =
      Fuseline({"compile", "-"}, "graph g(x: f32[3], w: f32[4]) {\n  %t = mul(x, w)\n  return %t\n}\n");
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.err, HasSubstr("INVALID_ARGUMENT (GRAPH_TYPE_MISMATCH)"));
  EXPECT_THAT(result.err, HasSubstr("'%t'"));
}

TEST(CliEngineTest, ExplainSaysWhatFusionSaved) {
  const ProgramResult pointwise = Fuseline({"explain", kPointwise});
  ASSERT_EQ(pointwise.exit_code, 0) << pointwise.err;
  EXPECT_THAT(pointwise.out, HasSubstr("3 kernels -> 1, 8 tensor transfers -> 4, 2 intermediates removed"));
  EXPECT_THAT(pointwise.out, HasSubstr("fuseline_pointwise_mul_add_sigmoid_0"));
  const ProgramResult reduction = Fuseline({"explain", kReduction});
  ASSERT_EQ(reduction.exit_code, 0) << reduction.err;
  EXPECT_THAT(reduction.out, HasSubstr("3 kernels -> 1"));
}

TEST(CliEngineTest, ExplainUsesTheGraphsOwnNames) {
  const std::string graph =
      "graph g(x: f32[64, 64]) {\n  %probs = softmax(x) {dim = -1}\n  %total = sum(%probs) {dims = [0]}\n"
      "  return %total, %probs\n}\n";
  const ProgramResult text = Fuseline({"explain", "-", "--why"}, graph);
  ASSERT_EQ(text.exit_code, 0) << text.err;
  EXPECT_THAT(text.out, HasSubstr("softmax %probs\n"));
  EXPECT_THAT(text.out, HasSubstr("%probs (part of softmax) into %total: "));
  const Json json = ParseJson(Fuseline({"--json", "explain", kPointwise}));
  EXPECT_EQ(json["report"]["kernels"][0]["ops"], (Json{"mul %t0", "add %t1", "sigmoid %t2"}));
}

TEST(CliEngineTest, ExplainWithoutFusionSavesNothing) {
  const Json json = ParseJson(Fuseline({"--json", "explain", kPointwise, "--no-fuse"}));
  EXPECT_EQ(json["report"]["kernels_before"], 3);
  EXPECT_EQ(json["report"]["kernels_after"], 3);
}

TEST(CliEngineTest, ExplainShowsKeyAndSource) {
  const ProgramResult result = Fuseline({"explain", kPointwise, "--key", "--source", "--why"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  for (const char* text : {"compiler_identity", "options.numerics", "target", "not fused:", "extern \"C\""})
    EXPECT_THAT(result.out, HasSubstr(text));
}

TEST(CliEngineTest, ExplainWritesThePageToAFileOrStandardOutput) {
  const TemporaryFolder folder;
  const ProgramResult both = Fuseline({"explain", kPointwise, "--html", folder.path("page.html"), "--bench"});
  ASSERT_EQ(both.exit_code, 0) << both.err;
  EXPECT_THAT(both.out, HasSubstr("3 kernels -> 1"));
  EXPECT_THAT(both.out, HasSubstr("a run, all kernels"));
  const std::string page = folder.Read("page.html");
  for (const char* text :
       {"<!doctype html>", "fuseline_pointwise_mul_add_sigmoid_0", "extern \\\"C\\\"", "\"micros\":["})
    EXPECT_THAT(page, HasSubstr(text));
  const ProgramResult alone = Fuseline({"explain", kPointwise, "--html", "-"});
  ASSERT_EQ(alone.exit_code, 0) << alone.err;
  EXPECT_THAT(alone.out, ::testing::StartsWith("<!doctype html>"));
  EXPECT_THAT(alone.out, ::testing::EndsWith("</html>\n"));
}

TEST(CliEngineTest, CompileEmitsStagesToStandardOutputAlone) {
  for (const char* what : {"source", "plan", "canonical", "loops", "fusion"}) {
    const ProgramResult result = Fuseline({"compile", kPointwise, "--emit", what});
    EXPECT_EQ(result.exit_code, 0) << what << result.err;
    EXPECT_NE(result.out, "") << what;
    EXPECT_THAT(result.out, ::testing::Not(HasSubstr("fingerprint"))) << what;
    EXPECT_THAT(result.err, HasSubstr("fingerprint")) << what;
  }
}

TEST(CliEngineTest, CompileSavesTheArtifact) {
  const TemporaryFolder folder;
  const ProgramResult result = Fuseline({"compile", kPointwise, "--emit", "artifact", "-o", folder.path("a")});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_GT(folder.Read("a").size(), 1000u);
  EXPECT_EQ(Fuseline({"compile", kPointwise, "--emit", "artifact"}).exit_code, 1);
}

TEST(CliEngineTest, DiskCacheServesTheNextProcess) {
  const TemporaryFolder folder;
  const std::vector<std::string> arguments = {"--json", "--cache-dir", folder.path("cache"), "compile", kPointwise};
  EXPECT_EQ(ParseJson(Fuseline(arguments))["outcome"], "miss");
  EXPECT_EQ(ParseJson(Fuseline(arguments))["outcome"], "disk-hit");
}

constexpr char kCase[] = R"({"name": "c", "graph": "graph g(x: f32[2]) {\n  %t = mul(x, 2.0)\n  return y = %t\n}",
  "inputs": {"x": {"dtype": "f32", "shape": [2], "data": [1, 2]}}, "outputs": {"y": OUTPUT}})";
std::string Case(const std::string& output) {
  std::string text = kCase;
  return text.replace(text.find("OUTPUT"), 6, output);
}

TEST(CliEngineTest, VerifyReportsEachCaseAndCounts) {
  const TemporaryFolder folder;
  folder.Write("a_pass.json", Case(R"({"dtype": "f32", "shape": [2], "data": [2, 4]})"));
  folder.Write("b_fail.json", Case(R"({"dtype": "f32", "shape": [2], "data": [2, 5]})"));
  folder.Write("c_reference.json", Case("\"reference\""));
  folder.Write("d_malformed.json", "{");
  folder.Write("e_refused.json",
               R"({"name": "e", "graph": "graph g(x: f32[2]) {\n  %t = mul(x, true)\n  return y = %t\n}",
    "inputs": {"x": {"dtype": "f32", "shape": [2], "data": [1, 2]}}, "error": {"code": "INVALID_ARGUMENT", "contains": "mul"}})");
  folder.Write("f_not_refused.json",
               R"({"name": "f", "graph": "graph g(x: f32[1]) {\n  %t = mul(x, 2.0)\n  return y = %t\n}",
    "inputs": {"x": {"dtype": "f32", "shape": [1], "data": [1]}}, "error": {"code": "INVALID_ARGUMENT", "contains": "mul"}})");
  const ProgramResult result = Fuseline({"verify", folder.path(), "--jobs", "2"});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.out, HasSubstr("PASS " + folder.path("a_pass.json") + "\n"));
  EXPECT_THAT(result.out, HasSubstr("FAIL " + folder.path("b_fail.json") + ": output 'y' at [1]: got 4, want 5\n"));
  EXPECT_THAT(result.out, HasSubstr("PASS " + folder.path("c_reference.json") + "\n"));
  EXPECT_THAT(result.out, HasSubstr("FAIL " + folder.path("d_malformed.json")));
  EXPECT_THAT(result.out, HasSubstr("PASS " + folder.path("e_refused.json") + "\n"));
  EXPECT_THAT(result.out, HasSubstr("FAIL " + folder.path("f_not_refused.json") + ": ran, but must be refused"));
  EXPECT_THAT(result.out, HasSubstr("3 passed, 3 failed, 0 skipped\n"));
}

TEST(CliEngineTest, VerifyWithoutFailureEndsWithZero) {
  const TemporaryFolder folder;
  const std::string path = folder.Write("a.json", Case(R"({"dtype": "f32", "shape": [2], "data": [2, 4]})"));
  const ProgramResult result = Fuseline({"verify", path, "--no-fuse", "--numerics", "eager"});
  EXPECT_EQ(result.exit_code, 0) << result.out;
  EXPECT_THAT(result.out, HasSubstr("1 passed, 0 failed, 0 skipped\n"));
  const Json json = ParseJson(Fuseline({"--json", "verify", path}));
  EXPECT_EQ(json["passed"], 1);
  EXPECT_EQ(json["cases"][0]["outputs"][0]["max_abs_error"], 0);
}

TEST(CliEngineTest, ReduceKeepsWhatDiffersFromTheReference) {
  const TemporaryFolder folder;
  // Without any tolerance a sum in f32 differs from the reference's exact one.
  const std::string path = folder.Write(
      "sum.json",
      R"({"name": "sum", "graph": "graph g(x: f32[40, 300], w: f32[300]) {\n  %a = mul(x, w)\n  %b = neg(%a)\n  %s = sum(%b)\n  %t = abs(w)\n  return s = %s, t = %t\n}",
    "inputs": {"x": {"dtype": "f32", "shape": [40, 300], "random": "normal", "seed": 1},
               "w": {"dtype": "f32", "shape": [300], "random": "normal", "seed": 2}},
    "outputs": {"s": "reference", "t": "reference"}, "tolerance": {"rtol": 0, "atol": 0}})");
  const std::string out = folder.path("small.json");
  const ProgramResult result = Fuseline({"--json", "reduce", path, "-o", out, "--max-tries", "40"});
  ASSERT_EQ(result.exit_code, 0) << result.out << result.err;
  const Json json = ParseJson(result);
  EXPECT_EQ(json["failure"], "unlike the reference");
  EXPECT_EQ(json["nodes_before"], 4);
  EXPECT_EQ(json["nodes"], 1) << json["graph"];
  EXPECT_THAT(json["graph"].get<std::string>(), HasSubstr("sum("));
  EXPECT_LE(json["tries"], 40);
  EXPECT_EQ(Fuseline({"verify", out}).exit_code, 1);  // it still fails
}

TEST(CliEngineTest, ReduceDropsOutputsThatAreAsTheCaseSays) {
  const TemporaryFolder folder;
  const std::string path = folder.Write(
      "c.json",
      R"({"name": "c", "graph": "graph g(x: f32[2], y: f32[2]) {\n  %a = neg(x)\n  %b = neg(y)\n  return a = %a, b = %b\n}",
    "inputs": {"x": {"dtype": "f32", "shape": [2], "data": [1, 2]}, "y": {"dtype": "f32", "shape": [2], "data": [3, 4]}},
    "outputs": {"a": {"dtype": "f32", "shape": [2], "data": [-1, -2]}, "b": {"dtype": "f32", "shape": [2], "data": [-3, -5]}}})");
  const ProgramResult result = Fuseline({"reduce", path});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const Json json = ParseJson(result);
  EXPECT_EQ(json["name"], "c_reduced");
  EXPECT_EQ(json["inputs"].size(), 1u);
  EXPECT_EQ(json["outputs"]["b"]["data"], Json({-3, -5}));
}

TEST(CliEngineTest, ReduceRefusesWhatDoesNotFail) {
  const TemporaryFolder folder;
  const std::string path = folder.Write("a.json", Case(R"({"dtype": "f32", "shape": [2], "data": [2, 4]})"));
  const ProgramResult result = Fuseline({"reduce", path});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.err, HasSubstr("does not fail"));
}

TEST(CliEngineTest, BenchMeasuresEachGraph) {
  const Json json =
      ParseJson(Fuseline({"--json", "bench", kPointwise, kReduction, "--iterations", "3", "--warmup", "1"}));
  ASSERT_EQ(json.size(), 2u);
  for (const Json& entry : json) {
    EXPECT_EQ(entry["iterations_us"].size(), 3u);
    EXPECT_GT(entry["median_us"], 0);
    EXPECT_GE(entry["median_us"], entry["min_us"]);
    EXPECT_GT(entry["copy_bytes_per_second"], 0);
    EXPECT_GT(entry["build_ms"], 0);
    EXPECT_NE(entry["device_name"], "");
  }
}

TEST(CliEngineTest, BenchRefusesRunsOutOfRange) {
  for (const char* flag : {"--iterations", "--warmup"}) {
    EXPECT_EQ(Fuseline({"bench", kPointwise, flag, "10001"}).exit_code, 2) << flag;
    EXPECT_EQ(Fuseline({"bench", kPointwise, flag, "-1"}).exit_code, 2) << flag;
  }
}

TEST(CliEngineTest, DevicesListsTheCpu) {
  const Json json = ParseJson(Fuseline({"--json", "devices"}));
  bool found = false;
  for (const Json& target : json["targets"])
    found = found || (target["target"] == "cpu" && target["can_execute"] == true);
  EXPECT_TRUE(found) << json;
  EXPECT_GE(json["devices"].size(), 1u);
}

TEST(CliEngineTest, CacheStatsHasItsLevels) {
  const TemporaryFolder folder;
  const Json json = ParseJson(Fuseline({"--json", "--cache-dir", folder.path("cache"), "cache", "stats"}));
  EXPECT_EQ(json["builds"], 0);
  std::vector<std::string> levels;
  for (const Json& level : json["levels"]) levels.push_back(level["level"]);
  EXPECT_THAT(levels, ::testing::IsSupersetOf({"memory", "rocksdb"}));
}

}  // namespace
}  // namespace fuseline::testing
