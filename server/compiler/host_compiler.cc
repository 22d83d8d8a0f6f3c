// Tested by tests/unit/compiler/host_compiler_test.cc
#include <stdlib.h>

#include <iterator>
#include <utility>

#include "absl/base/call_once.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/time/time.h"
#include "common/fingerprint/fingerprint.h"
#include "common/status/error.h"
#include "common/status/lasting_error.h"
#include "common/status/status_macros.h"
#include "common/status/str_cat.h"
#include "server/compiler/child_process.h"
#include "server/compiler/compiler_log.h"
#include "server/compiler/kernel_compiler.h"
#include "server/compiler/scratch_folder.h"

namespace fuseline::compiler {
namespace {

// Semantics first: no contraction of a multiply and an add, wrapping integers, NaN, infinities, signed zeros and
// subnormals as IEEE has them. -fno-math-errno and -fno-trapping-math give up errno and floating-point exception flags
// only, which nothing reads; without them calls, square roots and selects do not vectorise.
constexpr const char* kCodeFlags[] = {
    "-x",
    "c++",
    "-std=c++17",
    "-O3",
    "-march=native",
    "-fPIC",
    "-fno-math-errno",
    "-fno-trapping-math",
    "-fwrapv",
    "-w",
    "-fno-strict-aliasing",
    "-fopenmp-simd",
    "-fno-exceptions",
    "-fno-rtti",
    "-fno-semantic-interposition",
    "-fno-stack-protector",
    "-fno-asynchronous-unwind-tables",
};
constexpr const char* kExactFlag = "-ffp-contract=off";
constexpr const char* kFastFlag = "-ffp-contract=fast";
// No start files and no C++ runtime: kernels have neither constructors nor headers, and the link is twice as fast
// without.
constexpr const char* kLinkFlags[] = {"-shared", "-nostdlib", "-Wl,-s", "-Wl,-z,noseparate-code"};
#if defined(__x86_64__)
constexpr const char* kLibraries[] = {"-lmvec", "-lm", "-lc", "-lgcc"};
#else
constexpr const char* kLibraries[] = {"-lm", "-lc", "-lgcc"};
#endif
// Jump threading makes g++ 12 count elements twice in a vectorised OpenMP reduction whose body has two selects on x !=
// x (tests/cases/differential/mean_beside_bf16_cast.json).
constexpr const char* kGccFlags[] = {"-fno-thread-jumps"};
constexpr const char* kClangFlags[] = {"-fveclib=libmvec"};

template <size_t N>
void Append(std::vector<std::string>& list, const char* const (&items)[N]) {
  list.insert(list.end(), std::begin(items), std::end(items));
}

// The compiler that was found.
struct Toolchain {
  std::vector<std::string> command;  // its path, and arguments that $CXX gives
  bool is_clang = false;
  std::string version;  // "g++ (Debian 12.2.0-14) 12.2.0"
};

absl::Status Missing(const std::string& what) {
  return MakeError(absl::StatusCode::kFailedPrecondition, ErrorReason::kTargetNotAvailable, "cpu",
                   StrCat("target 'cpu' needs a C++ compiler: ", what, "; install g++ (Debian: apt-get install g++)"));
}

absl::StatusOr<Toolchain> FindToolchain(const std::string& compiler) {
  std::vector<std::vector<std::string>> candidates;
  if (!compiler.empty()) {
    candidates.push_back({compiler});
  } else {
    if (const char* cxx = getenv("CXX"); cxx != nullptr)
      candidates.push_back(absl::StrSplit(cxx, ' ', absl::SkipEmpty()));
    candidates.push_back({"g++"});
    candidates.push_back({"clang++"});
  }
  std::string tried;
  for (std::vector<std::string>& command : candidates) {
    if (command.empty()) continue;
    StrAppend(&tried, tried.empty() ? "'" : ", '", command[0], "'");
    const std::string path = FindProgram(command[0]);
    if (path.empty()) continue;
    command[0] = path;
    std::vector<std::string> argv = command;
    argv.push_back("--version");
    ChildProcessOptions options;
    options.time_limit = absl::Seconds(10);
    options.environment = {"LC_ALL=C"};
    const absl::StatusOr<ChildProcessResult> result = RunChildProcess(argv, options);
    if (!result.ok() || result->exit_code != 0) continue;
    Toolchain toolchain;
    toolchain.command = std::move(command);
    toolchain.version = result->output.substr(0, result->output.find('\n'));
    toolchain.is_clang = toolchain.version.find("clang") != std::string::npos;
    return toolchain;
  }
  return Missing(StrCat("none of ", tried, " works"));
}

class HostCompiler : public KernelCompiler {
 public:
  HostCompiler(std::string compiler, std::string scratch_dir, const CompilerLimits& limits)
      : compiler_(std::move(compiler)), scratch_dir_(std::move(scratch_dir)), limits_(limits) {}

  absl::Status Available() const override { return Found().status(); }

