#include "client/cli/explain_page.h"

#include "common/ir/text_form.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/status_matchers.h"

namespace fuseline::cli {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

constexpr char kGraph[] =
    "graph g(x: f32[n, 4]) {\n  %t = mul(x, 2.0)\n  %s = sum(%t) {dims = [-1], keepdim = true}\n  return y = %s\n}\n";

Artifact MakeArtifact() {
  Artifact artifact;
  artifact.kernels.push_back({.entry = "k", .source = "int a; // </script><script>alert(1)</script>"});
  artifact.report.kernels.push_back({.name = "k", .kind = "reduction", .ops = {"mul %t", "sum %s"}});
  artifact.plan.buffers = {{.kind = PlanBuffer::Kind::kInput, .size_bytes = 32},
                           {.kind = PlanBuffer::Kind::kOutput, .size_bytes = 8}};
  artifact.plan.steps.push_back({.kind = PlanStep::Kind::kLaunch, .buffers = {0, 1}});
  artifact.plan.steps.push_back({.kind = PlanStep::Kind::kCopy, .buffers = {0, 1}});
  return artifact;
}

Json DataOf(const Graph& graph, const SymbolSizes& symbols) {
  const Artifact artifact = MakeArtifact();
  return ExplainPageData({.graph = graph,
                          .symbols = symbols,
                          .summary = {},
                          .artifact = artifact,
                          .report = artifact.report,
                          .key_fields = {},
                          .benchmark = std::nullopt});
}

TEST(ExplainPageTest, GraphHasTypesOperandsAndAttributes) {
  const absl::StatusOr<Graph> graph = ParseGraphText(kGraph);
  ASSERT_OK(graph);
  const Json data = DataOf(*graph, {{"n", 2}})["graph"];
  EXPECT_EQ(data["inputs"].dump(), R"([["x","f32[2, 4]"]])");
  EXPECT_EQ(data["nodes"][0].dump(), R"(["mul",["x",["2"]],[["t","f32[2, 4]"]],""])");
  EXPECT_EQ(data["nodes"][1].dump(), R"(["sum",["%t"],[["s","f32[2, 1]"]],"dims = [-1], keepdim = true"])");
  EXPECT_EQ(data["outputs"].dump(), R"([["y","%s"]])");
}

TEST(ExplainPageTest, TypesOfAGraphWhoseSizesAreNotKnownAreLeftOut) {
  const absl::StatusOr<Graph> graph = ParseGraphText(kGraph);
  ASSERT_OK(graph);
  const Json data = DataOf(*graph, {})["graph"];
  EXPECT_EQ(data["inputs"].dump(), R"([["x","f32[n, 4]"]])");
  EXPECT_EQ(data["nodes"][0][2].dump(), R"([["t",""]])");
}

TEST(ExplainPageTest, LongAttributesAreCut) {
  std::string list = "0";
  for (int i = 0; i < 5000; ++i) list += ", 0";
  const absl::StatusOr<Graph> graph = ParseGraphText(
      "graph g() {\n  %c = constant() {data = [0.0], dtype = f32, shape = []}\n  %t = permute(%c) {dims = [" + list +
      "]}\n  return %t\n}\n");
  ASSERT_OK(graph);
  EXPECT_LT(DataOf(*graph, {})["graph"]["nodes"][1][3].get<std::string>().size(), 400u);
}

TEST(ExplainPageTest, PlanSaysWhatEachLaunchTouches) {
  const absl::StatusOr<Graph> graph = ParseGraphText(kGraph);
  ASSERT_OK(graph);
  const Json data = DataOf(*graph, {});
  EXPECT_EQ(data["plan"]["buffers"].dump(), R"([["input",0,32],["output",0,8]])");
  EXPECT_EQ(data["plan"]["launches"].dump(), R"([{"image":0,"buffers":[0,1]},{"image":-1,"buffers":[0,1]}])");
  EXPECT_TRUE(data["benchmark"].is_null());
}

TEST(ExplainPageTest, NothingInTheDataEndsItsScript) {
  const absl::StatusOr<Graph> graph = ParseGraphText(kGraph);
  ASSERT_OK(graph);
  const std::string page = ExplainPage(DataOf(*graph, {{"n", 2}}));
  EXPECT_THAT(page, StartsWith("<!doctype html>"));
  EXPECT_THAT(page, EndsWith("</html>\n"));
  EXPECT_THAT(page, Not(HasSubstr("<script>alert")));
  EXPECT_THAT(page, HasSubstr(R"(\u003c/script>\u003cscript>alert(1)\u003c/script>)"));
  EXPECT_THAT(page, Not(HasSubstr("FUSELINE_EXPLAIN_DATA")));
}

TEST(ExplainPageTest, BytesThatAreNoUtf8DoNotFail) {
  EXPECT_THAT(ExplainPage({{"name", "\xff<"}}), HasSubstr("\xef\xbf\xbd\\u003c"));
}

TEST(ExplainPageTest, PageRefersToNothingOutsideItself) {
  const std::string page = ExplainPage(Json::object());
  for (const char* reference : {" src=", "@import", "url(", "fetch(", "XMLHttpRequest", "https:", "import("})
    EXPECT_THAT(page, Not(HasSubstr(reference)));
}

}  // namespace
}  // namespace fuseline::cli
