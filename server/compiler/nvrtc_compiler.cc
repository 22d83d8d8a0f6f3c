// Tested by tests/unit/compiler/nvrtc_compiler_test.cc
#include <algorithm>
#include <utility>

#include "absl/base/call_once.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/status/error.h"
#include "common/status/lasting_error.h"
#include "common/status/status_macros.h"
#include "common/status/str_cat.h"
#include "server/compiler/compiler_log.h"
#include "server/compiler/kernel_compiler.h"
#include "server/compiler/nvrtc_library.h"

namespace fuseline::compiler {
namespace {

// --fmad=false: a multiply and an add are contracted only where the source asks for it (docs/ir.md).
constexpr const char* kExactFlag = "--fmad=false";
constexpr const char* kFastFlag = "--use_fast_math";
// NVRTC has a cache of its own from 12.9 on; a hit in it would leave out what ptxas says of registers and spills.
constexpr const char* kNoCacheFlag = "--no-cache";
constexpr const char* kCommonFlags[] = {"--std=c++17", "--ptxas-options=-v"};

// A program object with its destructor. NVRTC calls back now and then during a compilation; that is where the time
// limit is kept.
class Program {
 public:
  Program(const NvrtcLibrary& nvrtc, absl::Duration time_limit)
      : nvrtc_(nvrtc), time_limit_(time_limit), deadline_(absl::Now() + time_limit) {}
  ~Program() {
    if (program_ != nullptr) nvrtc_.DestroyProgram(&program_);
  }
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  absl::Status Compile(const KernelSource& source, const std::vector<std::string>& options) {
    const std::string file_name = source.entry + ".cu";
    int result = nvrtc_.CreateProgram(&program_, source.text.c_str(), file_name.c_str(), 0, nullptr, nullptr);
    if (result != NvrtcLibrary::kSuccess) return Failed(source, result, "no program");
    if (nvrtc_.SetFlowCallback != nullptr) nvrtc_.SetFlowCallback(program_, &Program::IsPastDeadline, this);
    std::vector<const char*> option_pointers;
    for (const std::string& option : options) option_pointers.push_back(option.c_str());
    result = nvrtc_.CompileProgram(program_, static_cast<int>(option_pointers.size()), option_pointers.data());
    size_t size = 0;
    if (nvrtc_.GetProgramLogSize(program_, &size) == NvrtcLibrary::kSuccess && size > 1) {
      log_.resize(size);
      if (nvrtc_.GetProgramLog(program_, log_.data()) != NvrtcLibrary::kSuccess) log_.clear();
      while (!log_.empty() && log_.back() == '\0') log_.pop_back();
    }
    if (result != NvrtcLibrary::kSuccess) {
      absl::Status status = Failed(source, result, FirstLogLines(log_));
      // It found fault with the source; memory that it lacks has a result of its own.
      return result == NvrtcLibrary::kCompilationFailed ? MarkLasting(std::move(status)) : status;
    }
    return absl::OkStatus();
  }

  absl::StatusOr<std::string> Take(const KernelSource& source, int (*get_size)(NvrtcProgram*, size_t*),
                                   int (*get)(NvrtcProgram*, char*)) {
    size_t size = 0;
    int result = get_size(program_, &size);
    std::string bytes;
    if (result == NvrtcLibrary::kSuccess) {
      bytes.resize(size);
      result = get(program_, bytes.data());
    }
    if (result != NvrtcLibrary::kSuccess) return Failed(source, result, FirstLogLines(log_));
    if (bytes.empty()) return Failed(source, result, "the compiler gave no code");
    return bytes;
  }

  const std::string& log() const { return log_; }

 private:
  static int IsPastDeadline(void* self, void*) { return absl::Now() >= static_cast<Program*>(self)->deadline_ ? 1 : 0; }

  absl::Status Failed(const KernelSource& source, int result, const std::string& detail) const {
    const std::string what = result == NvrtcLibrary::kCancelled
                                 ? StrCat("not done after ", absl::FormatDuration(time_limit_))
                                 : std::string(nvrtc_.GetErrorString(result));
    return MakeError(absl::StatusCode::kInternal, ErrorReason::kCompilerFailed, source.entry,
                     StrCat("kernel '", source.entry, "': ", nvrtc_.version(), ": ", what, ": ", detail));
  }

