#include <dlfcn.h>
#include <stdlib.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "server/codegen/cpu/cpu_prelude_tables.h"
#include "tests/unit/prelude/prelude_runner.h"

namespace fuseline::codegen {
namespace {

class CpuPreludeRunner : public PreludeRunner {
 public:
  explicit CpuPreludeRunner(void* library) : library_(library) {}
  ~CpuPreludeRunner() override { dlclose(library_); }

  bool Has(const std::string& name) const override { return Find(name) != nullptr; }
  void Call(const std::string& name, const std::vector<const void*>& operands, const std::vector<size_t>&, void* result,
            size_t, int64_t n) override {
    void* loop = Find(name);
    switch (operands.size()) {
      case 1:
        reinterpret_cast<void (*)(const void*, void*, long long)>(loop)(operands[0], result, n);
        break;
      case 2:
        reinterpret_cast<void (*)(const void*, const void*, void*, long long)>(loop)(operands[0], operands[1], result,
                                                                                     n);
        break;
      case 3:
        reinterpret_cast<void (*)(const void*, const void*, const void*, void*, long long)>(loop)(
            operands[0], operands[1], operands[2], result, n);
        break;
      default:
        reinterpret_cast<void (*)(const void*, const void*, const void*, const void*, void*, long long)>(loop)(
            operands[0], operands[1], operands[2], operands[3], result, n);
    }
  }

 private:
  void* Find(const std::string& name) const { return dlsym(library_, absl::StrCat("fl_loop_", name).c_str()); }

  void* library_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<PreludeRunner>> MakePreludeRunner() {
  if (system("g++ --version >/dev/null 2>&1") != 0) return absl::UnavailableError("no g++ on this machine");
  char folder[] = "/tmp/fuseline_prelude_XXXXXX";
  if (mkdtemp(folder) == nullptr) return absl::InternalError("mkdtemp failed");
  const std::string source_path = absl::StrCat(folder, "/loops.cc");
  const std::string object_path = absl::StrCat(folder, "/loops.so");
  {
    std::ofstream source(source_path);
    source << RenderLoops(CpuPrelude(), ScalarSignatures(CpuScalarPrelude()), "", "for (long long i = 0; i < n; ++i)");
  }
  // Another architecture than the machine's own may be asked for, to test what its instructions change.
  const char* architecture = getenv("FUSELINE_PRELUDE_MARCH");
  const std::string command =
      absl::StrCat("g++ -x c++ -std=c++17 -O3 -march=", architecture != nullptr ? architecture : "native",
                   " -fPIC -shared -ffp-contract=off -fno-math-errno -fno-trapping-math -fwrapv -fopenmp-simd -Wall "
                   "-Wno-unused-function "
                   "-Wno-tautological-compare -Werror -o ",
                   object_path, " ", source_path, " -lmvec -lm");
  const int result = system(command.c_str());
  void* library = result == 0 ? dlopen(object_path.c_str(), RTLD_NOW | RTLD_LOCAL) : nullptr;
  const std::string error = result != 0 ? "compilation failed" : library == nullptr ? dlerror() : "";
  if (getenv("FUSELINE_KEEP_PRELUDE") == nullptr) {
    unlink(source_path.c_str());
    unlink(object_path.c_str());
    rmdir(folder);
  }
  if (library == nullptr) return absl::InternalError(error);
  return std::make_unique<CpuPreludeRunner>(library);
}

}  // namespace fuseline::codegen
