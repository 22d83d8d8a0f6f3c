// The parts of the command line that need neither an engine nor a server.
#include <fstream>

#include "common/ir/codec/graph_codec.h"
#include "common/ir/text_form.h"
#include "fuseline/v1/graph.pb.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/testing/program_runner.h"
#include "tests/testing/status_matchers.h"

namespace fuseline::testing {
namespace {

using ::testing::HasSubstr;

constexpr char kCanonical[] = "graph g(x: f32[2]) {\n  %t = mul(x, 2.0)\n  return y = %t\n}\n";
constexpr char kUntidy[] = "# a comment\ngraph g( x : f32[2] ){ %t=mul(x,2.0) : f32[2]\n return y = %t }";

ProgramResult Fuseline(std::vector<std::string> arguments, const std::string& input = "") {
  arguments.insert(arguments.begin(), FUSELINE_CLI);
  return RunProgram(arguments, input);
}

TEST(CliTest, FmtPrintsTheCanonicalForm) {
  const TemporaryFolder folder;
  const ProgramResult result = Fuseline({"fmt", folder.Write("g.fl", kUntidy)});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("graph g(x: f32[2]) {\n  %t = mul(x, 2.0)"));
  const ProgramResult again = Fuseline({"fmt", "-"}, result.out);
  EXPECT_EQ(again.out, result.out);
}

TEST(CliTest, FmtCheckTellsCanonicalFromOther) {
  const TemporaryFolder folder;
  EXPECT_EQ(Fuseline({"fmt", "--check", folder.Write("good.fl", kCanonical)}).exit_code, 0);
  const ProgramResult bad = Fuseline({"fmt", "--check", folder.path("good.fl"), folder.Write("bad.fl", kUntidy)});
  EXPECT_EQ(bad.exit_code, 1);
  EXPECT_THAT(bad.out, HasSubstr("bad.fl is not in canonical form"));
  EXPECT_EQ(folder.Read("bad.fl"), kUntidy);
}

TEST(CliTest, FmtInPlaceRewritesTheFile) {
  const TemporaryFolder folder;
  const std::string path = folder.Write("g.fl", "graph g(x: f32[2]) { %t = mul(x, 2.0)\n return y = %t }");
  EXPECT_EQ(Fuseline({"fmt", "-i", path}).exit_code, 0);
  EXPECT_EQ(folder.Read("g.fl"), kCanonical);
}

TEST(CliTest, FmtReadsProtobufFromFileAndStandardInput) {
  const auto graph = ParseGraphText(kCanonical);
  ASSERT_OK(graph);
  v1::Graph proto;
  GraphToProto(*graph, &proto);
  const TemporaryFolder folder;
  EXPECT_EQ(Fuseline({"fmt", folder.Write("g.pb", proto.SerializeAsString())}).out, kCanonical);
  EXPECT_EQ(Fuseline({"fmt", "-"}, proto.SerializeAsString()).out, kCanonical);
}

TEST(CliTest, ExampleGraphsAreCanonical) {
  const std::string folder = FUSELINE_SOURCE_DIR "/deploy/examples/";
  const ProgramResult result =
      Fuseline({"fmt", "--check", folder + "pointwise_example.fl", folder + "reduction_example.fl"});
  EXPECT_EQ(result.exit_code, 0) << result.out << result.err;
}

TEST(CliTest, SyntaxErrorNamesFileAndPlace) {
  const TemporaryFolder folder;
  const ProgramResult result = Fuseline({"fmt", folder.Write("bad.fl", "graph g(x: f32[2]) {\n  %t = mul(x 2.0)\n}")});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.err, HasSubstr("INVALID_ARGUMENT (GRAPH_SYNTAX)"));
  EXPECT_THAT(result.err, HasSubstr("bad.fl: line 2"));
  EXPECT_EQ(result.out, "");
}

