#include "server/compiler/kernel_memory.h"

#include <string>

#include "gtest/gtest.h"
#include "tests/testing/status_matchers.h"

namespace fuseline::compiler {
namespace {

using ::fuseline::testing::IsOk;

KernelImage Image(size_t bytes) {
  KernelImage image;
  image.bytes.assign(bytes, 'x');
  return image;
}

TEST(KernelMemoryTest, LeastRecentlyUsedKernelGoesFirst) {
  KernelMemory memory(2 * static_cast<int64_t>(sizeof(KernelImage) + 1000));
  memory.Insert(ComputeDigest("a"), Image(1000));
  memory.Insert(ComputeDigest("b"), Image(1000));
  ASSERT_TRUE(memory.Find(ComputeDigest("a")).has_value());
  memory.Insert(ComputeDigest("c"), Image(1000));
  EXPECT_TRUE(memory.Find(ComputeDigest("a")).has_value());
  EXPECT_FALSE(memory.Find(ComputeDigest("b")).has_value());
  EXPECT_TRUE(memory.Find(ComputeDigest("c")).has_value());
}

TEST(KernelMemoryTest, KernelLargerThanTheMemoryIsNotKept) {
  KernelMemory memory(100);
  memory.Insert(ComputeDigest("a"), Image(1000));
  EXPECT_FALSE(memory.Find(ComputeDigest("a")).has_value());
}

class CountingCompiler final : public KernelCompiler {
 public:
  absl::Status Available() const override { return absl::OkStatus(); }
  absl::StatusOr<KernelImage> CompileKernel(const KernelSource& source) override {
    ++compiled;
    KernelImage image;
    image.entry = source.entry;
    image.source = source.text;
    return image;
  }
  std::string Identity() const override { return "counting"; }
  int compiled = 0;
};

TEST(ReusingCompilerTest, SourceIsCompiledOnceAndEverythingOfItCounts) {
  CountingCompiler compiler;
  KernelMemory memory(1 << 20);
  ReusingCompiler reusing(compiler, memory);
  const KernelSource source = {"k", "text", Target::Cpu(), false};
  for (int i = 0; i < 3; ++i) {
    const absl::StatusOr<KernelImage> image = reusing.CompileKernel(source);
    ASSERT_THAT(image.status(), IsOk());
    EXPECT_EQ(image->source, "text");
  }
  EXPECT_EQ(compiler.compiled, 1);
  EXPECT_EQ(reusing.reused(), 2);
  for (const KernelSource& other :
       {KernelSource{"k2", "text", Target::Cpu(), false}, KernelSource{"k", "text2", Target::Cpu(), false},
        KernelSource{"k", "text", Target::Cuda(90), false}, KernelSource{"k", "text", Target::Cpu(), true}}) {
    ASSERT_THAT(reusing.CompileKernel(other).status(), IsOk());
  }
  EXPECT_EQ(compiler.compiled, 5);
}

}  // namespace
}  // namespace fuseline::compiler
