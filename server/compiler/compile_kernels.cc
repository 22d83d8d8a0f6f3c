// Tested by tests/unit/compiler/compile_kernels_test.cc
#include <algorithm>
#include <atomic>
#include <optional>
#include <system_error>
#include <thread>

#include "absl/synchronization/mutex.h"
#include "common/status/error.h"
#include "common/status/status_macros.h"
#include "common/status/str_cat.h"
#include "server/compiler/kernel_compiler.h"

namespace fuseline::compiler {

absl::StatusOr<std::string> KernelCompiler::CompileToPtx(const KernelSource& source) {
  return Unimplemented(source.entry, StrCat("kernel '", source.entry, "': ", source.target.ToString(), " has no ptx"));
}

absl::StatusOr<KernelImage> KernelCompiler::CompileUnlessStopped(const KernelSource& source, const StopCheck& stop) {
  if (stop) FUSELINE_RETURN_IF_ERROR(stop());
  return CompileKernel(source);
}

absl::StatusOr<std::vector<KernelImage>> CompileKernels(KernelCompiler& compiler,
                                                        const std::vector<KernelSource>& sources, int threads,
                                                        const StopCheck& stop, const ProgressCallback& progress) {
  const size_t count = sources.size();
  std::vector<std::optional<absl::StatusOr<KernelImage>>> results(count);
  std::atomic<size_t> next{0};
  std::atomic<bool> failed{false};
  absl::Mutex progress_mutex;
  int64_t done = 0;  // guarded by progress_mutex
  const auto work = [&] {
    // After a failure no new kernel is begun. Indices are handed out in order, so the first error in order is always
    // there.
    for (size_t i; !failed.load(std::memory_order_relaxed) && (i = next.fetch_add(1)) < count;) {
      results[i].emplace(compiler.CompileUnlessStopped(sources[i], stop));
      if (!results[i]->ok()) {
        failed.store(true, std::memory_order_relaxed);
      } else if (progress) {
        absl::MutexLock lock(&progress_mutex);
        progress(++done, static_cast<int64_t>(count));
      }
    }
  };
  const size_t helpers = std::min(static_cast<size_t>(std::max(threads, 1)), count);
  std::vector<std::thread> pool;
  pool.reserve(helpers);
  for (size_t t = 1; t < helpers; ++t) {
    try {
      pool.emplace_back(work);
    } catch (const std::system_error&) {
      break;  // the system has no more threads: those that there are do the work
    }
  }
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
