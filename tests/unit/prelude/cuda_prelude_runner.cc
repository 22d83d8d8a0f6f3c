#include <dlfcn.h>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "tests/unit/prelude/cuda_prelude_compiler.h"
#include "tests/unit/prelude/prelude_runner.h"

namespace fuseline::codegen {
namespace {

// The few entry points of the driver that are needed, by their exported names.
struct Driver {
  using Pointer = unsigned long long;
  void* library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  template <class F>
  F Get(const char* name) const {
    return reinterpret_cast<F>(dlsym(library, name));
  }
};

class CudaPreludeRunner : public PreludeRunner {
 public:
  CudaPreludeRunner(const Driver& driver, void* module) : driver_(driver), module_(module) {}

  bool Has(const std::string& name) const override { return Find(name) != nullptr; }
  void Call(const std::string& name, const std::vector<const void*>& operands, const std::vector<size_t>& operand_bytes,
            void* result, size_t result_bytes, int64_t n) override {
    const auto allocate = driver_.Get<int (*)(Driver::Pointer*, size_t)>("cuMemAlloc_v2");
    const auto release = driver_.Get<int (*)(Driver::Pointer)>("cuMemFree_v2");
    const auto to_device = driver_.Get<int (*)(Driver::Pointer, const void*, size_t)>("cuMemcpyHtoD_v2");
    const auto to_host = driver_.Get<int (*)(void*, Driver::Pointer, size_t)>("cuMemcpyDtoH_v2");
    const auto launch = driver_.Get<int (*)(void*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                                            void*, void**, void**)>("cuLaunchKernel");
    std::vector<Driver::Pointer> buffers(operands.size() + 1);
    std::vector<void*> arguments;
    for (size_t i = 0; i < operands.size(); ++i) {
      allocate(&buffers[i], operand_bytes[i]);
      to_device(buffers[i], operands[i], operand_bytes[i]);
      arguments.push_back(&buffers[i]);
    }
    allocate(&buffers.back(), result_bytes);
    arguments.push_back(&buffers.back());
    arguments.push_back(&n);
    const unsigned blocks = static_cast<unsigned>(n < 256 * 1024 ? (n + 255) / 256 : 1024);
    const int launched = launch(Find(name), blocks, 1, 1, 256, 1, 1, 0, nullptr, arguments.data(), nullptr);
    // A failed copy leaves the zeros of `result`, which no case takes for right.
    if (launched == 0) to_host(result, buffers.back(), result_bytes);
    for (Driver::Pointer buffer : buffers) release(buffer);
  }

 private:
  void* Find(const std::string& name) const {
    void* function = nullptr;
    driver_.Get<int (*)(void**, void*, const char*)>("cuModuleGetFunction")(&function, module_,
                                                                            absl::StrCat("fl_loop_", name).c_str());
    return function;
  }

  Driver driver_;
  void* module_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<PreludeRunner>> MakePreludeRunner() {
  Driver driver;
  if (driver.library == nullptr) return absl::UnavailableError("no CUDA driver on this machine");
  int device = 0, count = 0, major = 0, minor = 0;
  void* context = nullptr;
  void* module = nullptr;
  if (driver.Get<int (*)(unsigned)>("cuInit")(0) != 0 || driver.Get<int (*)(int*)>("cuDeviceGetCount")(&count) != 0 ||
      count == 0 || driver.Get<int (*)(int*, int)>("cuDeviceGet")(&device, 0) != 0) {
    return absl::UnavailableError("no CUDA device on this machine");
  }
  constexpr int kMajor = 75, kMinor = 76;  // CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_*
  const auto attribute = driver.Get<int (*)(int*, int, int)>("cuDeviceGetAttribute");
  attribute(&major, kMajor, device);
  attribute(&minor, kMinor, device);
  absl::StatusOr<std::string> cubin = CompileCudaPrelude(absl::StrCat("sm_", major, minor));
  if (!cubin.ok()) return cubin.status();
  if (driver.Get<int (*)(void**, int)>("cuDevicePrimaryCtxRetain")(&context, device) != 0 ||
      driver.Get<int (*)(void*)>("cuCtxSetCurrent")(context) != 0 ||
      driver.Get<int (*)(void**, const void*)>("cuModuleLoadData")(&module, cubin->data()) != 0) {
    return absl::InternalError("the module cannot be loaded");
  }
  return std::make_unique<CudaPreludeRunner>(driver, module);
}

}  // namespace fuseline::codegen
