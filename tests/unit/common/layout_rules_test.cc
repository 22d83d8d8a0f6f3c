// What the type rules of views, layout ops, random numbers and glu refuse, and with which words.
#include <string>

#include "absl/strings/str_cat.h"
#include "common/ir/text_form.h"
#include "common/status/error.h"
#include "gtest/gtest.h"
#include "tests/testing/status_matchers.h"

namespace fuseline {
namespace {

using testing::StatusIs;

absl::Status Refusal(const std::string& statement) {
  return ParseGraph(absl::StrCat("graph g(x: f32[2, 3], y: f32[2, 4], i: i64[3], f: f16[2, 3], s: i64[2]) {\n  %r = ",
                                 statement, "\n  return %r\n}\n"))
      .status();
}

TEST(LayoutRulesTest, WrongOperandsAndAttributesAreRefused) {
  const struct {
    const char* statement;
    const char* message;
  } cases[] = {
      {"tile(x) {repeats = [2, -1]}", "node '%r': tile: repeats [2, -1] are negative"},
      {"repeat_interleave(x) {repeats = -1, dim = 0}", "repeats -1 is negative"},
      {"repeat_interleave(x) {repeats = 2, dim = 2}", "dim"},
      {"roll(x) {shifts = [1, 2], dims = [0]}", "attributes 'shifts' and 'dims' must have the same length"},
      {"roll(x) {shifts = [1, 2], dims = [0, -2]}", "dim"},
      {"roll(x) {shifts = [1, 2]}", "without 'dims', attribute 'shifts' must have one element"},
      {"diagonal(x) {dim0 = 1, dim1 = -1}", "attributes 'dim0' and 'dim1' name one dim"},
      {"diagonal(i)", "dim"},
      {"pad(x) {low = [1], high = [1, 2]}", "must have one element for each of the 2 dims"},
      {"pad(x) {low = [-3, 0], high = [0, 0]}", "padding of -3 and 0 makes dim 0 of size 2 negative"},
      {"pad(x) {low = [0, 0], high = [0, 0], mode = \"mirror\"}", "attribute 'mode' must be"},
      {"pad(x) {low = [2, 0], high = [0, 0], mode = \"reflect\"}", "takes no padding of 2 and 0 with mode \"reflect\""},
      {"pad(x) {low = [0, 0], high = [0, 4], mode = \"wrap\"}", "takes no padding of 0 and 4 with mode \"wrap\""},
      {"pad(x) {low = [1, 0], high = [0, 0], mode = \"edge\", value = 1.0}",
       "'value' goes with mode \"constant\" only"},
      {"pad(i) {low = [1], high = [1], value = 0.5}", "attribute 'value'"},
      {"pad(x) {low = [9223372036854775807, 0], high = [1, 0]}", "above the limit of elements"},
      {"concat(x, i) {dim = 0}", "operands have dtypes f32 and i64"},
      {"concat(x, y) {dim = 0}", "operands 0 and 1 differ in a dim other than 0: f32[2, 3] and f32[2, 4]"},
      {"concat(x, 1.0) {dim = 0}", "operand 1 has rank 0, operand 0 has 2"},
      {"concat(x) {dim = 2}", "dim"},
      {"stack(x, y) {dim = 0}", "operands 0 and 1 differ in shape"},
      {"stack(x, x) {dim = 3}", "dim"},
      {"tril(i)", "which has less than 2 dims"},
      {"one_hot(x) {classes = 3}", "takes integers, not f32"},
      {"one_hot(i) {classes = 0}", "attribute 'classes' must be at least 1, not 0"},
      {"rand(i) {shape = [2], dtype = f32}", "not i64[2], a seed and an offset"},
      {"rand(s) {shape = [-2], dtype = f32}", "negative size"},
      {"randn(s) {shape = [2], dtype = i64}", "takes f64, f32, f16 and bf16, not i64"},
      {"dropout(x, x)", "operand 1 is f32[2, 3], not i64[2]"},
      {"dropout(x, s) {p = 1.5}", "attribute 'p' must be between 0 and 1, not 1.5"},
      {"dropout(x, s) {p = nan}", "attribute 'p'"},
      {"glu(x) {dim = 1}", "dim 1 of size 3 does not split in two"},
      {"instance_norm(x, y)", "operand 1"},
  };
  for (const auto& c : cases) {
    EXPECT_THAT(Refusal(c.statement), StatusIs(absl::StatusCode::kInvalidArgument, c.message)) << c.statement;
  }
}

TEST(LayoutRulesTest, ResultsBeyondTheLimitsAreRefused) {
  for (const char* statement : {
           "tile(x) {repeats = [4611686018427387904, 4611686018427387904]}",
           "repeat_interleave(x) {repeats = 9223372036854775807, dim = 0}",
           "pad(x) {low = [1000000000000, 1000000000000], high = [0, 0]}",
           "one_hot(i) {classes = 9223372036854775807}",
           "rand(s) {shape = [9223372036854775807], dtype = f32}",
           "resize(x) {sizes = [1000000000000, 1000000000000]}",
           "tile(x) {repeats = [1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1]}",
       }) {
    EXPECT_EQ(GetErrorReason(Refusal(statement)), ErrorReason::kLimitExceeded) << statement;
  }
}

}  // namespace
}  // namespace fuseline
