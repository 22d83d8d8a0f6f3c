#include "tests/cuda_host/host_kernel_compiler.h"

#include <dlfcn.h>
#include <link.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "common/status/error.h"
#include "common/status/status_macros.h"
#include "common/status/str_cat.h"
#include "server/compiler/child_process.h"
#include "server/compiler/compiler_log.h"
#include "tests/cuda_host/translate_kernel.h"

namespace fuseline::cuda_host {
namespace {

// Contraction, wrapping and aliasing as the CUDA compiler is told. -fno-thread-jumps: it may double a barrier or
// shuffle, whose address in the code says which one it is. -fsanitize=bounds-strict: indices of arrays that lie on the
// stack.
constexpr const char* kFlags[] = {"-x",
                                  "c++",
                                  "-std=c++17",
                                  "-O1",
                                  "-g1",
                                  "-fPIC",
                                  "-shared",
                                  "-nostdlib",
                                  "-w",
                                  "-fsanitize=thread",
                                  "--param",
                                  "tsan-instrument-func-entry-exit=0",
                                  "-fsanitize=bounds-strict",
                                  "-ffp-contract=off",
                                  "-fno-math-errno",
                                  "-fwrapv",
                                  "-fno-strict-aliasing",
                                  "-fno-thread-jumps",
                                  "-fno-exceptions",
                                  "-fno-rtti",
                                  "-fno-asynchronous-unwind-tables",
                                  "-fno-stack-protector",
                                  "-Wl,-z,noseparate-code"};
constexpr size_t kKernelsPerUnit = 16;
constexpr absl::Duration kTimeLimit = absl::Seconds(120);
constexpr size_t kMostCalls = 4;  // that a described site is inlined through

std::string TextLine(const std::string& text, int number) {
  const std::vector<std::string> lines = absl::StrSplit(text, '\n');
  if (number < 1 || static_cast<size_t>(number) > lines.size()) return "";
  return std::string(absl::StripAsciiWhitespace(lines[static_cast<size_t>(number) - 1]));
}

}  // namespace

std::string HostKernel::Describe(const void* site) const {
  const std::string unknown = "an unknown line";
  if (site == nullptr) return unknown;
  // A return address belongs to the statement after the call.
  const auto offset = static_cast<const char*>(site) - static_cast<const char*>(base) - 1;
  const std::string program = compiler::FindProgram("addr2line");
  if (program.empty() || offset < 0) return unknown;
  const auto result = compiler::RunChildProcess({program, "-i", "-e", file, StrCat("0x", absl::Hex(offset))}, {});
  if (!result.ok() || result->exit_code != 0) return unknown;
  std::string out;
  size_t calls = 0;
  for (const absl::string_view line : absl::StrSplit(result->output, '\n')) {
    const size_t colon = line.rfind(':');
    if (colon == absl::string_view::npos) continue;
    const absl::string_view path = line.substr(0, colon);
    int number = 0;
    if (path.substr(path.rfind('/') + 1) != label || calls == kMostCalls ||
        !absl::SimpleAtoi(line.substr(colon + 1, line.find(' ', colon) - colon - 1), &number)) {
      continue;
    }
    ++calls;
    StrAppend(&out, out.empty() ? "" : ", called from ", "line ", number, ": `", TextLine(text, number), "`");
  }
  return out.empty() ? unknown : out;
}

absl::StatusOr<std::unique_ptr<HostKernelCompiler>> HostKernelCompiler::Create() {
  const std::string compiler = compiler::FindProgram("g++");
  if (compiler.empty()) {
    return MakeError(absl::StatusCode::kFailedPrecondition, ErrorReason::kTargetNotAvailable, "cuda_host",
                     "the host build of CUDA kernels needs g++");
  }
  FUSELINE_ASSIGN_OR_RETURN(compiler::ScratchFolder folder, compiler::ScratchFolder::Create(""));
  return std::unique_ptr<HostKernelCompiler>(new HostKernelCompiler(compiler, std::move(folder)));
}

absl::StatusOr<std::vector<HostKernelPtr>> HostKernelCompiler::Compile(const std::vector<KernelSource>& sources) {
  std::vector<HostKernelPtr> out(sources.size());
  std::vector<size_t> missing;
  {
    absl::MutexLock lock(&mutex_);
    for (size_t i = 0; i < sources.size(); ++i) {
      const auto found = kernels_.find(sources[i].text);
      if (found != kernels_.end()) {
        out[i] = found->second;
      } else {
        missing.push_back(i);
      }
    }
  }
  for (size_t begin = 0; begin < missing.size(); begin += kKernelsPerUnit) {
    const size_t end = std::min(missing.size(), begin + kKernelsPerUnit);
    std::vector<const KernelSource*> unit;
    for (size_t i = begin; i < end; ++i) unit.push_back(&sources[missing[i]]);
    std::vector<HostKernelPtr> kernels;
    FUSELINE_RETURN_IF_ERROR(CompileUnit(unit, kernels));
    absl::MutexLock lock(&mutex_);
    for (size_t i = begin; i < end; ++i) {
      out[missing[i]] = kernels[i - begin];
      kernels_.emplace(kernels[i - begin]->text, kernels[i - begin]);
    }
  }
  return out;
}

absl::Status HostKernelCompiler::CompileUnit(const std::vector<const KernelSource*>& sources,
                                             std::vector<HostKernelPtr>& kernels) {
  FUSELINE_ASSIGN_OR_RETURN(const std::string text, TranslateKernels(sources));
  std::string stem;
  {
    absl::MutexLock lock(&mutex_);
    stem = StrCat(folder_.path(), "/unit_", units_++);
  }
  FUSELINE_RETURN_IF_ERROR(compiler::WriteFile(stem + ".cc", text));
  std::vector<std::string> argv = {compiler_};
  argv.insert(argv.end(), std::begin(kFlags), std::end(kFlags));
  argv.insert(argv.end(), {"-o", stem + ".so", stem + ".cc", "-lm", "-lc", "-lgcc"});
  compiler::ChildProcessOptions options;
  options.time_limit = kTimeLimit;
  options.environment = {"LC_ALL=C", StrCat("TMPDIR=", folder_.path())};
  FUSELINE_ASSIGN_OR_RETURN(const compiler::ChildProcessResult result, compiler::RunChildProcess(argv, options));
  if (result.exit_code != 0) {
    return MakeError(absl::StatusCode::kInternal, ErrorReason::kCompilerFailed, sources[0]->entry,
                     StrCat("kernel '", sources[0]->entry, "' and ", sources.size() - 1,
                            " others: the host build failed: ", compiler::FirstLogLines(result.output)));
  }
  void* handle = dlopen((stem + ".so").c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) return Internal(StrCat("kernel '", sources[0]->entry, "': ", dlerror()));
  const std::shared_ptr<void> library(handle, [](void* h) { dlclose(h); });
  const link_map* map = nullptr;
  if (dlinfo(handle, RTLD_DI_LINKMAP, &map) != 0) return Internal(StrCat("dlinfo: ", dlerror()));
  for (size_t n = 0; n < sources.size(); ++n) {
    auto kernel = std::make_shared<HostKernel>();
    kernel->name = sources[n]->entry;
    kernel->text = sources[n]->text;
    kernel->entry = reinterpret_cast<HostEntry>(dlsym(handle, HostEntryName(n).c_str()));
    const auto* params = static_cast<const int*>(dlsym(handle, HostParamsName(n).c_str()));  // HostParams
    if (kernel->entry == nullptr || params == nullptr)
      return Internal(StrCat("kernel '", kernel->name, "' is not in its unit"));
    for (int i = 1; i <= params[0]; ++i) kernel->params.push_back({params[i] / 2, params[i] % 2 != 0});
    kernel->launch_bound = LaunchBound(kernel->text);
    kernel->file = stem + ".so";
    kernel->base = reinterpret_cast<const void*>(map->l_addr);
    kernel->label = HostFileName(n);
    kernel->library = library;
    kernels.push_back(std::move(kernel));
  }
  return absl::OkStatus();
}

}  // namespace fuseline::cuda_host