TEST(CliTest, UsageErrorsEndWithTwo) {
  for (const std::vector<std::string>& arguments :
       std::vector<std::vector<std::string>>{{},
                                             {"fmt"},
                                             {"nonsense"},
                                             {"fmt", "--nonsense", "g.fl"},
                                             {"fmt", "--check", "-i", "g.fl"},
                                             {"--server", "x:1", "--local", "devices"},
                                             {"run", "g.fl", "--repeat", "0"},
                                             {"compile", "g.fl", "--emit", "nonsense"},
                                             {"verify"},
                                             {"reduce"},
                                             {"reduce", "--max-tries", "0", "case.json"},
                                             {"cache"}}) {
    const ProgramResult result = Fuseline(arguments);
    EXPECT_EQ(result.exit_code, 2) << ::testing::PrintToString(arguments);
    EXPECT_EQ(result.out, "");
    EXPECT_NE(result.err, "");
  }
}

TEST(CliTest, HelpEndsWithZero) {
  for (const char* command : {"run", "compile", "explain", "verify", "reduce", "bench", "convert", "fmt", "ops",
                              "devices", "health", "cache"}) {
    const ProgramResult result = Fuseline({command, "--help"});
    EXPECT_EQ(result.exit_code, 0) << command;
    EXPECT_THAT(result.out, HasSubstr("Usage")) << command;
  }
}

TEST(CliTest, VersionEndsWithZero) {
  const ProgramResult result = Fuseline({"--version"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, ::testing::StartsWith("fuseline "));
}

TEST(CliTest, HealthNeedsAServer) {
  const ProgramResult result = Fuseline({"--local", "health"});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.err, HasSubstr("--server"));
}

TEST(CliTest, EvictingNeedsToBeToldWhat) {
  const ProgramResult result = Fuseline({"--local", "cache", "evict"});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.err, HasSubstr("--all"));
}

TEST(CliTest, MissingCacheFileIsNamed) {
  const TemporaryFolder folder;
  const ProgramResult result =
      Fuseline({"--local", "--cache-dir", folder.path("cache"), "cache", "import", "/nowhere/f.cache"});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.err, HasSubstr("/nowhere/f.cache"));
}

TEST(CliTest, MissingFileEndsWithOneAndNamesIt) {
  const ProgramResult result = Fuseline({"run", "/nowhere/g.fl"});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.err, HasSubstr("/nowhere/g.fl"));
}

TEST(CliTest, OpsListsTheTableForPeopleAndMachines) {
  const ProgramResult text = Fuseline({"ops"});
  EXPECT_EQ(text.exit_code, 0);
  EXPECT_THAT(text.out, HasSubstr("concat  layout, 1 or more -> 1  {dim!}\n"));
  const ProgramResult result = Fuseline({"--json", "ops"});
  EXPECT_EQ(result.exit_code, 0);
  const nlohmann::json json = nlohmann::json::parse(result.out, nullptr, false);
  ASSERT_TRUE(json.is_object()) << result.out;
  const nlohmann::json expected = {
      {"name", "var_mean"},
      {"kind", "reduction"},
      {"min_operands", 1},
      {"max_operands", 1},
      {"results", 2},
      {"attributes",
       {{{"name", "dims"}, {"type", "int_list"}, {"required", false}},
        {{"name", "keepdim"}, {"type", "bool"}, {"required", false}, {"default", false}},
        {{"name", "correction"}, {"type", "int"}, {"required", false}, {"default", 1}}}},
  };
  EXPECT_THAT(json["ops"], ::testing::Contains(expected));
}

TEST(CliTest, JsonErrorsGoToStandardOutput) {
  const ProgramResult result = Fuseline({"--json", "fmt", "/nowhere/g.fl"});
  EXPECT_EQ(result.exit_code, 1);
  const nlohmann::json json = nlohmann::json::parse(result.out, nullptr, false);
  ASSERT_TRUE(json.is_object()) << result.out;
  EXPECT_EQ(json["error"]["code"], "NOT_FOUND");
  EXPECT_EQ(json["error"]["reason"], "INPUT_OUTPUT");
}

TEST(CliTest, MissingServerIsUnavailable) {
  const ProgramResult result = Fuseline({"--server", "127.0.0.1:1", "--timeout", "2", "devices"});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.err, HasSubstr("UNAVAILABLE"));
}

TEST(CliTest, ServerComesFromTheEnvironment) {
  const ProgramResult result =
      RunProgram({FUSELINE_CLI, "devices", "--timeout", "2"}, "", {{"FUSELINE_SERVER", "127.0.0.1:1"}});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.err, HasSubstr("UNAVAILABLE"));
}

}  // namespace
}  // namespace fuseline::testing
