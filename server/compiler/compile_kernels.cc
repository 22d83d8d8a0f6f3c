// Tested by tests/unit/compiler/compile_kernels_test.cc
#include <algorithm>
#include <atomic>
#include <optional>
#include <thread>

#include "common/status/error.h"
#include "common/status/str_cat.h"
#include "server/compiler/kernel_compiler.h"

namespace fuseline::compiler {

absl::StatusOr<std::string> KernelCompiler::CompileToPtx(const KernelSource& source) {
  return Unimplemented(source.entry, StrCat("kernel '", source.entry, "': ", source.target.ToString(), " has no ptx"));
}

absl::StatusOr<std::vector<KernelImage>> CompileKernels(KernelCompiler& compiler,
                                                        const std::vector<KernelSource>& sources, int threads) {
  const size_t count = sources.size();
  std::vector<std::optional<absl::StatusOr<KernelImage>>> results(count);
  std::atomic<size_t> next{0};
  std::atomic<bool> failed{false};
  const auto work = [&] {
    // After a failure no new kernel is begun. Indices are handed out in order, so the first error in order is always
    // there.
    for (size_t i; !failed.load(std::memory_order_relaxed) && (i = next.fetch_add(1)) < count;) {
      results[i].emplace(compiler.CompileKernel(sources[i]));
      if (!results[i]->ok()) failed.store(true, std::memory_order_relaxed);
    }
  };
  const size_t helpers = std::min(static_cast<size_t>(std::max(threads, 1)), count);
  std::vector<std::thread> pool;
  for (size_t t = 1; t < helpers; ++t) pool.emplace_back(work);
  work();
  for (std::thread& thread : pool) thread.join();

  std::vector<KernelImage> images;
  images.reserve(count);
  for (size_t i = 0; i < count; ++i) {
    if (!results[i].has_value()) continue;  // not begun because of an error that follows or came before
    if (!results[i]->ok()) return Wrap(results[i]->status(), StrCat("compile kernel ", i + 1, " of ", count));
    images.push_back(*std::move(*results[i]));
  }
  return images;
}

}  // namespace fuseline::compiler
