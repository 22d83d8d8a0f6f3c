#include "common/ir/canonical.h"

#include <chrono>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/ir/text_form.h"
#include "common/ir/verify_graph.h"
#include "gtest/gtest.h"
#include "tests/testing/status_matchers.h"
#include "tests/unit/common/graph_comparison.h"

namespace fuseline {
namespace {

std::string Bytes(const std::string& text) {
  const absl::StatusOr<Graph> graph = ParseGraph(text);
  EXPECT_THAT(graph, testing::IsOk()) << text;
  return graph.ok() ? CanonicalBytes(Canonicalize(*graph)) : "";
}

constexpr char kBase[] =
    "graph g(x: f32[2, 3], w: f32[3], unused: i64[4]) {\n"
    "  %a = mul(x, w)\n"
    "  %b = add(x, 1.5)\n"
    "  %v, %m = var_mean(%a) {dims = [1]}\n"
    "  %c = sum(%b) {dims = [1]}\n"
    "  return p = %m, q = %c, r = %v\n"
    "}\n";

TEST(CanonicalTest, CanonicalGraphIsNamedByPosition) {
  const absl::StatusOr<Graph> graph = ParseGraph(kBase);
  ASSERT_OK(graph);
  EXPECT_EQ(PrintGraph(Canonicalize(*graph)),
            "graph (in0: f32[2, 3], in1: f32[3], in2: i64[4]) {\n"
            "  %v0 = mul(in0, in1)\n"
            "  %v1, %v2 = var_mean(%v0) {dims = [1]}\n"
            "  %v3 = add(in0, 1.5)\n"
            "  %v4 = sum(%v3) {dims = [1]}\n"
            "  return %v2, %v4, %v1\n"
            "}\n");
}

TEST(CanonicalTest, CanonicalNamesLeadBackToTheGraph) {
  const absl::StatusOr<Graph> graph = ParseGraph(kBase);
  ASSERT_OK(graph);
  const absl::flat_hash_map<std::string, std::string> want = {
      {"in0", "x"}, {"in1", "w"}, {"in2", "unused"}, {"v0", "a"}, {"v1", "v"}, {"v2", "m"}, {"v3", "b"}, {"v4", "c"}};
  EXPECT_EQ(CanonicalNames(*graph), want);
  // The same without types, as a client has the graph before anyone has verified it.
  const absl::StatusOr<Graph> dead =
      ParseGraphText("graph g(x: f32[n]) {\n  %dead = neg(x)\n  %v1 = exp(x)\n  %v0 = abs(%v1)\n  return %v0\n}\n");
  ASSERT_OK(dead);
  const absl::flat_hash_map<std::string, std::string> swapped = {{"in0", "x"}, {"v0", "v1"}, {"v1", "v0"}};
  EXPECT_EQ(CanonicalNames(*dead), swapped);
}

TEST(CanonicalTest, CanonicalGraphIsVerifiedAndAFixedPoint) {
  const Graph canonical = Canonicalize(*ParseGraph(kBase));
  Graph verified = canonical;
  ASSERT_OK(VerifyGraph(verified));
  EXPECT_EQ(testing::GraphDifference(verified, canonical), "");
  EXPECT_EQ(testing::GraphDifference(Canonicalize(canonical), canonical), "");
  for (const Node& node : canonical.nodes) EXPECT_NE(node.def, nullptr);
}

TEST(CanonicalTest, SpellingDoesNotChangeTheBytes) {
  const std::string kSame[] = {
      // Other names.
      "graph other(a: f32[2, 3], b: f32[3], c: i64[4]) {\n  %p = mul(a, b)\n  %q = add(a, 1.5)\n  %r, %s = "
      "var_mean(%p) {dims = [1]}\n"
      "  %t = sum(%q) {dims = [1]}\n  return %s, %t, %r\n}",
      // Another order of nodes.
      "graph g(x: f32[2, 3], w: f32[3], unused: i64[4]) {\n  %b = add(x, 1.5)\n  %c = sum(%b) {dims = [1]}\n  %a = "
      "mul(x, w)\n"
      "  %v, %m = var_mean(%a) {dims = [1]}\n  return p = %m, q = %c, r = %v\n}",
      // A dead node, declared types, a default written out.
      "graph g(x: f32[2, 3], w: f32[3], unused: i64[4]) {\n  %a = mul(x, w) : f32[2, 3]\n  %dead = exp(w)\n  %b = "
      "add(x, 1.5)\n"
      "  %v, %m = var_mean(%a) {dims = [1], keepdim = false}\n  %c = sum(%b) {dims = [1]} : f32[2]\n  return p = %m, q "
      "= %c, r = %v\n}",
      // Dense strides written out.
      "graph g(x: f32[2, 3]{3, 1}, w: f32[3], unused: i64[4]) {\n  %a = mul(x, w)\n  %b = add(x, 1.5)\n"
      "  %v, %m = var_mean(%a) {dims = [1]}\n  %c = sum(%b) {dims = [1]}\n  return p = %m, q = %c, r = %v\n}",
  };
  for (const std::string& text : kSame) EXPECT_EQ(Bytes(text), Bytes(kBase)) << text;
  Graph with_origins = *ParseGraph(kBase);
  for (Node& node : with_origins.nodes) node.origin = "model.py:12";
  EXPECT_EQ(CanonicalBytes(Canonicalize(with_origins)), Bytes(kBase));
}

TEST(CanonicalTest, EveryChangeOfMeaningChangesTheBytes) {
  std::vector<std::string> texts = {kBase};
  const auto replaced = [&texts](std::string_view from, std::string_view to) {
    std::string text = kBase;
    const size_t at = text.find(from);
    ASSERT_NE(at, std::string::npos) << from;
    texts.push_back(text.replace(at, from.size(), to));
  };
  replaced("add(x, 1.5)", "add(x, 0.0)");
  replaced("add(x, 1.5)", "add(x, -0.0)");
  replaced("add(x, 1.5)", "add(x, nan)");
  replaced("add(x, 1.5)", "add(x, nan(0x7ff8000000000001))");
  replaced("add(x, 1.5)", "add(x, inf)");
  replaced("add(x, 1.5)", "add(1.5, x)");
  replaced("add(x, 1.5)", "sub(x, 1.5)");
  replaced("mul(x, w)", "mul(w, x)");
  replaced("mul(x, w)", "mul(x, x)");
  replaced("sum(%b) {dims = [1]}", "sum(%b) {dims = [1], keepdim = true}");
  replaced("sum(%b) {dims = [1]}", "sum(%b) {dims = [0]}");
  replaced("sum(%b) {dims = [1]}", "sum(%b)");
  replaced("sum(%b) {dims = [1]}", "sum(%b) {dims = []}");
  replaced("x: f32[2, 3]", "x: f32[2, 3]{1, 2}");
  replaced("x: f32[2, 3]", "x: f32[2, 3]{0, 1}");
  replaced("x: f32[2, 3]", "x: f32[4, 3]");
  replaced("unused: i64[4]", "unused: i32[4]");
  replaced("unused: i64[4]", "unused: i64[4, 1]");
  replaced(", unused: i64[4]", "");
  replaced("p = %m, q = %c", "p = %c, q = %m");
  replaced(", r = %v", "");
  replaced(", r = %v", ", r = x");
  replaced(", r = %v", ", r = %m");
  std::set<std::string> bytes;
  for (const std::string& text : texts) EXPECT_TRUE(bytes.insert(Bytes(text)).second) << text;
}

TEST(CanonicalTest, ConstantsAreKeptBitForBit) {
  const auto with_data = [](std::string_view dtype, std::string_view data) {
    return Bytes(absl::StrCat("graph g() {\n  %r = constant() {dtype = ", std::string(dtype), ", shape = [1], data = [",
                              std::string(data), "]}\n  return %r\n}"));
  };
  std::set<std::string> bytes;
  for (const char* data : {"0.0", "-0.0", "nan", "nan(0x7fc00001)", "nan(0xffc00000)", "inf", "1e-45"}) {
    EXPECT_TRUE(bytes.insert(with_data("f32", data)).second) << data;
  }
  EXPECT_TRUE(bytes.insert(with_data("i32", "0")).second);
}

TEST(CanonicalTest, SharedSubgraphIsVisitedOnce) {
  std::string text = "graph g(x: f32[4]) {\n  %t0 = add(x, x)\n";
  for (int i = 1; i < 40; ++i) absl::StrAppend(&text, "  %t", i, " = add(%t", i - 1, ", %t", i - 1, ")\n");
  absl::StrAppend(&text, "  return %t39\n}\n");
  const Graph canonical = Canonicalize(*ParseGraph(text));
  EXPECT_EQ(canonical.nodes.size(), 40u);
}

TEST(CanonicalTest, LongChainIsEncodedInLinearTime) {
  std::string text = "graph g(x: f32[4]) {\n  %t0 = neg(x)\n";
  for (int i = 1; i < 100'000; ++i) absl::StrAppend(&text, "  %t", i, " = add(%t", i - 1, ", x)\n");
  absl::StrAppend(&text, "  return %t99999\n}\n");
  const absl::StatusOr<Graph> graph = ParseGraph(text);
  ASSERT_OK(graph);
  const auto start = std::chrono::steady_clock::now();
  const Graph canonical = Canonicalize(*graph);
  EXPECT_EQ(canonical.nodes.size(), 100'000u);
  EXPECT_GT(CanonicalBytes(canonical).size(), 100'000u);
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(10));  // about 0.1 s on an idle core
}

}  // namespace
}  // namespace fuseline
