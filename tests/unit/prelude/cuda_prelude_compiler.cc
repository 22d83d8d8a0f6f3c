#include "tests/unit/prelude/cuda_prelude_compiler.h"

#include <dlfcn.h>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "server/codegen/cuda/cuda_prelude_tables.h"
#include "tests/unit/prelude/prelude_runner.h"

namespace fuseline::codegen {
namespace {

void* OpenNvrtc() {
  for (const char* name : {"libnvrtc.so", "libnvrtc.so.13", "libnvrtc.so.12", "/usr/local/cuda/lib64/libnvrtc.so"}) {
    if (void* library = dlopen(name, RTLD_NOW | RTLD_LOCAL)) return library;
  }
  return nullptr;
}

}  // namespace

absl::StatusOr<std::string> CompileCudaPrelude(const std::string& architecture) {
  void* nvrtc = OpenNvrtc();
  if (nvrtc == nullptr) return absl::UnavailableError("no NVRTC on this machine");
  using Program = void*;
  const auto create =
      reinterpret_cast<int (*)(Program*, const char*, const char*, int, const char* const*, const char* const*)>(
          dlsym(nvrtc, "nvrtcCreateProgram"));
  const auto compile = reinterpret_cast<int (*)(Program, int, const char* const*)>(dlsym(nvrtc, "nvrtcCompileProgram"));
  const auto destroy = reinterpret_cast<int (*)(Program*)>(dlsym(nvrtc, "nvrtcDestroyProgram"));
  const auto log_size = reinterpret_cast<int (*)(Program, size_t*)>(dlsym(nvrtc, "nvrtcGetProgramLogSize"));
  const auto get_log = reinterpret_cast<int (*)(Program, char*)>(dlsym(nvrtc, "nvrtcGetProgramLog"));
  const auto cubin_size = reinterpret_cast<int (*)(Program, size_t*)>(dlsym(nvrtc, "nvrtcGetCUBINSize"));
  const auto get_cubin = reinterpret_cast<int (*)(Program, char*)>(dlsym(nvrtc, "nvrtcGetCUBIN"));

  const std::string source = RenderLoops(CudaPrelude(), ScalarSignatures(CudaScalarPrelude()), "__global__",
                                         "const long long first = blockIdx.x * (long long)blockDim.x + threadIdx.x;\n"
                                         "  for (long long i = first; i < n; i += (long long)gridDim.x * blockDim.x)");
  const std::string architecture_flag = absl::StrCat("--gpu-architecture=", architecture);
  const char* const flags[] = {architecture_flag.c_str(), "--std=c++17", "--fmad=false"};
  Program program = nullptr;
  if (create(&program, source.c_str(), "prelude.cu", 0, nullptr, nullptr) != 0)
    return absl::InternalError("nvrtcCreateProgram");
  const int result = compile(program, 3, flags);
  size_t size = 0;
  std::string text;
  if (result != 0) {
    log_size(program, &size);
    text.resize(size);
    get_log(program, text.data());
  } else {
    cubin_size(program, &size);
    text.resize(size);
    get_cubin(program, text.data());
  }
  destroy(&program);
  if (result != 0) return absl::InternalError(text);
  return text;
}

}  // namespace fuseline::codegen
