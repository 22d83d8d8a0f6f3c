#include <atomic>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/status/error.h"
#include "gtest/gtest.h"
#include "server/compiler/kernel_compiler.h"
#include "tests/testing/status_matchers.h"

namespace fuseline::compiler {
namespace {

using ::fuseline::testing::IsOk;
using ::fuseline::testing::StatusIs;

// Gives an image with the entry's name; entries that start with "bad" fail. Counts how many run at once.
class FakeCompiler : public KernelCompiler {
 public:
  absl::Status Available() const override { return absl::OkStatus(); }
  absl::StatusOr<KernelImage> CompileKernel(const KernelSource& source) override {
    const int running = ++running_;
    int most = most_running;
    while (running > most && !most_running.compare_exchange_weak(most, running)) {
    }
    absl::SleepFor(absl::Milliseconds(5));
    --running_;
    ++compiled;
    if (source.entry.starts_with("bad")) return Internal(source.entry);
    KernelImage image;
    image.entry = source.entry;
    return image;
  }
  std::string Identity() const override { return "fake"; }

  std::atomic<int> most_running{0};
  std::atomic<int> compiled{0};

 private:
  std::atomic<int> running_{0};
};

std::vector<KernelSource> Sources(const std::vector<std::string>& entries) {
  std::vector<KernelSource> sources;
  for (const std::string& entry : entries) sources.push_back({entry, "", Target::Cpu(), false});
  return sources;
}

TEST(CompileKernelsTest, ResultsKeepTheirOrderAndThreadsAreBounded) {
  FakeCompiler compiler;
  std::vector<std::string> entries;
  for (int i = 0; i < 20; ++i) entries.push_back(absl::StrCat("k", i));
  const auto images = CompileKernels(compiler, Sources(entries), 3);
  ASSERT_THAT(images, IsOk());
  ASSERT_EQ(images->size(), entries.size());
  for (size_t i = 0; i < entries.size(); ++i) EXPECT_EQ((*images)[i].entry, entries[i]);
  EXPECT_LE(compiler.most_running, 3);
  EXPECT_GE(compiler.most_running, 2);
}

TEST(CompileKernelsTest, NothingToCompileGivesNothing) {
  FakeCompiler compiler;
  const auto images = CompileKernels(compiler, {}, 4);
  ASSERT_THAT(images, IsOk());
  EXPECT_TRUE(images->empty());
}

TEST(CompileKernelsTest, FirstErrorInOrderWinsAndLaterKernelsAreNotBegun) {
  FakeCompiler compiler;
  const auto images = CompileKernels(compiler, Sources({"a", "bad1", "bad2", "b", "c", "d", "e", "f", "g", "h"}), 2);
  EXPECT_THAT(images, StatusIs(absl::StatusCode::kInternal, "compile kernel 2 of 10: bad1"));
  EXPECT_LT(compiler.compiled, 10);
}

TEST(CompileKernelsTest, StopIsAskedBeforeEachKernelAndItsStatusIsReturned) {
  FakeCompiler compiler;
  const StopCheck stop = [&] { return compiler.compiled >= 2 ? absl::CancelledError("enough") : absl::OkStatus(); };
  const auto images = CompileKernels(compiler, Sources({"a", "b", "c", "d"}), 1, stop);
  EXPECT_THAT(images, StatusIs(absl::StatusCode::kCancelled, "compile kernel 3 of 4: enough"));
  EXPECT_EQ(compiler.compiled, 2);
}

TEST(CompileKernelsTest, ProgressCountsEachKernelThatIsDone) {
  FakeCompiler compiler;
  std::vector<int64_t> counts;
  const auto images =
      CompileKernels(compiler, Sources({"a", "b", "c", "d", "e"}), 3, {}, [&](int64_t done, int64_t total) {
        counts.push_back(done);
        EXPECT_EQ(total, 5);
      });
  ASSERT_THAT(images, IsOk());
  EXPECT_EQ(counts, (std::vector<int64_t>{1, 2, 3, 4, 5}));
}

TEST(KernelCompilerTest, StopIsAskedBeforeACompilerThatCanNotBeInterrupted) {
  FakeCompiler compiler;
  EXPECT_THAT(compiler.CompileUnlessStopped({"k", "", Target::Cpu(), false}, [] { return absl::CancelledError("no"); }),
              StatusIs(absl::StatusCode::kCancelled, "no"));
  EXPECT_EQ(compiler.compiled, 0);
  EXPECT_THAT(compiler.CompileUnlessStopped({"k", "", Target::Cpu(), false}, {}), IsOk());
  EXPECT_EQ(compiler.workers().started, 0);
}

TEST(KernelCompilerTest, PtxIsUnimplementedUnlessACompilerGivesIt) {
  FakeCompiler compiler;
  EXPECT_THAT(compiler.CompileToPtx({"k", "", Target::Cpu(), false}),
              StatusIs(absl::StatusCode::kUnimplemented, "no ptx"));
}

}  // namespace
}  // namespace fuseline::compiler
