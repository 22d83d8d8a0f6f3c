#include "tests/unit/client/launch/launch_from_c.h"

#include "client/launch/fuseline_launch.h"

static const char* Run(fuseline_callable* callable, const float* x, float* y, int count) {
  fuseline_tensor_info info = {.struct_size = sizeof(info)};
  if (fuseline_callable_input_count(callable) != 1 || fuseline_callable_output_count(callable) != 1) return "counts";
  if (fuseline_callable_input(callable, 0, &info) != FUSELINE_OK) return "input";
  if (info.dtype != FUSELINE_F32 || info.rank != 1 || info.shape[0] != count) return "signature";
  void* inputs[] = {(void*)(uintptr_t)x};
  void* outputs[] = {y};
  return fuseline_launch(callable, inputs, outputs, NULL, NULL) == FUSELINE_OK ? NULL : "launch";
}

const char* LaunchFromC(const void* artifact, size_t artifact_bytes, const float* x, float* y, int count) {
  fuseline_device* device = NULL;
  fuseline_callable* callable = NULL;
  if (fuseline_abi_version() < FUSELINE_LAUNCH_ABI_VERSION) return "version";
  if (fuseline_open_cpu(2, &device) != FUSELINE_OK) return "open";
  const char* failed = NULL;
  if (fuseline_load(device, artifact, artifact_bytes, NULL, &callable) != FUSELINE_OK) failed = "load";
  if (failed == NULL) failed = Run(callable, x, y, count);
  fuseline_device_close(device);
  fuseline_callable_release(callable);
  return failed;
}
