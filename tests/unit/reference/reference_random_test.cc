// rand, randn and dropout: ranges, moments, and what the seed and the offset mean.
#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/ir/philox.h"
#include "common/ir/text_form.h"
#include "gtest/gtest.h"
#include "server/reference/reference_interpreter.h"
#include "tests/testing/status_matchers.h"

namespace fuseline {
namespace {

using testing::IsOk;

std::vector<double> Draw(const std::string& statement, int64_t seed, int64_t offset) {
  const absl::StatusOr<Graph> graph =
      ParseGraph(absl::StrCat("graph g(seed: i64[2]) {\n  ", statement, "\n  return %r\n}\n"));
  EXPECT_THAT(graph.status(), IsOk()) << statement;
  if (!graph.ok()) return {};
  Tensor t = Tensor::Allocate(DType::kI64, {2});
  t.SetInt(0, seed);
  t.SetInt(1, offset);
  const auto results = reference::Interpret(*graph, {t}, {});
  EXPECT_THAT(results.status(), IsOk()) << statement;
  if (!results.ok()) return {};
  std::vector<double> values;
  for (int64_t i = 0; i < (*results)[0].element_count(); ++i) values.push_back((*results)[0].GetDouble(i));
  return values;
}

double Mean(const std::vector<double>& v, int power) {
  double sum = 0;
  for (double x : v) sum += std::pow(x, power);
  return sum / static_cast<double>(v.size());
}

TEST(ReferenceRandomTest, UniformIsBelowOneInEveryDType) {
  for (const char* dtype : {"f64", "f32", "f16", "bf16"}) {
    const std::vector<double> v = Draw(absl::StrCat("%r = rand(seed) {shape = [100, 400], dtype = ", dtype, "}"), 1, 2);
    ASSERT_EQ(v.size(), 40000u) << dtype;
    EXPECT_GE(*std::min_element(v.begin(), v.end()), 0) << dtype;
    EXPECT_LT(*std::max_element(v.begin(), v.end()), 1) << dtype;
    EXPECT_NEAR(Mean(v, 1), 0.5, 0.006) << dtype;
    EXPECT_NEAR(Mean(v, 2), 1.0 / 3, 0.006) << dtype;
  }
}

TEST(ReferenceRandomTest, NormalHasTheMomentsOfOne) {
  for (const char* dtype : {"f64", "f32", "f16", "bf16"}) {
    const std::vector<double> v = Draw(absl::StrCat("%r = randn(seed) {shape = [40000], dtype = ", dtype, "}"), 3, 4);
    EXPECT_NEAR(Mean(v, 1), 0, 0.02) << dtype;
    EXPECT_NEAR(Mean(v, 2), 1, 0.03) << dtype;
    EXPECT_NEAR(Mean(v, 3), 0, 0.06) << dtype;
    EXPECT_NEAR(Mean(v, 4), 3, 0.2) << dtype;
  }
}

TEST(ReferenceRandomTest, ElementsTakeTheWordsInOrder) {
  const std::vector<double> v = Draw("%r = rand(seed) {shape = [2, 3], dtype = f32}", -5, 7);
  const std::vector<double> wide = Draw("%r = rand(seed) {shape = [6], dtype = f64}", -5, 7);
  for (uint64_t e = 0; e < 6; ++e) {
    EXPECT_EQ(v[e], (PhiloxBlock(static_cast<uint64_t>(-5), 7 + e / 4)[e % 4] >> 8) * 0x1p-24) << e;
    const auto block = PhiloxBlock(static_cast<uint64_t>(-5), 7 + e / 2);
    const uint64_t high = block[e % 2 * 2] >> 5, low = block[e % 2 * 2 + 1] >> 6;
    EXPECT_EQ(wide[e], static_cast<double>(high << 26 | low) * 0x1p-53) << e;
  }
}

TEST(ReferenceRandomTest, OffsetMovesTheNumbers) {
  const std::vector<double> a = Draw("%r = rand(seed) {shape = [20], dtype = f32}", 9, 0);
  const std::vector<double> b = Draw("%r = rand(seed) {shape = [8], dtype = f32}", 9, 3);
  EXPECT_TRUE(std::equal(a.begin() + 12, a.end(), b.begin()));
}

TEST(ReferenceRandomTest, DropoutKeepsItsShareAndScales) {
  const std::vector<double> v =
      Draw("%x = full() {shape = [40000], value = 3.0, dtype = f32}\n  %r = dropout(%x, seed) {p = 0.25}", 1, 1);
  const auto dropped = std::count(v.begin(), v.end(), 0.0);
  EXPECT_NEAR(static_cast<double>(dropped), 10000, 300);
  EXPECT_EQ(std::count(v.begin(), v.end(), 4.0) + dropped, 40000);
}

TEST(ReferenceRandomTest, DropoutOfAllAndOfNothing) {
  const std::string x = "%x = full() {shape = [9], value = inf, dtype = f32}\n  ";
  EXPECT_EQ(Draw(x + "%r = dropout(%x, seed) {p = 1.0}", 1, 1), std::vector<double>(9, 0.0));
  EXPECT_EQ(Draw(x + "%r = dropout(%x, seed) {p = 0.0}", 1, 1), std::vector<double>(9, INFINITY));
}

TEST(ReferenceRandomTest, SeedOfAnotherTypeIsRefused) {
  for (const char* type : {"i32[2]", "i64[3]", "i64[]"}) {
    const auto graph = ParseGraph(
        absl::StrCat("graph g(seed: ", type, ") {\n  %r = rand(seed) {shape = [2], dtype = f32}\n  return %r\n}\n"));
    EXPECT_THAT(graph.status(), testing::StatusIs(absl::StatusCode::kInvalidArgument, "not i64[2]")) << type;
  }
}

}  // namespace
}  // namespace fuseline
