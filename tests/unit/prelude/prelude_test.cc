#include "server/codegen/prelude.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/codegen/cpu/cpu_prelude_tables.h"
#include "server/codegen/cuda/cuda_prelude_tables.h"
#include "server/codegen/prelude_template.h"

namespace fuseline::codegen {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr PreludeFunction kTable[] = {{"top", "left right", "TOP"},
                                      {"left", "base", "LEFT"},
                                      {"right", "base", "RIGHT"},
                                      {"base", "", "BASE"},
                                      {"other", "", "OTHER"}};

TEST(PreludeTest, SharedNeedComesOnceAndFirst) {
  EXPECT_EQ(PreludeLibrary({kTable}).Render({"top"}), "BASE\nLEFT\nRIGHT\nTOP\n");
}

TEST(PreludeTest, NoNamesGiveNoText) { EXPECT_EQ(PreludeLibrary({kTable}).Render({}), ""); }

TEST(PreludeTest, OrderDoesNotDependOnTheOrderOfTables) {
  constexpr PreludeFunction kBackwards[] = {kTable[4], kTable[3], kTable[2], kTable[1], kTable[0]};
  EXPECT_EQ(PreludeLibrary({kTable}).Render({"top", "other"}), PreludeLibrary({kBackwards}).Render({"top", "other"}));
}

TEST(PreludeTest, UnknownNameIsAnErrorLine) {
  EXPECT_EQ(PreludeLibrary({kTable}).Render({"base", "missing"}), "BASE\n#error \"no prelude function 'missing'\"\n");
  EXPECT_FALSE(PreludeLibrary({kTable}).Has("missing"));
  EXPECT_TRUE(PreludeLibrary({kTable}).Has("top"));
}

TEST(PreludeTest, EarlierTableOverridesLater) {
  constexpr PreludeFunction kFirst[] = {{"base", "", "FIRST"}};
  EXPECT_EQ(PreludeLibrary({kFirst, kTable}).Render({"left"}), "FIRST\nLEFT\n");
}

TEST(PreludeTest, CycleEnds) {
  constexpr PreludeFunction kCycle[] = {{"a", "b", "A"}, {"b", "a", "B"}};
  EXPECT_EQ(PreludeLibrary({kCycle}).Render({"a"}), "B\nA\n");
}

TEST(PreludeTest, ChainOf100000NeedsRendersWithoutRecursion) {
  constexpr int kLength = 100000;
  std::vector<std::string> names;
  for (int i = 0; i <= kLength; ++i) names.push_back(absl::StrCat("f", i));
  std::vector<PreludeFunction> chain;
  for (int i = 0; i < kLength; ++i) chain.push_back({names[i].c_str(), names[i + 1].c_str(), "x"});
  chain.push_back({names[kLength].c_str(), "", "last"});
  EXPECT_EQ(PreludeLibrary({chain}).Render({"f0"}).substr(0, 7), "last\nx\n");
}

TEST(PreludeTest, TemplateExpandsForEachTypeAndFindsItsNeeds) {
  constexpr PreludeTemplate kTemplates[] = {
      {"fl_twice_@S", kF32 | kI64, kNoType, "FL_FN @T fl_twice_@S(@T a) { return fl_add_@S(a, a); }"},
      {"fl_to_@S_@s", kF32, kI8 | kU8, "FL_FN @t fl_to_@S_@s(@T a) { return @hi; }"}};
  const PreludeTable table({kTemplates});
  std::vector<std::string> rows;
  for (const PreludeFunction& f : table.functions()) rows.push_back(absl::StrCat(f.name, ": ", f.needs, ": ", f.text));
  EXPECT_THAT(
      rows,
      ElementsAre(
          "fl_twice_f32: FL_FN fl_add_f32: FL_FN float fl_twice_f32(float a) { return fl_add_f32(a, a); }",
          "fl_twice_i64: FL_FN fl_add_i64: FL_FN long long fl_twice_i64(long long a) { return fl_add_i64(a, a); }",
          "fl_to_f32_i8: FL_FN: FL_FN signed char fl_to_f32_i8(float a) { return 127; }",
          "fl_to_f32_u8: FL_FN: FL_FN unsigned char fl_to_f32_u8(float a) { return 255; }"));
}

// The names that emitters form from a ScalarOp and a type.
std::vector<std::string> ContractNames() {
  const std::vector<std::string> floats = {"f32", "f64"};
  const std::vector<std::string> ints = {"i64", "i32", "i16", "i8", "u8"};
  std::vector<std::string> numbers = floats, all;
  numbers.insert(numbers.end(), ints.begin(), ints.end());
  all = numbers;
  all.push_back("bool");
  std::vector<std::string> names;
  const auto add = [&names](const std::vector<std::string>& types, const char* ops) {
    for (const auto& op : absl::StrSplit(ops, ' ')) {
      for (const std::string& type : types) names.push_back(absl::StrCat("fl_", op, "_", type));
    }
  };
  add(numbers, "add sub mul neg abs floor_div trunc_div remainder fmod pow");
  add(all, "maximum minimum fmax fmin eq ne lt le gt ge select");
  add(floats,
      "div sqrt rsqrt exp exp2 expm1 log log2 log10 log1p sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh "
      "erf erfc lgamma "
      "floor ceil trunc round atan2 hypot copysign nextafter is_nan is_inf is_finite");
  add({"bool"}, "logical_and logical_or logical_xor logical_not bit_and bit_or bit_xor bit_not load store");
  add(ints, "bit_and bit_or bit_xor bit_not shift_left shift_right");
  add({"f16", "bf16", "f8e4m3", "f8e5m2"}, "load store");
  for (const std::string& from : all) {
    for (const std::string& to : all) names.push_back(absl::StrCat("fl_cast_", from, "_to_", to));
  }
  for (const char* storage : {"f16", "bf16", "f8e4m3", "f8e5m2"}) {
    for (const std::string& from : floats) names.push_back(absl::StrCat("fl_round_", storage, "_", from));
  }
  const std::vector<std::vector<std::string>> sizes = {
      {"f8e4m3", "f8e5m2", "i8", "u8"}, {"f16", "bf16", "i16"}, {"f32", "i32"}, {"f64", "i64"}};
  for (const auto& size : sizes) {
    for (const std::string& from : size) {
      for (const std::string& to : size) names.push_back(absl::StrCat("fl_bitcast_", from, "_to_", to));
    }
  }
  return names;
}

TEST(PreludeTest, BothTargetsHaveEveryContractName) {
  for (const std::string& name : ContractNames()) {
    EXPECT_TRUE(CudaPrelude().Has(name)) << name;
    EXPECT_TRUE(CpuPrelude().Has(name)) << name;
  }
}

TEST(PreludeTest, EveryNeedOfTheTargetsTablesExists) {
  for (const PreludeFunction& f : CpuScalarPrelude())
    EXPECT_THAT(CpuPrelude().Render({f.name}), Not(HasSubstr("#error"))) << f.name;
  for (const PreludeFunction& f : CudaScalarPrelude())
    EXPECT_THAT(CudaPrelude().Render({f.name}), Not(HasSubstr("#error"))) << f.name;
}

TEST(PreludeTest, TargetsQualifyTheirFunctions) {
  EXPECT_THAT(CudaPrelude().Render({"fl_add_f32"}), HasSubstr("#define FL_FN static __device__ __forceinline__\n"));
  EXPECT_THAT(CpuPrelude().Render({"fl_add_f32"}),
              HasSubstr("#define FL_FN static inline __attribute__((always_inline))\n"));
}

}  // namespace
}  // namespace fuseline::codegen
