// The tests of tests/unit/prelude on the CUDA prelude, built for the host.
#include <dlfcn.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status/status_macros.h"
#include "common/target/target.h"
#include "server/codegen/cuda/cuda_prelude_tables.h"
#include "server/compiler/child_process.h"
#include "server/compiler/scratch_folder.h"
#include "tests/cuda_host/host_cuda_prelude.h"
#include "tests/cuda_host/translate_kernel.h"
#include "tests/unit/prelude/prelude_runner.h"

namespace fuseline::codegen {
namespace {

constexpr int kSm = 90;

class HostPreludeRunner : public PreludeRunner {
 public:
  explicit HostPreludeRunner(void* library) : library_(library) {}
  ~HostPreludeRunner() override { dlclose(library_); }

  bool Has(const std::string& name) const override { return Find(name) != nullptr; }
  void Call(const std::string& name, const std::vector<const void*>& operands, const std::vector<size_t>&, void* result,
            size_t, int64_t n) override {
    using Pointer = const void*;
    void* loop = Find(name);
    switch (operands.size()) {
      case 1:
        return reinterpret_cast<void (*)(Pointer, void*, int64_t)>(loop)(operands[0], result, n);
      case 2:
        return reinterpret_cast<void (*)(Pointer, Pointer, void*, int64_t)>(loop)(operands[0], operands[1], result, n);
      case 3:
        return reinterpret_cast<void (*)(Pointer, Pointer, Pointer, void*, int64_t)>(loop)(operands[0], operands[1],
                                                                                           operands[2], result, n);
      default:
        return reinterpret_cast<void (*)(Pointer, Pointer, Pointer, Pointer, void*, int64_t)>(loop)(
            operands[0], operands[1], operands[2], operands[3], result, n);
    }
  }

 private:
  void* Find(const std::string& name) const { return dlsym(library_, absl::StrCat("fl_loop_", name).c_str()); }

  void* library_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<PreludeRunner>> MakePreludeRunner() {
  const std::string program = compiler::FindProgram("g++");
  if (program.empty()) return absl::UnavailableError("no g++ on this machine");
  KernelSource loops;
  loops.entry = "prelude";
  loops.target = Target::Cuda(kSm);
  loops.text = RenderLoops(CudaPrelude(), ScalarSignatures(CudaScalarPrelude()), "FL_HOST_LOOP",
                           "for (long long i = 0; i < n; ++i)");
  FUSELINE_ASSIGN_OR_RETURN(const std::string text, cuda_host::TranslateKernel(loops));
  FUSELINE_ASSIGN_OR_RETURN(const compiler::ScratchFolder folder, compiler::ScratchFolder::Create(""));
  const std::string source = folder.path() + "/loops.cc", object = folder.path() + "/loops.so";
  FUSELINE_RETURN_IF_ERROR(compiler::WriteFile(
      source, absl::StrCat(cuda_host::HostCudaPrelude(kSm), "#define FL_HOST_LOOP extern \"C\"\n", text)));
  FUSELINE_ASSIGN_OR_RETURN(const compiler::ChildProcessResult result,
                            compiler::RunChildProcess({program, "-x", "c++", "-std=c++17", "-O1", "-fPIC", "-shared",
                                                       "-w", "-ffp-contract=off", "-fno-math-errno", "-fwrapv",
                                                       "-fno-strict-aliasing", "-o", object, source, "-lm"},
                                                      {}));
  if (result.exit_code != 0) return absl::InternalError(result.output);
  void* library = dlopen(object.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return absl::InternalError(dlerror());
  return std::make_unique<HostPreludeRunner>(library);
}

}  // namespace fuseline::codegen