  absl::StatusOr<KernelImage> CompileKernel(const KernelSource& source) override {
    FUSELINE_ASSIGN_OR_RETURN(const Toolchain* toolchain, Found());
    if (source.target.is_cuda()) {
      return Internal(
          StrCat("kernel '", source.entry, "': the host compiler can't compile for ", source.target.ToString()));
    }
    FUSELINE_ASSIGN_OR_RETURN(const ScratchFolder folder, ScratchFolder::Create(scratch_dir_));
    // The file's name is the same for all, so that equal sources give equal bytes.
    const std::string input = folder.path() + "/kernel.cc";
    const std::string output = folder.path() + "/kernel.so";
    FUSELINE_RETURN_IF_ERROR(WriteFile(input, source.text));
    std::vector<std::string> argv = toolchain->command;
    AppendFlags(*toolchain, source.fast_math, argv);
    argv.insert(argv.end(), {"-o", output, input});
    Append(argv, kLibraries);
    ChildProcessOptions options;
    options.time_limit = limits_.time;
    options.memory_limit_bytes = limits_.memory_bytes;
    options.own_group = limits_.own_process_group;
    // The compiler's own temporary files go with the folder, even where it is killed.
    options.environment = {"LC_ALL=C", StrCat("TMPDIR=", folder.path())};
    const absl::StatusOr<ChildProcessResult> result = RunChildProcess(argv, options);
    if (!result.ok()) return Failed(source, *toolchain, std::string(result.status().message()));
    if (result->exit_code != 0) {
      absl::Status status =
          Failed(source, *toolchain, StrCat("exit code ", result->exit_code, ": ", FirstLogLines(result->output)));
      return SaysSourceIsBad(*result) ? MarkLasting(std::move(status)) : status;
    }
    KernelImage image;
    image.format = ImageFormat::kSharedObject;
    image.entry = source.entry;
    FUSELINE_ASSIGN_OR_RETURN(image.bytes, ReadFile(output));
    image.source = source.text;
    return image;
  }

  std::string Identity() const override {
    absl::call_once(identity_once_, [this] { identity_ = ComputeIdentity(); });
    return identity_;
  }

 private:
  absl::StatusOr<const Toolchain*> Found() const {
    absl::call_once(toolchain_once_, [this] { toolchain_ = FindToolchain(compiler_); });
    if (!toolchain_.ok()) return toolchain_.status();
    return &*toolchain_;
  }

  static void AppendFlags(const Toolchain& toolchain, bool fast_math, std::vector<std::string>& argv) {
    Append(argv, kCodeFlags);
    if (toolchain.is_clang) {
      Append(argv, kClangFlags);
    } else {
      Append(argv, kGccFlags);
    }
    argv.push_back(fast_math ? kFastFlag : kExactFlag);
    Append(argv, kLinkFlags);
  }

  // Code for -march=native runs on processors like this one alone, so what that resolves to belongs to the identity.
  std::string ComputeIdentity() const {
    const absl::StatusOr<const Toolchain*> toolchain = Found();
    if (!toolchain.ok()) return "host compiler unavailable";
    std::vector<std::string> argv = (*toolchain)->command;
    ChildProcessOptions options;
    options.environment = {"LC_ALL=C"};
    if ((*toolchain)->is_clang) {
      argv.insert(argv.end(), {"-march=native", "-E", "-dM", "-x", "c++", "/dev/null"});
    } else {
      argv.insert(argv.end(), {"-march=native", "-Q", "--help=target"});
    }
    const absl::StatusOr<ChildProcessResult> result = RunChildProcess(argv, options);
    const std::string features =
        result.ok() && result->exit_code == 0 ? ComputeDigest(result->output).ToHex().substr(0, 16) : "unknown";
    std::vector<std::string> flags;
    // What $CXX adds to its program: "g++ -m32", "ccache g++". The program's own path does not matter.
    flags.insert(flags.end(), std::next((*toolchain)->command.begin()), (*toolchain)->command.end());
    AppendFlags(**toolchain, false, flags);
    Append(flags, kLibraries);
    return StrCat((*toolchain)->version, "; flags ", absl::StrJoin(flags, " "), " | ", kFastFlag, "; native ",
                  features);
  }

  // Whether the compiler found fault with the source, and not with the machine: memory, disk, a signal.
  static bool SaysSourceIsBad(const ChildProcessResult& result) {
    const auto says = [&result](const char* words) { return result.output.find(words) != std::string::npos; };
    return result.exit_code == 1 && says("kernel.cc:") && says(": error: ") && !says("internal compiler error") &&
           !says("terminated") && !says("memory") && !says("No space left");
  }

  static absl::Status Failed(const KernelSource& source, const Toolchain& toolchain, const std::string& detail) {
    return MakeError(absl::StatusCode::kInternal, ErrorReason::kCompilerFailed, source.entry,
                     StrCat("kernel '", source.entry, "': ", toolchain.command[0], ": ", detail));
  }

  const std::string compiler_;
  const std::string scratch_dir_;
  const CompilerLimits limits_;
  mutable absl::once_flag toolchain_once_;
  mutable absl::StatusOr<Toolchain> toolchain_ = absl::UnknownError("");  // written once, by toolchain_once_
  mutable absl::once_flag identity_once_;
  mutable std::string identity_;  // written once, by identity_once_
};

}  // namespace

std::unique_ptr<KernelCompiler> MakeHostCompiler(std::string compiler, std::string scratch_dir,
                                                 const CompilerLimits& limits) {
  return std::make_unique<HostCompiler>(std::move(compiler), std::move(scratch_dir), limits);
}

}  // namespace fuseline::compiler
