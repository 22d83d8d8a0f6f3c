#include "common/launch/shared_object.h"

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "server/compiler/kernel_compiler.h"
#include "tests/testing/status_matchers.h"

namespace fuseline::launch {
namespace {

using ::fuseline::testing::IsOk;
using ::fuseline::testing::StatusIs;

using Answer = int (*)();

absl::StatusOr<std::string> CompileAnswer(int value) {
  const auto compiler = compiler::MakeHostCompiler("", "");
  const auto image = compiler->CompileKernel(
      {"answer", absl::StrCat("extern \"C\" int answer() { return ", value, "; }"), Target::Cpu(), false});
  if (!image.ok()) return image.status();
  return image->bytes;
}

// The loader knows objects by name, and the names of memory files come back: each must still be an object of its own.
TEST(SharedObjectTest, ObjectsLoadedOneAfterTheOtherKeepTheirOwnCode) {
  std::vector<std::unique_ptr<SharedObject>> objects;
  for (int value = 0; value < 4; ++value) {
    const auto bytes = CompileAnswer(value);
    ASSERT_THAT(bytes, IsOk());
    auto object = SharedObject::Load(*bytes);
    ASSERT_THAT(object, IsOk());
    objects.push_back(*std::move(object));
  }
  for (int value = 0; value < 4; ++value) {
    const auto answer = reinterpret_cast<Answer>(objects[static_cast<size_t>(value)]->FindSymbol("answer"));
    ASSERT_NE(answer, nullptr);
    EXPECT_EQ(answer(), value);
  }
  EXPECT_EQ(objects[0]->FindSymbol("question"), nullptr);
}

TEST(SharedObjectTest, BytesThatAreNoObjectAreInternalWithTheLoadersReason) {
  EXPECT_THAT(SharedObject::Load("not an object"), StatusIs(absl::StatusCode::kInternal, "can't load a kernel"));
  EXPECT_THAT(SharedObject::Load(""), StatusIs(absl::StatusCode::kInternal, "can't load a kernel"));
}

}  // namespace
}  // namespace fuseline::launch
