#include "server/compiler/nvrtc_library.h"

#include <dlfcn.h>
#include <glob.h>
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>

#include "common/status/error.h"
#include "common/status/status_macros.h"
#include "common/status/str_cat.h"

namespace fuseline::compiler {
namespace {

constexpr const char* kNames[] = {"libnvrtc.so.13", "libnvrtc.so.12"};

// Folders of the PyPI wheels nvidia-cuda-nvrtc (13: nvidia/cu13, 12: nvidia/cuda_nvrtc) under the usual Python
// installations.
std::vector<std::string> WheelFolders() {
  std::vector<std::string> roots = {"/usr/local/lib/python3*/site-packages", "/usr/local/lib/python3*/dist-packages",
                                    "/usr/lib/python3/dist-packages", "/opt/conda/lib/python3*/site-packages",
                                    "/opt/venv/lib/python3*/site-packages"};
  for (const char* variable : {"VIRTUAL_ENV", "CONDA_PREFIX"}) {
    if (const char* root = getenv(variable); root != nullptr)
      roots.push_back(StrCat(root, "/lib/python3*/site-packages"));
  }
  if (const char* home = getenv("HOME"); home != nullptr) {
    roots.push_back(StrCat(home, "/.local/lib/python3*/site-packages"));
    roots.push_back(StrCat(home, "/.pyenv/versions/3*/lib/python3*/site-packages"));
  }
  std::vector<std::string> folders;
  for (const std::string& root : roots) {
    for (const char* wheel : {"/nvidia/cu13/lib", "/nvidia/cuda_nvrtc/lib"}) {
      glob_t matches;
      if (glob((root + wheel).c_str(), GLOB_NOSORT, nullptr, &matches) == 0) {
        for (size_t i = 0; i < matches.gl_pathc; ++i) folders.emplace_back(matches.gl_pathv[i]);
      }
      globfree(&matches);
    }
  }
  return folders;
}

// Opens libnvrtc in `folder`, or wherever the loader looks where that is empty.
void* OpenIn(const std::string& folder, std::string& path, std::string& last_error) {
  for (const char* name : kNames) {
    path = folder.empty() ? name : StrCat(folder, "/", name);
    if (!folder.empty() && access(path.c_str(), R_OK) != 0) continue;
    if (void* handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL); handle != nullptr) return handle;
    if (const char* error = dlerror(); error != nullptr && (!folder.empty() || last_error.empty())) last_error = error;
  }
  return nullptr;
}

template <typename F>
bool Find(void* handle, const char* name, F*& function) {
  function = reinterpret_cast<F*>(dlsym(handle, name));
  return function != nullptr;
}

absl::Status Missing(const std::string& what) {
  return MakeError(
      absl::StatusCode::kFailedPrecondition, ErrorReason::kTargetNotAvailable, "nvrtc",
      StrCat("nvrtc is not available: ", what,
             "; install the CUDA toolkit's nvrtc 12 or 13 (or the PyPI package nvidia-cuda-nvrtc), or name its folder "
             "in the nvrtc search paths"));
}

}  // namespace

std::string NvrtcLibrary::version() const { return StrCat("nvrtc ", major, ".", minor); }

absl::StatusOr<std::unique_ptr<const NvrtcLibrary>> LoadNvrtcLibrary(const std::vector<std::string>& search_paths) {
  std::vector<std::string> folders = search_paths;
  if (const char* home = getenv("CUDA_HOME"); home != nullptr && *home != '\0')
    folders.push_back(StrCat(home, "/lib64"));
  folders.push_back("/usr/local/cuda/lib64");
  folders.push_back("");  // the loader's own places
  auto library = std::make_unique<NvrtcLibrary>();
  std::string last_error;
  void* handle = nullptr;
  for (size_t i = 0; i < folders.size() && handle == nullptr; ++i)
    handle = OpenIn(folders[i], library->path, last_error);
  if (handle == nullptr) {
    // Last, since it walks folders.
    folders = WheelFolders();
    for (size_t i = 0; i < folders.size() && handle == nullptr; ++i)
      handle = OpenIn(folders[i], library->path, last_error);
  }
  if (handle == nullptr) return Missing(last_error);

  NvrtcLibrary& l = *library;
  const bool complete =
      Find(handle, "nvrtcGetErrorString", l.GetErrorString) && Find(handle, "nvrtcVersion", l.Version) &&
      Find(handle, "nvrtcGetNumSupportedArchs", l.GetNumSupportedArchs) &&
      Find(handle, "nvrtcGetSupportedArchs", l.GetSupportedArchs) &&
      Find(handle, "nvrtcCreateProgram", l.CreateProgram) && Find(handle, "nvrtcDestroyProgram", l.DestroyProgram) &&
      Find(handle, "nvrtcCompileProgram", l.CompileProgram) && Find(handle, "nvrtcGetCUBINSize", l.GetCUBINSize) &&
      Find(handle, "nvrtcGetCUBIN", l.GetCUBIN) && Find(handle, "nvrtcGetPTXSize", l.GetPTXSize) &&
      Find(handle, "nvrtcGetPTX", l.GetPTX) && Find(handle, "nvrtcGetProgramLogSize", l.GetProgramLogSize) &&
      Find(handle, "nvrtcGetProgramLog", l.GetProgramLog);
  if (!complete) return Missing(StrCat("'", l.path, "' lacks functions that are needed"));
  Find(handle, "nvrtcSetFlowCallback", l.SetFlowCallback);
  int count = 0;
  if (l.Version(&l.major, &l.minor) != NvrtcLibrary::kSuccess ||
      l.GetNumSupportedArchs(&count) != NvrtcLibrary::kSuccess || count < 1 || count > 1000) {
    return Missing(StrCat("'", l.path, "' does not say what it supports"));
  }
  l.archs.resize(static_cast<size_t>(count));
  if (l.GetSupportedArchs(l.archs.data()) != NvrtcLibrary::kSuccess)
    return Missing(StrCat("'", l.path, "' does not say what it supports"));
  std::sort(l.archs.begin(), l.archs.end());
  return std::unique_ptr<const NvrtcLibrary>(std::move(library));
}

}  // namespace fuseline::compiler
