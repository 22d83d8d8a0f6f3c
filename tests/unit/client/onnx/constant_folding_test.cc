#include "client/onnx/constant_folding.h"

#include <string>
#include <vector>

#include "common/ir/graph_builder.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace fuseline::onnx_import {
namespace {

using ::testing::ElementsAre;
using ::testing::ElementsAreArray;

Tensor List(const Ints& values) {
  Tensor tensor = Tensor::Allocate(DType::kI64, {static_cast<int64_t>(values.size())});
  for (size_t i = 0; i < values.size(); ++i) tensor.SetInt(static_cast<int64_t>(i), values[i]);
  return tensor;
}

struct Folded {
  bool folded = false;
  std::string error;
  Shape shape;
  Ints values;
};

Folded Fold(const std::string& op, const std::vector<Tensor>& operands,
            const std::map<std::string, int64_t>& attributes = {}) {
  ModelNode node;
  node.op = op;
  node.outputs = {"y"};
  for (const auto& [name, value] : attributes) node.attributes[name].value = value;
  std::vector<Imported> values(operands.size());
  std::vector<Imported*> pointers;
  for (size_t i = 0; i < operands.size(); ++i) {
    values[i].known = operands[i];
    pointers.push_back(&values[i]);
  }
  GraphBuilder builder("g");
  Emitter emitter(builder);
  OpCall call(
      node, 17, pointers, emitter, [](void*, Imported& v) { return v.value; }, nullptr);
  Folded result;
  result.folded = FoldKnown(call);
  result.error = std::string(emitter.status().message());
  if (result.folded && call.results()[0].known.has_value()) {
    const Tensor& y = *call.results()[0].known;
    result.shape = y.shape();
    for (int64_t i = 0; i < y.element_count(); ++i) result.values.push_back(y.GetInt(i));
  }
  return result;
}

struct FoldCase {
  const char* situation;
  const char* op;
  std::vector<Ints> operands;
  std::map<std::string, int64_t> attributes;
  Ints want;
};

class FoldTest : public ::testing::TestWithParam<FoldCase> {};

TEST_P(FoldTest, GivesTheElements) {
  std::vector<Tensor> operands;
  for (const Ints& values : GetParam().operands) operands.push_back(List(values));
  const Folded folded = Fold(GetParam().op, operands, GetParam().attributes);
  ASSERT_TRUE(folded.folded);
  EXPECT_EQ(folded.error, "");
  EXPECT_THAT(folded.values, ElementsAreArray(GetParam().want));
}

constexpr int64_t kLeast = INT64_MIN;

INSTANTIATE_TEST_SUITE_P(
    Ops, FoldTest,
    ::testing::Values(FoldCase{"AddBroadcasts", "Add", {{1, 2, 3}, {10}}, {}, {11, 12, 13}},
                      FoldCase{"AddWraps", "Add", {{INT64_MAX}, {1}}, {}, {kLeast}},
                      FoldCase{"DivTruncates", "Div", {{-7, 7}, {2}}, {}, {-3, 3}},
                      FoldCase{"DivOfTheLeastByMinusOne", "Div", {{kLeast}, {-1}}, {}, {kLeast}},
                      FoldCase{"DivByZeroDoesNotCrash", "Div", {{5}, {0}}, {}, {0}},
                      FoldCase{"ModHasTheDivisorsSign", "Mod", {{-7, 7}, {3, -3}}, {}, {2, -2}},
                      FoldCase{"GatherFromTheEnd", "Gather", {{4, 5, 6}, {-1, 0}}, {}, {6, 4}},
                      FoldCase{"SliceWithClampedEnd", "Slice", {{1, 2, 3}, {1}, {99}}, {}, {2, 3}},
                      FoldCase{"SliceBackwards", "Slice", {{1, 2, 3}, {-1}, {-99}, {0}, {-2}}, {}, {3, 1}},
                      FoldCase{"SliceByAHugeStep", "Slice", {{1, 2, 3}, {0}, {3}, {0}, {INT64_MAX}}, {}, {1}},
                      FoldCase{"Concat", "Concat", {{1}, {2, 3}}, {{"axis", 0}}, {1, 2, 3}},
                      FoldCase{"ReduceProd", "ReduceProd", {{2, 3, 4}}, {{"keepdims", 0}}, {24}},
                      FoldCase{"EqualGivesBool", "Equal", {{1, 2}, {1, 3}}, {}, {1, 0}},
                      FoldCase{"NonZero", "NonZero", {{0, 5, 0, 7}}, {}, {1, 3}},
                      FoldCase{"CastToI32Wraps", "Cast", {{int64_t{1} << 32}}, {{"to", 6}}, {0}}),
    [](const auto& info) { return info.param.situation; });

TEST(FoldKnownTest, IndexOutOfRangeIsAnError) {
  EXPECT_THAT(Fold("Gather", {List({1, 2}), List({2})}).error, ::testing::HasSubstr("out of range"));
}

TEST(FoldKnownTest, LargeTensorsAreLeftToTheGraph) {
  EXPECT_FALSE(Fold("Neg", {List(Ints(kMaxFoldedElements + 1, 1))}).folded);
}

TEST(FoldKnownTest, ReshapeInfersASize) {
  EXPECT_THAT(Fold("Reshape", {List({1, 2, 3, 4, 5, 6}), List({2, -1})}).shape, ElementsAre(2, 3));
  EXPECT_FALSE(Fold("Reshape", {List({1, 2, 3}), List({2, -1})}).folded);
}

}  // namespace
}  // namespace fuseline::onnx_import
