#include "client/onnx/emitter.h"

#include "common/ir/text_form.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace fuseline::onnx_import {
namespace {

using ::testing::HasSubstr;

class EmitterTest : public ::testing::Test {
 protected:
  Val Input(const char* name, DType dtype, const Shape& shape) {
    const absl::StatusOr<ValueId> id = builder_.AddInput(name, TensorType::Make(dtype, shape));
    return id.ok() ? Val(&e_, *id) : Val();
  }
  std::string Text(Val y) {
    EXPECT_TRUE(builder_.AddOutput("y", y.id()).ok());
    return PrintGraph(builder_.Build());
  }

  GraphBuilder builder_{"g"};
  Emitter e_{builder_};
};

TEST_F(EmitterTest, NumbersTakeTheDTypeOfTheValue) {
  const Val x = Input("x", DType::kI32, {2});
  EXPECT_THAT(Text(x * 3.0 + 1.0), HasSubstr("mul(x, 3)"));
}

TEST_F(EmitterTest, IntegersAreDividedAsInC) {
  const Val x = Input("x", DType::kI32, {2});
  EXPECT_THAT(Text(x / 2.0), HasSubstr("trunc_divide(x, 2)"));
}

TEST_F(EmitterTest, TheFirstErrorSticks) {
  const Val a = Input("a", DType::kF32, {2}), b = Input("b", DType::kF32, {3});
  const Val bad = a + b;
  EXPECT_FALSE(bad.ok());
  EXPECT_EQ(bad.rank(), 0);
  EXPECT_EQ(bad.dim(5), 1);
  const Val worse = Apply("no_such_op", bad * 2.0);
  EXPECT_FALSE(worse.ok());
  EXPECT_THAT(std::string(e_.status().message()), HasSubstr("do not broadcast"));
  e_.Begin("next");
  EXPECT_TRUE(Apply("neg", a).ok());
}

TEST_F(EmitterTest, NothingIsAddedWhereNothingChanges) {
  const Val x = Input("x", DType::kF32, {2, 3});
  EXPECT_EQ(e_.Cast(x, DType::kF32).id(), x.id());
  EXPECT_EQ(e_.Reshape(x, {2, 3}).id(), x.id());
  EXPECT_EQ(e_.Permute(x, {0, 1}).id(), x.id());
  EXPECT_EQ(e_.Slice(x, 1, 0, 3).id(), x.id());
  EXPECT_EQ(e_.Select(x, {0, 1}, 0).id(), x.id());
  EXPECT_EQ(e_.Pad(x, {0, 0}, {0, 0}, 1).id(), x.id());
}

}  // namespace
}  // namespace fuseline::onnx_import