  const NvrtcLibrary& nvrtc_;
  const absl::Duration time_limit_;
  const absl::Time deadline_;
  NvrtcProgram* program_ = nullptr;
  std::string log_;
};

class NvrtcCompiler : public KernelCompiler {
 public:
  NvrtcCompiler(std::vector<std::string> search_paths, const CompilerLimits& limits)
      : search_paths_(std::move(search_paths)), limits_(limits) {}

  absl::Status Available() const override { return Library().status(); }

  absl::StatusOr<KernelImage> CompileKernel(const KernelSource& source) override {
    FUSELINE_ASSIGN_OR_RETURN(const NvrtcLibrary* nvrtc, Library());
    FUSELINE_RETURN_IF_ERROR(CheckTarget(*nvrtc, source));
    Program program(*nvrtc, limits_.time);
    FUSELINE_RETURN_IF_ERROR(program.Compile(source, Options(*nvrtc, source, "sm_")));
    KernelImage image;
    image.format = ImageFormat::kCubin;
    image.entry = source.entry;
    FUSELINE_ASSIGN_OR_RETURN(image.bytes, program.Take(source, nvrtc->GetCUBINSize, nvrtc->GetCUBIN));
    image.source = source.text;
    image.resources = ParsePtxasLog(program.log(), source.entry);
    return image;
  }

  absl::StatusOr<std::string> CompileToPtx(const KernelSource& source) override {
    FUSELINE_ASSIGN_OR_RETURN(const NvrtcLibrary* nvrtc, Library());
    FUSELINE_RETURN_IF_ERROR(CheckTarget(*nvrtc, source));
    Program program(*nvrtc, limits_.time);
    FUSELINE_RETURN_IF_ERROR(program.Compile(source, Options(*nvrtc, source, "compute_")));
    FUSELINE_ASSIGN_OR_RETURN(std::string ptx, program.Take(source, nvrtc->GetPTXSize, nvrtc->GetPTX));
    while (!ptx.empty() && ptx.back() == '\0') ptx.pop_back();
    return ptx;
  }

  std::string Identity() const override {
    const absl::StatusOr<const NvrtcLibrary*> nvrtc = Library();
    if (!nvrtc.ok()) return "nvrtc unavailable";
    return StrCat((*nvrtc)->version(), "; flags ", absl::StrJoin(kCommonFlags, " "), " ", kExactFlag, " | ", kFastFlag);
  }

 private:
  absl::StatusOr<const NvrtcLibrary*> Library() const {
    absl::call_once(once_, [this] { library_ = LoadNvrtcLibrary(search_paths_); });
    if (!library_.ok()) return library_.status();
    return library_->get();
  }

  static absl::Status CheckTarget(const NvrtcLibrary& nvrtc, const KernelSource& source) {
    const std::string target = source.target.ToString();
    if (!source.target.is_cuda())
      return Internal(StrCat("kernel '", source.entry, "': nvrtc can't compile for ", target));
    if (std::binary_search(nvrtc.archs.begin(), nvrtc.archs.end(), source.target.sm)) return absl::OkStatus();
    const std::string known =
        absl::StrJoin(nvrtc.archs, ", ", [](std::string* out, int sm) { StrAppend(out, "sm_", sm); });
    return MakeError(absl::StatusCode::kFailedPrecondition, ErrorReason::kTargetNotAvailable, target,
                     StrCat("target '", target, "' is not among those of ", nvrtc.version(), ": ", known));
  }

  static std::vector<std::string> Options(const NvrtcLibrary& nvrtc, const KernelSource& source,
                                          const char* arch_prefix) {
    std::vector<std::string> options(std::begin(kCommonFlags), std::end(kCommonFlags));
    options.push_back(
        StrCat("--gpu-architecture=", arch_prefix, source.target.sm, source.target.arch_specific ? "a" : ""));
    if (std::make_pair(nvrtc.major, nvrtc.minor) >= std::make_pair(12, 9)) options.push_back(kNoCacheFlag);
    options.push_back(source.fast_math ? kFastFlag : kExactFlag);
    return options;
  }

  const std::vector<std::string> search_paths_;
  const CompilerLimits limits_;
  mutable absl::once_flag once_;
  mutable absl::StatusOr<std::unique_ptr<const NvrtcLibrary>> library_ =
      absl::UnknownError("");  // written once, by once_
};

}  // namespace

std::unique_ptr<KernelCompiler> MakeNvrtcCompiler(std::vector<std::string> search_paths, const CompilerLimits& limits) {
  return std::make_unique<NvrtcCompiler>(std::move(search_paths), limits);
}

}  // namespace fuseline::compiler
