#include "common/ir/canonical_parts.h"

#include <optional>
#include <string>

#include "common/ir/canonical.h"
#include "common/ir/text_form.h"
#include "common/ir/verify_graph.h"
#include "gtest/gtest.h"
#include "tests/testing/status_matchers.h"

namespace fuseline {
namespace {

using ::fuseline::testing::IsOk;

std::string BytesOf(const std::string& text) {
  absl::StatusOr<Graph> graph = ParseGraphText(text);
  EXPECT_THAT(graph, IsOk());
  if (!graph.ok()) return "";
  EXPECT_THAT(VerifyGraph(*graph), IsOk());
  return CanonicalBytes(Canonicalize(*graph));
}

constexpr char kNeg[] = "graph g(x: f32[4, 3], y: bf16[8]{2}) {\n  %t = neg(x)\n  return z = %t\n}";

TEST(CanonicalPartsTest, InputsAreDecoded) {
  const std::string bytes = BytesOf(kNeg);
  const std::optional<CanonicalParts> parts = SplitCanonicalBytes(bytes);
  ASSERT_TRUE(parts.has_value());
  ASSERT_EQ(parts->input_types.size(), 2u);
  EXPECT_EQ(parts->input_types[0].ToString(), "f32[4, 3]");
  EXPECT_EQ(parts->input_types[1].ToString(), "bf16[8]{2}");
  EXPECT_EQ(parts->inputs.size() + parts->nodes.size(), bytes.size() - 38);  // behind magic, version and op set
}

TEST(CanonicalPartsTest, OtherInputsLeaveTheNodesAndOtherNodesTheInputs) {
  const std::string neg = BytesOf(kNeg);
  const std::string other_size = BytesOf("graph g(x: f32[4, 5], y: bf16[8]{2}) {\n  %t = neg(x)\n  return z = %t\n}");
  const std::string other_op = BytesOf("graph g(x: f32[4, 3], y: bf16[8]{2}) {\n  %t = exp(x)\n  return z = %t\n}");
  const auto a = SplitCanonicalBytes(neg);
  const auto b = SplitCanonicalBytes(other_size);
  const auto c = SplitCanonicalBytes(other_op);
  ASSERT_TRUE(a.has_value() && b.has_value() && c.has_value());
  EXPECT_EQ(a->nodes, b->nodes);
  EXPECT_NE(a->inputs, b->inputs);
  EXPECT_NE(a->nodes, c->nodes);
  EXPECT_EQ(a->inputs, c->inputs);
}

// A cache may hold anything.
TEST(CanonicalPartsTest, OtherBytesAreNotSplit) {
  const std::string bytes = BytesOf(kNeg);
  EXPECT_FALSE(SplitCanonicalBytes("").has_value());
  EXPECT_FALSE(SplitCanonicalBytes("symbolic:graph g() {}").has_value());
  const size_t inputs_end = bytes.size() - SplitCanonicalBytes(bytes)->nodes.size();
  for (size_t size = 0; size < inputs_end; ++size) EXPECT_FALSE(SplitCanonicalBytes(bytes.substr(0, size)).has_value());
  for (size_t i = 38; i < inputs_end; ++i) {
    std::string changed = bytes;
    changed[i] = '\xff';
    SplitCanonicalBytes(changed);  // whatever it is, it ends
  }
}

}  // namespace
}  // namespace fuseline
